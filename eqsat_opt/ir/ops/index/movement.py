"""Index semantics of the operators that move data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eqsat_opt.ir.ops._base import require
from eqsat_opt.ir.ops.index.integers import (
    Poly,
    all_of,
    any_of,
    at_least,
    atom,
    broadcast,
    equal,
    less,
    poly,
    product,
    quotient,
    within,
)
from eqsat_opt.ir.ops.index.scalars import (
    NAMED,
    ONE,
    ZERO,
    Call,
    Choice,
    IndexTensor,
    Premises,
    Reduce,
    Scalar,
    Whole,
    aligned,
    bound,
    literal,
)

__all__: list[str] = []

Operands = Sequence[IndexTensor]
Attrs = Mapping[str, Any]


def _axis(x: IndexTensor, attrs: Attrs) -> int:
    axis = literal(attrs["axis"])
    require(0 <= axis < x.rank, "no such axis")
    return axis


def concat(operands: Operands, attrs: Attrs, premises: Premises) -> IndexTensor:
    """Return the operands side by side along ``axis``."""
    first = operands[0]
    axis = _axis(first, attrs)
    ends = [poly(0)]
    for operand in operands:
        require(operand.rank == first.rank, "ranks differ")
        for i, extent in enumerate(operand.shape):
            if i != axis:
                premises.same(extent, first.shape[i])
        ends.append(ends[-1] + operand.shape[axis])

    def at(index: Sequence[Poly]) -> Scalar:
        def part(k: int) -> Scalar:
            return operands[k].at((*index[:axis], index[axis] - ends[k], *index[axis + 1 :]))

        element = part(len(operands) - 1)
        for k in reversed(range(len(operands) - 1)):
            element = Choice(less(index[axis], ends[k + 1]), part(k), element)
        return element

    return IndexTensor((*first.shape[:axis], ends[-1], *first.shape[axis + 1 :]), at)


def slice_(operands: Operands, attrs: Attrs, premises: Premises) -> IndexTensor:
    """Return the elements from ``lo`` to before ``hi`` along ``axis``."""
    (x,) = operands
    axis, lo, hi = _axis(x, attrs), attrs["lo"], attrs["hi"]
    premises.require(at_least(lo, 0), less(lo, hi), at_least(x.shape[axis], hi))
    return IndexTensor(
        (*x.shape[:axis], hi - lo, *x.shape[axis + 1 :]),
        lambda index: x.at((*index[:axis], index[axis] + lo, *index[axis + 1 :])),
    )


def strided_slice(operands: Operands, attrs: Attrs, premises: Premises) -> IndexTensor:
    """Return every ``step``-th element along ``axis``, from ``begin`` to before ``end``."""
    (x,) = operands
    axis, (begin, end, step) = _axis(x, attrs), map(literal, attrs["cut"])
    places = range(literal(x.shape[axis]))[begin:end:step]
    require(len(places) > 0, "nothing is left")
    return IndexTensor(
        (*x.shape[:axis], poly(len(places)), *x.shape[axis + 1 :]),
        lambda index: x.at(
            (*index[:axis], index[axis] * places.step + places.start, *index[axis + 1 :])
        ),
    )


def transpose(operands: Operands, attrs: Attrs, _premises: Premises) -> IndexTensor:
    """Permute axes: axis ``perm[i]`` of the operand becomes axis i."""
    (x,) = operands
    perm = [literal(p) for p in attrs["perm"]]
    require(sorted(perm) == list(range(x.rank)), "no permutation")
    places = [perm.index(axis) for axis in range(x.rank)]
    return IndexTensor(
        tuple(x.shape[p] for p in perm), lambda index: x.at([index[place] for place in places])
    )


def gather(operands: Operands, attrs: Attrs, premises: Premises) -> IndexTensor:
    """Return the elements along ``axis`` at the given indices, each as a sum with one chosen term.

    Truth values of :data:`~eqsat_opt.ir.ops.index.scalars.NAMED` choose the terms. The index
    function does not state that exactly one is true, so a proved equation holds for any truth
    values.
    """
    x, indices = operands
    axis = _axis(x, attrs)
    extent, after = x.shape[axis], axis + indices.rank
    premises.require(at_least(extent, 1))

    def at(index: Sequence[Poly]) -> Scalar:
        place = bound("p")
        here = atom(place)
        index_there = indices.at(index[axis:after])
        named = Call(NAMED, (), (Whole(here), Whole(extent), index_there))
        element = x.at((*index[:axis], here, *index[after:]))
        chosen = Call("Where", (), (named, element, ZERO))
        return Reduce("sum", ((place, extent),), all_of(), chosen)

    return IndexTensor((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), at)


def _blocks(
    left: Sequence[Poly], right: Sequence[Poly]
) -> list[tuple[Sequence[Poly], Sequence[Poly]]]:
    """Split both shapes into blocks of consecutive axes that hold equally many elements.

    The axes that are left over are the last block.
    """
    blocks, start_l, start_r = [], 0, 0
    found = True
    while found:
        found = False
        ends = (
            (i, j) for i in range(start_l, len(left) + 1) for j in range(start_r, len(right) + 1)
        )
        for i, j in ends:
            if i + j > start_l + start_r and product(left[start_l:i]) == product(right[start_r:j]):
                blocks.append((left[start_l:i], right[start_r:j]))
                start_l, start_r, found = i, j, True
                break
    if start_l < len(left) or start_r < len(right):
        blocks.append((left[start_l:], right[start_r:]))
    return blocks


def _unflatten(flat: Poly, extents: Sequence[Poly]) -> list[Poly]:
    index = []
    for k in range(len(extents)):
        below = product(extents[k + 1 :])
        position = poly(0) if extents[k].constant == 1 else quotient(flat, below)
        index.append(position)
        flat = flat - position * below
    return index


def reshape(operands: Operands, attrs: Attrs, premises: Premises) -> IndexTensor:
    """Return the same elements in the same order with another shape."""
    (x,) = operands
    shape = tuple(map(poly, attrs["shape"]))
    premises.same(product(x.shape), product(shape))
    for extent in shape:
        premises.require(at_least(extent, 1))
    blocks = _blocks(x.shape, shape)

    def at(index: Sequence[Poly]) -> Scalar:
        source: list[Poly] = []
        start = 0
        for inner, outer in blocks:
            flat = poly(0)
            for extent, position in zip(outer, index[start : start + len(outer)], strict=True):
                flat = flat * extent + position
            start += len(outer)
            source += [flat] if len(inner) == 1 else _unflatten(flat, inner)
        return x.at(source)

    return IndexTensor(shape, at)


def expand(operands: Operands, attrs: Attrs, premises: Premises) -> IndexTensor:
    """Repeat the operand along axes of extent 1."""
    (x,) = operands
    shape = tuple(map(poly, attrs["shape"]))
    require(x.rank <= len(shape), "an expansion keeps all axes")
    for extent, wanted in zip(x.shape, shape[len(shape) - x.rank :], strict=True):
        premises.require(any_of(equal(extent, 1), equal(extent, wanted)))
        premises.require(equal(broadcast(extent, wanted), wanted))
    return IndexTensor(shape, lambda index: aligned(x, shape, index))


def pad(operands: Operands, attrs: Attrs, premises: Premises) -> IndexTensor:
    """Pad with a constant; negative widths crop."""
    (x,) = operands
    pads = tuple(map(poly, attrs["pads"]))
    require(len(pads) == 2 * x.rank, "one pad before and one after every axis")
    shape = tuple(d + pads[i] + pads[x.rank + i] for i, d in enumerate(x.shape))
    for extent in shape:
        premises.require(at_least(extent, 1))

    def at(index: Sequence[Poly]) -> Scalar:
        source = [position - pads[i] for i, position in enumerate(index)]
        inside = [
            within(position, extent)
            for i, (position, extent) in enumerate(zip(source, x.shape, strict=True))
            if pads[i] != poly(0) or pads[x.rank + i] != poly(0)
        ]
        return Choice(all_of(*inside), x.at(source), attrs["value"])

    return IndexTensor(shape, at)


def scalar(_operands: Operands, attrs: Attrs, _premises: Premises) -> IndexTensor:
    """Return a tensor of rank 0 with a given number."""
    return IndexTensor((), lambda _: attrs["value"])


def fill(_operands: Operands, attrs: Attrs, _premises: Premises) -> IndexTensor:
    """Return a tensor with a given number everywhere."""
    return IndexTensor(tuple(map(poly, attrs["shape"])), lambda _: attrs["value"])


def repeat(operands: Operands, attrs: Attrs, premises: Premises) -> IndexTensor:
    """Repeat every element ``repeats`` times in a row along ``axis``."""
    (x,) = operands
    axis, repeats = _axis(x, attrs), poly(attrs["repeats"])
    premises.require(at_least(repeats, 1))
    return IndexTensor(
        (*x.shape[:axis], x.shape[axis] * repeats, *x.shape[axis + 1 :]),
        lambda index: x.at((*index[:axis], quotient(index[axis], repeats), *index[axis + 1 :])),
    )


def identity_kernel(_operands: Operands, attrs: Attrs, premises: Premises) -> IndexTensor:
    """Return a convolution kernel that maps its input to itself.

    It is 1 in the centre of the kernels that map a channel to itself, else 0.
    """
    channels, height, width = (poly(attrs[k]) for k in ("channels", "height", "width"))
    centre = [quotient(height, poly(2)), quotient(width, poly(2))]
    for extent, half in zip((height, width), centre, strict=True):
        premises.require(equal(extent - half * 2, 1))
    premises.require(at_least(channels, 1), at_least(height, 1), at_least(width, 1))

    def at(index: Sequence[Poly]) -> Scalar:
        o, c, i, j = index
        return Choice(all_of(equal(o, c), equal(i, centre[0]), equal(j, centre[1])), ONE, ZERO)

    return IndexTensor((channels, channels, height, width), at)
