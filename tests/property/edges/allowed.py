"""What a numerics class allows between a model's outputs before and after.

``bitexact`` allows nothing. What rounding alone can do in the other classes is found out and not
guessed: the original is run again with every value that is no special one moved by some units in
the last place, and what moves then is allowed to move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.property.edges.draft import BFLOAT16, FLOATS, Impossible, code_of, finfo, loaded, runs

__all__ = ["NUMERICS", "differences"]

Array = npt.NDArray[Any]

NUMERICS = ("bitexact", "reassociate", "finite", "refactor", "relaxed")
_UNITS = {"reassociate": 16.0, "finite": 16.0, "refactor": 64.0, "relaxed": 64.0}
_RUNS = 4
_NOISY = {code_of(d): d for d in FLOATS if d != BFLOAT16}
_LARGEST_ORDINARY = 1e4


def differences(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    feeds: Sequence[Mapping[str, Array]],
    numerics: str,
) -> list[str]:
    """What ``after`` may not do, one line each; feeds that ``before`` refuses are left out."""
    found = []
    original = loaded(before)
    try:
        result = loaded(after)
    except Impossible as error:
        return [f"does not load: {str(error)[-300:]}"]
    for number, feed in enumerate(feeds):
        try:
            expected = runs(original, feed)
        except Impossible:
            continue
        try:
            results = runs(result, feed)
        except Impossible as error:
            found.append(f"feed {number}: fails: {str(error)[-300:]}")
            continue
        pairs = zip(before.graph.output, expected, results, strict=True)
        wrong = [i for i, (_, x, y) in enumerate(pairs) if not _same_bits(x, y)]
        if not wrong:
            continue
        fresh = runs(loaded(before), feed)
        if not all(map(_same_bits, expected, fresh)):
            continue  # onnxruntime reads what it never wrote: extents of a Concat do not fit
        if not _is_defined(before, feed):
            continue
        if _HALF in _element_types(before).values():
            with suppress(Impossible):
                expected, results = runs(_rounded(before), feed), runs(_rounded(after), feed)
            pairs = zip(before.graph.output, expected, results, strict=True)
            wrong = [i for i, (_, x, y) in enumerate(pairs) if not _same_bits(x, y)]
        moved = [] if numerics == "bitexact" else _moved(before, feed, numerics)
        way = _way(before, feed) if moved else _Way(False, 0.0)
        for i in wrong:
            name, x, y = before.graph.output[i].name, expected[i], results[i]
            why = _difference(x, y, [m[i] for m in moved], numerics, way)
            if why:
                found.append(f"feed {number}: {name}: {why}")
    return found


@dataclass(frozen=True)
class _Way:
    """What the original computes on the way to its outputs.

    Attributes:
        ends: whether a finite value comes close to infinity, or becomes infinite or NaN: then a
            result that is computed in another order may leave the range, or no longer leave it.
        largest: finite number.
        special: whether an infinity or NaN is given or computed.
    """

    ends: bool
    largest: float
    special: bool = False


def _same_bits(x: Array, y: Array) -> bool:
    """NaN is NaN, and a zero is a zero."""
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    same = x == y
    return bool(np.all(same | ((x != x) & (y != y)) if x.dtype.kind == "f" else same))


def _difference(x: Array, y: Array, moved: Sequence[Array], numerics: str, way: _Way) -> str:
    if x.dtype != y.dtype or x.shape != y.shape:
        return f"{x.dtype}{x.shape} became {y.dtype}{y.shape}"
    if any(m.shape != x.shape for m in moved):
        return ""  # rounding decides how many elements there are
    if x.dtype.kind != "f":
        firm = np.all([m == x for m in moved], axis=0) if moved else np.ones(x.shape, bool)
        return _shown(x, y, (x != y) & firm)
    a, b = x.astype(np.float64), y.astype(np.float64)
    others = [m.astype(np.float64) for m in moved]
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if numerics == "bitexact":
        return _shown(x, y, ~same)
    # Where rounding makes a special value or removes one, nothing is promised.
    if not others:
        others = [a]
    firm = np.all([_kind(m) == _kind(a) for m in others], axis=0)
    strict = numerics == "reassociate" or (numerics == "finite" and not way.special)
    if strict and not way.ends:
        # Where infinities meet, in a product of matrices say, NaN may stand for one and back.
        met = ~np.isfinite(a) & ~np.isfinite(b) & (np.isnan(a) | np.isnan(b))
        special = _shown(x, y, firm & (_kind(a) != _kind(b)) & ~met)
        if special:
            return f"special values: {special}"
    elif not strict:
        # Special and large numbers may spread; what stays ordinary among them is what it was.
        firm &= np.all([np.abs(m) < _LARGEST_ORDINARY for m in (a, *others)], axis=0)
        if not (way.ends or way.special):
            lost = _shown(x, y, firm & ~np.isfinite(b))
            if lost:
                return f"not finite: {lost}"
        firm &= np.abs(b) < (_LARGEST_ORDINARY if way.ends or way.special else np.inf)
    elif not all(np.all(np.abs(m) < _LARGEST_ORDINARY) for m in (a, *others)):
        return ""
    with np.errstate(all="ignore"):
        spread = np.max([np.abs(m - a) for m in others], axis=0)
        scale = finfo(x.dtype)
        # A product that fell below the range may meet a large factor later, or sooner.
        smallest = float(scale.smallest_subnormal) * max(1.0, way.largest)
        unit = float(scale.eps) * np.abs(a) + smallest
        far = np.abs(a - b) > 8 * spread + _UNITS[numerics] * unit
        if not strict:
            far &= np.abs(a - b) > _UNITS[numerics] * float(scale.eps) * way.largest
    compared = firm & np.isfinite(a) & np.isfinite(b)
    return _shown(x, y, compared & far & ~same)


def _kind(a: Array) -> Array:
    return np.where(np.isnan(a), 2, np.where(np.isinf(a), np.sign(a), 0))


def _shown(x: Array, y: Array, bad: Array) -> str:
    if not bad.any():
        return ""
    pairs = ", ".join(f"{p!s} became {q!s}" for p, q in zip(x[bad][:3], y[bad][:3], strict=True))
    return f"{int(bad.sum())} of {x.size}: {pairs}"


def _moved(model: onnx.ModelProto, feed: Mapping[str, Array], numerics: str) -> list[list[Array]]:
    """Outputs of the model with its values moved, several times."""
    result = []
    for seed in range(_RUNS):
        noisy = onnx.ModelProto.FromString(model.SerializeToString())
        rng = np.random.default_rng(seed)
        for weight in noisy.graph.initializer:
            if weight.data_type in _NOISY:
                array = _jitter(numpy_helper.to_array(weight), rng, numerics)
                weight.CopyFrom(numpy_helper.from_array(array, weight.name))
        _insert_noise(noisy, seed, numerics)
        moved = {n: _jitter(a, rng, numerics) if a.dtype in FLOATS else a for n, a in feed.items()}
        try:
            result.append(runs(noisy, moved))
        except Impossible:
            continue
    return result


def _is_defined(model: onnx.ModelProto, feed: Mapping[str, Array]) -> bool:
    """Whether what is concatenated fits: onnxruntime passes over empty operands, whatever they are.

    ONNX wants their other extents to agree, so there is no telling how large the result is.
    """
    made = {name for node in model.graph.node for name in node.output}
    known = {w.name: tuple(w.dims) for w in model.graph.initializer}
    known |= {name: array.shape for name, array in feed.items()}
    joins = [node for node in model.graph.node if node.op_type == "Concat"]
    wanted = sorted({name for node in joins for name in node.input if name in made})
    probe = onnx.ModelProto.FromString(model.SerializeToString())
    del probe.graph.output[:]
    probe.graph.output.extend(helper.make_empty_tensor_value_info(n) for n in wanted)
    if wanted:
        arrays = runs(probe, feed)
        known |= {name: array.shape for name, array in zip(wanted, arrays, strict=True)}
    for node in joins:
        (axis,) = (a.i for a in node.attribute if a.name == "axis")
        shapes = [list(known[name]) for name in node.input if name in known]
        for shape in shapes:
            del shape[axis]
        if any(shape != shapes[0] for shape in shapes):
            return False
    return True


_HALF = int(TensorProto.FLOAT16)


def _rounded(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in which every float16 is one.

    Where onnxruntime has kernels for float32 only it casts, and it leaves out the rounding between
    two of them if their neighbours permit: what a product gives depends on who reads it. Two
    Identities stand in the way of that; one it would run in float32 as well.
    """
    types = _element_types(model)
    result: onnx.ModelProto = onnx.ModelProto.FromString(model.SerializeToString())
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        half = [n for n in node.output if types.get(n) == _HALF]
        copy = onnx.NodeProto.FromString(node.SerializeToString())
        del copy.output[:]
        copy.output.extend(f"{n}__wide" if n in half else n for n in node.output)
        nodes.append(copy)
        for n in half:
            nodes.append(helper.make_node("Identity", [f"{n}__wide"], [f"{n}__half"]))
            nodes.append(helper.make_node("Identity", [f"{n}__half"], [n]))
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    return result


