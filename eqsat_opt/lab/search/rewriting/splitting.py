"""Splits of a graph into parts that few substitutions span (MetaFlow, §4.3, Algorithm 2).

The capacity of a node is the number of substitutions that a cut through it would disable: those
whose left side holds the node and something that may come behind it. The paper
names no source and no sink and does not ask for balance, so it may peel off one node at a time.
Here each cut separates the first nodes of a topological order from the last ones, with a stretch
between them in which the minimum vertex cut is free. The cut of least capacity of several stretches
is taken, and the more balanced of equal ones. A node of the cut goes with the first part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from ortools.graph.python import max_flow

__all__ = ["Cut", "Split", "capacities", "minimum_cut", "split"]

Node = TypeVar("Node")

_CUTS = 12
"""Stretches that are tried in each split."""


@dataclass(frozen=True)
class Cut:
    """A cut between neighbouring parts, by their numbers.

    Attributes:
        begin, middle, end: parts from ``begin`` on and before ``middle`` are cut from those before
            ``end``.
    """

    begin: int
    middle: int
    end: int

    def spanned_by(self, parts: Set[int]) -> bool:
        """Return whether what lies in these parts is on both sides, and nowhere else."""
        return self.begin <= min(parts) < self.middle <= max(parts) < self.end


@dataclass(frozen=True)
class Split(Generic[Node]):
    """The parts of a graph.

    Attributes:
        parts: the nodes of each part, in the order given; no part reads a later one.
        cuts: the cuts, those between the smallest parts first.
    """

    parts: tuple[tuple[Node, ...], ...] = ()
    cuts: tuple[Cut, ...] = ()

    def joined(self, other: Split[Node]) -> Split[Node]:
        """Return the parts of both, with a cut between them."""
        count = len(self.parts)
        moved = (Cut(c.begin + count, c.middle + count, c.end + count) for c in other.cuts)
        between = Cut(0, count, count + len(other.parts))
        return Split((*self.parts, *other.parts), (*self.cuts, *moved, between))


def capacities(
    operands: Mapping[Node, Sequence[Node]], matches: Iterable[Set[Node]]
) -> dict[Node, int]:
    """Return how many substitutions each node would disable as part of a cut.

    A left side is disabled by each of its operators that another of them reads, and by each of its
    roots if it has several. Its only root has all of it before the cut.

    Args:
        operands: node to the nodes that it reads.
        matches: the operators on the left side of each substitution.
    """
    capacity = dict.fromkeys(operands, 0)
    for matched in matches:
        own = matched & capacity.keys()
        inner = {operand for reader in own for operand in operands[reader]} & own
        for node in own if len(own) - len(inner) > 1 else inner:
            capacity[node] += 1
    return capacity


def split(
    operands: Mapping[Node, Sequence[Node]], capacity: Mapping[Node, int], size: int
) -> Split[Node]:
    """Return parts of at most ``size`` nodes.

    Args:
        operands: node to the nodes that it reads, operands first; others than its keys are ignored.
        capacity: node to the number of substitutions that it would disable as part of a cut.
        size: number of nodes of a part, at most; at least 1.
    """
    nodes = list(operands)
    if len(nodes) <= size:
        return Split((tuple(nodes),)) if nodes else Split()
    inner = {node: [c for c in operands[node] if c in operands] for node in nodes}
    step = max(1, len(nodes) // (_CUTS + 1))
    best: tuple[tuple[int, int], set[Node]] | None = None
    for middle in range(step, len(nodes), step):
        first = set(nodes[: max(1, middle - step)])
        last = set(nodes[min(len(nodes) - 1, middle + step) :])
        total, closed = minimum_cut(inner, capacity, first, last)
        rank = (total, abs(len(nodes) - 2 * len(closed)))
        if best is None or rank < best[0]:
            best = rank, closed
    assert best is not None
    halves = [[n for n in nodes if (n in best[1]) == is_first] for is_first in (True, False)]
    before, after = (split({n: inner[n] for n in half}, capacity, size) for half in halves)
    return before.joined(after)


def minimum_cut(
    operands: Mapping[Node, Sequence[Node]],
    capacity: Mapping[Node, int],
    first: set[Node],
    last: set[Node],
) -> tuple[int, set[Node]]:
    """Return the least capacity of nodes without which ``last`` reads nothing of ``first``.

    A node of ``last`` is never cut. The nodes before the cut are closed: they read nothing behind
    it.

    Args:
        operands: node to the nodes that it reads, all of them keys, operands first.
        capacity: capacity of each node; a node without substitutions counts less than any other.
        first: nodes before the cut, or in it.
        last: nodes behind the cut, none of them in ``first``.

    Returns:
        The capacity, in which a substitution counts one more than there are nodes and a node
        without any counts 1; and the nodes before the cut and in it.
    """
    number = {node: i for i, node in enumerate(operands)}
    count = len(number)
    source, sink = 2 * count, 2 * count + 1
    endless = (count + 1) * (sum(capacity[node] for node in number) + count + 1)
    # Each node is an arc from the point where it is computed to the point where it is read. Arcs
    # back without a limit keep the nodes before the cut closed.
    arcs: list[tuple[int, int, int]] = []
    for node, i in number.items():
        limit = endless if node in last else capacity[node] * (count + 1) or 1
        arcs.append((2 * i, 2 * i + 1, limit))
        arcs.append((2 * i + 1, 2 * i, endless))
        for c in operands[node]:
            arcs.append((2 * number[c] + 1, 2 * i, endless))
            arcs.append((2 * i, 2 * number[c], endless))
    arcs += [(source, 2 * number[node], endless) for node in first]
    arcs += [(2 * number[node], sink, endless) for node in last]
    flow = max_flow.SimpleMaxFlow()
    tails, heads, limits = (np.array(column, np.int64) for column in zip(*arcs, strict=True))
    flow.add_arcs_with_capacity(tails, heads, limits)
    status = flow.solve(source, sink)
    assert status == flow.OPTIMAL, status
    reached = set(flow.get_source_side_min_cut())
    return flow.optimal_flow(), {node for node, i in number.items() if 2 * i in reached}
