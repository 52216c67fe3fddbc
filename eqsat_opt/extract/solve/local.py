"""Local search: exchanges of the option of one class, with reference counts for speed."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from eqsat_opt.extract.instance import Instance, active_classes, strong_components

__all__ = ["improve_locally"]

_KICK = 3  # classes changed at random to leave a local optimum


def improve_locally(
    instance: Instance,
    choice: Sequence[int],
    *,
    seed: int = 0,
    work: int = 400_000,
    deadline: float = float("inf"),
) -> list[int]:
    """Descend by single exchanges, then kick and descend again until the work is used up.

    Needed classes must have an option, and no cycle may exist anywhere in the choice, not even
    among classes that are not needed. `work` counts edges that are touched.

    Returns:
        A choice of the same kind that costs no more.
    """
    state = _State(instance, choice)
    rng = random.Random(seed)
    movable = [c for c, options in enumerate(state.options) if len(options) > 1]
    if not movable:
        return list(choice)
    best, best_cost = list(choice), instance.evaluate(choice)
    while state.work < work and time.perf_counter() < deadline:
        _descend(state, movable, rng, work, deadline=deadline)
        cost = instance.evaluate(state.choice)
        if cost < best_cost:
            best, best_cost = list(state.choice), cost
        else:
            state.reset(best)
        state.work += len(best)
        for _ in range(_KICK):
            c = rng.choice(movable)
            if state.refs[c]:
                state.exchange(c, rng.choice(state.options[c]))
    return best


def _descend(
    state: _State, movable: list[int], rng: random.Random, work: int, deadline: float
) -> None:
    """Run first-improvement passes over the needed classes until a pass finds nothing."""
    improved = True
    while improved and state.work < work and time.perf_counter() < deadline:
        improved = False
        rng.shuffle(movable)
        for c in movable:
            if not state.refs[c]:
                continue
            for option in state.options[c]:
                old = state.choice[c]
                if option == old:
                    continue
                change = state.exchange(c, option)
                if change is None:
                    continue
                if change < -1e-12 * abs(state.instance.cost[old]):
                    improved = True
                elif change >= 0:
                    state.exchange(c, old)
            if state.work >= work:
                return


class _State:
    """A choice with, for each class, the number of needed classes (and roots) that use it.

    The choice has no cycle at any time, not even among classes that are not needed: an exchange
    that would close one is refused.
    """

    def __init__(self, instance: Instance, choice: Sequence[int]) -> None:
        self.instance = instance
        self.work = 0
        self.options = [
            [i for i in m if all(choice[d] >= 0 for d in instance.children[i])]
            for m in instance.members
        ]
        self.component = strong_components(instance.members, instance.children)
        self.size = [0] * instance.n_classes
        for number in self.component:
            self.size[number] += 1
        self.reset(choice)

    def reset(self, choice: Sequence[int]) -> None:
        """Start again from a choice."""
        children, roots = self.instance.children, self.instance.roots
        self.choice = list(choice)
        self.refs = [0] * len(choice)
        for root in roots:
            self.refs[root] += 1
        for c in active_classes(children, self.choice, roots) or ():
            for d in children[self.choice[c]]:
                self.refs[d] += 1

    def exchange(self, c: int, option: int) -> float | None:
        """Give a needed class another option; return the change in cost, or None if refused."""
        children, cost = self.instance.children, self.instance.cost
        old = self.choice[c]
        if self._closes_cycle(c, option):
            return None
        change = cost[option] - cost[old]
        # New children come first, so that children of both options are not dropped and taken again.
        change += self._count(children[option], 1)
        self.choice[c] = option
        change -= self._count(children[old], -1)
        return change

    def _count(self, classes: Sequence[int], step: int) -> float:
        """Add or remove one use of each class; return the cost of classes that begin or cease."""
        children, cost, refs = self.instance.children, self.instance.cost, self.refs
        edge = 1 if step > 0 else 0
        moved = 0.0
        stack = list(classes)
        while stack:
            d = stack.pop()
            self.work += 1
            refs[d] += step
            if refs[d] == edge:
                moved += cost[self.choice[d]]
                stack.extend(children[self.choice[d]])
        return moved

    def _closes_cycle(self, c: int, option: int) -> bool:
        number = self.component[c]
        self.work += 1
        if self.size[number] == 1:
            return False
        children = self.instance.children
        seen: set[int] = set()
        stack = [d for d in children[option] if self.component[d] == number]
        while stack:
            d = stack.pop()
            self.work += 1
            if d == c:
                return True
            if d not in seen:
                seen.add(d)
                stack.extend(e for e in children[self.choice[d]] if self.component[e] == number)
        return False
