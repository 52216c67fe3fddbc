"""Large neighbourhood search: free some classes, keep the rest, solve the small problem exactly.

A neighbourhood consists of the classes that a walk over the class graph meets first around one
class, so alternatives that only pay together (one merged kernel for many users) are freed together.
All limits are counts: equal runs give equal choices unless the deadline strikes. Shaw, "Using
Constraint Programming and Local Search Methods to Solve Vehicle Routing Problems" (CP 1998), on
DAG-cost extraction.
"""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from eqsat_opt.extract.instance import Instance, active_classes, strong_components
from eqsat_opt.extract.simplify.fixpoint import simplify
from eqsat_opt.extract.solve.branch import branch_and_bound
from eqsat_opt.extract.solve.exact import solve_exactly

__all__ = ["improve_by_neighbourhoods"]

_FIRST_SIZE = 100  # number of freed classes with a choice
_GROWTH, _SHRINK = 1.06, 0.8  # of the size after a neighbourhood that was (not) solved to the end
_SMALLEST = 10
_SOLVER_WORK = 0.15  # CP-SAT's deterministic time for one neighbourhood, about seconds
_SIMPLIFY_WORK = 200_000
_BRANCH_OPTIONS, _BRANCH_STEPS = 80, 300  # up to this size the solver takes longer to start
_SWEEPS = 2  # sweeps without a gain: every class was freed twice, among different neighbours
_STEP = 1e-9  # relative gain that counts


def improve_by_neighbourhoods(
    instance: Instance,
    choice: Sequence[int],
    *,
    patience: int,
    seed: int = 0,
    target: float = -math.inf,
    deadline: float = math.inf,
    report: Callable[[list[int]], None] = lambda choice: None,
) -> list[int]:
    """Solve neighbourhoods of a solution until they bring no further gain.

    The choice must be one for local search. The search stops after `patience` neighbourhoods
    without a gain (small instances earlier, when every class was in some), and at the cost
    `target`.

    Returns:
        A choice of the same kind that costs no more.
    """
    solution = _Solution(instance, choice)
    walk = _Walk(instance, random.Random(seed))
    cost = instance.evaluate(choice)
    size, idle = float(_FIRST_SIZE), 0
    while idle < patience and walk.sweeps < _SWEEPS:
        if cost <= target or time.perf_counter() >= deadline:
            break
        free = walk.next(solution, round(size))
        if not free:
            break
        gain, proven = _solve_around(solution, free, seed)
        walk.done(free)
        size = size * _GROWTH + 1 if proven else max(size * _SHRINK, _SMALLEST)
        idle += 1
        if gain > _STEP * cost:
            idle = 0
            walk.look_again(free)
            cost = instance.evaluate(solution.choice)
            report(list(solution.choice))
    return list(solution.choice)


class _Walk:
    """Source of neighbourhoods, in which every class gets its turn before any has a second one."""

    def __init__(self, instance: Instance, rng: random.Random) -> None:
        self._rng = rng
        self._open = [len(m) > 1 for m in instance.members]
        near: list[set[int]] = [set() for _ in instance.members]
        for c, m in enumerate(instance.members):
            for i in m:
                near[c].update(instance.children[i])
        for c, below in enumerate([tuple(n) for n in near]):
            for d in below:
                near[d].add(c)
        self._near = [sorted(n) for n in near]
        self._waiting: list[int] = []
        self._covered: set[int] = set()
        self.sweeps = -1

    def next(self, solution: _Solution, size: int) -> set[int]:
        """Return the classes with a choice that a walk from one needed class meets first."""
        seed = self._next_seed(solution)
        if seed is None:
            return set()
        free: set[int] = set()
        seen, queue = {seed}, deque([seed])
        while queue and len(free) < size:
            c = queue.popleft()
            if self._open[c]:
                free.add(c)
            near = self._near[c]
            for d in self._rng.sample(near, len(near)):
                if d not in seen:
                    seen.add(d)
                    queue.append(d)
        return free

    def _next_seed(self, solution: _Solution) -> int | None:
        for _ in range(2):
            while self._waiting:
                c = self._waiting.pop()
                if solution.refs[c] and c not in self._covered:
                    return c
            self._covered.clear()
            self.sweeps += 1
            self._waiting = [c for c, o in enumerate(self._open) if o and solution.refs[c]]
            self._rng.shuffle(self._waiting)
        return None

    def done(self, free: set[int]) -> None:
        """Leave these classes out until the next sweep."""
        self._covered |= free

    def look_again(self, free: set[int]) -> None:
        """Restart the count of sweeps, since these classes changed."""
        self._covered -= free
        self.sweeps = 0


