"""Spellings of fused operators as exporters write them, and near misses that only look like them.

Every spelling is a small model of plain ONNX operators (opset 17) whose output equals the fused
operator; every near miss differs from it by one constant, axis, factor or operand.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["FAMILIES", "Spelling", "near_misses", "spellings"]

SHAPE = (2, 6, 24)
HEADS, HEAD_SIZE, WIDTH = 4, 6, 24
GATE, CUBIC = math.sqrt(2.0 / math.pi), 0.044715
LAYER_EPSILON, RMS_EPSILON = 1e-5, 1e-6


@dataclass(frozen=True)
class Spelling:
    """One model and the operator that it does, or does not, spell.

    Attributes:
        family: as the table calls it.
        name: what was varied.
        model: with input ``x`` and output ``y``.
        op: registry operator.
        attrs: attributes that it has.
        anywhere: whether the operator may equal any value and not only the output.
    """

    family: str
    name: str
    model: onnx.ModelProto
    op: str
    attrs: dict[str, float | str] = field(default_factory=dict)
    anywhere: bool = False


class Writer:
    """Writes a model node by node; values are names."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)]
        self.rng = np.random.default_rng(0)

    def __call__(self, op: str, *operands: str | float, **attrs: object) -> str:
        """A node; numbers become constants."""
        names = [o if isinstance(o, str) else self.constant(np.float32(o)) for o in operands]
        output = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, names, [output], **attrs))
        return output

    def constant(self, value: npt.ArrayLike) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def vector(self, *shape: int) -> str:
        """A weight of single precision."""
        drawn = self.rng.standard_normal(shape or (WIDTH,))
        return self.constant((0.5 * drawn).astype(np.float32))

    def ints(self, *values: int) -> str:
        return self.constant(np.asarray(values, np.int64))

    def input(self, name: str, *shape: int) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def model(self, output: str) -> onnx.ModelProto:
        node = helper.make_node("Identity", [output], ["y"])
        result = helper.make_empty_tensor_value_info("y")
        graph = helper.make_graph(
            [*self.nodes, node], "spelling", self.inputs, [result], self.constants
        )
        opsets = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def _case(
    family: str, name: str, write: Callable[[Writer], str], op: str, **attrs: float | str
) -> Spelling:
    writer = Writer()
    return Spelling(family, name, writer.model(write(writer)), op, attrs, family == "attention")


# Gates --------------------------------------------------------------------------------------------

_ERF_ARGUMENTS: dict[str, Callable[[Writer], str]] = {
    "times-root-half": lambda w: w("Mul", "x", math.sqrt(0.5)),
    "root-half-times": lambda w: w("Mul", math.sqrt(0.5), "x"),
    "over-root-two": lambda w: w("Div", "x", math.sqrt(2.0)),
    "over-computed-root": lambda w: w("Div", "x", w("Sqrt", 2.0)),
    "decimal": lambda w: w("Mul", "x", 0.70710678),
    "two-steps": lambda w: w("Mul", w("Div", "x", 2.0), math.sqrt(2.0)),
    "times-power": lambda w: w("Mul", "x", w("Pow", 2.0, -0.5)),
}


def _outer(w: Writer, form: int, gate: str, half: float = 0.5, one: float = 1.0) -> str:
    """half * x * (one + gate), in ten arrangements."""
    match form:
        case 0:
            return w("Mul", w("Mul", "x", w("Add", gate, one)), half)
        case 1:
            return w("Div", w("Mul", w("Add", one, gate), "x"), 1.0 / half)
        case 2:
            return w("Mul", w("Mul", half, "x"), w("Add", gate, one))
        case 3:
            return w("Mul", "x", w("Add", half * one, w("Mul", half, gate)))
        case 4:
            part = w("Mul", "x", half)
            return w("Add", part if one == 1.0 else w("Mul", part, one), w("Mul", part, gate))
        case 5:
            whole = "x" if one == 1.0 else w("Mul", "x", one)
            return w("Mul", half, w("Add", whole, w("Mul", "x", gate)))
        case 6:
            return w("Add", w("Mul", "x", half * one), w("Mul", "x", w("Mul", gate, half)))
        case 7:
            return w("Mul", w("Add", gate, one), w("Div", "x", 1.0 / half))
        case 8:
            return w("Mul", "x", w("Mul", w("Add", gate, one), half))
        case _:
            return w("Mul", w("Neg", "x"), w("Sub", -half * one, w("Mul", half, gate)))


_OUTER_FORMS = range(10)


