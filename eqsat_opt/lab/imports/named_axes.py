"""Tensors with named axes, as TensorRight has them, as terms whose axes are in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eqsat_opt.lab.imports.foreign import Unsayable
from eqsat_opt.rules.term import Expr, Term, concat, expr, ops, slice_

__all__ = [
    "Axis",
    "Key",
    "NamedTensor",
    "SizeMap",
    "cut",
    "joined",
    "ordered",
    "place_of",
    "spread",
    "summed",
]


@dataclass(eq=False)
class Axis:
    """An aggregated axis; ``number`` is its place among those of the rule."""

    number: int


@dataclass(eq=False)
class SizeMap:
    """A number for an aggregated axis: a size or a position."""

    axis: Axis
    value: Expr | None
    name: str = ""
    label: str = ""


Key = tuple[int, str]
"""The number of an aggregated axis and a label: a named axis of a tensor."""


@dataclass(frozen=True, eq=False)
class NamedTensor:
    """A term with named axes, in order, and their sizes."""

    term: Term
    axes: tuple[Key, ...]
    sizes: tuple[Expr, ...]
    dtype: str = ""


def place_of(one: NamedTensor, axis: object) -> int:
    """Return the number of an axis of a tensor, by its aggregated axis or its label."""
    if isinstance(axis, tuple) and axis[0] == "label":
        found = [i for i, (_, label) in enumerate(one.axes) if label == axis[1]]
    else:
        assert isinstance(axis, Axis)
        found = [i for i, (number, _) in enumerate(one.axes) if number == axis.number]
    if len(found) != 1:
        raise Unsayable("an axis that is one of several")
    return found[0]


def ordered(one: NamedTensor, axes: tuple[Key, ...]) -> NamedTensor:
    """Return a tensor with its axes in another order."""
    if one.axes == axes:
        return one
    if sorted(one.axes) != sorted(axes):
        raise Unsayable("sides with the same axes")
    perm = tuple(one.axes.index(key) for key in axes)
    sizes = tuple(one.sizes[at] for at in perm)
    return NamedTensor(ops.Transpose(one.term, perm=perm), axes, sizes)


def spread(x: NamedTensor, added: Mapping[Key, Expr]) -> NamedTensor:
    """Return a tensor with further axes, along which it is constant."""
    if set(added) & set(x.axes):
        raise Unsayable("a broadcast along an axis that is there")
    sizes = dict(sorted({**dict(zip(x.axes, x.sizes, strict=True)), **added}.items()))
    order = tuple(key for key in sizes if key in x.axes)
    x = ordered(x, order)
    kept = tuple(expr(1) if key in added else size for key, size in sizes.items())
    leading = all(key in x.axes for key in list(sizes)[len(added) :])
    term = x.term if leading else ops.Reshape(x.term, shape=kept)
    made = ops.Expand(term, shape=tuple(sizes.values()))
    return NamedTensor(made, tuple(sizes), tuple(sizes.values()))


def summed(x: NamedTensor, places: Sequence[int]) -> NamedTensor:
    """Return the sums of a tensor over some of its axes."""
    if not places:
        return x
    kept = [i for i in range(len(x.axes)) if i not in places]
    made = ops.ReduceSum(x.term, axes=tuple(sorted(places)), keepdims=0)
    return NamedTensor(made, tuple(x.axes[i] for i in kept), tuple(x.sizes[i] for i in kept))


def joined(parts: Sequence[NamedTensor], axis: object) -> NamedTensor:
    """Return tensors concatenated along an axis, two at a time."""
    first = parts[0]
    for other in parts[1:]:
        at = place_of(first, axis)
        aligned = ordered(other, first.axes)
        sizes = list(first.sizes)
        sizes[at] = sizes[at] + aligned.sizes[at]
        first = NamedTensor(concat(first.term, aligned.term, at), first.axes, tuple(sizes))
    return first


def cut(x: NamedTensor, at: int, low: Expr, high: Expr) -> NamedTensor:
    """Return the part of a tensor between two positions along its axis number ``at``."""
    sizes = list(x.sizes)
    sizes[at] = high - low
    return NamedTensor(slice_(x.term, at, low, high), x.axes, tuple(sizes))
