"""Good choices for path instances: a portfolio of trees, single exchanges, neighbourhoods.

Every search is limited by counts, so equal runs give equal choices unless the deadline strikes.
"""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from eqsat_opt.extract.critical_path import least_finish, weighed_trees
from eqsat_opt.extract.paths.branch import branch_paths
from eqsat_opt.extract.paths.instance import PathInstance
from eqsat_opt.extract.paths.model import solve_paths
from eqsat_opt.extract.paths.rules import prune, reachable
from eqsat_opt.extract.trees import class_parents

__all__ = ["improve_by_exchanges", "improve_by_neighbourhoods", "portfolio"]

_BALANCES = (0.0, 0.25, 1.0, 4.0, 100.0)  # weight of the longest chain against the tree
_EXCHANGES = 3000  # greatest number of choices that single exchanges evaluate
_FIRST_SIZE = 60  # number of freed classes with a choice
_GROWTH, _SHRINK, _SMALLEST = 1.06, 0.8, 8  # of the size after one that was (not) solved
_SOLVER_WORK = 0.3  # work limit of CP-SAT for one neighbourhood, about seconds
_BRANCH_STEPS = 300
_STEP = 1e-9  # relative gain that counts


def portfolio(instance: PathInstance) -> list[list[int]]:
    """Return choices for all classes: good for the total, for the chain, and in between."""
    members, children = instance.members, instance.children
    costs = [instance.cost]
    for k, limit in enumerate(instance.capacity):
        # With a limit, choices that use little of it are added.
        costs.append([load[k] / (limit or 1.0) for load in instance.load])
        total = math.fsum(map(abs, instance.cost))
        costs.extend(
            [c + share * total * u for c, u in zip(instance.cost, costs[1 + 5 * k], strict=True)]
            for share in (0.03, 0.3, 3.0, 30.0)
        )
    if instance.signed:
        costs = [[max(0.0, c) for c in cost] for cost in costs]
    balances = _BALANCES if instance.alpha > 0 or math.isfinite(instance.path_limit) else (0.0,)
    weight = instance.alpha or 1.0
    choices = [least_finish(members, instance.option_class, children, instance.path)[1]]
    choices += [
        weighed_trees(
            members,
            instance.option_class,
            children,
            cost,
            path=instance.path,
            balance=weight * balance,
        )
        for cost in costs
        for balance in balances
    ]
    return choices


def improve_by_exchanges(
    instance: PathInstance,
    choice: Sequence[int],
    *,
    seed: int = 0,
    deadline: float = math.inf,
) -> list[int]:
    """Improve a choice by single exchanges, first improvement first, until none is left.

    Returns:
        A choice whose value is no larger.
    """
    rng = random.Random(seed)
    best = list(choice)
    value = instance.value(best)
    improved, work = True, _EXCHANGES
    while improved and work > 0:
        improved = False
        measured = instance.measure(best)
        classes = [c for c in (measured.order if measured else ()) if len(instance.members[c]) > 1]
        rng.shuffle(classes)
        for c in classes:
            for i in instance.members[c]:
                old = best[c]
                if i == old:
                    continue
                if work <= 0 or time.perf_counter() > deadline:
                    return best
                work -= 1
                best[c] = i
                found = instance.value(best)
                if found < value * (1 - _STEP):
                    value, improved = found, True
                else:
                    best[c] = old
    return best


def improve_by_neighbourhoods(
    instance: PathInstance,
    choice: Sequence[int],
    *,
    patience: int,
    total_bound: float = 0.0,
    seed: int = 0,
    target: float = -math.inf,
    deadline: float = math.inf,
    report: Callable[[float], None] = lambda value: None,
) -> list[int]:
    """Free some classes, keep the others, solve that problem exactly; repeat while it gains.

    Costs must not be negative. The search stops after `patience` neighbourhoods without a gain, and
    at the value `target`.

    Returns:
        A choice whose value is no larger.
    """
    # Classes and options are identified by their numbers in the instance, so that a neighbourhood
    # can refer to them.
    whole = replace(
        instance,
        class_ids=list(range(instance.n_classes)),
        option_ids=list(range(len(instance.option_class))),
        settled={},
    )
    rng = random.Random(seed)
    parents = class_parents(instance.members, instance.children)
    best = list(choice)
    value = whole.value(best)
    movable = sum(len(m) > 1 for m in whole.members)
    size, idle = float(_FIRST_SIZE), 0
    waiting: list[int] = []
    while idle < patience and value > target and time.perf_counter() < deadline:
        if not waiting:
            measured = whole.measure(best)
            waiting = list(measured.order) if measured else []
            rng.shuffle(waiting)
            if not waiting:
                break
        free = _around(whole, parents, waiting.pop(), round(size), rng=rng)
        found, proven = _solve_around(
            whole, best, value, free, total_bound=total_bound, seed=seed, deadline=deadline
        )
        whole_solved = proven and len(free) == movable
        size = size * _GROWTH + 1 if proven else max(size * _SHRINK, _SMALLEST)
        idle += 1
        if found is not None:
            reached = whole.value(found)
            if reached < value * (1 - _STEP):
                best, value, idle = found, reached, 0
                report(value)
        if whole_solved:
            break
    return best


def _around(
    whole: PathInstance,
    parents: Sequence[Sequence[int]],
    start: int,
    size: int,
    rng: random.Random,
) -> set[int]:
    """Return the classes with a choice that a breadth-first walk meets first."""
    free: set[int] = set()
    seen = {start}
    queue = deque([start])
    while queue and len(free) < size:
        c = queue.popleft()
        if len(whole.members[c]) > 1:
            free.add(c)
        near = {d for i in whole.members[c] for d in whole.children[i]}
        near.update(parents[c])
        new = sorted(near - seen)
        rng.shuffle(new)
        seen.update(new)
        queue.extend(new)
    return free


def _solve_around(
    whole: PathInstance,
    best: Sequence[int],
    value: float,
    free: set[int],
    total_bound: float,
    seed: int,
    deadline: float,
) -> tuple[list[int] | None, bool]:
    """Return a better choice that differs in free classes only, and whether the search ended."""
    members = [m if c in free or best[c] < 0 else [best[c]] for c, m in enumerate(whole.members)]
    part = prune(reachable(replace(whole, members=members)), value, total_bound)
    if part is None:
        return None, True
    start = part.choice(dict(enumerate(best)), [-1] * part.n_classes)
    found, proven = branch_paths(part, None, max_steps=_BRANCH_STEPS)
    if not proven:
        solved = solve_paths(
            part,
            hint=start,
            time_limit_s=max(0.0, deadline - time.perf_counter()),
            work_limit=_SOLVER_WORK,
            seed=seed,
            mode="single",
        )
        found, proven = solved.choice, solved.proven
    if found is None:
        return None, proven
    merged = list(best)
    rows = part.rows(found)
    for c, option in rows.items():
        merged[c] = option
    return merged, proven
