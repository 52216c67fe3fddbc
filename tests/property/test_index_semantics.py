"""``index_fn`` says the same as ``eval_fn``: random typed terms, evaluated in a prime field."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from eqsat_opt.ir.ops import OPS, Array, IllTyped, get_op
from eqsat_opt.ir.ops.domains import FieldDomain
from eqsat_opt.ir.ops.functions import FUNCTIONS
from eqsat_opt.ir.ops.index.evaluation import evaluate, formula_value, poly_value
from eqsat_opt.ir.ops.index.integers import Atom, Poly, atom, poly
from eqsat_opt.ir.ops.index.scalars import Constant, IndexTensor, Parameter, Premises, Read
from eqsat_opt.ir.values.types import TensorType, require_static

TERMS = 400
MAX_ELEMENTS = 400
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Value:
    """One tensor three ways: its type, its elements, and its index function."""

    type: TensorType
    array: Array
    tensor: IndexTensor


class Generator:
    """Random typed terms over random leaves; every size and attribute is a symbol of its own."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.field = FieldDomain(seed=seed)
        self.leaves: dict[str, Array] = {}
        self.sizes: dict[Atom, int] = {}
        self.parameters: dict[str, float] = {}
        self.premises = Premises()
        self.used: list[str] = []

    def between(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def choice(self, options: Any) -> Any:
        return options[self.between(0, len(options) - 1)]

    def shape(self, rank: int) -> Shape:
        return tuple(self.choice((1, 2, 2, 3, 4)) for _ in range(rank))

    def symbol(self, name: str, value: int) -> Poly:
        """``value`` as a symbol, or at times as itself."""
        if self.between(0, 3) == 0:
            return poly(value)
        symbol = Atom(f"{name}{len(self.sizes)}")
        self.sizes[symbol] = value
        return atom(symbol)

    def leaf(self, shape: Shape) -> Value:
        name = f"t{len(self.leaves)}"
        self.leaves[name] = self.field.random(self.rng, shape)
        extents = tuple(self.symbol(name, d) for d in shape)
        tensor = IndexTensor(extents, lambda index: Read(name, tuple(index)))
        return Value(TensorType("float32", shape), self.leaves[name], tensor)

    def attribute(self, op: str, key: str, value: Any) -> Any:
        """An attribute as the index function gets it."""
        literal = key in ("axis", "axes", "perm", "keepdims", "ceil", "count_include_pad")
        if isinstance(value, tuple):
            return tuple(poly(v) if literal else self.symbol(key, v) for v in value)
        if OPS[op].attrs[key] == "int":
            return poly(value) if literal else self.symbol(key, value)
        if OPS[op].attrs[key] == "float":
            if op in FUNCTIONS or self.between(0, 1):
                return Constant(Fraction(value))
            name = f"p{len(self.parameters)}"
            self.parameters[name] = value
            return Parameter(name)
        return value

    def apply(self, op: str, operands: list[Value], attrs: dict[str, Any]) -> Value:
        """One operator on typed operands.

        Raises:
            IllTyped: if it is not defined there, or the result is too large.
        """
        definition = get_op(op)
        type_ = require_static(definition.type_fn([o.type for o in operands], attrs))
        if min(type_.shape, default=1) < 1 or type_.size > MAX_ELEMENTS:
            raise IllTyped("empty or too large")
        array = definition.eval_fn(self.field, [o.array for o in operands], attrs)
        assert definition.index_fn is not None
        symbolic = {key: self.attribute(op, key, value) for key, value in attrs.items()}
        tensor = definition.index_fn([o.tensor for o in operands], symbolic, self.premises)
        self.used.append(op)
        return Value(TensorType("float32", type_.shape), np.asarray(array), tensor)

    def term(self, operators: int) -> Value:
        value = self.leaf(self.shape(self.between(1, 4)))
        for _ in range(operators):
            for _ in range(6):
                op = self.choice(sorted(PROPOSERS))
                try:
                    value = self.apply(op, *PROPOSERS[op](self, value))
                except IllTyped:
                    continue
                break
        return value


Proposal = tuple[list[Value], dict[str, Any]]


def partner(g: Generator, shape: Shape) -> Value:
    """A leaf that broadcasts with ``shape``."""
    thinned = tuple(1 if g.between(0, 3) == 0 else d for d in shape)
    return g.leaf(thinned[g.between(0, min(1, len(shape))) :])


def binary(g: Generator, x: Value) -> Proposal:
    other = x if g.between(0, 4) == 0 else partner(g, x.array.shape)
    return ([x, other] if g.between(0, 1) else [other, x]), {}


def function(name: str) -> Callable[[Generator, Value], Proposal]:
    def propose(g: Generator, x: Value) -> Proposal:
        kinds = OPS[name].attrs
        return [x], {k: "none" if v == "str" else g.choice((0.25, 0.5)) for k, v in kinds.items()}

    return propose


def windows(g: Generator, x: Value, kernel: Shape) -> dict[str, Any]:
    n = len(kernel)
    return {
        "strides": tuple(g.between(1, 3) for _ in range(n)),
        "pads": tuple(g.between(0, 2) for _ in range(2 * n)),
        "dilations": tuple(g.choice((1, 1, 2)) for _ in range(n)),
    }


def spatial(g: Generator, x: Value) -> Value:
    if x.type.rank >= 3:
        return x
    return g.leaf((g.between(1, 2), g.choice((1, 2, 4, 6)), *g.shape(g.choice((1, 2, 2)))))


def conv(g: Generator, x: Value) -> Proposal:
    x = spatial(g, x)
    channels = x.array.shape[1]
    group = g.choice([d for d in (1, 2, 3, channels) if channels % d == 0])
    kernel = tuple(g.between(1, 3) for _ in x.array.shape[2:])
    w = g.leaf((group * g.between(1, 2), channels // group, *kernel))
    bias = [g.leaf(w.array.shape[:1])] if g.between(0, 2) == 0 else []
    return [x, w, *bias], {**windows(g, x, kernel), "group": group}


def deconv(g: Generator, x: Value) -> Proposal:
    x = spatial(g, x)
    channels = x.array.shape[1]
    group = g.choice([d for d in (1, 2, channels) if channels % d == 0])
    kernel = tuple(g.between(1, 3) for _ in x.array.shape[2:])
    w = g.leaf((channels, g.between(1, 2), *kernel))
    extra = tuple(g.between(0, 1) for _ in kernel)
    return [x, w], {**windows(g, x, kernel), "group": group, "output_padding": extra}


def pool(g: Generator, x: Value) -> Proposal:
    x = spatial(g, x)
    kernel = tuple(g.between(1, 3) for _ in x.array.shape[2:])
    attrs = {**windows(g, x, kernel), "dilations": (1,) * len(kernel), "ceil": g.between(0, 1)}
    # Every window holds an element, so that no extremum is over nothing.
    attrs["pads"] = tuple(min(p, k - 1) for p, k in zip(attrs["pads"], kernel * 2, strict=True))
    return [x], {**attrs, "kernel": kernel}


def average(g: Generator, x: Value) -> Proposal:
    operands, attrs = pool(g, x)
    return operands, {**attrs, "count_include_pad": g.between(0, 1)}


def matmul(g: Generator, x: Value) -> Proposal:
    shape = x.array.shape
    if not shape:
        raise IllTyped("scalar")
    batch = partner(g, shape[:-2]).array.shape if len(shape) > 2 else ()
    other = g.choice([(*batch, shape[-1], g.between(1, 3)), shape[-1:]])
    return [x, g.leaf(other)], {}


def concat(g: Generator, x: Value) -> Proposal:
    axis = g.between(0, max(x.type.rank - 1, 0))
    shape = x.array.shape
    others = [
        g.leaf((*shape[:axis], g.between(1, 2), *shape[axis + 1 :])) for _ in range(g.between(0, 2))
    ]
    return [x, *others], {"axis": axis}


def slice_(g: Generator, x: Value) -> Proposal:
    axis = g.between(0, max(x.type.rank - 1, 0))
    extent = (*x.array.shape, 1)[axis]
    lo = g.between(0, extent - 1)
    return [x], {"axis": axis, "lo": lo, "hi": g.between(lo + 1, extent)}


def transpose(g: Generator, x: Value) -> Proposal:
    return [x], {"perm": tuple(int(p) for p in g.rng.permutation(x.type.rank))}


def reshape(g: Generator, x: Value) -> Proposal:
    shape = x.array.shape
    halves = shape[:1], (math.prod(shape[1:]),)
    options = [(x.array.size,), shape[::-1], (*shape, 1), (*halves[0], *halves[1])]
    return [x], {"shape": g.choice(options)}


def expand(g: Generator, x: Value) -> Proposal:
    shape = tuple(g.between(1, 3) if d == 1 else d for d in x.array.shape)
    return [x], {"shape": (g.between(1, 2), *shape) if g.between(0, 1) else shape}


def pad(g: Generator, x: Value) -> Proposal:
    if not x.array.shape:
        raise IllTyped("a frame needs an axis")
    pads = tuple(g.between(-1, 2) for _ in x.array.shape * 2)
    return [x], {"pads": pads, "value": g.choice((0.0, 0.5))}


def reduction(g: Generator, x: Value) -> Proposal:
    axes = tuple(a for a in range(x.type.rank) if g.between(0, 1)) or (0,)
    return [x], {"axes": axes, "keepdims": g.between(0, 1)}


def global_pool(g: Generator, x: Value) -> Proposal:
    return [x], {}


def along(g: Generator, x: Value) -> Proposal:
    return [x], {"axis": g.between(0, max(x.type.rank - 1, 0))}


def small(shape: Shape) -> None:
    """Nested sums are evaluated naively."""
    if math.prod(shape) > 12:
        raise IllTyped("too large")


def layer(g: Generator, x: Value) -> Proposal:
    axis = g.between(0, max(x.type.rank - 1, 0))
    small(x.array.shape[axis:])
    parameters = [partner(g, x.array.shape[axis:]) for _ in range(2)]
    return [x, *parameters], {"axis": axis, "epsilon": 0.25}


def rms(g: Generator, x: Value) -> Proposal:
    operands, attrs = layer(g, x)
    return operands[:2], attrs


def channelwise(count: int) -> Callable[[Generator, Value], Proposal]:
    def propose(g: Generator, x: Value) -> Proposal:
        x = spatial(g, x)
        parameters = [g.leaf(x.array.shape[1:2]) for _ in range(count)]
        return [x, *parameters], {"epsilon": 0.25}

    return propose


def instance(g: Generator, x: Value) -> Proposal:
    operands, attrs = channelwise(2)(g, x)
    small(operands[0].array.shape[2:])
    return operands, attrs


def lrn(g: Generator, x: Value) -> Proposal:
    return [spatial(g, x)], {"size": g.between(1, 5), "alpha": 0.5, "beta": 0.75, "bias": 2.0}


def identity(g: Generator, _x: Value) -> Proposal:
    sizes = {"height": g.choice((1, 3)), "width": g.choice((1, 3))}
    return [], {"channels": g.between(1, 3), **sizes, "dtype": "float32"}


def scalar(g: Generator, _x: Value) -> Proposal:
    return [], {"value": g.choice((0.0, 0.5, 2.0)), "dtype": "float32"}


def axes(g: Generator, x: Value) -> tuple[int, ...]:
    """Some axes, over few elements."""
    found = tuple(a for a in range(x.type.rank) if g.between(0, 1)) or (0,)
    small(tuple(x.array.shape[a] for a in found if a < x.type.rank))
    return found


def center(g: Generator, x: Value) -> Proposal:
    return [x], {"axes": axes(g, x)}


def root_mean_square(g: Generator, x: Value) -> Proposal:
    return [x], {"axes": axes(g, x), "epsilon": 0.25}


def fill(g: Generator, _x: Value) -> Proposal:
    shape = g.shape(g.between(0, 3))
    return [], {"shape": shape, "value": g.choice((0.0, 0.5, 2.0)), "dtype": "float32"}


def repeat(g: Generator, x: Value) -> Proposal:
    return [x], {"axis": g.between(0, max(x.type.rank - 1, 0)), "repeats": g.between(1, 3)}


def attention(g: Generator, x: Value) -> Proposal:
    if x.type.rank != 4 or x.array.shape[3] > 3:
        x = g.leaf((g.between(1, 2), g.choice((1, 2, 4)), g.between(1, 2), g.between(1, 2)))
    batch, heads, _, size = x.array.shape
    groups = g.choice([d for d in (1, 2, heads) if heads % d == 0])
    tokens = g.between(1, 3)
    keys = g.leaf((batch, groups, tokens, size))
    return [x, keys, g.leaf((batch, groups, tokens, g.between(1, 2)))], {"scale": 0.5}


def masked_attention(g: Generator, x: Value) -> Proposal:
    operands, attrs = attention(g, x)
    q, keys = operands[:2]
    return [*operands, partner(g, (*q.array.shape[:3], keys.array.shape[2]))], attrs


def where(g: Generator, x: Value) -> Proposal:
    condition = g.leaf(x.array.shape)
    truth = condition.array % 2
    g.leaves[f"t{len(g.leaves) - 1}"][...] = truth
    other = Value(TensorType("bool", condition.type.shape), condition.array, condition.tensor)
    return [other, x, partner(g, x.array.shape)], {}


NUMBERS = (
    *FUNCTIONS, "Neg", "Reciprocal", "IsNaN", "Scale", "Shift", "Square", "Rsqrt",
)  # fmt: skip
PROPOSERS: dict[str, Callable[[Generator, Value], Proposal]] = {
    **{name: function(name) for name in NUMBERS},
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Equal", "Less"), binary),
    **dict.fromkeys(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"), reduction),
    **dict.fromkeys(("Softmax", "LogSoftmax"), along),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), global_pool),
    "Conv": conv, "ConvTranspose": deconv, "MaxPool": pool, "AveragePool": average,
    "MatMul": matmul, "Concat": concat, "Slice": slice_, "Transpose": transpose,
    "Reshape": reshape, "Expand": expand, "Pad": pad, "LayerNormalization": layer,
    "RMSNormalization": rms, "BatchNormalization": channelwise(4),
    "InstanceNormalization": instance, "LRN": lrn, "IdentityKernel": identity,
    "Scalar": scalar, "Where": where, "Center": center, "RmsN": root_mean_square, "Fill": fill,
    "Repeat": repeat, "Attention": attention, "MaskedAttention": masked_attention,
}  # fmt: skip


def check(generator: Generator, value: Value) -> None:
    """The index function gives the elements and the shape, and its premises hold."""
    assert [int(poly_value(e, generator.sizes)) for e in value.tensor.shape] == list(
        value.array.shape
    )
    for premise in generator.premises.formulas:
        assert formula_value(premise, generator.sizes), str(premise)
    found = evaluate(
        value.tensor, generator.field, generator.leaves, generator.sizes, generator.parameters
    )
    np.testing.assert_array_equal(found, value.array)


@pytest.mark.parametrize("op", sorted(PROPOSERS))
def test_one_operator(op: str) -> None:
    done = 0
    for seed in range(30):
        generator = Generator(seed)
        leaf = generator.leaf(generator.shape(generator.between(0, 4)))
        try:
            value = generator.apply(op, *PROPOSERS[op](generator, leaf))
        except IllTyped:
            continue
        check(generator, value)
        done += 1
    assert done >= 5


def test_random_terms() -> None:
    used: Counter[str] = Counter()
    for seed in range(TERMS):
        generator = Generator(seed)
        value = generator.term(generator.between(2, 3))
        check(generator, value)
        used.update(generator.used)
    print(f"{TERMS} terms, {sum(used.values())} operators, least often {used.most_common()[-3:]}")
    assert set(used) == set(PROPOSERS)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_what_is_gathered_is_what_the_index_names(axis: int, shape: Shape) -> None:
    """Indices are data, so no random term has them."""
    rng = np.random.default_rng(axis)
    x, indices = rng.integers(1, 99, (2, 3, 4)), rng.integers(-9, 9, shape)
    leaves = {"x": x, "i": indices}
    tensors = [
        IndexTensor(tuple(map(poly, a.shape)), lambda index, n=n: Read(n, tuple(index)))  # type: ignore[misc]
        for n, a in leaves.items()
    ]
    gather = get_op("Gather")
    assert gather.index_fn is not None
    tensor = gather.index_fn(tensors, {"axis": poly(axis)}, Premises())
    field = FieldDomain()
    expected = gather.eval_fn(field, [x, indices], {"axis": axis})
    np.testing.assert_array_equal(evaluate(tensor, field, leaves, {}), expected)