def _gelu() -> Iterator[Spelling]:
    for (name, argument), form in itertools.product(_ERF_ARGUMENTS.items(), _OUTER_FORMS):

        def write(w: Writer, argument: Callable[[Writer], str] = argument, form: int = form) -> str:
            return _outer(w, form, w("Erf", argument(w)))

        yield _case("gelu", f"{name}, form {form}", write, "Gelu", approximate="none")

    def odd(w: Writer) -> str:
        gate = w("Neg", w("Erf", w("Mul", "x", -math.sqrt(0.5))))
        return w("Mul", w("Mul", "x", 0.5), w("Add", gate, 1.0))

    yield _case("gelu", "odd", odd, "Gelu", approximate="none")


def _cube(w: Writer, how: str) -> str:
    if how == "pow":
        return w("Pow", "x", 3.0)
    square = w("Pow", "x", 2.0) if how == "pow-two" else w("Mul", "x", "x")
    return w("Mul", square, "x") if how == "left" else w("Mul", "x", square)


def _cubic(w: Writer, form: int, cube: str, gate: float = GATE, cubic: float = CUBIC) -> str:
    """gate * (x + cubic * x³), in seven arrangements."""
    match form:
        case 0:
            return w("Mul", gate, w("Add", "x", w("Mul", cubic, _cube(w, cube))))
        case 1:
            scaled = w("Mul", _cube(w, cube), gate * cubic)
            return w("Add", w("Mul", "x", gate), scaled)
        case 2:
            inner = w("Add", 1.0, w("Mul", w("Mul", "x", "x"), cubic))
            return w("Mul", w("Mul", "x", gate), inner)
        case 3:
            square = w("Pow", "x", 2.0)
            return w("Mul", "x", w("Add", w("Mul", gate * cubic, square), gate))
        case 4:
            return w("Div", w("Add", "x", w("Mul", cubic, _cube(w, cube))), 1.0 / gate)
        case 5:
            powers = w("Mul", w("Mul", w("Mul", cubic, "x"), "x"), "x")
            return w("Mul", gate, w("Add", powers, "x"))
        case _:
            total = w("Add", w("Mul", _cube(w, cube), cubic), "x")
            return w("Mul", total, w("Sqrt", w("Div", 2.0, math.pi)) if gate == GATE else gate)


def _gelu_tanh() -> Iterator[Spelling]:
    for form, cube, outer in itertools.product(range(7), ("left", "right", "pow"), _OUTER_FORMS):
        if (form + outer) % 2:
            continue

        def write(w: Writer, form: int = form, cube: str = cube, outer: int = outer) -> str:
            return _outer(w, outer, w("Tanh", _cubic(w, form, cube)))

        name = f"argument {form}, cube {cube}, form {outer}"
        yield _case("gelu-tanh", name, write, "Gelu", approximate="tanh")


def _logistic(w: Writer, u: str, how: int) -> str:
    """sigmoid(u), in six spellings."""
    match how:
        case 0:
            return w("Sigmoid", u)
        case 1:
            return w("Reciprocal", w("Add", 1.0, w("Exp", w("Neg", u))))
        case 2:
            return w("Div", 1.0, w("Add", w("Exp", w("Mul", u, -1.0)), 1.0))
        case 3:
            return w("Sub", 1.0, w("Sigmoid", w("Neg", u)))
        case 4:
            return w("Mul", w("Add", w("Tanh", w("Mul", u, 0.5)), 1.0), 0.5)
        case _:
            e = w("Exp", u)
            return w("Div", e, w("Add", 1.0, e))


def _gelu_sigmoid() -> Iterator[Spelling]:
    for form, how in itertools.product(range(7), range(6)):

        def write(w: Writer, form: int = form, how: int = how) -> str:
            return w("Mul", "x", _logistic(w, _cubic(w, form, "left", 2.0 * GATE), how))

        yield _case(
            "gelu-sigmoid", f"argument {form}, sigmoid {how}", write, "Gelu", approximate="tanh"
        )


def _swish() -> Iterator[Spelling]:
    for k, how, form in itertools.product((1.0, 1.702, 1.5), range(6), range(4)):

        def write(w: Writer, k: float = k, how: int = how, form: int = form) -> str:
            u = "x" if k == 1.0 else w("Mul", "x", k)
            gate = _logistic(w, u, how)
            if form == 0:
                return w("Mul", "x", gate)
            if form == 1:
                return w("Mul", gate, "x")
            if form == 2:
                return w("Neg", w("Mul", w("Neg", "x"), gate))
            return w("Mul", w("Mul", "x", 0.5), w("Mul", gate, 2.0))

        yield _case("swish", f"factor {k}, sigmoid {how}, form {form}", write, "Swish", alpha=k)
    for k in (1.0, 1.702):

        def quotient(w: Writer, k: float = k) -> str:
            return w("Div", "x", w("Add", 1.0, w("Exp", w("Mul", "x", -k))))

        def both(w: Writer, k: float = k) -> str:
            e = w("Exp", w("Mul", "x", k))
            return w("Div", w("Mul", "x", e), w("Add", e, 1.0))

        def rest(w: Writer, k: float = k) -> str:
            return w("Sub", "x", w("Mul", "x", w("Sigmoid", w("Mul", "x", -k))))

        for name, write in (("quotient", quotient), ("exponentials", both), ("rest", rest)):
            yield _case("swish", f"factor {k}, {name}", write, "Swish", alpha=k)