class _Solution:
    """A choice with, for each class, the number of needed classes (and roots) that use it.

    The choice has no cycle at any time, not even among classes that are not needed: needed classes
    never need other ones, and the choices of the latter only ever come from earlier solutions.
    """

    def __init__(self, instance: Instance, choice: Sequence[int]) -> None:
        self.instance = instance
        self.choice = list(choice)
        self.component = strong_components(instance.members, instance.children)
        self.size = [0] * instance.n_classes
        for number in self.component:
            self.size[number] += 1
        self.refs = [0] * instance.n_classes
        for root in instance.roots:
            self.refs[root] += 1
        for c in active_classes(instance.children, self.choice, instance.roots) or ():
            for d in instance.children[self.choice[c]]:
                self.refs[d] += 1

    def assign(self, options: Mapping[int, int]) -> None:
        """Give classes their options; `take_out` and `put_in` around it keep the counts."""
        for c, option in options.items():
            self.choice[c] = option

    def take_out(self, free: set[int]) -> float:
        """Stop counting uses by free classes; return the cost of all that is no longer counted."""
        children, choice, refs = self.instance.children, self.choice, self.refs
        cost = self.instance.cost
        out = [c for c in free if refs[c]]
        taken = [cost[choice[c]] for c in out]
        while out:
            for d in children[choice[out.pop()]]:
                refs[d] -= 1
                if not refs[d] and d not in free:
                    taken.append(cost[choice[d]])
                    out.append(d)
        return math.fsum(taken)

    def put_in(self, needed: Sequence[int]) -> float:
        """Count uses by needed free classes again; return the cost of all that is counted again."""
        children, choice, refs = self.instance.children, self.choice, self.refs
        cost = self.instance.cost
        stack = list(needed)
        put = [cost[choice[c]] for c in stack]
        while stack:
            for d in children[choice[stack.pop()]]:
                refs[d] += 1
                if refs[d] == 1:
                    put.append(cost[choice[d]])
                    stack.append(d)
        return math.fsum(put)


def _solve_around(solution: _Solution, free: set[int], seed: int) -> tuple[float, bool]:
    """Solve one neighbourhood; return its gain, and whether it was solved to the end."""
    before = solution.take_out(free)
    needed = sorted(c for c in free if solution.refs[c])
    small = _restricted(solution, free, needed)
    old = {c: solution.choice[c] for c in small.class_ids}
    new, proven = _solve(small, old, seed)
    solution.assign(new)
    after = solution.put_in(needed)
    if after >= before:
        solution.take_out(free)
        solution.assign(old)
        solution.put_in(needed)
        return 0.0, proven
    return before - after, proven


def _restricted(solution: _Solution, free: set[int], needed: Sequence[int]) -> Instance:
    """Return the instance of all that free classes can reach, others with their present option.

    Classes that are needed anyway are free of charge. They are included only where a cycle could go
    through them: within a strongly connected component.
    """
    base, refs, component = solution.instance, solution.refs, solution.component
    options: dict[int, list[tuple[int, list[int]]]] = {}
    held: list[int] = []
    stack = list(needed)
    seen = set(stack)
    while stack:
        c = stack.pop()
        paid = c not in free and refs[c] > 0
        if paid:
            held.append(c)
        options[c] = []
        for i in base.members[c] if c in free else (solution.choice[c],):
            kept = []
            for d in base.children[i]:
                inside = component[d] == component[c] and solution.size[component[c]] > 1
                if d not in free and refs[d] > 0 and not inside:
                    continue
                if paid and not inside:
                    continue
                kept.append(d)
                if d not in seen:
                    seen.add(d)
                    stack.append(d)
            options[c].append((i, kept))
    classes = sorted(options)
    local = {c: k for k, c in enumerate(classes)}
    free_of_charge = set(held)
    rows = [(c, i, kept) for c in classes for i, kept in options[c]]
    members: list[list[int]] = [[] for _ in classes]
    for option, (c, _, _) in enumerate(rows):
        members[local[c]].append(option)
    return Instance(
        members=members,
        option_class=[local[c] for c, _, _ in rows],
        children=[tuple(sorted(local[d] for d in kept)) for _, _, kept in rows],
        cost=[0.0 if c in free_of_charge else base.cost[i] for c, i, _ in rows],
        roots=tuple(local[c] for c in [*needed, *held]),
        class_ids=classes,
        option_ids=[i for _, i, _ in rows],
    )


def _solve(small: Instance, old: Mapping[int, int], seed: int) -> tuple[dict[int, int], bool]:
    """Return class to option for what the solution needs, and whether it is optimal."""
    reduction = simplify(small, start=old, work=_SIMPLIFY_WORK)
    if reduction is None:
        return {}, False
    new, proven = dict(reduction.settled), True
    for part in reduction.parts:
        position = {option: k for k, option in enumerate(part.option_ids)}
        hint = [position.get(old[c], -1) for c in part.class_ids]
        known = math.isfinite(part.evaluate(hint))
        best, done = hint, False
        if known and part.n_options <= _BRANCH_OPTIONS:
            best, done = branch_and_bound(part, hint, max_steps=_BRANCH_STEPS)
        if not done:
            found = solve_exactly(
                part,
                hint=best if known else None,
                mode="single",
                work_limit=_SOLVER_WORK,
                seed=seed,
            )
            done = found.proven
            if found.choice is None:
                return {}, False
            if not known or part.evaluate(found.choice) < part.evaluate(best):
                best = found.choice
        proven &= done
        new.update((part.class_ids[c], part.option_ids[i]) for c, i in enumerate(best) if i >= 0)
    position = {option: k for k, option in enumerate(small.option_ids)}
    choice = [position[new[c]] if c in new else -1 for c in small.class_ids]
    order = active_classes(small.children, choice, small.roots)
    if order is None:
        return {}, False
    return {small.class_ids[c]: small.option_ids[choice[c]] for c in order}, proven
