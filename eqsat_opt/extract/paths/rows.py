"""The rows of the CP-SAT model with finish times: choice, cycles, limits, waiting, objective."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from eqsat_opt.extract.critical_path import least_finish, least_tail
from eqsat_opt.extract.instance import possible_classes, strong_components
from eqsat_opt.extract.paths.instance import ROUNDING, PathInstance
from eqsat_opt.extract.solve.exact import add_levels, hint_levels

__all__ = ["PathModel"]

_COST_BITS = 36
_LIMIT_BITS = 50


class PathModel:
    """The model under construction.

    `x` and `y` are True, in place of a variable, for what every solution contains.
    """

    def __init__(self, instance: PathInstance, model: Any) -> None:
        self.instance, self.model = instance, model
        self.order, self.component = _needed_classes(instance)
        self.forced = _forced(instance)
        self.y: dict[int, Any] = {}
        self.x: dict[int, Any] = {}
        for c in self.order:
            m = instance.members[c]
            if c in self.forced:
                self.y[c] = True
            else:
                self.y[c] = model.new_bool_var("")
            for i in m:
                self.x[i] = self.y[c] if len(m) == 1 else model.new_bool_var("")

    def rows(self) -> None:
        """Add an option for each needed class, its children, and users if costs are negative."""
        users: dict[int, list[Any]] = {c: [] for c in self.order}
        for c in self.order:
            m = self.instance.members[c]
            if len(m) != 1:
                rest = [] if self.y[c] is True else [~self.y[c]]
                self.model.add_exactly_one([*(self.x[i] for i in m), *rest])
            using: dict[int, list[int]] = {}
            for i in m:
                for d in self.instance.children[i]:
                    using.setdefault(d, []).append(i)
                    users[d].append(self.x[i])
            for d, options in using.items():
                if self.y[d] is True:
                    continue
                if len(options) < len(m):
                    self.model.add_at_most_one([*(self.x[i] for i in options), ~self.y[d]])
                elif self.y[c] is True:
                    self.model.add_bool_or([self.y[d]])
                else:
                    self.model.add_implication(self.y[c], self.y[d])
        if self.instance.signed:
            # A class with a negative cost must not be chosen without a user. Users form no cycle,
            # so the way up from user to user ends at a root.
            for c in self.order:
                if self.y[c] is not True and not any(u is True for u in users[c]):
                    self.model.add_bool_or([~self.y[c], *users[c]])

    def levels(self) -> None:
        """Add a level for each class on a cycle; chosen options are above their children."""
        self.level = add_levels(self.model, self.order, self.component, self.instance, x=self.x)

    def limits(self, cp_model: Any) -> None:
        """Add the limits on totals."""
        for column, limit in enumerate(self.instance.capacity):
            loads = {i: self.instance.load[i][column] for i in self.x}
            scale = _scale(loads.values(), math.fsum(loads.values()), _LIMIT_BITS)
            variables, numbers, constant = self._sum(loads, scale)
            limit_scaled = math.floor(limit * scale * (1 + ROUNDING)) - constant
            self.model.add(cp_model.LinearExpr.weighted_sum(variables, numbers) <= limit_scaled)

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
            self.scale = _scale([*costs.values(), *lengths], reference, _COST_BITS)
        else:
            self.scale = _scale(costs.values(), reference, _COST_BITS)
        variables, numbers, constant = self._sum(costs, self.scale)
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
            scale = _scale(lengths.values(), math.fsum(lengths.values()), _LIMIT_BITS)
        self.units = {i: _floor(length * scale) for i, length in lengths.items()}
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

    def _sum(self, numbers: dict[int, float], scale: float) -> tuple[list[Any], list[int], int]:
        """Return variables, their scaled numbers, and the constant part."""
        variables: list[Any] = []
        scaled: list[int] = []
        constant = 0
        for i, number in numbers.items():
            value = _floor(number * scale)
            if self.x[i] is True:
                constant += value
            elif value:
                variables.append(self.x[i])
                scaled.append(value)
        return variables, scaled, constant

    def hint(self, choice: Sequence[int]) -> None:
        """Add a solution as a hint, with its levels and finish times."""
        instance, model = self.instance, self.model
        measured = instance.measure(choice)
        if measured is None:
            return
        active = set(measured.order)
        for c in self.order:
            if self.y[c] is not True:
                model.add_hint(self.y[c], c in active)
            if len(instance.members[c]) > 1:
                for i in instance.members[c]:
                    model.add_hint(self.x[i], c in active and choice[c] == i)
        chosen = {c: instance.children[choice[c]] for c in measured.order}
        hint_levels(model, self.level, self.component, chosen)
        finish: dict[int, int] = {}
        for c in measured.order:
            if self.finish:
                finish[c] = self.units[choice[c]] + max((finish[d] for d in chosen[c]), default=0)
        for c, variable in self.finish.items():
            if not isinstance(variable, int):
                model.add_hint(variable, finish.get(c, self.least[c]))
        if self.finish:
            model.add_hint(self.last, max(finish[r] for r in instance.roots))


def _needed_classes(instance: PathInstance) -> tuple[list[int], list[int]]:
    """Return the classes that the roots may need, children's components first, and components."""
    needed = possible_classes(instance.members, instance.children, instance.roots)
    members = [m if c in needed else [] for c, m in enumerate(instance.members)]
    component = strong_components(members, instance.children)
    return sorted(needed, key=lambda c: (component[c], c)), component


def _forced(instance: PathInstance) -> set[int]:
    """Return classes that every solution contains, as far as common children show."""
    forced = set(instance.roots)
    stack = list(forced)
    while stack:
        m = instance.members[stack.pop()]
        if not m:
            continue
        common = set(instance.children[m[0]])
        for i in m[1:]:
            common.intersection_update(instance.children[i])
        stack.extend(common - forced)
        forced |= common
    return forced


def _scale(numbers: Iterable[float], reference: float, bits: int) -> float:
    """Return a scale to integers: an exact small power of ten, or 2^bits / reference."""
    values = list(numbers)
    for scale in (1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6):
        if reference * scale > 2**bits:
            break
        if all(math.isclose(round(n * scale), n * scale, rel_tol=1e-14) for n in values):
            return scale
    if reference <= 0:
        return 1.0
    return 2.0**bits / reference


def _floor(x: float) -> int:
    nearest = round(x)
    return nearest if math.isclose(nearest, x, rel_tol=1e-14) else math.floor(x)
