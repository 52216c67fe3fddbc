"""How each operator constrains the shapes of its operands and its attributes."""

from __future__ import annotations

import operator as python
from collections.abc import Sequence
from itertools import combinations, permutations
from math import prod
from typing import Any

from eqsat_opt.ir.ops import OPS, get_op
from eqsat_opt.ir.ops.linear import window_size
from eqsat_opt.rules.term import Apply
from eqsat_opt.rules.verify.extents import Extent, Shape, Unknown, apply, resolve
from eqsat_opt.rules.verify.typing import Fresh, Known, Scheme, Typing

__all__ = ["scheme_of"]

_DYADIC = (0.25, 2.0, 0.5, 1.0)
"""Float attributes: exact in binary, so that no domain rounds them."""
_SIGNED = (0.5, -1.0, 2.0, -2.0, 1.0, 4.0, 0.25, -0.5)
"""Factors, addends and bounds, which may be negative; inverses and opposites are among them."""


def _attr(t: Typing, term: Apply, key: str, options: Sequence[Any], core: int = 0) -> Any:
    """The value of an attribute; where it is open, one of ``options``."""
    pattern = term.attrs[key]
    value = t.value(pattern)
    if value is None:
        value = t.solved(pattern)
        if value is None:
            value = t.choose(options, core=core)
        t.bind(pattern, value)
    return value


def _extents(t: Typing, pattern: tuple[Any, ...]) -> Shape:
    """A shape that a pattern spells out axis by axis; what is open becomes an unknown."""
    shape = []
    for part in pattern:
        value = t.value(part)
        if value is None:
            value = t.solved(part)
            if value is None:
                value = t.extents.new()
            t.bind(part, value)
        shape.append(value)
    return tuple(shape)


def _numbers(
    t: Typing, term: Apply, key: str, count: int, usual: Sequence[Any], each: Sequence[int]
) -> Any:
    """A list attribute.

    It is one of the ``usual`` lists, or else ``count`` numbers out of ``each``; where the pattern
    names its elements they are unknowns.
    """
    pattern = term.attrs[key]
    if not isinstance(pattern, tuple):
        value = t.value(pattern)
        if value is None:
            value = t.choose((*usual, None), core=len(usual))
            if value is None:
                value = tuple(t.choose(each) for _ in range(count))
            t.bind(pattern, value)
        return value
    values = []
    for part in pattern:
        value = t.value(part)
        if value is None:
            value = t.extents.new(low=0)
            t.bind(part, value)
        values.append(value)
    return tuple(values)


