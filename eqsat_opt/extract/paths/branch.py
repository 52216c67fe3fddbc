"""Branch and bound for path instances so small that starting the solver would take longer."""

from __future__ import annotations

import math
from collections.abc import Sequence

from eqsat_opt.extract.bitsets import bits, union
from eqsat_opt.extract.instance import closes_cycle
from eqsat_opt.extract.paths.instance import ROUNDING, PathInstance
from eqsat_opt.extract.paths.rules import necessary

__all__ = ["branch_paths"]


def branch_paths(
    instance: PathInstance,
    choice: Sequence[int] | None,
    *,
    max_steps: int = 3000,
    max_classes: int = 200,
) -> tuple[list[int] | None, bool]:
    """Search all choices, bounded by the cheapest options of the classes known to be needed.

    Args:
        instance: what is extracted.
        choice: a solution to beat, if one is known.
        max_steps: options that may be tried.
        max_classes: give up at once above this size.

    Returns:
        The best choice found (the given one unless something is cheaper), and whether that is
        proven: optimal, or None where no solution exists.
    """
    known = list(choice) if choice is not None else None
    if instance.n_classes > max_classes:
        return known, False
    masks = necessary(instance)
    if masks is None:
        return known, False
    search = _Search(instance, masks, known, max_steps)
    needed = union(masks, instance.roots)
    if needed >= 0:  # else a root cannot be computed
        search.visit(needed, 0, search.least_of(needed))
    return search.best, search.steps <= max_steps


class _Search:
    def __init__(
        self, instance: PathInstance, masks: list[int], choice: list[int] | None, max_steps: int
    ) -> None:
        self.instance = instance
        self.below = [union(masks, ch) for ch in instance.children]
        self.least = [min((instance.cost[i] for i in m), default=0.0) for m in instance.members]
        self.options = [
            [i for i in sorted(m, key=instance.cost.__getitem__) if not self.below[i] >> c & 1]
            for c, m in enumerate(instance.members)
        ]
        finish = instance.finish()
        self.tail = instance.alpha * max((finish[r] for r in instance.roots), default=0.0)
        # What classes that need not be computed could save at most, if costs are negative.
        self.tail += math.fsum(min(0.0, value) for value in self.least)
        self.chosen = [-1] * instance.n_classes
        self.best = choice
        self.best_value = math.inf if choice is None else instance.value(choice)
        self.used = [0.0] * len(instance.capacity)
        self.steps = 0
        self.max_steps = max_steps

    def least_of(self, mask: int) -> float:
        """Least cost of some classes, beyond what `tail` holds of them already."""
        return math.fsum(max(0.0, self.least[d]) for d in bits(mask))

    def visit(self, needed: int, decided: int, bound: float) -> None:
        """Decide one more of the needed classes.

        `bound` is the cost of the decided classes and the least cost of the other needed ones.
        """
        if bound + self.tail >= self.best_value or self.steps > self.max_steps:
            return
        undecided = needed & ~decided
        if not undecided:
            value = self.instance.value(self.chosen)
            if value < self.best_value:
                self.best_value = value
                self.best = list(self.chosen)
            return
        instance = self.instance
        c = min(bits(undecided), key=lambda c: len(self.options[c]))
        for i in self.options[c]:
            self.steps += 1
            added = self.below[i] & ~needed
            self.chosen[c] = i
            if self._add_load(i) and not closes_cycle(self.instance.children, self.chosen, c, i):
                self.visit(
                    needed | added,
                    decided | 1 << c,
                    bound + self.least_of(added) + instance.cost[i] - self.least[c],
                )
            self._drop_load(i)
            self.chosen[c] = -1

    def _add_load(self, i: int) -> bool:
        fits = True
        for k, limit in enumerate(self.instance.capacity):
            self.used[k] += self.instance.load[i][k]
            fits = fits and self.used[k] <= limit * (1 + 2 * ROUNDING)
        return fits

    def _drop_load(self, i: int) -> None:
        for k in range(len(self.used)):
            self.used[k] -= self.instance.load[i][k]
