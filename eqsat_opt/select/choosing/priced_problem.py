"""The extraction problem of priced candidates, over classes or over classes and forms."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from eqsat_opt.cost.metrics import METRICS
from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract import Problem
from eqsat_opt.extract.extraction import Choice, active_order
from eqsat_opt.extract.problem import FloatArray
from eqsat_opt.ir.values.forms import Form
from eqsat_opt.select.choosing.forms import Conversion, Value, Way, form_classes, settled_forms

__all__ = ["AS_MADE", "PricedProblem", "ProblemNode", "formed_problem", "problem_of", "translated"]

AS_MADE = -1
"""Entry of `PricedProblem.index` for a value that is read in the form in which it was made."""


@dataclass(frozen=True)
class PricedProblem:
    """An extraction problem whose node ``i`` is candidate ``index[i]``.

    The implementations of a node are the offers for its candidate, in order.

    Attributes:
        problem: the problem.
        index: candidate of each node; `AS_MADE`, or ``AS_MADE - 1 - k`` for conversion ``k``.
        picks: for nodes that have only some offers of their candidate, the numbers of these.
        value_of: for each class that is not the e-graph's own or has a form, its value, and whether
            it is only read there.
    """

    problem: Problem
    index: tuple[int, ...]
    picks: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    value_of: Mapping[int, tuple[Value, bool]] = field(default_factory=dict)

    def offer_number(self, node: int, implementation: int) -> int:
        """Return the number of a node's implementation among the offers for what the node runs."""
        picks = self.picks.get(node)
        return implementation if picks is None else picks[implementation]

    def conversion_number(self, node: int) -> int | None:
        """Return the number of the conversion that a node performs; ``None`` for other nodes."""
        number = AS_MADE - 1 - self.index[node]
        return number if number >= 0 else None

    def has_nodes_of(self, other: PricedProblem) -> bool:
        """Return whether the nodes and classes of both problems mean the same."""
        return (
            self.index == other.index
            and self.picks == other.picks
            and self.value_of == other.value_of
        )

    def key(self, node: int) -> tuple[Hashable, ...]:
        """Return a key that identifies a node in every problem of the same candidates."""
        cls = int(self.problem.node_class[node])
        return self.index[node], self.picks.get(node), self.value_of.get(cls, cls)

    @cached_property
    def node_of(self) -> dict[tuple[Hashable, ...], int]:
        """The node of each key."""
        return {self.key(node): node for node in range(len(self.index))}


def translated(choice: Choice, before: PricedProblem, after: PricedProblem) -> Choice | None:
    """Return a choice in another problem of the same candidates; ``None`` if it is invalid there.

    It may be invalid because the forms that are left out may change with the prices.
    """
    if before.has_nodes_of(after):
        return choice
    result = {}
    for node, implementation in choice.values():
        own = after.node_of.get(before.key(node))
        if own is not None:
            result[int(after.problem.node_class[own])] = (own, implementation)
    try:
        needed = active_order(after.problem, result)
    except ExtractionError:
        return None
    return {cls: result[cls] for cls in needed}


class ProblemNode(NamedTuple):
    """An e-node of the problem.

    Attributes:
        number: its entry in `PricedProblem.index`.
        cls: its class.
        reads: classes that it reads.
        rows: costs of its implementations.
        picks: its entry in `PricedProblem.picks`.
    """

    number: int
    cls: int
    reads: Sequence[int]
    rows: Sequence[FloatArray]
    picks: tuple[int, ...] = ()


