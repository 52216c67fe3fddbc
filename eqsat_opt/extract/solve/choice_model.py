"""The rows of the CP-SAT models of extraction: choices, children, cycles, hints.

Acyclicity needs level variables only inside strongly connected components of more than one class.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eqsat_opt.extract.instance import (
    Instance,
    active_classes,
    possible_classes,
    strong_components,
)

__all__ = ["ChoiceModel", "floored", "scale_of"]


class ChoiceModel:
    """A model of the solutions of an instance, to which the caller adds an objective.

    Attributes:
        order: the classes that the roots may need, children's components first.
        forced: classes that every solution contains.
        x: by option, whether it is chosen: a variable, or True for what every solution contains.
        y: by class, whether it is needed, likewise.
        level: a level for each class on a cycle; chosen options are above their children.
    """

    def __init__(self, instance: Instance, model: Any) -> None:
        self.instance, self.model = instance, model
        self.order, self.component = _needed_classes(instance)
        self.forced = _forced(instance)
        self.y: dict[int, Any] = {}
        self.x: dict[int, Any] = {}
        for c in self.order:
            m = instance.members[c]
            self.y[c] = True if c in self.forced else model.new_bool_var("")
            for i in m:
                self.x[i] = self.y[c] if len(m) == 1 else model.new_bool_var("")
        for c in self.order:
            self._choose(c)
        self.level = _levels(model, self.order, self.component, instance, x=self.x)

    def _choose(self, c: int) -> None:
        """Add rows for one option of a needed class, and for its children."""
        m = self.instance.members[c]
        if len(m) != 1:
            rest = [] if self.y[c] is True else [~self.y[c]]
            self.model.add_exactly_one([*(self.x[i] for i in m), *rest])
        using: dict[int, list[int]] = {}
        for i in m:
            for d in self.instance.children[i]:
                using.setdefault(d, []).append(i)
        for d, options in using.items():
            if self.y[d] is True:
                continue
            if len(options) < len(m):
                # Σ x <= y for all options of c that use d: tighter than one row for each.
                self.model.add_at_most_one([*(self.x[i] for i in options), ~self.y[d]])
            elif self.y[c] is True:
                self.model.add_bool_or([self.y[d]])
            else:
                self.model.add_implication(self.y[c], self.y[d])

    def scaled_sum(
        self, numbers: Mapping[int, float], scale: float
    ) -> tuple[list[Any], list[int], int]:
        """Return variables, their numbers by option as scaled integers, and the constant part."""
        variables: list[Any] = []
        scaled: list[int] = []
        constant = 0
        for i, number in numbers.items():
            value = floored(number * scale)
            if self.x[i] is True:
                constant += value
            elif value:
                variables.append(self.x[i])
                scaled.append(value)
        return variables, scaled, constant

    def hint(self, choice: Sequence[int]) -> None:
        """Add a solution as a hint, with its levels; nothing if it is incomplete or cyclic."""
        active = active_classes(self.instance.children, choice, self.instance.roots)
        if active is not None:
            self.hint_solution(choice, active)

    def hint_solution(self, choice: Sequence[int], order: Sequence[int]) -> None:
        """Add a solution as a hint; `order` has the classes that it needs, children first."""
        members, children, active = self.instance.members, self.instance.children, set(order)
        for c in self.order:
            if self.y[c] is not True:
                self.model.add_hint(self.y[c], c in active)
            if len(members[c]) > 1:
                for i in members[c]:
                    self.model.add_hint(self.x[i], c in active and choice[c] == i)
        height: dict[int, int] = {}
        for c in order:
            below = (d for d in children[choice[c]] if self.component[d] == self.component[c])
            height[c] = max((height[d] + 1 for d in below), default=0)
        for c, level in self.level.items():
            self.model.add_hint(level, height.get(c, 0))

    def choice(self, solver: Any) -> list[int]:
        """Return the solution of a solver, `[n_classes]` options (-1: not needed)."""
        choice = [-1] * self.instance.n_classes
        for i, x in self.x.items():
            if x is True or solver.boolean_value(x):
                choice[self.instance.option_class[i]] = i
        return choice


def _levels(
    model: Any,
    classes: Sequence[int],
    component: Sequence[int],
    instance: Instance,
    x: Mapping[int, Any],
) -> dict[int, Any]:
    """Add a level for each class on a cycle; every chosen option is above its children.

    `x` is True for an option that every solution has.
    """
    size = Counter(component[c] for c in classes)
    levels = {
        c: model.new_int_var(0, size[component[c]] - 1, "")
        for c in classes
        if size[component[c]] > 1
    }
    for i, chosen in x.items():
        c = instance.option_class[i]
        for d in instance.children[i]:
            if d == c:
                model.add_bool_or([] if chosen is True else [~chosen])
            elif component[d] == component[c]:
                row = model.add(levels[c] >= levels[d] + 1)
                if chosen is not True:
                    row.only_enforce_if(chosen)
    return levels


def _needed_classes(instance: Instance) -> tuple[list[int], list[int]]:
    """Return the classes that the roots may need, children's components first, and components."""
    needed = possible_classes(instance.members, instance.children, instance.roots)
    members = [m if c in needed else [] for c, m in enumerate(instance.members)]
    component = strong_components(members, instance.children)
    return sorted(needed, key=lambda c: (component[c], c)), component


def _forced(instance: Instance) -> set[int]:
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


def scale_of(
    numbers: Iterable[float], total: float, bits: int, reference: float | None = None
) -> float:
    """Return a scale to integers: an exact small power of ten, or 2^bits / reference.

    Args:
        numbers: the numbers to scale.
        total: bound on the magnitude of their sum in every solution.
        bits: number of bits of the scaled reference.
        reference: magnitude of the sums that matter; `total` by default.
    """
    values = list(numbers)
    for scale in (1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6):
        if total * scale > 2**bits:
            break
        if all(math.isclose(round(n * scale), n * scale, rel_tol=1e-14) for n in values):
            return scale
    reference = total if reference is None else reference
    if reference <= 0:
        return 1.0
    largest = max(map(abs, values), default=0.0) * len(values)
    return min(2.0**bits / reference, 2.0**61 / largest if largest else math.inf)


def floored(x: float) -> int:
    nearest = round(x)
    return nearest if math.isclose(nearest, x, rel_tol=1e-14) else math.floor(x)
