"""Extractors against brute force on random e-graphs: cyclic, several roots, ties, zeros."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest

from eqsat_opt.extract import EXTRACTORS, Objective, Problem, ProblemBuilder, alternatives, extract
from eqsat_opt.extract.engine import price
from eqsat_opt.extract.extraction import Choice, active_order, totals
from eqsat_opt.extract.instance import Instance, from_problem, strong_components
from eqsat_opt.extract.simplify.fixpoint import simplify
from eqsat_opt.extract.solve.answer import Method
from eqsat_opt.extract.solve.branch import branch_and_bound
from eqsat_opt.extract.solve.exact import Mode, solve_exactly
from eqsat_opt.extract.solve.greedy import tree_greedy
from eqsat_opt.extract.solve.local import improve_locally
from tests.property.egraphs import hard_problem, random_problem, solutions
from tests.sampling import sampled

TIME = Objective({"time": 1.0})
MIXED = Objective({"time": 1.0, "energy": 0.5})


def linear(problem: Problem, objective: Objective, choice: Choice) -> float:
    used = totals(problem, choice)
    return sum(weight * used[name] for name, weight in objective.weights.items())


def least(problem: Problem, objective: Objective) -> float:
    """Least cost within the limits, infinite if there is none, by looking at everything."""
    best = math.inf
    for choice in solutions(problem):
        used = totals(problem, choice)
        if all(used[name] <= limit * (1 + 1e-9) for name, limit in objective.limits.items()):
            best = min(best, linear(problem, objective, choice))
    return best


def tree_cost(problem: Problem, objective: Objective, choice: Choice) -> float:
    """Cost with each class paid at each use, the roots once each."""
    weights = objective.vector(problem.metrics)
    value: dict[int, float] = {}
    for c in active_order(problem, choice):
        node, impl = choice[c]
        own = float(problem.impl_cost[int(problem.impl_ptr[node]) + impl] @ weights)
        value[c] = own + sum(value[d] for d in set(problem.children(node)))
    return sum(value[root] for root in problem.roots)


@pytest.mark.parametrize("batch", sampled(range(8), 3))
def test_extractors_keep_their_guarantees(batch: int) -> None:
    for seed in range(batch * 50, batch * 50 + 50):
        problem = random_problem(seed, implementations=1 + seed % 2)
        objective = MIXED if seed % 3 == 0 else TIME
        optimum = least(problem, objective)
        for name, extractor in EXTRACTORS.items():
            result = extractor.run(problem, objective)
            where = f"{name}, seed {seed}"
            if math.isinf(optimum):
                assert result.status == "infeasible", where
                assert result.choice == {}, where
                continue
            assert result.check(problem) >= optimum * (1 - 1e-9), where
            assert result.lower_bound <= optimum * (1 + 1e-9), where
            if extractor.guarantee == "optimal":
                assert result.status == "optimal", where
                assert result.cost == pytest.approx(optimum, rel=1e-9), where
            if extractor.guarantee == "tree-optimal":
                best = min(tree_cost(problem, objective, c) for c in solutions(problem))
                assert tree_cost(problem, objective, result.choice) == pytest.approx(best), where


@pytest.mark.parametrize("mode", ["parallel", "single", "cores", "plain-cores"])
def test_solver_alone_agrees_with_brute_force(mode: Mode) -> None:
    checked = 0
    for seed in range(1000, 1060):
        problem = random_problem(seed)
        optimum = least(problem, TIME)
        instance = from_problem(problem, price(problem, TIME))
        found = solve_exactly(instance, mode=mode)
        assert found.proven
        if math.isinf(optimum):
            assert found.choice is None
            assert math.isinf(found.lower_bound)
            continue
        assert found.choice is not None
        assert instance.evaluate(found.choice) == pytest.approx(optimum, rel=1e-9)
        assert found.lower_bound <= optimum * (1 + 1e-9)
        assert found.lower_bound == pytest.approx(optimum, rel=1e-7)
        checked += 1
    assert checked > 30


def test_simplification_keeps_an_optimum_and_its_bound() -> None:
    left = cyclic = 0
    for seed in range(2000, 2300):
        hard = seed % 2 == 0
        problem = hard_problem(seed, 9, back=0.3) if hard else random_problem(seed)
        optimum = least(problem, TIME)
        instance = from_problem(problem, price(problem, TIME))
        reduction = simplify(instance)
        if reduction is None:
            assert math.isinf(optimum)
            continue
        for part in reduction.parts:
            left += part.n_options
            cyclic += len(set(strong_components(part.members, part.children))) < part.n_classes
        total = reduction.cost + sum(_least_of(part) for part in reduction.parts)
        assert total == pytest.approx(optimum, rel=1e-9), f"seed {seed}"
        bound = reduction.cost + sum(part.trivial_bound() for part in reduction.parts)
        assert bound <= optimum * (1 + 1e-9), f"seed {seed}"
    assert left > 100  # else the parts were not tested
    assert cyclic > 5


def _least_of(instance: Instance) -> float:
    return min(instance.evaluate(choice) for choice in itertools.product(*instance.members))


@pytest.mark.parametrize("back", [0.0, 0.15, 0.4])
def test_all_ways_to_an_optimum_agree(back: float) -> None:
    """Too large for brute force: the solver on the raw problem is the reference."""
    left = 0
    for seed in range(5):
        problem = hard_problem(seed, 40, back=back)
        raw = from_problem(problem, price(problem, TIME))
        reference = solve_exactly(raw)
        assert reference.proven
        reduction = simplify(raw)
        assert reduction is not None
        left += sum(part.n_options for part in reduction.parts)
        methods: tuple[Method, ...] = ("auto", "exact", "local", "greedy")
        for method in methods:
            result = extract(problem, TIME, method=method)
            result.check(problem)
            assert result.lower_bound <= reference.lower_bound * (1 + 1e-9)
            if method in ("auto", "exact"):
                assert result.status == "optimal"
                assert result.cost == pytest.approx(reference.lower_bound, rel=1e-9)
    assert left > 20


def test_the_solver_repeats_its_choice() -> None:
    problem = hard_problem(0, 40, back=0.4)
    first = extract(problem, TIME, method="exact")
    assert first.status == "optimal"
    assert extract(problem, TIME, method="exact") == first


def test_branch_and_bound_and_local_search_without_simplification() -> None:
    better = 0
    for seed in range(200):
        problem = hard_problem(seed, 9, back=0.5)
        instance = from_problem(problem, price(problem, TIME))
        optimum = least(problem, TIME)
        start = tree_greedy(instance)
        if math.isinf(optimum):
            continue
        choice, proven = branch_and_bound(instance, start)
        assert proven
        assert instance.evaluate(choice) == pytest.approx(optimum, rel=1e-9), f"seed {seed}"
        local = instance.evaluate(improve_locally(instance, start, seed=seed, work=2000))
        assert optimum * (1 - 1e-9) <= local <= instance.evaluate(start)
        better += local < instance.evaluate(start)
    assert better > 10


def test_limits_agree_with_brute_force() -> None:
    tight = infeasible = 0
    for seed in range(3000, 3080):
        problem = random_problem(seed)
        free = least(problem, TIME)
        if math.isinf(free):
            continue
        energies = [totals(problem, c)["energy"] for c in solutions(problem)]
        limit = random.Random(seed).choice((0.7, 1.0, 1.2, 1.5)) * min(energies)
        objective = Objective({"time": 1.0}, limits={"energy": limit})
        optimum = least(problem, objective)
        result = extract(problem, objective, deterministic=False)
        if math.isinf(optimum):
            assert result.status == "infeasible", f"seed {seed}"
            infeasible += 1
            continue
        result.check(problem)
        assert result.status == "optimal", f"seed {seed}"
        assert result.cost == pytest.approx(optimum, rel=1e-9), f"seed {seed}"
        tight += optimum > free
    assert tight >= 5
    assert infeasible >= 5


def test_never_worse_than_the_incumbent_which_wins_ties() -> None:
    for seed in range(4000, 4100):
        problem = random_problem(seed)
        known = list(itertools.islice(solutions(problem), 40))
        if not known:
            continue
        rng = random.Random(seed)
        incumbent = rng.choice(known)
        methods: tuple[Method, ...] = ("greedy", "auto")
        for method in methods:
            result = extract(problem, TIME, incumbent=incumbent, method=method, time_limit_s=0.0)
            before = linear(problem, TIME, incumbent)
            assert result.check(problem) <= before * (1 + 1e-9)
            if result.cost == pytest.approx(before, rel=1e-12):
                assert result.choice == incumbent


def test_alternatives_are_distinct_valid_and_bounded() -> None:
    several = 0
    for seed in range(5000, 5060):
        problem = random_problem(seed)
        result = extract(problem, TIME)
        others = alternatives(problem, TIME, result, 3)
        if result.status == "infeasible":
            assert others == ()
            continue
        assert len(others) <= 3
        assert [o.cost for o in others] == sorted(o.cost for o in others)
        for position, other in enumerate(others):
            other.check(problem)
            assert other.choice != result.choice
            assert all(other.choice != o.choice for o in others[:position])
        several += len(others) >= 2
    assert several > 20


def test_permuting_the_problem_keeps_the_optimum() -> None:
    rng = np.random.default_rng(0)
    for seed in range(6000, 6050):
        problem = random_problem(seed)
        rename = rng.permutation(problem.n_classes)
        builder = ProblemBuilder(problem.metrics)
        for _ in range(problem.n_classes):
            builder.add_class()
        for node in rng.permutation(problem.n_nodes).tolist():
            rows = problem.impl_cost[problem.impl_ptr[node] : problem.impl_ptr[node + 1]]
            builder.add_node(
                int(rename[problem.node_class[node]]),
                [int(rename[c]) for c in problem.children(node)],
                rows.tolist(),
            )
        permuted = builder.build([int(rename[r]) for r in problem.roots])
        first, second = extract(problem, TIME), extract(permuted, TIME)
        assert first.status == second.status
        assert first.cost == pytest.approx(second.cost, rel=1e-9)
