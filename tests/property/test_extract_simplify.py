"""Simplification and greedies against an exhaustive search: cycles, roots, ties, zeros."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

import pytest

from eqsat_opt.extract import Objective, Problem, ProblemBuilder
from eqsat_opt.extract.engine import price
from eqsat_opt.extract.instance import Instance, active_classes, from_problem
from eqsat_opt.extract.simplify import domination, necessity
from eqsat_opt.extract.simplify.fixpoint import simplify
from eqsat_opt.extract.solve import greedy
from eqsat_opt.extract.solve.greedy import sharing_greedy, tree_greedy

TIME = Objective({"time": 1.0})


def layered_problem(seed: int) -> Problem:
    """Up to 17 classes, from trees to tangles; an energy that has little to do with the time."""
    rng = random.Random(seed)
    builder = ProblemBuilder(("time", "energy"))
    n_classes = rng.choice((5, 8, 11, 14, 17))
    for _ in range(n_classes):
        builder.add_class()
    fractional = rng.random() < 0.3
    zero, back, alone = rng.choice((0, 0.1, 0.3)), rng.choice((0, 0.1, 0.3, 0.6)), rng.random()
    leaves, reach = rng.choice((n_classes // 3, n_classes // 5, 1)), rng.choice((3, 6, 100))

    def cost(least: int, most: int) -> tuple[float, float]:
        energy = float(rng.randint(0, 3))
        if rng.random() < zero:
            return 0.0, energy
        return rng.uniform(least, most) if fractional else float(rng.randint(least, most)), energy

    for cls in range(n_classes):
        for _ in range(1 if rng.random() < alone else rng.randint(2, 3)):
            if cls >= n_classes - leaves:
                builder.add_node(cls, (), [cost(4, 9)])
                continue
            ahead = range(cls + 1, min(n_classes, cls + 1 + reach))
            pool = range(n_classes) if rng.random() < back else ahead
            children = rng.sample(pool, min(len(pool), rng.choice((1, 2, 2, 3))))
            builder.add_node(cls, children, [cost(1, rng.choice((3, 6)))])
    return builder.build(rng.sample(range(n_classes), 1 + (rng.random() < 0.4)))


def covering_problem(seed: int) -> Problem:
    """Users that all are needed, each with a choice of shared classes: little can be decided."""
    rng = random.Random(seed)
    builder = ProblemBuilder(("time", "energy"))
    top = builder.add_class()
    users = [builder.add_class() for _ in range(6)]
    shared = [builder.add_class() for _ in range(5)]

    def cost(least: int, most: int) -> tuple[float, float]:
        return float(rng.randint(least, most)), float(rng.randint(0, 3))

    builder.add_node(top, users, [cost(1, 1)])
    for cls in users:
        for _ in range(rng.randint(2, 3)):
            builder.add_node(cls, rng.sample(shared, rng.randint(1, 2)), [cost(1, 4)])
    for cls in shared:
        builder.add_node(cls, (), [cost(5, 9)])
        if rng.random() < 0.5:
            builder.add_node(cls, rng.sample(shared, 1), [cost(1, 3)])
    return builder.build([top])


def random_instance(seed: int) -> Instance:
    problem = covering_problem(seed) if seed % 3 == 0 else layered_problem(seed)
    return from_problem(problem, price(problem, TIME))


def least(instance: Instance) -> tuple[float, dict[int, int]]:
    """Least cost, and its rows, by trying every needed option."""
    best_cost, best = math.inf, dict[int, int]()
    choice: dict[int, int] = {}

    def closes_cycle(cls: int, option: int) -> bool:
        seen: set[int] = set()
        stack = list(instance.children[option])
        while stack:
            d = stack.pop()
            if d == cls:
                return True
            if d not in seen:
                seen.add(d)
                stack.extend(instance.children[choice[d]] if d in choice else ())
        return False

    def visit(open_classes: Sequence[int], cost: float) -> None:
        nonlocal best_cost, best
        if cost >= best_cost:
            return
        rest = [c for c in open_classes if c not in choice]
        if not rest:
            rows = {c: instance.option_ids[i] for c, i in choice.items()}
            best_cost, best = cost, {instance.class_ids[c]: i for c, i in rows.items()}
            return
        cls = rest.pop()
        for i in instance.members[cls]:
            choice[cls] = i
            if not closes_cycle(cls, i):
                visit([*rest, *instance.children[i]], cost + instance.cost[i])
            del choice[cls]

    visit(instance.roots, 0.0)
    return best_cost, best


def lifted_cost(instance: Instance, rows: Mapping[int, int]) -> float:
    """Cost of rows (class to option, the problem's numbers) on the instance itself."""
    option = {number: i for i, number in enumerate(instance.option_ids)}
    choice = [option[rows[c]] if c in rows else -1 for c in instance.class_ids]
    return instance.evaluate(choice)


def known_rows(instance: Instance, seed: int) -> dict[int, int] | None:
    """A start for simplification: none, the tree greedy's solution, or an optimum."""
    if seed % 5 == 0:
        return least(instance)[1]
    if seed % 2:
        return None
    choice = tree_greedy(instance)
    order = active_classes(instance.children, choice, instance.roots) or ()
    return {instance.class_ids[c]: instance.option_ids[choice[c]] for c in order}


def check_simplification(instance: Instance, seed: int, work: int | None) -> int:
    """Compare what simplification keeps with the whole; the number of options that were left."""
    optimum, _ = least(instance)
    reduction = simplify(instance, start=known_rows(instance, seed), work=work)
    if reduction is None:
        assert math.isinf(optimum), f"seed {seed}"
        return 0
    total, rows = reduction.cost, dict(reduction.settled)
    for part in reduction.parts:
        assert all(part.members), f"seed {seed}"
        cost, found = least(part)
        total += cost
        rows.update(found)
    if math.isinf(optimum):
        assert math.isinf(total), f"seed {seed}"
        return 0
    assert total == pytest.approx(optimum, rel=1e-9), f"seed {seed}"
    assert lifted_cost(instance, rows) == pytest.approx(optimum, rel=1e-9), f"seed {seed}"
    return sum(part.n_options for part in reduction.parts)


@pytest.mark.parametrize("batch", range(4))
def test_simplification_keeps_an_optimum_that_can_be_lifted(batch: int) -> None:
    left = 0
    for seed in range(batch * 250, batch * 250 + 250):
        work = random.Random(seed).choice((0, 50, 300, 2000)) if seed % 7 == 0 else None
        left += check_simplification(random_instance(seed), seed, work)
    assert left > 300  # else there was nothing to lift


def test_simplification_is_sound_with_truncated_necessity_sets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    complete = necessity.necessities
    for seed in range(10_000, 10_300):
        monkeypatch.setattr(necessity, "_LARGE_COMPONENT", (1, 2, 4096)[seed % 3])
        budget = {"window": 1 + seed % 5} if seed % 4 else {"window": 5, "work": 0}
        monkeypatch.setattr(
            domination,
            "necessities",
            lambda draft, children, budget=budget, **given: complete(
                draft, children, **{**given, **budget}
            ),
        )
        check_simplification(random_instance(seed), seed, None)


@pytest.mark.parametrize("window", [None, 1, 3])
def test_sharing_greedy_is_acyclic_however_short_its_memory(
    monkeypatch: pytest.MonkeyPatch, window: int | None
) -> None:
    if window is not None:
        monkeypatch.setattr(greedy, "_EXACT_CLASSES", 0)
        monkeypatch.setattr(greedy, "_WINDOW", window)
    found = 0
    for seed in range(30_000, 30_200):
        instance = random_instance(seed)
        optimum, _ = least(instance)
        choice = sharing_greedy(instance, work=10**8 if seed % 3 else 30)
        if choice is None:
            continue
        chosen = [c for c, option in enumerate(choice) if option >= 0]
        assert active_classes(instance.children, choice, chosen) is not None, f"seed {seed}"
        if math.isinf(optimum):
            assert math.isinf(instance.evaluate(choice))
            continue
        assert math.isfinite(instance.evaluate(choice))
        assert instance.evaluate(choice) >= optimum * (1 - 1e-9)
        found += 1
    assert found > 100
