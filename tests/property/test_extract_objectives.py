"""All objectives against brute force: cycles, several roots and implementations, ties, zeros."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

from eqsat_opt.extract import Objective, Problem, Product, Ratio, alternatives, extract, pareto
from eqsat_opt.extract.alternatives import distance
from eqsat_opt.extract.engine import price
from eqsat_opt.extract.extraction import Choice
from eqsat_opt.extract.objective import CRITICAL_PATH, AnyObjective
from eqsat_opt.extract.paths import mixed as mixed_module
from eqsat_opt.extract.paths import neighbourhoods as path_search
from eqsat_opt.extract.paths.branch import branch_paths
from eqsat_opt.extract.paths.instance import PathInstance, from_problem
from eqsat_opt.extract.paths.lagrange import bound_limited
from eqsat_opt.extract.paths.model import solve_paths
from eqsat_opt.extract.paths.rules import prune, reduce_paths
from eqsat_opt.extract.solve.answer import EffortSettings
from eqsat_opt.extract.tradeoff import ratio
from tests.property.egraphs import hard_problem, random_problem, solutions, two_metrics

MOST = 1500  # solutions that are looked at one by one
TIME = {"time": 1.0}
ENERGY = {"energy": 1.0}


def egraph(seed: int) -> Problem:
    """One of both kinds, with one to three implementations for each e-node."""
    if seed % 2:
        return random_problem(seed, implementations=1 + seed % 3)
    return two_metrics(hard_problem(seed, 7, back=0.3), seed)


@dataclass(frozen=True)
class Solution:
    """A choice with what it uses: totals, and the longest chain by the metric of its length."""

    choice: Choice
    totals: dict[str, float]
    longest: dict[str, float]
    costliest: dict[str, float]

    def metrics(self, path: Mapping[str, float]) -> dict[str, float]:
        """Totals, and the critical path where `path` names the one metric that makes it."""
        if not path:
            return self.totals
        (name,) = path
        return {**self.totals, CRITICAL_PATH: self.longest[name]}


def known_solutions(problem: Problem) -> list[Solution] | None:
    """All of them, measured without the package's own functions; None if there are too many."""
    choices = list(itertools.islice(solutions(problem), MOST + 1))
    return None if len(choices) > MOST else [measured(problem, choice) for choice in choices]


def measured(problem: Problem, choice: Choice) -> Solution:
    names = problem.metrics
    table = {c: problem.impl_cost[problem.impl_ptr[n] + i].tolist() for c, (n, i) in choice.items()}
    children = {c: problem.children(n) for c, (n, _) in choice.items()}

    def chain(column: int) -> float:
        finish: dict[int, float] = {}

        def visit(c: int) -> float:
            if c not in finish:
                below = max((visit(d) for d in children[c]), default=0.0)
                finish[c] = table[c][column] + below
            return finish[c]

        return max(visit(r) for r in problem.roots)

    columns = list(zip(*table.values(), strict=True))
    return Solution(
        choice,
        {name: math.fsum(column) for name, column in zip(names, columns, strict=True)},
        {name: chain(k) for k, name in enumerate(names)},
        {name: max(column) for name, column in zip(names, columns, strict=True)},
    )


def value(objective: AnyObjective, solution: Solution) -> float:
    """Its value, infinite if it breaks a limit or a cap."""
    used = solution.metrics(objective.path)
    kept = all(used[name] <= limit * (1 + 1e-9) for name, limit in objective.limits.items())
    kept = kept and all(solution.costliest[name] <= cap for name, cap in objective.caps.items())
    return objective.value(used) if kept else math.inf


def least(objective: AnyObjective, known: Sequence[Solution]) -> float:
    """Least value within the limits, infinite if there is none, by looking at everything."""
    return min((value(objective, solution) for solution in known), default=math.inf)