def _clip(w: Writer, x: str, low: float, high: float, how: int) -> str:
    match how:
        case 0:
            return w("Clip", x, low, high)
        case 1:
            return w("Max", w("Min", x, high), low)
        case 2:
            return w("Min", high, w("Max", low, x))
        case _:
            return w("Min", w("Relu", x), high)


def _hard(w: Writer, clip: int, form: int, offset: float, top: float, by: float) -> str:
    """x * clip(x + offset, 0, top) / by."""
    six = _clip(w, w("Add", "x", offset), 0.0, top, clip)
    match form:
        case 0:
            return w("Div", w("Mul", "x", six), by)
        case 1:
            return w("Mul", "x", w("Div", six, by))
        case 2:
            return w("Mul", w("Mul", "x", six), 1.0 / by)
        case 3:
            return w("Mul", w("Mul", "x", 1.0 / by), six)
        case _:
            line = w("Add", w("Div", "x", by), offset / by)
            return w("Mul", _clip(w, line, 0.0, top / by, clip), "x")


def _hard_swish() -> Iterator[Spelling]:
    for clip, form in itertools.product(range(4), range(5)):

        def write(w: Writer, clip: int = clip, form: int = form) -> str:
            return _hard(w, clip, form, 3.0, 6.0, 6.0)

        yield _case("hard-swish", f"clip {clip}, form {form}", write, "HardSwish")
    for order in range(4):

        def hard_sigmoid(w: Writer, order: int = order) -> str:
            gate = w("HardSigmoid", "x", alpha=1.0 / 6.0, beta=0.5)
            if order == 0:
                return w("Mul", "x", gate)
            if order == 1:
                return w("Mul", gate, "x")
            if order == 2:
                return w("Mul", w("Mul", "x", 2.0), w("Div", gate, 2.0))
            return w("Neg", w("Mul", gate, w("Neg", "x")))

        yield _case("hard-swish", f"hard sigmoid, form {order}", hard_sigmoid, "HardSwish")


# Normalisations -----------------------------------------------------------------------------------


def _mean(w: Writer, x: str, how: int, axis: int = -1) -> str:
    """The mean over an axis, kept."""
    count = float(SHAPE[axis])
    match how:
        case 0:
            return w("ReduceMean", x, axes=[axis], keepdims=1)
        case 1:
            return w("Div", w("ReduceSum", x, w.ints(axis), keepdims=1), count)
        case 2:
            return w("Mul", w("ReduceSum", x, w.ints(axis), keepdims=1), 1.0 / count)
        case _:
            return w("Unsqueeze", w("ReduceMean", x, axes=[axis], keepdims=0), w.ints(axis))


def _over_root(w: Writer, variance: str, how: int, x: str) -> str:
    """x / sqrt(variance), in eight spellings."""
    match how:
        case 0:
            return w("Div", x, w("Sqrt", variance))
        case 1:
            return w("Mul", x, w("Reciprocal", w("Sqrt", variance)))
        case 2:
            return w("Mul", w("Pow", variance, -0.5), x)
        case 3:
            return w("Div", x, w("Pow", variance, 0.5))
        case 4:
            return w("Mul", x, w("Sqrt", w("Reciprocal", variance)))
        case 5:
            return w("Mul", x, w("Div", 1.0, w("Sqrt", variance)))
        case 6:
            return w("Mul", w("Pow", w("Sqrt", variance), -1.0), x)
        case _:
            return w("Mul", w("Sqrt", w("Div", 1.0, variance)), x)


def _square(w: Writer, x: str, how: int) -> str:
    return w("Mul", x, x) if how == 0 else w("Pow", x, 2.0)


def _variance(w: Writer, mean: str, centred: str, how: int, means: int) -> str:
    match how:
        case 0:
            return _mean(w, _square(w, centred, 0), means)
        case 1:
            return _mean(w, _square(w, centred, 1), means)
        case 2:
            return w("Sub", _mean(w, _square(w, "x", 1), means), _square(w, mean, 0))
        case 3:
            return _mean(w, _square(w, w("Sub", mean, "x"), 1), means)
        case _:
            return w("Neg", w("Sub", w("Mul", mean, mean), _mean(w, w("Mul", "x", "x"), means)))


