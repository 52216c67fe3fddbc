"""Layouts of values in memory: of their own, inside a Concat, or overlapping another value."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from eqsat_opt.ir.graph.graph import Node
from eqsat_opt.runtime.plan.plan import dense_strides

__all__ = ["Dims", "Layout", "NestedPlaces", "is_part", "part_layout", "reshaped_strides"]

Dims = tuple[int, ...]

_MOST_TIMES = 4
"""Limit of memory that overlapping values share, as a multiple of the largest of these values.

The memory is occupied from the first write of any of these values to the last read: a chain of
overlaps through a model would keep all of it.
"""


@dataclass(frozen=True, slots=True)
class Layout:
    """The place of a value in the memory of another value, or in its own.

    Attributes:
        root: the value that owns the memory.
        offset: offset of the first element, in elements.
        strides: strides by axis, in elements.
    """

    root: str
    offset: int
    strides: Dims


def reshaped_strides(dims: Dims, strides: Dims, new: Dims) -> Dims | None:
    """Return the strides of a tensor after a reshape without a copy; ``None`` if none exist.

    Consecutive axes without gaps between them are merged and then split into the new extents.
    """
    if 0 in dims:
        return dense_strides(new)
    runs: list[list[int]] = []  # number of elements, stride of the last axis; merged where dense
    for dim, stride in zip(dims, strides, strict=True):
        if dim == 1:
            continue
        if runs and runs[-1][1] == dim * stride:
            runs[-1] = [runs[-1][0] * dim, stride]
        else:
            runs.append([dim, stride])
    result = [0] * len(new)
    axis = len(new) - 1
    for size, stride in reversed(runs):
        rest, step = size, stride
        while rest > 1:
            if axis < 0 or rest % new[axis]:
                return None
            result[axis] = step
            step, rest, axis = step * new[axis], rest // new[axis], axis - 1
    for left in range(axis + 1):  # extents of 1: any stride will do
        result[left] = dense_strides(new)[left]
    return tuple(result)


def is_part(node: Node, movable: Collection[str]) -> bool:
    """Return whether a node may be a view into its operand."""
    return node.output in movable and node.op in ("Slice", "Reshape")


def part_layout(node: Node, whole: Layout, dims: Mapping[str, Dims]) -> Layout | None:
    """Return the layout of a Slice or Reshape as a view; ``None`` if no strides express it."""
    if node.op == "Slice":
        offset = whole.offset + node.attr("lo") * whole.strides[node.attr("axis")]
        return Layout(whole.root, offset if prod(dims[node.output]) else 0, whole.strides)
    strides = reshaped_strides(dims[node.inputs[0]], whole.strides, dims[node.output])
    return None if strides is None else Layout(whole.root, whole.offset, strides)


class NestedPlaces:
    """Values placed inside others, built up step by step.

    Args:
        nodes, dims, movable, strides, packed, aligned: see `find_views`.

    Attributes:
        dims: extents of every value, and of every union.
        inside: by value, the value or union that contains it, the axis along which it is placed,
            and the index along that axis at which it begins.
        unions: memory in which several values overlap, by its name: one of these values.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        dims: Mapping[str, Dims],
        movable: Collection[str],
        *,
        strides: Mapping[str, Dims],
        packed: Collection[str],
        aligned: Mapping[str, int],
    ) -> None:
        self.dims = dict(dims)
        self.inside: dict[str, tuple[str, int, int]] = {}
        self.unions: dict[str, str] = {}
        self._largest: dict[str, int] = {}  # by union, the elements of its largest value
        self._strides = dict(strides)
        self._packed, self._aligned = packed, aligned
        self._part_of = {node.output: node for node in nodes if is_part(node, movable)}
        self._computed = {node.output for node in nodes} - self._part_of.keys()
        self._parts: dict[str, list[Node]] = {}
        for node in self._part_of.values():
            self._parts.setdefault(node.inputs[0], []).append(node)

    def saved(self) -> tuple[dict[str, tuple[str, int, int]], dict[str, str]]:
        """Return the state of placement, for `restore`."""
        return dict(self.inside), dict(self.unions)

    def restore(self, state: tuple[dict[str, tuple[str, int, int]], dict[str, str]]) -> None:
        """Undo all placements since a state was saved."""
        self.inside, self.unions = state

    def own(self, value: str) -> Layout:
        """Return the layout of a value in memory of its own."""
        return Layout(value, 0, self._strides.get(value) or dense_strides(self.dims[value]))

    def layout(self, value: str) -> Layout:
        """Return the layout of a value that is no view into its operand."""
        chain = []
        while value in self.inside:
            chain.append(self.inside[value])
            value = chain[-1][0]
        own = self.own(value)
        return Layout(value, sum(at * own.strides[axis] for _, axis, at in chain), own.strides)

    def may_lie(self, value: str, layout: Layout) -> bool:
        """Return whether the kernels that write and read a value accept it at a layout."""
        if 0 in self.dims[value]:
            return True
        if layout.offset % self._aligned.get(value, 1):
            return False
        own = self._strides.get(value) or dense_strides(self.dims[value])
        wanted = zip(self.dims[value], own, layout.strides, strict=True)
        return value not in self._packed or all(d == 1 or one == two for d, one, two in wanted)

    def put(self, value: str, whole: str, axis: int, at: int) -> bool:
        """Place a value in a Concat, to be written there directly; return whether it is possible.

        Args:
            value: operand of the Concat.
            whole: the Concat.
            axis: the axis along which it concatenates.
            at: the index along the axis at which the operand begins.
        """
        if value in self.inside or value not in self._computed:
            return False
        self.inside[value] = whole, axis, at
        if self.may_lie(value, self.layout(value)):
            return True
        del self.inside[value]
        return False

    def unite(self, value: str, whole: str, axis: int, at: int) -> bool:
        """Overlap the operand of a Slice with a Concat in the Slice; return whether it is possible.

        Both are placed in memory that covers them.

        Args:
            value: the Slice, an operand of the Concat.
            whole: the Concat.
            axis: the axis along which it concatenates.
            at: the index along the axis at which the Slice begins in the Concat.
        """
        part = self._part_of.get(value)
        if part is None or part.op != "Slice" or part.attr("axis") != axis:
            return False
        source, lo = part.inputs[0], int(part.attr("lo"))
        first, second = self._root_along(source, axis), self._root_along(whole, axis)
        if source not in self._computed or first is None or second is None:
            return False
        (one, from_one), (two, from_two) = first, second
        shift = from_two + at - from_one - lo
        if one == two:
            return shift == 0
        starts = max(shift, 0), max(-shift, 0)
        ends = tuple(
            start + self.dims[name][axis] for start, name in zip(starts, (one, two), strict=True)
        )
        size = self.dims[value][axis]
        begin = starts[0] + from_one + lo
        if size == 0 or (max(starts), min(ends)) != (begin, begin + size):
            return False  # they would overlap in more than the slice
        return self._joined((one, two), starts, max(ends), axis)

    def _root_along(self, value: str, axis: int) -> tuple[str, int] | None:
        """Return the memory that contains a value, and the index at which the value begins.

        ``None`` if the value is placed along another axis.
        """
        at = 0
        while value in self.inside:
            value, along, more = self.inside[value]
            if along != axis:
                return None
            at += more
        return value, at

    def _joined(
        self, roots: tuple[str, str], starts: tuple[int, int], extent: int, axis: int
    ) -> bool:
        """Place two values in memory that covers both, unless a value in it would not fit."""
        one, two = (self._widened(root, axis, extent) for root in roots)
        dims = tuple(extent if i == axis else d for i, d in enumerate(self.dims[roots[0]]))
        if any(a != b for d, a, b in zip(dims, one, two, strict=True) if d > 1):
            return False
        largest = max(self._largest.get(root, prod(self.dims[root])) for root in roots)
        if prod(dims) > _MOST_TIMES * largest:
            return False
        moved = self._lying_in(roots)
        before = self._views_into(moved)
        first, second = (self.unions.get(root, root) for root in roots)
        name = f"{second} and {first}"
        while name in self.dims:
            name += "_"
        state = self.saved()
        self.dims[name], self._strides[name], self._largest[name] = dims, one, largest
        self.unions[name] = second
        for root, start in zip(roots, starts, strict=True):
            self.inside[root] = name, axis, start
        if before <= self._views_into(moved) and all(
            self.may_lie(value, self.layout(value)) for value in moved
        ):
            return True
        self.restore(state)
        return False

    def _lying_in(self, roots: Collection[str]) -> list[str]:
        """Return the values that own memory, and all that were placed in it."""
        within: dict[str, list[str]] = {}
        for value, (whole, _, _) in self.inside.items():
            within.setdefault(whole, []).append(value)
        found = list(roots)
        for value in found:
            found += within.get(value, ())
        return found

    def _widened(self, root: str, axis: int, extent: int) -> Dims:
        """Return the strides of a value's memory after it is extended along an axis."""
        dims, strides = self.dims[root], self.own(root).strides
        step = dims[axis] * strides[axis]
        return tuple(
            stride // step * extent * strides[axis] if d > 1 and stride >= step else stride
            for d, stride in zip(dims, strides, strict=True)
        )

    def _views_into(self, values: Collection[str]) -> set[str]:
        return {part for value in values for part in self._views_of(value, self.layout(value))}

    def _views_of(self, value: str, layout: Layout) -> Iterator[str]:
        """Yield the values that are views into a value of the given layout."""
        stack = [(value, layout)]
        while stack:
            whole, place = stack.pop()
            for node in self._parts.get(whole, ()):
                part = part_layout(node, place, self.dims)
                if part is not None and self.may_lie(node.output, part):
                    yield node.output
                    stack.append((node.output, part))