def objectives(known: Sequence[Solution], seed: int) -> Iterator[AnyObjective]:
    """Every kind and combination, with limits that bind, that are just met, that cannot be met."""
    rng = random.Random(seed)
    seen = [solution.metrics(TIME) for solution in known] or [
        dict.fromkeys(("time", "energy", CRITICAL_PATH), 1.0)
    ]

    def limit(name: str) -> float:
        values = sorted(used[name] for used in seen)
        return rng.choice((0.8, 1.0, 1.0, 1.2)) * values[rng.choice((0, len(values) // 4))]

    alpha = rng.choice((0.25, 1.0, 3.0))
    yield Objective(TIME, alpha)
    yield Objective({}, 1.0, path=TIME)
    yield Objective({"time": 1.0, "energy": 0.5}, alpha, path=ENERGY)
    yield Objective(TIME, limits={CRITICAL_PATH: limit(CRITICAL_PATH)})
    yield Objective(ENERGY, limits={"time": limit("time")})
    yield Objective(
        {"energy": 1.0, "time": 0.1}, limits={"time": limit("time"), "energy": limit("energy")}
    )
    yield Objective(
        ENERGY,
        alpha,
        limits={"time": limit("time"), CRITICAL_PATH: limit(CRITICAL_PATH)},
        path=TIME,
    )
    yield Objective(ENERGY, rng.choice((0.0, 1.0)), caps={"time": rng.choice((1.0, 2.0, 4.0))})
    yield Product({"energy": 0.5, "time": 0.5})
    yield Product({"energy": 1.0, "time": 2.0}, limits={"time": limit("time")})
    yield Product(
        {"energy": 0.3, "time": 0.7}, limits={CRITICAL_PATH: limit(CRITICAL_PATH)}, path=TIME
    )
    yield Ratio(ENERGY, TIME)
    yield Ratio(ENERGY, {"time": 1.0, "energy": 0.1}, limits={"time": limit("time")})


def check(problem: Problem, objective: AnyObjective, known: Sequence[Solution], seed: int) -> bool:
    """Hold one result to brute force; whether there is a solution."""
    where = f"seed {seed}, {objective}"
    optimum = least(objective, known)
    result = extract(problem, objective, time_limit_s=20.0)
    if math.isinf(optimum):
        assert result.status == "infeasible", where
        assert result.choice == {}, where
        return False
    assert result.check(problem) == pytest.approx(optimum, rel=1e-7, abs=1e-12), where
    assert result.status == "optimal", where
    assert result.lower_bound <= optimum * (1 + 1e-9), where
    return True


@pytest.mark.parametrize("batch", range(10))
def test_every_objective_agrees_with_brute_force(batch: int) -> None:
    graphs = feasible = infeasible = 0
    for seed in range(batch * 40, batch * 40 + 40):
        problem = egraph(seed)
        known = known_solutions(problem)
        if known is None:
            continue
        graphs += 1
        every = list(objectives(known, seed))
        for k in range(seed, seed + 3):  # three kinds each, so that all kinds meet all graphs
            objective = every[k * 5 % len(every)]
            if check(problem, objective, known, seed):
                feasible += 1
            else:
                infeasible += 1
    assert graphs >= 35
    assert feasible > 50
    assert infeasible > 5


@pytest.fixture
def no_branching(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small problems take the way of large ones: bounds, neighbourhoods, the solver."""

    def give_up(
        instance: PathInstance, choice: Sequence[int] | None, **limits: int
    ) -> tuple[list[int] | None, bool]:
        return (None if choice is None else list(choice)), False

    for module in (mixed_module, ratio, path_search):
        monkeypatch.setattr(module, "branch_paths", give_up)


@pytest.mark.usefixtures("no_branching")
def test_the_solver_agrees_with_brute_force() -> None:
    feasible = 0
    for seed in range(5000, 5026):
        problem = egraph(seed)
        known = known_solutions(problem)
        if known is None:
            continue
        every = list(objectives(known, seed))
        for k in (seed, seed + 1):
            objective = every[k * 4 % len(every)]
            feasible += check(problem, objective, known, seed)
    assert feasible > 25


def path_instances(count: int, first: int) -> Iterator[tuple[float, PathInstance]]:
    """Instances without any simplification, of all weighted sums, and their optima."""
    for seed in range(first, first + count):
        problem = egraph(seed)
        known = known_solutions(problem)
        if not known:
            continue
        every = [o for o in objectives(known, seed) if isinstance(o, Objective)]
        objective = every[seed % len(every)]
        raw = from_problem(problem, price(problem, objective), objective)
        yield least(objective, known), raw


def optimum_of(instance: PathInstance) -> float:
    found, proven = branch_paths(instance, None, max_steps=10**6)
    assert proven
    return math.inf if found is None else instance.value(found)


def test_simplification_keeps_an_optimum() -> None:
    cut = 0
    for optimum, raw in path_instances(160, 7000):
        if math.isinf(optimum):
            continue
        reduced = reduce_paths(raw)
        assert reduced is not None
        cut += raw.n_options - reduced.n_options
        assert optimum_of(reduced) == pytest.approx(optimum, rel=1e-9)
        rows = reduced.rows(branch_paths(reduced, None)[0] or [])
        option = {row: i for i, row in enumerate(raw.option_ids)}
        lifted = [option[rows[c]] if c in rows else -1 for c in range(raw.n_classes)]
        assert raw.value(lifted) == pytest.approx(optimum, rel=1e-9)
        assert reduced.total_bound() <= optimum * (1 + 1e-9)
        for best in (optimum, optimum * 1.3 + 0.1):  # the tightest cut that is allowed, and a loose
            pruned = prune(reduced, best, 0.0)
            assert pruned is not None
            assert optimum_of(pruned) == pytest.approx(optimum, rel=1e-9)
    assert cut > 100


def test_least_critical_paths_are_exact() -> None:
    for seed in range(8000, 8060):
        problem = egraph(seed)
        objective = Objective({}, 1.0, path=TIME)
        instance = from_problem(problem, price(problem, objective), objective)
        finish = instance.finish()
        for root in range(problem.n_classes):
            if not instance.members[root]:
                continue
            alone = replace(problem, roots=(root,))
            known = known_solutions(alone)
            if known is not None:
                assert finish[root] == pytest.approx(least(objective, known), rel=1e-12)


def test_searches_never_make_a_choice_worse() -> None:
    better = 0
    for _, raw in path_instances(60, 9000):
        instance = reduce_paths(raw)
        if instance is None or not instance.roots:
            continue
        start = path_search.portfolio(instance)[0]
        before = instance.value(start)
        if math.isinf(before):
            continue
        after = instance.value(path_search.improve_by_exchanges(instance, start))
        assert after <= before
        found = path_search.improve_by_neighbourhoods(instance, start, patience=3)
        assert instance.value(found) <= before
        better += instance.value(found) < before
    assert better > 5


def test_lagrangian_bounds_hold() -> None:
    tight = 0
    for seed in range(10_000, 10_080):
        problem = egraph(seed)
        known = known_solutions(problem)
        if not known:
            continue
        times = sorted(solution.totals["time"] for solution in known)
        limits = {"time": times[len(times) // 5] * 1.01}
        objective = Objective(ENERGY, limits=limits)
        optimum = least(objective, known)
        steps = list(
            bound_limited(
                problem,
                price(problem, objective),
                limits,
                settings=EffortSettings("local", 0.0, 0, True),
                deadline=math.inf,
            )
        )
        assert steps[-1].lower_bound <= optimum * (1 + 1e-9), f"seed {seed}"
        bounds = [step.lower_bound for step in steps]
        assert bounds == sorted(bounds)
        tight += steps[-1].lower_bound > steps[0].lower_bound * (1 + 1e-9)
        (multiplier,) = steps[-1].multipliers
        priced = Objective({"energy": 1.0, "time": multiplier})
        dual = least(priced, known) - multiplier * limits["time"]
        assert steps[-1].lower_bound == pytest.approx(max(dual, 0.0), abs=1e-6 * optimum)
    assert tight >= 10


def test_pruning_with_prices_keeps_an_optimum() -> None:
    for seed in range(11_000, 11_060):
        problem = egraph(seed)
        known = known_solutions(problem)
        if not known:
            continue
        times = sorted(solution.totals["time"] for solution in known)
        objective = Objective(ENERGY, 0.5, limits={"time": times[len(times) // 4]})
        optimum = least(objective, known)
        reduced = reduce_paths(from_problem(problem, price(problem, objective), objective))
        assert reduced is not None
        for multiplier in (0.1, 1.0, 5.0):
            priced = Objective({"energy": 1.0, "time": multiplier})
            bound = least(priced, known) - multiplier * objective.limits["time"]
            pruned = prune(reduced, optimum, bound, (multiplier,))
            assert pruned is not None
            assert optimum_of(pruned) == pytest.approx(optimum, rel=1e-9), f"seed {seed}"


def test_solver_bounds_hold_with_negative_costs() -> None:
    for seed in range(12_000, 12_030):
        problem = egraph(seed)
        known = known_solutions(problem)
        if not known:
            continue
        objective = Objective(ENERGY)
        prices = problem.impl_cost @ [-1.0, 0.6]  # time pays, energy costs
        instance = reduce_paths(from_problem(problem, prices, objective))
        assert instance is not None
        optimum = min(0.6 * s.totals["energy"] - s.totals["time"] for s in known)
        solved = solve_paths(instance, mode="single")
        assert solved.choice is not None
        assert instance.value(solved.choice) == pytest.approx(optimum, rel=1e-7, abs=1e-9)
        assert solved.lower_bound <= optimum + 1e-9
        found, proven = branch_paths(instance, None, max_steps=10**6)
        assert proven
        assert found is not None
        assert instance.value(found) == pytest.approx(optimum, rel=1e-9, abs=1e-12)


def test_never_worse_than_the_incumbent() -> None:
    compared = 0
    for seed in range(13_000, 13_060):
        problem = egraph(seed)
        known = known_solutions(problem)
        if not known:
            continue
        for k, objective in list(enumerate(objectives(known, seed)))[seed % 4 :: 4]:
            incumbent = random.Random(seed + k).choice(known)
            before = value(objective, incumbent)
            if math.isinf(before):
                continue
            result = extract(
                problem, objective, incumbent=incumbent.choice, method="greedy", time_limit_s=0.0
            )
            assert result.check(problem) <= before * (1 + 1e-9)
            compared += 1
    assert compared > 50


def test_fronts_agree_with_brute_force() -> None:
    points = 0
    for seed in range(14_000, 14_040):
        problem = random_problem(seed, implementations=3)
        known = known_solutions(problem)
        if known is None:
            continue
        every = sorted({(s.totals["time"], s.totals["energy"]) for s in known})
        kept: list[tuple[float, float]] = []
        for x, y in every:
            if not kept or y < kept[-1][1] * (1 - 1e-9):
                kept.append((x, y))
        gap = 0.05 if seed % 2 else 0.0
        front = pareto(problem, "time", "energy", points=60, gap=gap)
        if not known:
            assert front.points == ()
            continue
        front.check(problem)
        assert front.gap <= gap + 1e-7
        points += len(front.points)
        assert all(
            any(
                x <= (1 + front.gap) * a + 1e-9 and y <= (1 + front.gap) * b + 1e-9
                for x, y in front.totals
            )
            for a, b in every
        )
        if not gap:
            assert len(front.points) == len(kept)
    assert points > 50


def test_alternatives_differ_as_asked() -> None:
    found = 0
    for seed in range(15_000, 15_040):
        problem = egraph(seed)
        known = known_solutions(problem)
        for objective in list(objectives(known or (), seed))[seed % 13 :: 13]:
            best = extract(problem, objective)
            others = alternatives(problem, objective, best, 3, min_distance=0.3)
            taken = [best, *others]
            found += len(others)
            for k, other in enumerate(others):
                other.check(problem)
                for before in taken[: k + 1]:
                    assert distance(other.choice, before.choice) > 0.3
            for other in alternatives(problem, objective, best, 2, min_cost_difference=0.2):
                assert abs(other.cost - best.cost) > 0.2 * min(other.cost, best.cost)
    assert found > 20
