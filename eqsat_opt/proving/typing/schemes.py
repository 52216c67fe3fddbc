"""The constraints of each operator on the shapes of its operands and on its attributes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from eqsat_opt.ir.ops import get_op
from eqsat_opt.proving.typing.derived_schemes import derived
from eqsat_opt.proving.typing.extents import Shape, resolve
from eqsat_opt.proving.typing.most_general import Fresh, Known, Scheme, Typing
from eqsat_opt.proving.typing.movement_schemes import MOVEMENT
from eqsat_opt.proving.typing.open_attributes import (
    DYADIC,
    PARAMETERS,
    SIGNED,
    attribute,
    axis_of,
    count_of,
    multiple,
)
from eqsat_opt.proving.typing.window_schemes import WINDOWS, pool
from eqsat_opt.rules.term import Apply

__all__ = ["scheme_of"]


def _elementwise(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    op = get_op(term.op)
    for key, kind in op.attrs.items():
        if kind == "str":
            attribute(t, term, key, op.choices.get(key, ("float32",)))
        else:
            attribute(t, term, key, PARAMETERS, core=2)
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


def _slope(t: Typing, operands: Sequence[Known], _term: Apply) -> tuple[list[Shape], Shape]:
    x, slope = operands
    x = t.any_shape(x) if isinstance(x, Fresh) else x
    if isinstance(slope, Fresh):
        slope = x[t.choose(range(len(x) + 1)) :]
    t.equal(t.broadcast(x, slope), x)
    return [x, slope], x


def _affine(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    for key in get_op(term.op).attrs:
        attribute(t, term, key, SIGNED, core=3)
    x = operands[0]
    shape = t.any_shape(x) if isinstance(x, Fresh) else x
    return [shape], shape


def _clamp(t: Typing, operands: Sequence[Known], _term: Apply) -> tuple[list[Shape], Shape]:
    x, *bounds = operands
    shape = t.any_shape(x) if isinstance(x, Fresh) else x
    shapes: list[Shape] = [() if isinstance(bound, Fresh) else bound for bound in bounds]
    t.require(not any(shapes))
    return [shape, *shapes], shape


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


def _along_axis(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    x, axis = axis_of(t, operands[0], term)
    if "epsilon" in term.attrs:
        attribute(t, term, "epsilon", (0.25,))
    shapes = [x]
    for operand in operands[1:]:
        shape = x[axis:] if isinstance(operand, Fresh) else operand
        t.equal(t.broadcast(x, shape), x)
        shapes.append(shape)
    return shapes, x


def _reduced(t: Typing, operand: Known, term: Apply) -> tuple[Shape, tuple[int, ...]]:
    """Return the operand of a reduction, and the axes that it reduces."""
    pattern = term.attrs["axes"]
    given = t.value(pattern)
    known = [axis for axis in given or () if axis is not None]
    x = t.at_least(operand, max([len(given or ()), 1, *(axis + 1 for axis in known)]))
    if isinstance(pattern, tuple):
        parts = zip(pattern, given, strict=True)
        axes = tuple(_axis(t, part, len(x)) if a is None else a for part, a in parts)
    else:
        subsets = [c for size in range(1, len(x) + 1) for c in combinations(range(len(x)), size)]
        axes = attribute(t, term, "axes", subsets)
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
    if attribute(t, term, "keepdims", (1, 0)):
        return [x], tuple(1 if i in axes else d for i, d in enumerate(x))
    return [x], tuple(d for i, d in enumerate(x) if i not in axes)


def _kept(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    x, _axes = _reduced(t, operands[0], term)
    if "epsilon" in term.attrs:
        attribute(t, term, "epsilon", DYADIC, core=1)
    return [x], x


def _attention(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    q, k, v = (t.fresh(o, (4,)) if isinstance(o, Fresh) else o for o in operands[:3])
    t.require(len(q) == len(k) == len(v) == 4)
    attribute(t, term, "scale", DYADIC, core=1)
    for axis, one in ((0, k), (0, v)):
        t.equal(q[axis], one[axis])
    t.equal(q[3], k[3])
    t.equal(k[1:3], v[1:3])
    t.settle()
    heads, keys = resolve(q[1]), resolve(k[1])
    if isinstance(heads, int) and isinstance(keys, int):
        t.require(keys > 0 and heads % keys == 0)
    else:
        multiple(t, heads, count_of(t, (1, 2, 3), core=2), keys)
    shapes = [q, k, v]
    for mask in operands[3:]:
        logits = (*q[:3], k[2])
        shape = t.partner(mask, logits) if isinstance(mask, Fresh) else mask
        t.equal(t.broadcast(shape, logits), logits)
        shapes.append(shape)
    return shapes, (*q[:3], v[3])


_SCHEMES: dict[str, Scheme] = {
    **dict.fromkeys(("Scale", "Shift", "Clip"), _affine),
    **dict.fromkeys(("Attention", "MaskedAttention"), _attention),
    "Clamp": _clamp, "MatMul": _matmul, "PRelu": _slope, **MOVEMENT, **WINDOWS,
}  # fmt: skip


def scheme_of(op: str) -> Scheme:
    """Return the scheme of an operator, its own or one derived from the index function."""
    known = get_op(op)
    if op in _SCHEMES:
        return _SCHEMES[op]
    if known.kind == "pointwise":
        return _elementwise
    if "reducing" in known.traits:
        return _reduce
    if "pooling" in known.traits:
        return pool
    is_kept = "along" in known.traits and known.kind == "reduction" and known.outputs == 1
    if is_kept or "trailing" in known.traits:
        return _kept if "axes" in known.attrs else _along_axis
    return derived