def _layer(w: Writer, means: int, root: int, variance: int, affine: int) -> str:
    mean = _mean(w, "x", means)
    centred = w("Sub", "x", mean)
    spread = w("Add", _variance(w, mean, centred, variance, means), LAYER_EPSILON)
    scale, shift = w.vector(), w.vector()
    match affine:
        case 0:
            return w("Add", w("Mul", _over_root(w, spread, root, centred), scale), shift)
        case 1:
            return w("Add", shift, _over_root(w, spread, root, w("Mul", scale, centred)))
        case 2:
            return w("Add", w("Mul", centred, _over_root(w, spread, root, scale)), shift)
        case 3:
            factor = _over_root(w, spread, root, scale)
            return w("Add", w("Mul", "x", factor), w("Sub", shift, w("Mul", mean, factor)))
        case 4:
            return w("Mul", scale, _over_root(w, spread, root, centred))
        case 5:
            return _over_root(w, spread, root, centred)
        case _:
            ones = w.constant(np.ones(WIDTH, np.float32))
            zeros = w.constant(np.zeros(WIDTH, np.float32))
            return w("Add", w("Mul", _over_root(w, spread, root, centred), ones), zeros)


def _layer_norm() -> Iterator[Spelling]:
    for means, root, variance, affine in itertools.product(
        range(4), range(8), range(5), range(7)
    ):
        if (means + root + 2 * variance + 3 * affine) % 5:
            continue

        def write(w: Writer, form: Sequence[int] = (means, root, variance, affine)) -> str:
            return _layer(w, *form)

        name = f"mean {means}, root {root}, variance {variance}, affine {affine}"
        yield _case("layer-norm", name, write, "LayerNormalization", epsilon=LAYER_EPSILON, axis=2)


def _rms_norm() -> Iterator[Spelling]:
    for means, root, square, affine in itertools.product(range(4), range(8), range(2), range(4)):

        def write(w: Writer, form: Sequence[int] = (means, root, square, affine)) -> str:
            means, root, square, affine = form
            spread = w("Add", RMS_EPSILON, _mean(w, _square(w, "x", square), means))
            if affine == 3:
                return _over_root(w, spread, root, "x")
            scale = w.vector()
            if affine == 0:
                return w("Mul", scale, _over_root(w, spread, root, "x"))
            if affine == 1:
                return _over_root(w, spread, root, w("Mul", "x", scale))
            return w("Mul", "x", _over_root(w, spread, root, scale))

        name = f"mean {means}, root {root}, square {square}, affine {affine}"
        yield _case("rms-norm", name, write, "RMSNormalization", epsilon=RMS_EPSILON, axis=2)


# Softmax and attention ----------------------------------------------------------------------------


def _weights(w: Writer, z: str, how: int, axis: int = -1) -> str:
    """softmax(z), in eight spellings."""

    def total(value: str) -> str:
        return w("ReduceSum", value, w.ints(axis), keepdims=1)

    def less_top(value: str) -> str:
        return w("Sub", value, w("ReduceMax", value, axes=[axis], keepdims=1))

    match how:
        case 0:
            return w("Softmax", z, axis=axis)
        case 1:
            e = w("Exp", less_top(z))
            return w("Div", e, total(e))
        case 2:
            e = w("Exp", z)
            return w("Div", e, total(e))
        case 3:
            e = w("Exp", less_top(z))
            return w("Mul", w("Reciprocal", total(e)), e)
        case 4:
            return w("Exp", w("Sub", z, w("Log", total(w("Exp", z)))))
        case 5:
            d = less_top(z)
            return w("Exp", w("Sub", d, w("Log", total(w("Exp", d)))))
        case 6:
            return w("Exp", w("LogSoftmax", z, axis=axis))
        case _:
            e = w("Exp", less_top(z))
            return w("Mul", e, w("Pow", total(e), -1.0))


def _softmax() -> Iterator[Spelling]:
    for how, axis, factor in itertools.product(range(1, 8), (-1, 1), (1.0, 0.3)):

        def write(w: Writer, how: int = how, axis: int = axis, factor: float = factor) -> str:
            return _weights(w, "x" if factor == 1.0 else w("Mul", "x", factor), how, axis)

        name = f"form {how}, axis {axis}, factor {factor}"
        yield _case("softmax", name, write, "Softmax", axis=axis % 3)


SCALES = (
    "logits", "logits-over", "q", "k", "both", "both-over", "q-before-split", "weights", "k-late",
)  # fmt: skip
MASKS = ("none", "input", "input-first", "causal", "two-masks")