def _elementwise(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    kinds = get_op(term.op).attrs
    for key, kind in kinds.items():
        if kind == "str":
            _attr(t, term, key, ("none", "tanh") if key == "approximate" else ("float32",))
        else:
            _attr(t, term, key, _DYADIC, core=2)
    known = [shape for shape in operands if not isinstance(shape, Fresh)]
    shapes: list[Shape] = []
    for operand in operands:
        if not isinstance(operand, Fresh):
            shape = operand
        elif not known:
            shape = t.any_shape(operand)
        else:
            shape = t.partner(operand, known[0])
        shapes.append(shape)
        known.append(shape)
    result = shapes[0] if shapes else ()
    for shape in shapes[1:]:
        result = t.broadcast(result, shape)
    return shapes, result


def _affine(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    for key in get_op(term.op).attrs:
        _attr(t, term, key, _SIGNED, core=3)
    x = operands[0]
    shape = t.any_shape(x) if isinstance(x, Fresh) else x
    return [shape], shape


def _where(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    if isinstance(operands[0], Fresh):
        t.dtypes[operands[0]] = "bool"
    return _elementwise(t, operands, term)


def _matmul(t: Typing, operands: Sequence[Known], _term: Apply) -> tuple[list[Shape], Shape]:
    x, y = operands
    if isinstance(x, Fresh):
        x = t.fresh(x, (2, 3, 1) if isinstance(y, Fresh) or len(y) < 4 else (2, len(y)), core=2)
    if isinstance(y, Fresh):
        y = t.fresh(y, (2, 3, 1) if len(x) < 4 else (len(x), 2), core=2)
    t.require(len(x) >= 1 and len(y) >= 1)
    t.equal(x[-1], y[-2] if len(y) > 1 else y[0])
    batch = t.broadcast(x[:-2], y[:-2])
    return [x, y], (*batch, *x[-2:-1], *(y[-1:] if len(y) > 1 else ()))


def _repeated(n_axes: int, *values: int) -> list[tuple[int, ...]]:
    return [(value,) * n_axes for value in values]


def _positions(*args: int) -> int:
    return int(window_size(*args))  # type: ignore[arg-type]


def _half(kernel: int, dilation: int) -> int:
    return dilation * (kernel - 1) // 2


def _windows(t: Typing, term: Apply, data: Shape, kernel: Sequence[Extent]) -> Shape:
    """Positions of the windows; decides strides, dilations and pads, often half of the kernel."""
    n = len(kernel)
    strides = _numbers(t, term, "strides", n, _repeated(n, 1, 2), (1, 2, 3))
    dilations = _numbers(t, term, "dilations", n, _repeated(n, 1), (1, 2))
    t.require(len(strides) == n == len(dilations))
    half = tuple(apply(_half, k, d) for k, d in zip(kernel, dilations, strict=True))
    pads = _numbers(t, term, "pads", 2 * n, [(0,) * 2 * n, half * 2], (0, 1, 2))
    t.require(len(pads) == 2 * n)
    ceil = _attr(t, term, "ceil", (0, 1), core=1) if "ceil" in term.attrs else 0
    return tuple(
        apply(_positions, data[i], kernel[i], strides[i], pads[i], pads[n + i], dilations[i], ceil)
        for i in range(n)
    )


def _spatial(t: Typing, operand: Known, term: Apply, other: Known | None = None) -> Shape:
    if not isinstance(operand, Fresh):
        t.require(len(operand) >= 3)
        return operand
    given = [t.value(term.attrs[key]) for key in ("strides", "dilations")]
    lengths = [len(value) for value in given if value is not None]
    if other is not None and not isinstance(other, Fresh):
        lengths.insert(0, len(other) - 2)
    return t.fresh(operand, ((lengths[0] if lengths else t.axes) + 2,))


def _times(t: Typing, whole: Extent, factor: int, part: Extent) -> None:
    """Whole = factor * part, solved for the side that is open."""
    whole, part = resolve(whole), resolve(part)
    if factor == 1:
        t.equal(whole, part)
    elif isinstance(part, Unknown) and not isinstance(whole, Unknown):
        t.equal(part, apply(python.floordiv, whole, factor))
        t.equal(whole, apply(python.mul, factor, part))
    else:
        t.equal(whole, apply(python.mul, factor, part))


def _conv(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    x = _spatial(t, operands[0], term, operands[1])
    weight = operands[1]
    w = t.fresh(weight, (len(x),)) if isinstance(weight, Fresh) else weight
    t.require(len(w) == len(x) >= 3)
    group = _attr(t, term, "group", (1, 2, 3), core=2)
    t.require(isinstance(group, int))
    _times(t, x[1], group, w[1])
    _times(t, w[0], group, t.extents.new())
    positions = _windows(t, term, x[2:], w[2:])
    bias = [operand if not isinstance(operand, Fresh) else (w[0],) for operand in operands[2:]]
    for shape in bias:
        t.equal(shape, (w[0],))
    return [x, w, *bias], (x[0], w[0], *positions)


def _pool(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    x = _spatial(t, operands[0], term)
    n = len(x) - 2
    kernel = _numbers(t, term, "kernel", n, _repeated(n, 2, 3), (1, 2, 3))
    t.require(len(kernel) == n)
    if "count_include_pad" in term.attrs:
        _attr(t, term, "count_include_pad", (0, 1))
    return [x], (*x[:2], *_windows(t, term, x[2:], kernel))


def _concat(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    axis = t.value(term.attrs["axis"])
    known = [shape for shape in operands if not isinstance(shape, Fresh)]
    least = 1 if axis is None else axis + 1
    first = known[0] if known else t.at_least(operands[0], least)
    t.require(len(first) >= least)
    axis = _attr(t, term, "axis", range(len(first)))
    t.require(isinstance(axis, int))
    shapes: list[Shape] = []
    for i, operand in enumerate(operands):
        if not isinstance(operand, Fresh):
            shape = operand
        elif not known and i == 0:
            shape = first
        else:
            shape = t.fresh(operand, (len(first),))
        t.require(len(shape) == len(first))
        t.equal(shape[:axis], first[:axis])
        t.equal(shape[axis + 1 :], first[axis + 1 :])
        shapes.append(shape)
    total: Extent = shapes[0][axis]
    for shape in shapes[1:]:
        total = apply(python.add, total, shape[axis])
    return shapes, (*first[:axis], total, *first[axis + 1 :])


def _slice(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    axis = t.value(term.attrs["axis"])
    x = t.at_least(operands[0], 1 if axis is None else axis + 1)
    axis = _attr(t, term, "axis", range(len(x)))
    t.require(isinstance(axis, int) and axis < len(x))
    lo, hi = t.value(term.attrs["lo"]), t.value(term.attrs["hi"])
    if lo is None:
        lo = t.extents.new(low=0)
        t.bind(term.attrs["lo"], lo)
    if hi is None:
        hi = apply(python.add, lo, t.extents.new())
        t.bind(term.attrs["hi"], hi)
    if isinstance(resolve(x[axis]), Unknown):
        t.equal(x[axis], apply(python.add, hi, t.extents.new(low=0)))
    return [x], (*x[:axis], apply(python.sub, hi, lo), *x[axis + 1 :])


def _transpose(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    perm = t.value(term.attrs["perm"])
    x = operands[0]
    if isinstance(x, Fresh):
        x = t.fresh(x, (2, 3, 4) if perm is None else (len(perm),), core=2)
    perm = _attr(t, term, "perm", list(permutations(range(len(x)))))
    t.require(len(perm) == len(x) and all(isinstance(p, int) and p < len(x) for p in perm))
    return [x], tuple(x[p] for p in perm)


def _product(*extents: int) -> int:
    return prod(extents)


def _reshape(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    x = operands[0]
    if isinstance(x, Fresh):
        name, x = x, t.any_shape(x)
        t.shapes.setdefault(name, x)
    count = apply(_product, *x)
    if isinstance(term.attrs["shape"], tuple):
        shape = _extents(t, term.attrs["shape"])
        t.equal(count, apply(_product, *shape))
        return [x], shape
    options = [(count,), tuple(reversed(x)), (*x, 1), (1, *x)]
    options += [(apply(python.mul, x[0], x[1]), *x[2:])] if len(x) > 1 else []
    shape = _attr(t, term, "shape", options)
    t.equal(count, apply(_product, *shape))
    return [x], shape


def _expand(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    x, pattern = operands[0], term.attrs["shape"]
    shape = _extents(t, pattern) if isinstance(pattern, tuple) else t.value(pattern)
    if isinstance(x, Fresh):
        x = t.any_shape(x) if shape is None else t.partner(x, shape)
    if shape is None:
        shape = t.prefer([x, tuple(t.extents.new() for _ in x), (t.extents.new(), *x)])
        t.bind(term.attrs["shape"], shape)
    t.equal(t.broadcast(x, shape), shape)
    return [x], shape


def _pad(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    x, pads = operands[0], t.value(term.attrs["pads"])
    if isinstance(x, Fresh):
        x = t.any_shape(x) if pads is None else t.fresh(x, (len(pads) // 2,))
    rank = len(x)
    pads = _numbers(t, term, "pads", 2 * rank, _repeated(2 * rank, 1, 0), (0, 1, 2))
    _attr(t, term, "value", (0.0, 2.0), core=1)
    t.require(len(pads) == 2 * rank)
    return [x], tuple(apply(_sum, d, pads[i], pads[rank + i]) for i, d in enumerate(x))


def _sum(*numbers: int) -> int:
    return sum(numbers)


def _lrn(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    x = operands[0]
    x = t.fresh(x, (4, 3)) if isinstance(x, Fresh) else x
    _attr(t, term, "size", (3, 2, 1, 5), core=2)
    for key in ("alpha", "beta", "bias"):
        _attr(t, term, key, _DYADIC, core=2)
    return [x], x


def _along_axis(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    axis = t.value(term.attrs["axis"])
    x = t.at_least(operands[0], 1 if axis is None else axis + 1)
    axis = _attr(t, term, "axis", range(len(x)))
    t.require(isinstance(axis, int) and axis < len(x))
    if "epsilon" in term.attrs:
        _attr(t, term, "epsilon", (0.25,))
    shapes = [x]
    for operand in operands[1:]:
        shape = x[axis:] if isinstance(operand, Fresh) else operand
        t.equal(t.broadcast(x, shape), x)
        shapes.append(shape)
    return shapes, x


def _channelwise(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    x = operands[0]
    x = t.fresh(x, (4, 3, 2), core=1) if isinstance(x, Fresh) else x
    t.require(len(x) >= 2)
    _attr(t, term, "epsilon", (0.25,))
    shapes = [x]
    for operand in operands[1:]:
        t.equal(shape := (x[1],) if isinstance(operand, Fresh) else operand, (x[1],))
        shapes.append(shape)
    return shapes, x


def _reduced(t: Typing, operand: Known, term: Apply) -> tuple[Shape, tuple[int, ...]]:
    """The operand of a reduction, and the axes that it reduces."""
    pattern = term.attrs["axes"]
    given = t.value(pattern)
    known = [axis for axis in given or () if axis is not None]
    x = t.at_least(operand, max([len(given or ()), 1, *(axis + 1 for axis in known)]))
    if isinstance(pattern, tuple):
        parts = zip(pattern, given, strict=True)
        axes = tuple(_axis(t, part, len(x)) if a is None else a for part, a in parts)
    else:
        subsets = [c for size in range(1, len(x) + 1) for c in combinations(range(len(x)), size)]
        axes = _attr(t, term, "axes", subsets)
    t.require(all(0 <= axis < len(x) for axis in axes))
    return x, axes


def _axis(t: Typing, part: Any, rank: int) -> int:
    value = t.value(part)  # an axis before it may be the same variable
    if value is None:
        value = t.choose(range(rank))
        t.bind(part, value)
    t.require(isinstance(value, int))
    return int(value)


def _reduce(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    x, axes = _reduced(t, operands[0], term)
    if _attr(t, term, "keepdims", (1, 0)):
        return [x], tuple(1 if i in axes else d for i, d in enumerate(x))
    return [x], tuple(d for i, d in enumerate(x) if i not in axes)


def _kept(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    x, _axes = _reduced(t, operands[0], term)
    if "epsilon" in term.attrs:
        _attr(t, term, "epsilon", _DYADIC, core=1)
    return [x], x


def _repeat(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    axis = t.value(term.attrs["axis"])
    x = t.at_least(operands[0], 1 if axis is None else axis + 1)
    axis = _attr(t, term, "axis", range(len(x)))
    repeats = _attr(t, term, "repeats", (2, 1, 3), core=2)
    t.require(isinstance(axis, int) and axis < len(x))
    return [x], (*x[:axis], apply(python.mul, x[axis], repeats), *x[axis + 1 :])


def _attention(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    q, k, v = (t.fresh(o, (4,)) if isinstance(o, Fresh) else o for o in operands[:3])
    t.require(len(q) == len(k) == len(v) == 4)
    _attr(t, term, "scale", _DYADIC, core=1)
    for axis, one in ((0, k), (0, v)):
        t.equal(q[axis], one[axis])
    t.equal(q[3], k[3])
    t.equal(k[1:3], v[1:3])
    _times(t, q[1], t.choose((1, 2), core=2), k[1])
    shapes = [q, k, v]
    for mask in operands[3:]:
        logits = (*q[:3], k[2])
        shape = t.partner(mask, logits) if isinstance(mask, Fresh) else mask
        t.equal(t.broadcast(shape, logits), logits)
        shapes.append(shape)
    return shapes, (*q[:3], v[3])


def _fill(t: Typing, _operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    _attr(t, term, "value", _SIGNED, core=2)
    t.require(_attr(t, term, "dtype", (t.dtype,)) == t.dtype)
    pattern = term.attrs["shape"]
    if isinstance(pattern, tuple):
        return [], _extents(t, pattern)
    return [], _attr(t, term, "shape", [(t.extents.new(),), (t.extents.new(), t.extents.new())])


def _scalar(t: Typing, _operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    _attr(t, term, "value", _SIGNED, core=2)
    t.require(_attr(t, term, "dtype", (t.dtype,)) == t.dtype)
    return [], ()


def _identity(t: Typing, _operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    channels = t.value(term.attrs["channels"])
    if channels is None:
        t.bind(term.attrs["channels"], channels := t.extents.new())
    height = _attr(t, term, "height", (3, 1), core=1)
    width = _attr(t, term, "width", (3, 1), core=1)
    _attr(t, term, "dtype", (t.dtype,))
    return [], (channels, channels, height, width)


_SCHEMES: dict[str, Scheme] = {
    **{name: _reduce for name in OPS if name.startswith("Reduce")},
    **dict.fromkeys(
        ("Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization"), _along_axis
    ),
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization"), _channelwise),
    "MatMul": _matmul, "Conv": _conv, "MaxPool": _pool, "AveragePool": _pool, "Concat": _concat,
    "Slice": _slice, "Transpose": _transpose, "Reshape": _reshape, "Expand": _expand, "Pad": _pad,
    **dict.fromkeys(("Scale", "Shift", "Clip"), _affine),
    **dict.fromkeys(("Center", "RmsN"), _kept),
    **dict.fromkeys(("Attention", "MaskedAttention"), _attention),
    "Repeat": _repeat, "Fill": _fill,
    "LRN": _lrn, "Scalar": _scalar, "IdentityKernel": _identity, "Where": _where,
}  # fmt: skip


def scheme_of(op: str) -> Scheme:
    """The scheme of an operator; without one of its own it is taken to be elementwise."""
    return _SCHEMES.get(op, _elementwise)