def _jitter(array: Array, rng: np.random.Generator, numerics: str) -> Array:
    """Every element that is no special one, moved by some units in the last place."""
    amount = _UNITS[numerics] * float(finfo(array.dtype).eps)
    with np.errstate(all="ignore"):
        exact = np.floor(array) == array
        special = exact & ((np.abs(array) <= 1024) | (np.abs(array) == _HIDDEN))
        special |= np.abs(array) >= float(finfo(array.dtype).max)
        factor = 1 + amount * rng.uniform(-1, 1, array.shape)
        return np.where(special, array, array * factor).astype(array.dtype)


_HIDDEN = 1e9
"""What masks subtract."""


def _insert_noise(model: onnx.ModelProto, seed: int, numerics: str) -> None:
    """Behind every node of the main graph, in ONNX: the same as :func:`_jitter`."""
    graph = model.graph
    types = _element_types(model)
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        outputs = [n for n in node.output if types.get(n) in _NOISY]
        copy = onnx.NodeProto.FromString(node.SerializeToString())
        del copy.output[:]
        copy.output.extend(f"{n}__exact" if n in outputs else n for n in node.output)
        nodes.append(copy)
        for name in outputs:
            seed += 1000
            nodes += _noise(graph, name, types[name], seed, numerics)
    del graph.node[:]
    graph.node.extend(nodes)


