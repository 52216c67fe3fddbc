"""Neighbourhoods never lose and find what greedies miss; the relaxation's bounds always hold."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from eqsat_opt.extract import Objective, Problem, ProblemBuilder, extract
from eqsat_opt.extract.engine import price
from eqsat_opt.extract.instance import Instance, from_problem, strong_components
from eqsat_opt.extract.solve import weighted_sum
from eqsat_opt.extract.solve.cutting import tighten
from eqsat_opt.extract.solve.exact import solve_exactly
from eqsat_opt.extract.solve.greedy import tree_greedy
from eqsat_opt.extract.solve.neighbourhood import improve_by_neighbourhoods
from eqsat_opt.extract.solve.relaxation import Relaxation
from tests.property.egraphs import hard_problem, random_problem

TIME = Objective({"time": 1.0})


def instance_of(problem: Problem) -> Instance:
    return from_problem(problem, price(problem, TIME))


def solvable(instance: Instance) -> bool:
    return math.isfinite(instance.evaluate(tree_greedy(instance)))


def merged_gates(groups: int, gates: int) -> Problem:
    """Sums of gates; one wide kernel serves all gates of a group, and pays only for all of them."""
    builder = ProblemBuilder(("time",))
    root = builder.add_class()
    outputs = []
    for _ in range(groups):
        wide = builder.add_class()
        builder.add_node(wide, (), [(3.0 * gates,)])
        for _ in range(gates):
            gate = builder.add_class()
            builder.add_node(gate, (), [(4.0,)])
            builder.add_node(gate, (wide,), [(0.5,)])
            outputs.append(gate)
    builder.add_node(root, outputs, [(1.0,)])
    return builder.build([root])


def random_instances(count: int) -> list[Instance]:
    made = [instance_of(random_problem(seed)) for seed in range(count)]
    made += [
        instance_of(hard_problem(seed, n, back=back))
        for seed in range(count // 4)
        for n, back in ((12, 0.0), (14, 0.3), (30, 0.5))
    ]
    return [instance for instance in made if solvable(instance)]


INSTANCES = random_instances(80)


def test_neighbourhoods_never_lose_and_stay_acyclic() -> None:
    better = 0
    for instance in INSTANCES:
        start = tree_greedy(instance)
        cost = instance.evaluate(start)
        told: list[float] = []

        def tell(choice: list[int], told: list[float] = told, of: Instance = instance) -> None:
            told.append(of.evaluate(choice))

        found = improve_by_neighbourhoods(instance, start, patience=4, report=tell)
        assert instance.evaluate(found) <= cost
        assert told == sorted(told, reverse=True)
        assert not told or told[-1] == instance.evaluate(found)
        component = strong_components([[i] if i >= 0 else [] for i in found], [*instance.children])
        assert len(set(component)) == instance.n_classes, "a cycle among the chosen options"
        better += instance.evaluate(found) < cost
    assert better > len(INSTANCES) // 10, "the instances leave nothing to find"


def test_neighbourhoods_see_what_pays_only_together() -> None:
    instance = instance_of(merged_gates(groups=30, gates=8))
    start = tree_greedy(instance)
    assert instance.evaluate(start) == pytest.approx(1 + 30 * 8 * 4)
    found = improve_by_neighbourhoods(instance, start, patience=20)
    assert instance.evaluate(found) == pytest.approx(1 + 30 * (3 * 8 + 8 * 0.5))
    assert found == improve_by_neighbourhoods(instance, start, patience=20), "repeatable"


def test_the_relaxation_bounds_every_solution_and_keeps_the_best() -> None:
    raised = whole = dropped = 0
    for instance in INSTANCES:
        optimum = solve_exactly(instance)
        assert optimum.choice is not None
        cost = instance.evaluate(optimum.choice)
        relaxed = tighten(instance, upper=cost, rounds=30)
        assert relaxed.lower_bound <= cost * (1 + 1e-9) + 1e-12
        possible = relaxed.possible(cost)
        assert all(possible[i] for i in optimum.choice if i >= 0)
        first = tighten(instance, upper=math.inf, rounds=0)
        assert first.lower_bound <= relaxed.lower_bound + 1e-9
        assert first.possible(math.inf).all(), "nothing is ruled out without a known solution"
        raised += relaxed.lower_bound > first.lower_bound + 1e-6
        dropped += not possible.all()
        free = tighten(instance, upper=math.inf, rounds=30)
        if free.choice is not None:
            whole += 1
            assert instance.evaluate(free.choice) == pytest.approx(cost)
    assert raised > 5
    assert dropped > 5
    assert whole > len(INSTANCES) // 2


def test_the_bound_holds_for_any_duals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weak duality does not trust the solver: wrong duals give a worse bound, never a false one."""
    instance = next(i for i in INSTANCES if i.n_classes == 30)
    optimum = solve_exactly(instance)
    assert optimum.choice is not None
    relaxation = Relaxation(instance)
    relaxation.solve(math.inf)
    rng = random.Random(0)

    class Row:
        def __init__(self, value: float) -> None:
            self.value = value

        def dual_value(self) -> float:
            return self.value

    for spread in (0.0, 0.5, 3.0):
        noisy = [
            Row(row.dual_value() + spread * rng.gauss(0, 1)) for row in relaxation._constraints
        ]
        monkeypatch.setattr(relaxation, "_constraints", noisy)
        bound, reduced = relaxation.safe_bound()
        assert bound <= instance.evaluate(optimum.choice) + 1e-9
        assert np.isfinite(reduced).all()


def test_merged_gates_are_proven() -> None:
    problem = merged_gates(groups=40, gates=12)
    result = extract(problem, TIME)
    assert result.status == "optimal"
    assert result.check(problem) == pytest.approx(1 + 40 * (3 * 12 + 12 * 0.5))


def _interrupted(*args: object, **options: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("stage", ["simplify", "_search_parts"])
def test_an_interrupt_leaves_the_best_so_far(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = merged_gates(groups=3, gates=4)
    monkeypatch.setattr(weighted_sum, stage, _interrupted)
    result = extract(problem, TIME, interruptible=True)
    assert result.status == "feasible"
    assert result.lower_bound < result.check(problem) <= 1 + 3 * 4 * 4
    with pytest.raises(KeyboardInterrupt):
        extract(problem, TIME)
