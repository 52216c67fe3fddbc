"""Branch and bound for parts so small that starting the solver would take longer."""

from __future__ import annotations

import math
from collections.abc import Sequence

from eqsat_opt.extract.bitsets import bits, union
from eqsat_opt.extract.instance import Instance, closes_cycle, strong_components
from eqsat_opt.extract.simplify.necessity import necessity

__all__ = ["branch_and_bound"]


def branch_and_bound(
    instance: Instance, choice: Sequence[int], *, max_steps: int = 4000, max_classes: int = 300
) -> tuple[list[int], bool]:
    """Search all choices, bounded by the cheapest options of the classes known to be needed.

    Args:
        instance: what is extracted; limits are not looked at.
        choice: a solution to beat.
        max_steps: options that may be tried.
        max_classes: give up at once above this size.

    Returns:
        The best choice found (the given one unless something is cheaper), and whether it is
        proven optimal.
    """
    if instance.n_classes > max_classes:
        return list(choice), False
    component = strong_components(instance.members, instance.children)
    order = sorted(range(instance.n_classes), key=component.__getitem__)
    masks = necessity(instance.members, instance.children, order, work=100_000)
    if masks is None:
        return list(choice), False
    search = _Search(instance, masks, choice, max_steps)
    needed = union(masks, instance.roots)
    search.visit(needed, 0, math.fsum(search.least[c] for c in bits(needed)))
    return search.best, search.steps <= max_steps


class _Search:
    def __init__(
        self, instance: Instance, masks: list[int], choice: Sequence[int], max_steps: int
    ) -> None:
        self.instance = instance
        self.below = [union(masks, ch) for ch in instance.children]
        self.least = [min((instance.cost[i] for i in m), default=0.0) for m in instance.members]
        self.options = [
            [i for i in sorted(m, key=instance.cost.__getitem__) if not self.below[i] >> c & 1]
            for c, m in enumerate(instance.members)
        ]
        self.chosen = [-1] * instance.n_classes
        self.best = list(choice)
        self.best_cost = instance.evaluate(choice)
        self.steps = 0
        self.max_steps = max_steps

    def visit(self, needed: int, decided: int, bound: float) -> None:
        """Decide one more of the needed classes.

        `bound` is the cost of the decided classes and the least cost of the other needed ones.
        """
        if bound >= self.best_cost or self.steps > self.max_steps:
            return
        undecided = needed & ~decided
        if not undecided:
            cost = self.instance.evaluate(self.chosen)
            if cost < self.best_cost:
                self.best_cost = cost
                self.best = list(self.chosen)
            return
        c = min(bits(undecided), key=lambda c: len(self.options[c]))
        for i in self.options[c]:
            self.steps += 1
            added = self.below[i] & ~needed
            extra = math.fsum(self.least[d] for d in bits(added))
            if not closes_cycle(self.instance.children, self.chosen, c, i):
                self.chosen[c] = i
                self.visit(
                    needed | added,
                    decided | 1 << c,
                    bound + extra + self.instance.cost[i] - self.least[c],
                )
                self.chosen[c] = -1