def problem_of(
    nodes: Sequence[ProblemNode],
    n_classes: int,
    roots: Iterable[int],
    *,
    metrics: tuple[str, ...],
    value_of: Mapping[int, tuple[Value, bool]] | None = None,
) -> PricedProblem:
    """Build the problem with these e-nodes."""
    ptr, impl_ptr = (np.zeros(len(nodes) + 1, dtype=np.int64) for _ in range(2))
    np.cumsum([len(node.reads) for node in nodes], out=ptr[1:])
    np.cumsum([len(node.rows) for node in nodes], out=impl_ptr[1:])
    rows = np.array([row for node in nodes for row in node.rows])
    problem = Problem(
        n_classes=n_classes,
        node_class=np.array([node.cls for node in nodes], dtype=np.int64),
        child_ptr=ptr,
        child_ix=np.array([c for node in nodes for c in node.reads], dtype=np.int64),
        impl_ptr=impl_ptr,
        impl_cost=rows.reshape(int(impl_ptr[-1]), len(metrics)),
        metrics=metrics,
        roots=tuple(roots),
        peaks=tuple(name for name in metrics if METRICS[name].is_peak),
    )
    picks = {i: node.picks for i, node in enumerate(nodes) if node.picks}
    return PricedProblem(problem, tuple(node.number for node in nodes), picks, value_of or {})


def formed_problem(
    offered: Mapping[int, tuple[int, Sequence[Way], Sequence[FloatArray]]],
    index: Iterable[int],
    *,
    n_classes: int,
    roots: Sequence[Value],
    conversions: Sequence[tuple[Conversion, Sequence[FloatArray]]],
    metrics: tuple[str, ...],
    settled: bool,
) -> PricedProblem:
    """Build the problem over classes and forms, as described in module `forms`.

    Args:
        offered: for the number of each candidate that may be chosen its class, its ways, and the
            costs of its offers.
        index: candidates that are nodes; the classes are those of all that are offered.
        n_classes: number of e-classes, pseudo-classes included.
        roots: values that must be computed.
        conversions: each conversion with the costs of its offers.
        metrics: names of the costs.
        settled: whether to leave out forms that cost no less.
    """
    only: Mapping[int, Form] = {}
    if settled:
        only = settled_forms(
            (
                (cls, [(way, _rows_of(way, rows)) for way in ways])
                for cls, ways, rows in offered.values()
            ),
            roots,
        )

    def is_open(cls: int, form: Form | None) -> bool:
        return form is None or only.get(cls, form) == form

    kept = {
        i: [
            way for way in ways if all(is_open(*value) for value in (*way.reads, (cls, way.writes)))
        ]
        for i, (cls, ways, _) in offered.items()
    }
    possible = [
        (number, one, rows)
        for number, (one, rows) in enumerate(conversions)
        if rows and one.cls not in only
    ]
    classes = form_classes(
        n_classes,
        made=[
            *((offered[i][0], way.writes) for i, ways in kept.items() for way in ways),
            *((one.cls, one.made) for _, one, _ in possible),
        ],
        read=[
            *(value for ways in kept.values() for way in ways for value in way.reads),
            *((one.cls, one.read) for _, one, _ in possible),
            *roots,
        ],
        converted=[(one.cls, one.read) for _, one, _ in possible],
    )
    made, read = classes.made, classes.read
    nodes = []
    for i in index:
        cls, _, rows = offered[i]
        for way in kept[i]:
            reads = [read[value] for value in way.reads]
            own = _rows_of(way, rows)
            nodes.append(ProblemNode(i, made[cls, way.writes], reads, own, picks=way.offers))
    free = np.zeros(len(metrics))
    nodes += [
        ProblemNode(AS_MADE, number, [made[value]], [free])
        for value, number in read.items()
        if value in made and made[value] != number
    ]
    nodes += [
        ProblemNode(AS_MADE - 1 - number, read[one.cls, one.read], [made[one.cls, one.made]], rows)
        for number, one, rows in possible
    ]
    return problem_of(
        nodes,
        classes.count,
        [read[value] for value in roots],
        metrics=metrics,
        value_of=classes.value_of,
    )


def _rows_of(way: Way, rows: Sequence[FloatArray]) -> Sequence[FloatArray]:
    return [rows[number] for number in way.offers] if way.offers else rows
