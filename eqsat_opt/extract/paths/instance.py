"""The problem with a critical path and limits, as plain lists for inner loops.

An *option* is one e-node with one of its implementations; each implementation of an e-node is an
option, because one that costs more may be shorter or use less of a limited metric.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eqsat_opt.extract.critical_path import costliest_chain, least_finish
from eqsat_opt.extract.instance import Instance, active_classes, children_of, options_by_class
from eqsat_opt.extract.objective import Objective
from eqsat_opt.extract.problem import FloatArray, Problem

__all__ = ["ROUNDING", "MeasuredChoice", "PathInstance", "from_problem"]

ROUNDING = 1e-9
"""Relative excess over a limit that is attributed to the rounding of sums."""


@dataclass(frozen=True)
class MeasuredChoice:
    """A choice that computes the roots: value of the objective, total cost, path, loads."""

    value: float
    cost: float
    path: float
    loads: tuple[float, ...]
    order: list[int]


@dataclass(frozen=True, eq=False, kw_only=True)
class PathInstance(Instance):
    """The problem to minimise Σ cost + alpha · (longest chain), acyclic, under limits.

    Options that rules have dropped are in no class of `members` any more; other lists keep them.
    Costs may be negative (see `signed`).

    Attributes:
        load: amount of each limited metric that each option uses.
        path: time that each option adds to a chain, not negative.
        alpha: weight of the longest chain.
        capacity: largest total of each column of `load`.
        path_limit: largest critical path allowed.
        settled: class to option (the problem's numbers), for classes that cost nothing and take no
            time.
    """

    load: list[tuple[float, ...]]
    path: list[float]
    alpha: float
    capacity: tuple[float, ...]
    path_limit: float
    settled: Mapping[int, int]

    @property
    def n_options(self) -> int:
        """Number of options that are left."""
        return sum(map(len, self.members))

    @property
    def signed(self) -> bool:
        """Whether an option has a negative cost; then hardly any rule is sound."""
        return any(self.cost[i] < 0 for m in self.members for i in m)

    def measure(self, choice: Sequence[int]) -> MeasuredChoice | None:
        """Return the value of a choice `[n_classes]` (-1: none); None if incomplete or cyclic."""
        order = active_classes(self.children, choice, self.roots)
        if order is None:
            return None
        finish = [0.0] * len(choice)
        for c in order:
            i = choice[c]
            finish[c] = self.path[i] + max((finish[d] for d in self.children[i]), default=0.0)
        cost = math.fsum(self.cost[choice[c]] for c in order)
        path = max((finish[r] for r in self.roots), default=0.0)
        loads = tuple(
            math.fsum(self.load[choice[c]][k] for c in order) for k in range(len(self.capacity))
        )
        return MeasuredChoice(
            value=cost + self.alpha * path, cost=cost, path=path, loads=loads, order=order
        )

    def allows(self, measured: MeasuredChoice) -> bool:
        """Return whether a choice keeps all limits."""
        return measured.path <= self.path_limit * (1 + ROUNDING) and all(
            used <= limit * (1 + ROUNDING)
            for used, limit in zip(measured.loads, self.capacity, strict=True)
        )

    def value(self, choice: Sequence[int]) -> float:
        """Return the value of a choice; infinite if it is incomplete, cyclic or breaks a limit."""
        measured = self.measure(choice)
        return measured.value if measured and self.allows(measured) else math.inf

    def finish(self) -> list[float]:
        """Return the exact least critical path of each class, `[n_classes]`; infinite if none."""
        return least_finish(self.members, self.option_class, self.children, self.path)[0]

    def total_bound(self) -> float:
        """Return a lower bound on the total cost of every solution (`costliest_chain`)."""
        if self.signed:
            return -math.inf
        return costliest_chain(
            self.members, self.option_class, self.children, self.cost, roots=self.roots
        )

    def rows(self, choice: Sequence[int]) -> dict[int, int]:
        """Return a choice in the problem's numbers, with the settled classes."""
        order = active_classes(self.children, choice, self.roots) or []
        return {**self.settled, **{self.class_ids[c]: self.option_ids[choice[c]] for c in order}}

    def choice(self, rows: Mapping[int, int], fill: Sequence[int]) -> list[int]:
        """Return a choice that follows the problem's rows if their options are left, or `fill`."""
        chosen = list(fill)
        for c, m in enumerate(self.members):
            wanted = rows.get(self.class_ids[c])
            for i in m:
                if self.option_ids[i] == wanted:
                    chosen[c] = i
        return chosen


def from_problem(problem: Problem, cost: FloatArray, objective: Objective) -> PathInstance:
    """Build the instance of a problem; an infinite `cost [n_implementations]` forbids."""
    limits = objective.totals_limited
    columns = [problem.metrics.index(name) for name in limits]
    load = problem.impl_cost[:, columns]
    path = problem.impl_cost @ objective.path_vector(problem.metrics)
    allowed = np.isfinite(cost) & (path <= objective.path_limit * (1 + ROUNDING))
    for column, limit in enumerate(limits.values()):
        allowed &= load[:, column] <= limit * (1 + ROUNDING)
    owner = problem.implementation_node()
    rows: list[int] = np.flatnonzero(allowed).tolist()
    nodes: list[int] = owner[rows].tolist()
    option_class: list[int] = problem.node_class[nodes].tolist() if nodes else []
    return PathInstance(
        members=options_by_class(option_class, problem.n_classes),
        option_class=option_class,
        children=children_of(problem, nodes),
        cost=cost[rows].tolist(),
        path=path[rows].tolist(),
        load=[tuple(row) for row in load[rows].tolist()],
        roots=problem.roots,
        class_ids=list(range(problem.n_classes)),
        option_ids=rows,
        alpha=objective.critical_path,
        capacity=tuple(limits.values()),
        path_limit=objective.path_limit,
        settled={},
    )