def _noise(
    graph: onnx.GraphProto, name: str, code: int, seed: int, numerics: str
) -> list[onnx.NodeProto]:
    dtype = _NOISY[code]
    amount = _UNITS[numerics] * float(finfo(dtype).eps)

    def constant(label: str, value: float) -> str:
        full = f"{name}__{label}"
        graph.initializer.append(numpy_helper.from_array(np.asarray(value, dtype), full))
        return full

    def node(op: str, *inputs: str, out: str = "", **attrs: Any) -> onnx.NodeProto:
        return helper.make_node(op, inputs, [out or f"{name}__{len(made)}"], **attrs)

    made: list[onnx.NodeProto] = []

    def add(op: str, *inputs: str, out: str = "", **attrs: Any) -> str:
        made.append(node(op, *inputs, out=out, **attrs))
        return str(made[-1].output[0])

    x = f"{name}__exact"
    size = add("Abs", x)
    whole = add("Not", add("Less", add("Floor", x), x))
    small = add("Less", size, constant("small", 1025.0))
    largest = float(finfo(dtype).max)
    hidden = constant("hidden", min(_HIDDEN, largest))
    near = add("Not", add("Less", hidden, size))
    same = add("And", near, add("Not", add("Less", size, hidden)))
    end = add("Not", add("Less", size, constant("end", largest)))
    special = add("Or", add("And", whole, small), add("Or", same, end))
    # Not every opset has a kernel for random numbers; a sine that turns fast will do.
    single = add("Cast", x, to=TensorProto.FLOAT)
    turn = f"{name}__turn"
    graph.initializer.append(numpy_helper.from_array(np.asarray(997.0 + seed, np.float32), turn))
    draw = add("Cast", add("Sin", add("Mul", single, turn)), to=code)
    factor = add("Add", add("Mul", draw, constant("amount", amount)), constant("one", 1.0))
    noisy = add("Mul", x, factor)
    add("Where", special, x, noisy, out=name)
    return made


def _way(model: onnx.ModelProto, feed: Mapping[str, Array]) -> _Way:
    """What the values of the main graph are."""
    types = _element_types(model)
    probe = onnx.ModelProto.FromString(model.SerializeToString())
    del probe.graph.output[:]
    probe.graph.output.extend(helper.make_tensor_value_info(n, c, None) for n, c in types.items())
    weights = [numpy_helper.to_array(w) for w in model.graph.initializer if w.data_type in _NOISY]
    given = [*weights, *(a for a in feed.values() if a.dtype in FLOATS)]
    try:
        inside = runs(probe, feed) if types else []
    except Impossible:
        inside = []
    largest = max(
        (float(np.max(np.abs(a[np.isfinite(a)]), initial=0.0)) for a in (*given, *inside)),
        default=0.0,
    )
    with np.errstate(all="ignore"):
        if all(np.all(np.isfinite(a)) for a in given) and not all(
            np.all(np.isfinite(a)) for a in inside
        ):
            return _Way(True, largest, special=True)
        near = any(
            bool(np.any(np.isfinite(a) & (np.abs(a) > float(finfo(a.dtype).max) / 64)))
            for a in (*given, *inside)
        )
    special = not all(np.all(np.isfinite(a)) for a in (*given, *inside))
    return _Way(near, largest, special)


def _element_types(model: onnx.ModelProto) -> dict[str, int]:
    """Element types of the values of the main graph, from onnxruntime, which knows them all."""
    probe = onnx.ModelProto.FromString(model.SerializeToString())
    names = [n for node in model.graph.node for n in node.output if n]
    del probe.graph.output[:]
    probe.graph.output.extend(helper.make_empty_tensor_value_info(n) for n in names)
    codes = {f"tensor({np.dtype(d).name})": c for c, d in _NOISY.items()}
    codes |= {"tensor(float)": TensorProto.FLOAT, "tensor(double)": TensorProto.DOUBLE}
    try:
        outputs = loaded(probe).get_outputs()
    except Impossible:  # a value that cannot be an output
        return {}
    return {o.name: codes[o.type] for o in outputs if o.type in codes}
