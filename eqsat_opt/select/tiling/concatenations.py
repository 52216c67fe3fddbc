"""Kernels of several e-nodes outside backends' patterns: flat concatenations and joint results.

A chain of Concat is one kernel; so are neighbouring Slices, and the outputs of one application.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.egraph import EClasses
from eqsat_opt.ir.graph.kernel import Step
from eqsat_opt.ir.graph.outputs import Application, application
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.select.tiling.candidates import OUTPUTS, SLICES, Candidate, OperandRef
from eqsat_opt.select.tiling.classes import NodeClasses

__all__ = [
    "applications",
    "concatenation",
    "concatenations",
    "flat_operands",
    "joint_kernel",
    "joint_kernels",
    "neighbours",
]

_VARIANTS = 3
_OPERANDS = 256
_ROOM, _ROOM_PER_NODE = 4_096, 4
"""Greatest number of operands of all flat concatenations: a constant, and more for each e-node."""


def flat_operands(
    eclasses: NodeClasses, node: int, depth: int = 0
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield flat forms of a nested concatenation, as operand classes and nodes; deepest first."""
    left, right = eclasses.children(node)
    found = 0
    if not eclasses.is_const[left] and depth < _OPERANDS:
        for inner in eclasses.nodes_of[left]:
            if eclasses.op[inner] == "Concat" and eclasses.attrs[inner] == eclasses.attrs[node]:
                for operands, nodes in flat_operands(eclasses, inner, depth + 1):
                    yield (*operands, right), (*nodes, node)
                    found += 1
                    if found >= _VARIANTS:
                        break
            if found >= _VARIANTS:
                break
    yield (left, right), (node,)


def concatenation(
    eclasses: NodeClasses, node: int, operands: tuple[int, ...], nodes: tuple[int, ...]
) -> Candidate:
    """Return the concatenation of operands that covers nodes."""
    refs = {cls: i for i, cls in enumerate(dict.fromkeys(operands))}
    step = Step("Concat", eclasses.attrs[node], tuple(refs[c] for c in operands))
    return Candidate(
        cls=int(eclasses.class_of[node]), kind="concat", nodes=nodes, reads=tuple(refs),
        operands=tuple(OperandRef(c) for c in refs), steps=(step,), outputs=(len(refs),),
    )  # fmt: skip


def concatenations(
    eclasses: EClasses, pairs: Sequence[int], deadline: Deadline | None = None
) -> Iterator[Candidate]:
    """Yield concatenations of two as they are, and flat ones within a limit on operands.

    A concatenation of n is n - 1 pairs, and to flatten each of them would take n² operands. So the
    outermost, which no other one continues, come first, and each is flattened once before any is
    flattened in another way. After the deadline only those are flattened that are the model's own.
    """

    def has_room(node: int) -> bool:
        is_late = deadline is not None and bool(eclasses.origin[node]) and deadline.expired
        return room > 0 and not is_late

    room = _ROOM + _ROOM_PER_NODE * eclasses.n_nodes
    attrs, classes = eclasses.attrs, eclasses.class_of
    continued = {(eclasses.children(node)[0], attrs[node]) for node in pairs}
    outermost = [node for node in pairs if (int(classes[node]), attrs[node]) not in continued]
    pending, whole = [*reversed(pairs), *reversed(outermost)], set(pairs)
    other_ways: dict[int, Iterator[tuple[tuple[int, ...], tuple[int, ...]]]] = {}
    while pending:
        node = pending.pop()
        if node in other_ways:
            continue
        ways = other_ways[node] = flat_operands(eclasses, node)
        operands, nodes = next(ways) if has_room(node) else (eclasses.children(node), (node,))
        yield concatenation(eclasses, node, operands, nodes)
        room -= len(operands)
        if len(nodes) >= _OPERANDS:  # the other operands are a separate concatenation
            pending += [n for n in eclasses.nodes_of[operands[0]] if n in whole]
    for node, ways in other_ways.items():
        for operands, nodes in ways if has_room(node) else ():
            yield concatenation(eclasses, node, operands, nodes)
            room -= len(operands)
        yield concatenation(eclasses, node, eclasses.children(node), (node,))