@dataclass(frozen=True)
class _Attention:
    """How one attention is spelled."""

    scale: str = "logits"
    softmax: int = 0
    keys: int = 0
    mask: str = "none"
    packed: bool = False
    groups: int = 1
    rotary: bool = False


def _heads(w: Writer, x: str, perm: Sequence[int], heads: int = HEADS) -> str:
    split = w("Reshape", x, w.ints(SHAPE[0], SHAPE[1], heads, HEAD_SIZE))
    return w("Transpose", split, perm=list(perm))


def _projections(w: Writer, how: _Attention, factor: float) -> tuple[str, str, str]:
    """Queries, keys and values before they are split into heads."""
    shared = WIDTH // how.groups
    if how.packed:
        packed = w("MatMul", "x", w.vector(WIDTH, WIDTH + 2 * shared))
        names = [f"part{i}" for i in range(3)]
        sizes = w.ints(WIDTH, shared, shared)
        w.nodes.append(helper.make_node("Split", [packed, sizes], names, axis=2))
        return names[0], names[1], names[2]
    values = []
    for index, width in enumerate((WIDTH, shared, shared)):
        weight = w.rng.standard_normal((WIDTH, width)).astype(np.float32) * 0.2
        if how.scale == "weights" and index == 0:
            weight = (weight * factor).astype(np.float32)
        product = w("MatMul", "x", w.constant(weight))
        values.append(w("Add", product, w.vector(width)))
    return values[0], values[1], values[2]


def _turned(w: Writer, x: str) -> str:
    """Rotary embedding: x cos + (-x2, x1) sin (Su et al. 2021)."""
    half, angles = HEAD_SIZE // 2, w.rng.standard_normal((1, 1, SHAPE[1], HEAD_SIZE))
    first = w("Slice", x, w.ints(0), w.ints(half), w.ints(3))
    second = w("Slice", x, w.ints(half), w.ints(HEAD_SIZE), w.ints(3))
    swapped = w("Concat", w("Neg", second), first, axis=3)
    cosine = w("Mul", x, w.constant(np.cos(angles).astype(np.float32)))
    return w("Add", cosine, w("Mul", swapped, w.constant(np.sin(angles).astype(np.float32))))


def _repeated(w: Writer, x: str, groups: int) -> str:
    """Heads of keys or values, each as often as queries share it."""
    batch, tokens, shared = SHAPE[0], SHAPE[1], HEADS // groups
    wide = w("Unsqueeze", x, w.ints(2))
    wide = w("Expand", wide, w.ints(batch, shared, groups, tokens, HEAD_SIZE))
    return w("Reshape", wide, w.ints(batch, HEADS, tokens, HEAD_SIZE))


def _attend(w: Writer, how: _Attention, factor: float = HEAD_SIZE**-0.5) -> str:
    q, k, v = _projections(w, how, factor)
    if how.scale == "q-before-split":
        q = w("Mul", q, factor)
    shared = HEADS // how.groups
    q, v = _heads(w, q, (0, 2, 1, 3)), _heads(w, v, (0, 2, 1, 3), shared)
    direct = how.keys == 1 and how.groups == 1 and not how.rotary
    k = _heads(w, k, (0, 2, 3, 1) if direct else (0, 2, 1, 3), shared)
    if how.rotary:
        q, k = _turned(w, q), _turned(w, k)
    if how.groups > 1:
        k, v = _repeated(w, k, how.groups), _repeated(w, v, how.groups)
    if how.scale == "k":
        k = w("Mul", k, factor)
    if not direct:
        k = w("Transpose", k, perm=[0, 1, 3, 2])
    match how.scale:
        case "q":
            q = w("Div", q, 1.0 / factor)
        case "k-late":
            k = w("Mul", factor, k)
        case "both":
            q, k = w("Mul", q, math.sqrt(factor)), w("Mul", k, math.sqrt(factor))
        case "both-over":
            q = w("Div", q, w("Sqrt", w("Sqrt", float(HEAD_SIZE))))
            k = w("Div", k, HEAD_SIZE**0.25)
    z = w("MatMul", q, k)
    if how.scale in ("logits", "twice"):
        z = w("Mul", z, factor)
    if how.scale == "twice":
        z = w("Mul", z, factor)
    if how.scale == "logits-over":
        z = w("Div", z, w("Sqrt", float(HEAD_SIZE)))
    z = _masked(w, z, how.mask)
    joined = w("Transpose", w("MatMul", _weights(w, z, how.softmax), v), perm=[0, 2, 1, 3])
    joined = w("Reshape", joined, w.ints(*SHAPE))
    return w("Add", w("MatMul", joined, w.vector(WIDTH, WIDTH)), w.vector())


