"""The rows of the CP-SAT model with finish times: choices, limits, waiting, objective."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from eqsat_opt.extract.critical_path import least_finish, least_tail
from eqsat_opt.extract.paths.instance import ROUNDING, PathInstance
from eqsat_opt.extract.solve.choice_model import ChoiceModel, floored, scale_of

__all__ = ["PathModel"]

_COST_BITS = 36
_LIMIT_BITS = 50


class PathModel(ChoiceModel):
    """The model under construction: choices, limits and finish times."""

    instance: PathInstance

    def __init__(self, instance: PathInstance, model: Any) -> None:
        super().__init__(instance, model)
        if instance.signed:
            self._require_users()

    def _require_users(self) -> None:
        """Add rows that no class is chosen without a user, which a negative cost would pay for.

        Users form no cycle, so the way up from user to user ends at a root.
        """
        users: dict[int, list[Any]] = {c: [] for c in self.order}
        for i, x in self.x.items():
            for d in self.instance.children[i]:
                users[d].append(x)
        for c in self.order:
            if self.y[c] is not True and not any(u is True for u in users[c]):
                self.model.add_bool_or([~self.y[c], *users[c]])

    def limits(self, cp_model: Any) -> None:
        """Add the limits on totals."""
        for column, limit in enumerate(self.instance.capacity):
            loads = {i: self.instance.load[i][column] for i in self.x}
            scale = scale_of(loads.values(), math.fsum(loads.values()), _LIMIT_BITS)
            variables, numbers, constant = self.scaled_sum(loads, scale)
            limit_scaled = math.floor(limit * scale * (1 + ROUNDING)) - constant
            # A limit far beyond all totals, or below them, is none of the solver's integers.
            most = sum(number for number in numbers if number > 0)
            least = sum(number for number in numbers if number < 0)
            if limit_scaled < most:
                total = cp_model.LinearExpr.weighted_sum(variables, numbers)
                self.model.add(total <= max(limit_scaled, least - 1))

    def objective(self, cp_model: Any) -> None:
        """Add the total cost and critical path, with finish times if the path matters."""
        instance = self.instance
        costliest = [
            max((abs(instance.cost[i]) for i in instance.members[c]), default=0.0)
            for c in self.order
        ]
        reference = math.fsum(costliest)
        timed = instance.alpha > 0 or math.isfinite(instance.path_limit)
        costs = {i: instance.cost[i] for i in self.x}
        if instance.alpha > 0:
            lengths = [instance.alpha * instance.path[i] for i in self.x]
            reference = max(reference, math.fsum(lengths))
            self.scale = scale_of([*costs.values(), *lengths], reference, _COST_BITS)
        else:
            self.scale = scale_of(costs.values(), reference, _COST_BITS)
        variables, numbers, constant = self.scaled_sum(costs, self.scale)
        goal = cp_model.LinearExpr.weighted_sum(variables, numbers) + constant
        self.finish: dict[int, Any] = {}
        self.units: dict[int, int] = {}
        self.least: dict[int, int] = {}
        if timed:
            last = self._finish_times()
            if instance.alpha > 0:
                goal = goal + last
        self.model.minimize(goal)

    def _finish_times(self) -> Any:
        """Add finish variables; return the critical path, a variable in the objective's units."""
        instance, model = self.instance, self.model
        lengths = {i: instance.path[i] for i in self.x}
        if instance.alpha > 0:
            scale = self.scale * instance.alpha
        else:
            scale = scale_of(lengths.values(), math.fsum(lengths.values()), _LIMIT_BITS)
        self.units = {i: floored(length * scale) for i, length in lengths.items()}
        horizon = sum(max(self.units[i] for i in instance.members[c]) for c in self.order)
        if math.isfinite(instance.path_limit):
            horizon = min(horizon, math.floor(instance.path_limit * scale * (1 + ROUNDING)))
        path = [self.units.get(i, 0) for i in range(len(instance.path))]
        found = least_finish(instance.members, instance.option_class, instance.children, path)[0]
        least = {c: int(found[c]) if math.isfinite(found[c]) else horizon + 1 for c in self.order}
        tail = least_tail(instance.members, instance.children, path, instance.roots)
        for c in self.order:
            fixed = self._fixed_finish(c)
            if fixed is not None:
                self.finish[c] = fixed
            else:
                self.least[c] = min(least[c], horizon)
                latest = max(self.least[c], horizon - int(tail[c]))  # finish of a needed class
                self.finish[c] = model.new_int_var(self.least[c], latest, "")
        for c in self.order:
            if not isinstance(self.finish[c], int):
                self._wait(c, least)
        last = model.new_int_var(0, horizon, "")
        for r in instance.roots:
            model.add(last >= self.finish[r])
        self.last = last
        return last

    def _fixed_finish(self, c: int) -> int | None:
        """Return the finish of a class if neither it nor the classes below have a choice."""
        m = self.instance.members[c]
        if len(m) != 1 or c in self.level:
            return None
        below = [self.finish.get(d) for d in self.instance.children[m[0]]]
        if any(not isinstance(finish, int) for finish in below):
            return None
        return self.units[m[0]] + max((f for f in below if isinstance(f, int)), default=0)

    def _wait(self, c: int, least: dict[int, int]) -> None:
        instance, model = self.instance, self.model
        m = instance.members[c]
        own = self.finish[c]
        common = set(instance.children[m[0]])
        for i in m[1:]:
            common.intersection_update(instance.children[i])
        if len(m) > 1:
            floor = {i: max((least[d] for d in instance.children[i]), default=0) for i in m}
            model.add(own >= sum((self.units[i] + floor[i]) * self.x[i] for i in m))
        for i in m:
            x = self.x[i]
            if len(m) > 1 and not instance.children[i]:
                model.add(own >= self.units[i]).only_enforce_if(x)
            for d in instance.children[i]:
                if d in common and len(m) > 1 and self.y[c] is True:
                    continue
                row = model.add(own >= self.finish[d] + self.units[i])
                if x is not True:
                    row.only_enforce_if(x)
        if len(m) > 1 and self.y[c] is True:
            for d in common:
                model.add(own >= self.finish[d] + sum(self.units[i] * self.x[i] for i in m))

    def hint(self, choice: Sequence[int]) -> None:
        """Add a solution as a hint, with its levels and finish times."""
        measured = self.instance.measure(choice)
        if measured is None:
            return
        self.hint_solution(choice, measured.order)
        if not self.finish:
            return
        children, finish = self.instance.children, dict[int, int]()
        for c in measured.order:
            before = max((finish[d] for d in children[choice[c]]), default=0)
            finish[c] = self.units[choice[c]] + before
        for c, variable in self.finish.items():
            if not isinstance(variable, int):
                self.model.add_hint(variable, finish.get(c, self.least[c]))
        self.model.add_hint(self.last, max(finish[r] for r in self.instance.roots))
