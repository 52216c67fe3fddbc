"""Every extractor keeps what it declares: never worse than greedy, nor than what is known."""

from __future__ import annotations

import itertools
import random
from functools import cache

import pytest

from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract import (
    EXTRACTORS,
    Extraction,
    Objective,
    Problem,
    ProblemBuilder,
    extract,
)
from eqsat_opt.extract.extraction import Choice, active_order, totals
from eqsat_opt.extract.extractors import best_greedy

TIME = Objective({"time": 1.0})
ANYTIME = sorted(name for name, extractor in EXTRACTORS.items() if extractor.anytime)


def random_problem(seed: int, n_classes: int) -> Problem:
    """Two or three e-nodes in a class, much sharing, cycles, ties and zeros."""
    rng = random.Random(seed)
    builder = ProblemBuilder(("time", "energy"))
    for _ in range(n_classes):
        builder.add_class()
    back = rng.choice((0.0, 0.2, 0.5))
    leaves = n_classes // 3
    for cls in range(n_classes):
        if cls >= n_classes - leaves:
            builder.add_node(cls, (), [(rng.randint(3, 9), rng.randint(0, 9))])
            continue
        for _ in range(rng.randint(2, 3)):
            pool = range(n_classes) if rng.random() < back else range(cls + 1, n_classes)
            rows = [(rng.randint(0, 3), rng.randint(0, 9)) for _ in range(rng.randint(1, 2))]
            builder.add_node(cls, rng.sample(pool, min(len(pool), 2)), rows)
    return builder.build(rng.sample(range(n_classes // 3), 1 + n_classes // 12))


def random_choice(problem: Problem, rng: random.Random) -> Choice | None:
    """A complete acyclic choice: classes are computed in a random order as soon as they can be."""
    options = [
        (node, impl)
        for node in range(problem.n_nodes)
        for impl in range(int(problem.impl_ptr[node + 1] - problem.impl_ptr[node]))
    ]
    rng.shuffle(options)
    done: dict[int, tuple[int, int]] = {}
    while True:
        ready = next(
            (
                (node, impl)
                for node, impl in options
                if int(problem.node_class[node]) not in done
                and all(child in done for child in problem.children(node))
            ),
            None,
        )
        if ready is None:
            break
        done[int(problem.node_class[ready[0]])] = ready
    if any(root not in done for root in problem.roots):
        return None
    return {c: done[c] for c in active_order(problem, done)}


@cache
def cases(count: int, n_classes: int) -> list[tuple[int, Problem, Choice]]:
    """Seed, problem and some solution, for the seeds whose problem has one."""
    found = []
    for seed in range(count):
        problem = random_problem(seed, n_classes)
        choice = random_choice(problem, random.Random(seed))
        if choice is not None:
            found.append((seed, problem, choice))
    return found


@cache
def optimum(problem: Problem) -> Extraction:
    return extract(problem, TIME)


@pytest.mark.parametrize("name", ANYTIME)
def test_never_worse_than_the_better_greedy(name: str) -> None:
    better = 0
    for seed, problem, _ in cases(30, 30):
        greedy = best_greedy(problem, TIME)
        assert greedy is not None
        for time_limit_s in (0.0, 5.0) if seed % 4 == 0 else (5.0,):
            found = EXTRACTORS[name].run(problem, TIME, time_limit_s=time_limit_s, seed=seed)
            assert found.check(problem) <= greedy * (1 + 1e-9), f"{name}, seed {seed}"
            better += found.cost < greedy * (1 - 1e-9)
    assert better >= (0 if name == "greedy" else 10)  # else greedy was always optimal


@pytest.mark.parametrize("name", ANYTIME)
def test_never_worse_than_the_incumbent(name: str) -> None:
    kept = 0
    for seed, problem, random_one in cases(24, 24):
        best = optimum(problem).choice
        for incumbent in (random_one, best):
            cost = totals(problem, incumbent)["time"]
            found = EXTRACTORS[name].run(problem, TIME, incumbent=incumbent, time_limit_s=0.0)
            assert found.check(problem) <= cost * (1 + 1e-9), f"{name}, seed {seed}"
            kept += found.choice == incumbent
    assert kept >= 20


@pytest.mark.parametrize("name", sorted(EXTRACTORS))
def test_bounds_of_all_hold_for_all(name: str) -> None:
    for seed, problem, random_one in cases(24, 24):
        found = EXTRACTORS[name].run(problem, TIME, seed=seed)
        found.check(problem)
        for other in (totals(problem, random_one)["time"], optimum(problem).cost):
            assert found.lower_bound <= other * (1 + 1e-9), f"{name}, seed {seed}"
        if EXTRACTORS[name].guarantee == "optimal":
            assert found.status == "optimal"


def test_those_that_are_not_anytime_refuse_what_they_cannot_keep() -> None:
    _, problem, choice = cases(24, 24)[0]
    for name in sorted(set(EXTRACTORS) - set(ANYTIME)):
        with pytest.raises(ExtractionError, match="no incumbent"):
            EXTRACTORS[name].run(problem, TIME, incumbent=choice)
        with pytest.raises(ExtractionError, match="no limits"):
            EXTRACTORS[name].run(problem, Objective({"time": 1.0}, limits={"energy": 1e9}))


def test_names_are_ordered_by_what_they_find() -> None:
    """The registry's order is the one that its reader relies on: from cheap to thorough."""
    names = [name for name in EXTRACTORS if EXTRACTORS[name].anytime and name != "exact"]
    total = dict.fromkeys(names, 0.0)
    for seed, problem, _ in cases(16, 36):
        for name in names:
            total[name] += EXTRACTORS[name].run(problem, TIME, seed=seed).cost
    for weaker, stronger in itertools.pairwise(names):
        assert total[stronger] <= total[weaker] * (1 + 1e-9), (weaker, stronger)