def _masked(w: Writer, z: str, mask: str) -> str:
    batch, tokens = SHAPE[:2]
    match mask:
        case "input":
            return w("Add", z, w.input("mask", batch, 1, 1, tokens))
        case "input-first":
            return w("Add", w.input("mask", batch, 1, tokens, tokens), z)
        case "causal":
            upper = np.triu(np.full((1, 1, tokens, tokens), -1e9, np.float32), 1)
            return w("Add", z, w.constant(upper))
        case "two-masks":
            upper = np.triu(np.full((tokens, tokens), -1e9, np.float32), 1)
            return w("Add", w("Add", z, w.constant(upper)), w.input("mask", batch, 1, 1, tokens))
    return z


def _attentions() -> Iterator[_Attention]:
    for scale, softmax, keys, mask in itertools.product(
        SCALES, (0, 1, 3, 4), (0, 1), ("none", "input", "causal")
    ):
        if (SCALES.index(scale) + softmax + keys) % 2 == 0 or mask == "none":
            yield _Attention(scale, softmax, keys, mask)
    for scale, mask in itertools.product(("logits", "q", "both"), ("input-first", "two-masks")):
        yield _Attention(scale, 0, 0, mask)
    plain = [s for s in SCALES if s != "weights"]
    for scale, mask in itertools.product(plain, ("none", "causal")):
        yield _Attention(scale, 0, 1, mask, packed=True)
        yield _Attention(scale, 0, 0, mask, groups=2)
        yield _Attention(scale, 0, 0, mask, rotary=True)
    for scale in plain:
        yield _Attention(scale, 1, 0, "input", packed=True, groups=4, rotary=True)


def _attention() -> Iterator[Spelling]:
    for how in _attentions():

        def write(w: Writer, how: _Attention = how) -> str:
            return _attend(w, how)

        kind = "grouped" if how.groups > 1 else "rotary" if how.rotary else ""
        kind = "packed" if how.packed and not kind else kind
        op = "Attention" if how.mask == "none" else "MaskedAttention"
        scale = 1.0 if how.scale == "weights" else HEAD_SIZE**-0.5
        attrs: dict[str, float | str] = {"scale": scale}
        if how.scale == "q-before-split" and (how.rotary or not how.packed):
            # Folded into weight and bias when loading, or left before the rotary embedding.
            attrs["scale"] = 1.0
        if how.groups > 1:
            attrs["heads"] = HEADS // how.groups
        name = f"{kind} scale {how.scale}, softmax {how.softmax}, keys {how.keys}, mask {how.mask}"
        yield _case("attention", name.strip(), write, op, **attrs)


FAMILIES: dict[str, Callable[[], Iterator[Spelling]]] = {
    "gelu": _gelu,
    "gelu-tanh": _gelu_tanh,
    "gelu-sigmoid": _gelu_sigmoid,
    "swish": _swish,
    "hard-swish": _hard_swish,
    "layer-norm": _layer_norm,
    "rms-norm": _rms_norm,
    "softmax": _softmax,
    "attention": _attention,
}


def spellings(family: str) -> list[Spelling]:
    """All spellings of one family."""
    return list(FAMILIES[family]())


# Near misses --------------------------------------------------------------------------------------


def _miss(
    family: str,
    name: str,
    write: Callable[[Writer], str],
    *found: str,
    anywhere: bool = True,
    **attrs: float | str,
) -> Spelling:
    writer = Writer()
    return Spelling(family, name, writer.model(write(writer)), " ".join(found), attrs, anywhere)


def _missed_gelus() -> Iterator[Spelling]:
    root = math.sqrt(0.5)
    for form in _OUTER_FORMS:

        def gelu(
            w: Writer, factor: float = root, half: float = 0.5, one: float = 1.0, form: int = form
        ) -> str:
            return _outer(w, form, w("Erf", w("Mul", "x", factor)), half, one)

        # A wrong factor outside leaves a Gelu with another factor; the output is none.
        yield _miss("gelu", f"half is 0.6, form {form}", lambda w, f=gelu: f(w, half=0.6),
                    "Gelu", anywhere=False)  # fmt: skip
        yield _miss("gelu", f"0.7 inside, form {form}", lambda w, f=gelu: f(w, 0.7), "Gelu")
        yield _miss("gelu", f"one is 1.1, form {form}", lambda w, f=gelu: f(w, one=1.1), "Gelu")
        yield _miss("gelu", f"minus, form {form}", lambda w, f=gelu: f(w, -root), "Gelu",
                    anywhere=False)  # fmt: skip
    for form in range(7):

        def tanh(
            w: Writer, gate: float = GATE, cubic: float = CUBIC, half: float = 0.5, form: int = form
        ) -> str:
            return _outer(w, 0, w("Tanh", _cubic(w, form, "left", gate, cubic)), half)

        yield _miss("gelu-tanh", f"cubic 0.0447, argument {form}",
                    lambda w, f=tanh: f(w, cubic=0.0447), "Gelu")  # fmt: skip
        yield _miss("gelu-tanh", f"gate 0.8, argument {form}", lambda w, f=tanh: f(w, 0.8), "Gelu")
        yield _miss("gelu-tanh", f"half 0.51, argument {form}", lambda w, f=tanh: f(w, half=0.51),
                    "Gelu", anywhere=False)  # fmt: skip

        def sigmoid(w: Writer, form: int = form) -> str:
            return w("Mul", "x", w("Sigmoid", _cubic(w, form, "left")))

        yield _miss("gelu-sigmoid", f"no factor 2, argument {form}", sigmoid, "Gelu", "Swish")


