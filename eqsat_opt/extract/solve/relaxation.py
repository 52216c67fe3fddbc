"""The linear relaxation of extraction, with rows that are added as they are found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_opt.extract.instance import Instance
from eqsat_opt.extract.problem import FloatArray, IntArray

__all__ = ["ChildArrays", "Mask", "Reason", "Relaxation"]

Mask = npt.NDArray[np.bool_]
Reason = tuple[tuple[int, ...], tuple[int, ...]]
_ITSELF: Reason = ((), ())


class _Rows:
    """Sparse rows `a·x >= b` that only grow."""

    def __init__(self) -> None:
        self.columns: list[IntArray] = []
        self.values: list[FloatArray] = []
        self.bounds: list[float] = []

    def add(self, columns: Sequence[int], values: Sequence[float], bound: float) -> None:
        self.columns.append(np.array(columns, dtype=np.int64))
        self.values.append(np.array(values, dtype=np.float64))
        self.bounds.append(bound)


class Relaxation:
    """The program over x of each option, 0 to 1; a class is needed as far as options are taken.

    Attributes:
        reasons: for each row a set of classes that a derivation leaves, and what needs one of them,
            as in `eqsat_opt.checking.bound`; the set is empty in rows that say that a class has at
            most one option, or a root one.
    """

    def __init__(self, instance: Instance) -> None:
        from ortools.linear_solver import pywraplp  # takes a while: only when needed

        self._instance = instance
        self._roots = set(instance.roots)
        self._rows = _Rows()
        self.reasons: list[Reason] = []
        self._children = ChildArrays(instance)
        self._lp: Any = pywraplp.Solver.CreateSolver("GLOP")
        self._lp.SetSolverSpecificParametersAsString(
            "use_dual_simplex: true use_preprocessing: false"
        )
        self._x = [self._lp.NumVar(0.0, 1.0, "") for _ in instance.option_class]
        objective = self._lp.Objective()
        for variable, cost in zip(self._x, instance.cost, strict=True):
            objective.SetCoefficient(variable, cost)
        objective.SetMinimization()
        self._constraints: list[Any] = []
        self._base_rows()

    def _base_rows(self) -> None:
        for c, members in enumerate(self._instance.members):
            ones = [1.0] * len(members)
            if c in self._roots:
                self._add(members, ones, 1.0, _ITSELF)
            else:
                self._add(members, [-1.0] * len(members), -1.0, _ITSELF)
            users: dict[int, list[int]] = {}
            for i in members:
                for d in self._instance.children[i]:
                    users.setdefault(d, []).append(i)
            for d, using in users.items():
                if d in self._roots and len(using) == len(members) and c in self._roots:
                    continue
                self._add_difference(self._instance.members[d], using, ((d,), (c, d)))

    def _add_difference(self, plus: Sequence[int], minus: Sequence[int], reason: Reason) -> None:
        weight: dict[int, float] = dict.fromkeys(plus, 1.0)
        for i in minus:
            weight[i] = weight.get(i, 0.0) - 1.0
        columns = [i for i, w in weight.items() if w]
        self._add(columns, [weight[i] for i in columns], 0.0, reason)

    def _add(
        self, columns: Sequence[int], values: Sequence[float], bound: float, reason: Reason
    ) -> None:
        self._rows.add(columns, values, bound)
        self.reasons.append(reason)
        row = self._lp.Constraint(bound, self._lp.infinity())
        for i, value in zip(columns, values, strict=True):
            row.SetCoefficient(self._x[i], value)
        self._constraints.append(row)

    def cut(self, inside: Mask, target: int) -> None:
        """Add a row: what the target needs is derived by an option that leaves the set."""
        leaving = np.flatnonzero(self._children.leaving(inside)).tolist()
        within = tuple(np.flatnonzero(inside).tolist())
        if target in self._roots:
            self._add(leaving, [1.0] * len(leaving), 1.0, (within, ()))
        else:
            members = self._instance.members[target]
            self._add_difference(leaving, members, (within, (target,)))

    def solve(self, time_s: float) -> FloatArray | None:
        """Return how far each option is taken, `[n_options]`; None when time ran out."""
        if math.isfinite(time_s):
            self._lp.SetTimeLimit(max(1, int(1000 * time_s)))
        if self._lp.Solve() != self._lp.OPTIMAL:
            return None
        return np.array([variable.solution_value() for variable in self._x])

    def price(self, cost: Sequence[float]) -> None:
        """Change the costs of the options, `[n_options]`, for the next solution."""
        objective = self._lp.Objective()
        for variable, one in zip(self._x, cost, strict=True):
            objective.SetCoefficient(variable, one)

    def duals(self) -> FloatArray:
        """Return the multiplier of each row in the last solution, `[n_rows]`."""
        return np.array([max(row.dual_value(), 0.0) for row in self._constraints])

    def weighed(self, duals: FloatArray) -> tuple[float, FloatArray]:
        """Return the sum of the bounds of all rows, and what they pay to each option."""
        rows = self._rows
        lengths = [len(columns) for columns in rows.columns]
        columns = np.concatenate(rows.columns)
        weighted = np.concatenate(rows.values) * np.repeat(duals, lengths)
        paid = np.bincount(columns, weights=weighted, minlength=len(self._x)).astype(np.float64)
        return float(duals @ np.array(rows.bounds)), paid

    def safe_bound(self) -> tuple[float, FloatArray]:
        """Return bound and reduced costs by weak duality, valid for any non-negative duals."""
        total, paid = self.weighed(self.duals())
        reduced: FloatArray = np.array(self._instance.cost) - paid
        return max(0.0, total + float(np.minimum(reduced, 0.0).sum())), reduced


class ChildArrays:
    """The child lists of an instance as arrays."""

    def __init__(self, instance: Instance) -> None:
        self._option_class = np.array(instance.option_class, dtype=np.int64)
        lengths = np.array([len(ch) for ch in instance.children], dtype=np.int64)
        self.flat = np.array([d for ch in instance.children for d in ch], dtype=np.int64)
        self.with_children = np.flatnonzero(lengths)
        self.starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))[self.with_children]
        self.owner = np.repeat(np.arange(len(lengths)), lengths)
        self.n_options = len(lengths)

    def leaving(self, inside: Mask) -> Mask:
        """Return the options of a set of classes that have no child in the set, `[n_options]`."""
        result: Mask = inside[self._option_class]
        if len(self.flat):
            stays = np.logical_or.reduceat(inside[self.flat], self.starts)
            result[self.with_children[stays]] = False
        return result

    def first_least(self, key: FloatArray, otherwise: int) -> IntArray:
        """Return each option's child with the least `key [n_edges]`, or `otherwise` without any."""
        least = np.full(self.n_options, otherwise, dtype=np.int64)
        if len(self.flat):
            at = np.full(self.n_options, math.inf)
            at[self.with_children] = np.minimum.reduceat(key, self.starts)
            hits = np.flatnonzero(key == at[self.owner])[::-1]
            least[self.owner[hits]] = self.flat[hits]
        return least