def _partitions(slices: dict[tuple[int, int], int], size: int) -> list[list[int]]:
    """Return covers of ``[0, size)`` by neighbouring slices: with shortest and longest steps."""
    by_start: dict[int, list[int]] = defaultdict(list)
    for lo, hi in slices:
        by_start[lo].append(hi)
    covers: dict[tuple[int, ...], None] = {}
    for pick in (min, max):
        position, cover = 0, []
        while position < size:
            ends = [hi for hi in by_start.get(position, ()) if hi - position < size]
            if not ends:
                break
            end = pick(ends)
            cover.append(slices[(position, end)])
            position = end
        else:
            if len(cover) > 1:
                covers[tuple(cover)] = None
    return [list(cover) for cover in covers]


def neighbours(eclasses: NodeClasses, nodes: Iterable[int]) -> Iterator[list[int]]:
    """Yield groups of the given Slices that split one tensor completely."""
    by_source: dict[tuple[int, int], dict[tuple[int, int], int]] = defaultdict(dict)
    for node in nodes:
        attrs: dict[str, Any] = dict(eclasses.attrs[node])
        slices_of = by_source[(eclasses.children(node)[0], attrs["axis"])]
        slices_of[(attrs["lo"], attrs["hi"])] = node
    for (source, axis), slices in by_source.items():
        type_ = eclasses.types[source]
        if isinstance(type_, TensorType) and isinstance(size := type_.shape[axis], int):
            yield from _partitions(slices, size)


def _slices(eclasses: EClasses) -> Iterator[int]:
    for node, op in enumerate(eclasses.op):
        if op == "Slice" and not eclasses.is_const[eclasses.class_of[node]]:
            yield node


def applications(eclasses: NodeClasses, nodes: Iterable[int]) -> Iterator[list[int]]:
    """Yield groups of outputs of one application of an operator, at least two each."""
    found: dict[Application, list[int]] = defaultdict(list)
    for node in nodes:
        key = application(eclasses.op[node], eclasses.attrs[node], eclasses.children(node))
        if key is not None and not eclasses.is_const[eclasses.class_of[node]]:
            found[key].append(node)
    yield from (nodes for nodes in found.values() if len(nodes) > 1)


def joint_kernels(eclasses: EClasses, first_pseudo: int) -> Iterator[Candidate]:
    """Yield kernels with several results: a pseudo-class computes all, and each is then free."""
    kinds = [
        (SLICES, neighbours(eclasses, _slices(eclasses))),
        (OUTPUTS, applications(eclasses, range(eclasses.n_nodes))),
    ]
    found = ((kind, nodes) for kind, all_nodes in kinds for nodes in all_nodes)
    for pseudo, (kind, nodes) in enumerate(found, start=first_pseudo):
        yield joint_kernel(eclasses, nodes, pseudo, kind)
        for index, node in enumerate(nodes):
            yield Candidate(int(eclasses.class_of[node]), "part", (node,), (pseudo,), index=index)


def joint_kernel(
    eclasses: NodeClasses, nodes: Sequence[int], pseudo: int = -1, kind: str = SLICES
) -> Candidate:
    """Return one kernel with the results of several nodes on the same operands."""
    refs = {cls: i for i, cls in enumerate(dict.fromkeys(eclasses.children(nodes[0])))}
    operands = tuple(refs[cls] for cls in eclasses.children(nodes[0]))
    return Candidate(
        cls=pseudo,
        kind=kind,
        nodes=tuple(nodes),
        reads=tuple(refs),
        operands=tuple(map(OperandRef, refs)),
        steps=tuple(Step(eclasses.op[n], eclasses.attrs[n], operands) for n in nodes),
        outputs=tuple(range(len(refs), len(refs) + len(nodes))),
    )
