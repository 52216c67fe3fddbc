"""Branch and bound for parts so small that starting the solver would take longer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from eqsat_opt.extract.bitsets import bits, union
from eqsat_opt.extract.instance import Instance, closes_cycle, strong_components
from eqsat_opt.extract.simplify.necessity import necessity

__all__ = ["BranchSearch", "branch_and_bound"]

_ROUNDING = 2e-9  # relative excess over a limit that is attributed to the rounding of sums


def branch_and_bound(
    instance: Instance, choice: Sequence[int], *, max_steps: int = 4000, max_classes: int = 300
) -> tuple[list[int], bool]:
    """Search all choices, bounded by the cheapest options of the classes known to be needed.

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
    search = BranchSearch(
        instance, masks, value=instance.evaluate, best=choice, max_steps=max_steps
    )
    search.run(union(masks, instance.roots))
    return search.best or list(choice), search.steps <= max_steps


class BranchSearch:
    """A depth-first search of all choices.

    Args:
        instance: the instance to extract from.
        masks: bit set of the classes below each class in every solution.
        value: value of a complete choice; infinite if it is no solution or breaks a limit.
        best: a solution to beat, if one is known.
        max_steps: greatest number of options to try.
        tail: least value of every solution beyond the cost of its classes.
        load, capacity: amounts of limited metrics that each option uses, and the largest totals.

    Attributes:
        best: the best choice found.
        steps: number of options tried.
    """

    def __init__(
        self,
        instance: Instance,
        masks: Sequence[int],
        *,
        value: Callable[[Sequence[int]], float],
        best: Sequence[int] | None,
        max_steps: int,
        tail: float = 0.0,
        load: Sequence[Sequence[float]] = (),
        capacity: Sequence[float] = (),
    ) -> None:
        self.instance = instance
        self.below = [union(masks, ch) for ch in instance.children]
        self.least = [min((instance.cost[i] for i in m), default=0.0) for m in instance.members]
        self.options = [
            [i for i in sorted(m, key=instance.cost.__getitem__) if not self.below[i] >> c & 1]
            for c, m in enumerate(instance.members)
        ]
        # With negative costs, classes that need not be computed save at most this sum.
        self.tail = tail + math.fsum(min(0.0, value) for value in self.least)
        self.chosen = [-1] * instance.n_classes
        self.value = value
        self.best = list(best) if best is not None else None
        self.best_value = math.inf if best is None else value(best)
        self.load, self.capacity = load, capacity
        self.used = [0.0] * len(capacity)
        self.steps = 0
        self.max_steps = max_steps

    def run(self, needed: int) -> None:
        """Search the choices that have the classes of the bit set ``needed``."""
        if needed >= 0:  # else a root cannot be computed
            self._visit(needed, 0, self._least_of(needed))

    def _least_of(self, mask: int) -> float:
        """Return the least cost of some classes, beyond the part that is in `tail` already."""
        return math.fsum(max(0.0, self.least[d]) for d in bits(mask))

    def _visit(self, needed: int, decided: int, bound: float) -> None:
        """Decide one more of the needed classes.

        `bound` is the cost of the decided classes and the least cost of the other needed ones.
        """
        if bound + self.tail >= self.best_value or self.steps > self.max_steps:
            return
        undecided = needed & ~decided
        if not undecided:
            value = self.value(self.chosen)
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
            if self._add_load(i) and not closes_cycle(instance.children, self.chosen, c, i):
                self._visit(
                    needed | added,
                    decided | 1 << c,
                    bound + self._least_of(added) + instance.cost[i] - self.least[c],
                )
            self._drop_load(i)
            self.chosen[c] = -1

    def _add_load(self, i: int) -> bool:
        fits = True
        for k, limit in enumerate(self.capacity):
            self.used[k] += self.load[i][k]
            fits = fits and self.used[k] <= limit * (1 + _ROUNDING)
        return fits

    def _drop_load(self, i: int) -> None:
        for k in range(len(self.used)):
            self.used[k] -= self.load[i][k]
