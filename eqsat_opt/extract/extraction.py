"""The answer of an extraction, with an independent check of all that it claims."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract.objective import CRITICAL_PATH, AnyObjective
from eqsat_opt.extract.problem import FloatArray, Problem

__all__ = [
    "Choice",
    "Extraction",
    "Status",
    "TracePoint",
    "active_order",
    "broken",
    "longest_chain",
    "measured",
    "relative_gap",
    "totals",
]

Choice = Mapping[int, tuple[int, int]]
"""Class to (e-node, number of the implementation within the e-node)."""

Status = Literal["optimal", "feasible", "infeasible", "greedy"]

_TOLERANCE = 1e-9  # relative error of float sums in another order
_PROVEN = 1e-6  # the largest gap that may be called optimal


@dataclass(frozen=True)
class TracePoint:
    """Best cost and bound known at one moment of the run."""

    stage: str
    time_s: float
    cost: float
    lower_bound: float


@dataclass(frozen=True)
class Extraction:
    """A chosen implementation for every class that the roots need.

    Attributes:
        choice: class to (e-node, implementation), for the needed classes and no others.
        cost: value of the objective, each class paid once.
        lower_bound: no solution costs less (up to the rounding of float sums).
        gap: `(cost - lower_bound) / cost`, 0 when proven.
        status: `optimal` (gap at most 1e-6), `feasible` (searched, not proven), `greedy` (not
            searched, not proven) or `infeasible` (proven; nothing is chosen, cost is infinite).
        metrics: total of each metric, and the critical path where the objective needs it.
        objective: the minimised objective.
        trace: cost and bound over time: costs fall, bounds rise.
        stages_s: seconds spent in each stage, in the order of the stages.
    """

    choice: Choice
    cost: float
    lower_bound: float
    gap: float
    status: Status
    metrics: Mapping[str, float]
    objective: AnyObjective
    trace: tuple[TracePoint, ...] = field(default=(), compare=False)
    stages_s: Mapping[str, float] = field(default_factory=dict, compare=False)

    def check(self, problem: Problem) -> float:
        """Recompute the cost from the problem's arrays alone and compare all claims with it.

        Returns:
            The recomputed cost.

        Raises:
            ExtractionError: the choice is incomplete, cyclic, names a foreign e-node or
                implementation, contains unneeded classes, breaks a limit, a number is wrong, or the
                gap, the status or the trace does not fit the numbers.
        """
        self._check_trace()
        if self.status == "infeasible":
            if self.choice:
                raise ExtractionError("an infeasible extraction must choose nothing")
            return math.inf
        order = active_order(problem, self.choice)
        if len(order) != len(self.choice):
            extra = next(c for c in self.choice if c not in set(order))
            raise ExtractionError(f"class {extra} is chosen although no root needs it")
        metrics = measured(problem, self.objective, self.choice)
        self.objective.vector(problem.metrics)  # raises an error for unknown metrics
        cost = self.objective.value(metrics)
        if not math.isclose(cost, self.cost, rel_tol=_TOLERANCE, abs_tol=1e-300):
            raise ExtractionError(f"the claimed cost {self.cost} is {cost} when recomputed")
        for name, value in metrics.items():
            claimed = self.metrics.get(name, math.nan)
            if not math.isclose(value, claimed, rel_tol=_TOLERANCE, abs_tol=1e-300):
                raise ExtractionError(f"the claimed {name} {claimed} is {value}")
        why = broken(problem, self.objective, self.choice, metrics)
        if why is not None:
            raise ExtractionError(why)
        if self.lower_bound > cost * (1 + _TOLERANCE):
            raise ExtractionError(f"the lower bound {self.lower_bound} is above the cost {cost}")
        gap = relative_gap(cost, self.lower_bound)
        if not math.isclose(gap, self.gap, rel_tol=1e-6, abs_tol=_TOLERANCE):
            raise ExtractionError(f"the claimed gap {self.gap} is {gap} when recomputed")
        if self.status == "optimal" and gap > _PROVEN:
            raise ExtractionError(f"the status is optimal although the gap is {gap}")
        return cost

    def _check_trace(self) -> None:
        for before, after in itertools.pairwise(self.trace):
            if after.time_s < before.time_s:
                raise ExtractionError(f"the trace goes back in time at {after.time_s} s")
            if after.cost > before.cost:
                raise ExtractionError(f"the trace has a cost that rises at {after.time_s} s")
            if after.lower_bound < before.lower_bound:
                raise ExtractionError(f"the trace has a bound that falls at {after.time_s} s")

    def to_json(self) -> dict[str, Any]:
        """Return plain values for `json.dumps`; infinities become `None`."""
        return {
            "choices": {str(c): [n, i] for c, (n, i) in sorted(self.choice.items())},
            "cost": _finite(self.cost),
            "lower_bound": _finite(self.lower_bound),
            "gap": self.gap,
            "status": self.status,
            "metrics": dict(self.metrics),
            "stages_s": dict(self.stages_s),
            "trace": [
                [p.stage, p.time_s, _finite(p.cost), _finite(p.lower_bound)] for p in self.trace
            ],
        }

    def __str__(self) -> str:
        """Return one line for a person."""
        if self.status == "infeasible":
            return "infeasible: no choice computes the roots within the limits"
        return (
            f"{self.status}: cost {self.cost:.6g}, bound {self.lower_bound:.6g} "
            f"(gap {self.gap:.2%}), {len(self.choice)} classes"
        )


def active_order(problem: Problem, choice: Choice) -> list[int]:
    """Return the classes that the roots need under a choice, children before parents.

    Raises:
        ExtractionError: a needed class has no choice, the choice is cyclic, or an e-node or
            implementation does not belong where it is used.
    """
    order: list[int] = []
    entered: set[int] = set()
    left: set[int] = set()
    stack = [(root, False) for root in reversed(problem.roots)]
    while stack:
        cls, children_done = stack.pop()
        if children_done:
            left.add(cls)
            order.append(cls)
            continue
        if cls in left:
            continue
        if cls in entered:
            raise ExtractionError(f"the choice is cyclic: class {cls} needs itself")
        entered.add(cls)
        stack.append((cls, True))
        node = _chosen_node(problem, choice, cls)
        stack.extend((child, False) for child in problem.children(node) if child not in left)
    return order


def _chosen_node(problem: Problem, choice: Choice, cls: int) -> int:
    if cls not in choice:
        raise ExtractionError(f"the choice is incomplete: class {cls} is needed but not chosen")
    node, impl = choice[cls]
    if not 0 <= node < problem.n_nodes or int(problem.node_class[node]) != cls:
        raise ExtractionError(f"class {cls} is computed by e-node {node}, which is not in it")
    if not 0 <= impl < int(problem.impl_ptr[node + 1] - problem.impl_ptr[node]):
        raise ExtractionError(f"e-node {node} has no implementation {impl}")
    return node


def totals(problem: Problem, choice: Choice) -> dict[str, float]:
    """Return the total of each metric over the chosen implementations; for a peak, the maximum."""
    rows = [problem.impl_cost[problem.row(*chosen)] for chosen in choice.values()]
    return {
        name: (max if name in problem.peaks else math.fsum)(float(row[column]) for row in rows)
        for column, name in enumerate(problem.metrics)
    }


def longest_chain(
    problem: Problem, choice: Choice, order: Sequence[int], weights: FloatArray
) -> float:
    """Return the length of the longest chain of implementations that wait for each other.

    Each is as long as its weighted metrics. `order` is that of `active_order`; `weights` are
    `[n_metrics]`.
    """
    finish: dict[int, float] = {}
    for cls in order:
        node, impl = choice[cls]
        row = problem.impl_cost[problem.row(node, impl)]
        own = math.fsum(float(w) * float(x) for w, x in zip(weights, row, strict=True))
        finish[cls] = own + max((finish[child] for child in problem.children(node)), default=0.0)
    return max(finish[root] for root in problem.roots)


def measured(problem: Problem, objective: AnyObjective, choice: Choice) -> dict[str, float]:
    """Return totals of a choice, and its critical path where the objective needs that.

    Raises:
        ExtractionError: the choice is incomplete or cyclic.
    """
    metrics = totals(problem, choice)
    if objective.needs_path:
        weights = objective.path_vector(problem.metrics)
        order = active_order(problem, choice)
        metrics[CRITICAL_PATH] = longest_chain(problem, choice, order, weights)
    return metrics


def broken(
    problem: Problem, objective: AnyObjective, choice: Choice, metrics: Mapping[str, float]
) -> str | None:
    """Return a sentence about a limit or cap that a choice with these metrics breaks, or None."""
    for name, cap in objective.caps.items():
        column = problem.metrics.index(name)
        for cls, (node, impl) in choice.items():
            value = float(problem.impl_cost[problem.row(node, impl), column])
            if value > cap * (1 + _TOLERANCE):
                return f"{name} is {value} in class {cls}, above its limit {cap}"
    return objective.broken_limit(metrics)


def relative_gap(cost: float, lower_bound: float) -> float:
    """Return `(cost - lower_bound) / cost`, at least 0, and 0 for a cost of 0 or no solution."""
    if not math.isfinite(cost) or cost <= 0:
        return 0.0
    return max(0.0, (cost - lower_bound) / cost)


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None