def _missed_gates() -> Iterator[Spelling]:
    def logistic(w: Writer, one: float, x: str = "x") -> str:
        return w("Reciprocal", w("Add", one, w("Exp", w("Neg", x))))

    gates: dict[str, Callable[[Writer], str]] = {
        "one is 1.1": lambda w: w("Mul", "x", logistic(w, 1.1)),
        "shifted": lambda w: w("Mul", "x", w("Sigmoid", w("Add", "x", 0.01))),
        "of another": lambda w: w("Mul", w("Abs", "x"), w("Sigmoid", "x")),
        "of the square": lambda w: w("Mul", "x", w("Sigmoid", w("Mul", "x", "x"))),
        "of the cube": lambda w: w("Mul", "x", w("Sigmoid", w("Pow", "x", 3.0))),
        "tanh": lambda w: w("Mul", "x", w("Tanh", "x")),
        "half shifted": lambda w: w("Mul", "x", w("Add", w("Tanh", "x"), 0.9)),
        "sum": lambda w: w("Add", "x", w("Sigmoid", "x")),
        "two exponentials": lambda w: w("Div", w("Mul", "x", w("Exp", "x")),
                                        w("Add", w("Exp", w("Mul", "x", 1.01)), 1.0)),
    }  # fmt: skip
    for name, write in gates.items():
        yield _miss("swish", name, write, "Swish", "Gelu")
    for clip, form in itertools.product(range(4), range(5)):
        wrong = {
            "offset 2.9": (2.9, 6.0, 6.0, True),
            "top 5": (3.0, 5.0, 6.0, True),
            "by 5": (3.0, 6.0, 5.0, False),
        }
        for name, (offset, top, by, anywhere) in wrong.items():
            if (clip + form) % 2:
                continue

            def hard(
                w: Writer, form: Sequence[int] = (clip, form),
                constants: Sequence[float] = (offset, top, by),
            ) -> str:  # fmt: skip
                return _hard(w, *form, *constants)

            yield _miss("hard-swish", f"{name}, clip {clip}, form {form}", hard, "HardSwish",
                        anywhere=anywhere)  # fmt: skip


def _missed_norms() -> Iterator[Spelling]:
    both = ("LayerNormalization", "RMSNormalization")
    for root in range(8):

        def layer(
            w: Writer, *, root: int = root, epsilon: float = LAYER_EPSILON, mean_axis: int = -1,
            axis: int = -1, part: float = 1.0, outside: bool = False, count: float = 0.0,
            centred: bool = True, twice: bool = False, other: bool = False,
        ) -> str:  # fmt: skip
            mean = _mean(w, "x", 0, mean_axis)
            mean = mean if part == 1.0 else w("Mul", mean, part)
            d = w("Sub", "x", mean) if centred else "x"
            square = _square(w, w("Abs", w("Add", d, 0.1)) if other else d, 1)
            variance = _mean(w, square, 0, axis)
            if count:
                variance = w("Div", w("ReduceSum", square, w.ints(axis), keepdims=1), count)
            if outside:
                y = w("Div", d, w("Add", w("Sqrt", variance), epsilon))
            else:
                spread = w("Add", variance, epsilon) if epsilon else variance
                y = _over_root(w, spread, root, d)
            scale = w.vector()
            y = w("Mul", y, scale)
            return w("Add", w("Mul", y, scale) if twice else y, w.vector())

        wrong: dict[str, tuple[Callable[[Writer], str], tuple[str, ...], bool]] = {
            "no epsilon": (lambda w, f=layer: f(w, epsilon=0.0), both, True),
            "epsilon outside": (lambda w, f=layer: f(w, outside=True), both, True),
            "another axis": (lambda w, f=layer: f(w, mean_axis=1, axis=1), both, True),
            "variance of another axis": (lambda w, f=layer: f(w, axis=1), both, True),
            "mean of another axis": (lambda w, f=layer: f(w, mean_axis=1), both[:1], True),
            "half the mean": (lambda w, f=layer: f(w, part=0.5), both[:1], True),
            "unbiased": (lambda w, f=layer: f(w, count=23.0), both[:1], False),
            "not centred": (lambda w, f=layer: f(w, centred=False), both[:1], True),
            "scale twice": (lambda w, f=layer: f(w, twice=True), both[:1], False),
            "variance of another": (lambda w, f=layer: f(w, other=True), both, True),
        }  # fmt: skip
        for name, (write, found, anywhere) in wrong.items():
            yield _miss("layer-norm", f"{name}, root {root}", write, *found, anywhere=anywhere)

        def rms(w: Writer, root: int = root, *, axis: int = -1, plain: bool = False) -> str:
            spread = _mean(w, w("Abs", "x") if plain else _square(w, "x", 0), 0, axis)
            return _over_root(w, w("Add", spread, RMS_EPSILON), root, "x")

        yield _miss("rms-norm", f"another axis, root {root}", lambda w, f=rms: f(w, axis=1), *both)
        yield _miss("rms-norm", f"no square, root {root}", lambda w, f=rms: f(w, plain=True), *both)


def _missed_softmax() -> Iterator[Spelling]:
    for how in range(3):

        def quotient(w: Writer, e: str, total: str, how: int = how) -> str:
            if how == 0:
                return w("Div", e, total)
            if how == 1:
                return w("Mul", e, w("Reciprocal", total))
            return w("Mul", w("Pow", total, -1.0), e)

        def total(w: Writer, e: str, axis: int = -1) -> str:
            return w("ReduceSum", e, w.ints(axis), keepdims=1)

        def other(w: Writer, f: Callable[..., str] = quotient) -> str:
            return f(w, w("Exp", "x"), total(w, w("Exp", w("Mul", "x", 1.01))))

        def mean(w: Writer, f: Callable[..., str] = quotient) -> str:
            e = w("Exp", "x")
            return f(w, e, _mean(w, e, 0))

        def epsilon(w: Writer, f: Callable[..., str] = quotient) -> str:
            e = w("Exp", "x")
            return f(w, e, w("Add", total(w, e), 1e-3))

        def axis(w: Writer, f: Callable[..., str] = quotient) -> str:
            e = w("Exp", w("Sub", "x", w("ReduceMax", "x", axes=[-1], keepdims=1)))
            return f(w, e, total(w, e, 1))

        yield _miss("softmax", f"another exponential, form {how}", other, "Softmax")
        yield _miss("softmax", f"mean, form {how}", mean, "Softmax", anywhere=False)
        yield _miss("softmax", f"epsilon below, form {how}", epsilon, "Softmax")
        yield _miss("softmax", f"axis of the sum, form {how}", axis, "Softmax", anywhere=False,
                    axis=2)  # fmt: skip


def _missed_attention() -> Iterator[Spelling]:
    named: dict[str, float | str] = {"scale": HEAD_SIZE**-0.5}
    both = ("Attention", "MaskedAttention")
    for softmax, keys, mask in itertools.product((0, 1, 4), (0, 1), ("none", "causal")):
        for scale in ("twice", "nowhere"):
            how = _Attention(scale, softmax, keys, mask)
            name = f"scale {scale}, softmax {softmax}, keys {keys}, mask {mask}"
            yield _miss("attention", name, lambda w, how=how: _attend(w, how), *both, **named)
    for keys in (0, 1):

        def wrong_axis(w: Writer, keys: int = keys) -> str:
            q, k, v = (_heads(w, w("MatMul", "x", w.vector(WIDTH, WIDTH)), (0, 2, 1, 3))
                       for _ in range(3))  # fmt: skip
            z = w("Mul", w("MatMul", q, w("Transpose", k, perm=[0, 1, 3, 2])), HEAD_SIZE**-0.5)
            weights = w("Softmax", z, axis=2)
            return w("MatMul", weights, v) if keys else w("Transpose", weights, perm=[0, 1, 3, 2])

        yield _miss("attention", f"axis of the softmax, {keys}", wrong_axis, *both)


def near_misses() -> list[Spelling]:
    """Models that must not be recognised; ``op`` lists what would be false, all attributes given."""
    return [
        *_missed_gelus(), *_missed_gates(), *_missed_norms(), *_missed_softmax(),
        *_missed_attention(),
    ]  # fmt: skip
