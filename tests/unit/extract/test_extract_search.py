"""Inner parts of extraction where the answers of the engine would not show a mistake."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from eqsat_opt.extract import Objective, Problem, ProblemBuilder, extract
from eqsat_opt.extract.engine import price
from eqsat_opt.extract.instance import from_problem
from eqsat_opt.extract.simplify.necessity import bits, necessity
from eqsat_opt.extract.solve import stages
from eqsat_opt.extract.solve.exact import solve_exactly
from eqsat_opt.extract.solve.greedy import sharing_greedy
from eqsat_opt.extract.solve.local import improve_locally

TIME = Objective({"time": 1.0})


def tempting_cycle() -> Problem:
    """Each of two roots is free if computed from the other, and costs 5 alone."""
    builder = ProblemBuilder(("time",))
    a, b = builder.add_class(), builder.add_class()
    for cls, other in ((a, b), (b, a)):
        builder.add_node(cls, (), [(5.0,)])
        builder.add_node(cls, (other,), [(0.0,)])
    return builder.build([a, b])


def test_local_search_stops_short_of_a_cycle() -> None:
    problem = tempting_cycle()
    instance = from_problem(problem, price(problem, TIME))
    choice = improve_locally(instance, [0, 2], work=1000)
    assert instance.evaluate(choice) == 5.0


def test_local_search_without_work_returns_the_given_choice() -> None:
    problem = tempting_cycle()
    instance = from_problem(problem, price(problem, TIME))
    assert improve_locally(instance, [0, 2], work=0) == [0, 2]


def test_budgets_end_the_rules_that_could_cost_too_much() -> None:
    problem = tempting_cycle()
    instance = from_problem(problem, price(problem, TIME))
    assert sharing_greedy(instance, work=0) is None
    assert necessity(instance.members, instance.children, [0, 1], work=0) is None


def test_necessity_sees_through_alternatives() -> None:
    # Class 0 is computed from 1 or from 2; both need 3, and 4 is needed by one of them only.
    members = [[0, 1], [2], [3], [4], [5]]
    children: list[tuple[int, ...]] = [(1,), (2,), (3,), (3, 4), (), ()]
    masks = necessity(members, children, [4, 3, 2, 1, 0], work=1000)
    assert masks is not None
    assert list(bits(masks[0])) == [0, 3]
    assert list(bits(masks[2])) == [2, 3, 4]


@pytest.mark.parametrize("unit", [math.pi, 1e-7 * math.e, 1e9 * math.sqrt(2)])
def test_bounds_hold_for_costs_of_any_size(unit: float) -> None:
    builder = ProblemBuilder(("time",))
    roots = [builder.add_class() for _ in range(20)]
    shared = builder.add_class()
    builder.add_node(shared, (), [(unit * 7,)])
    for k, root in enumerate(roots):
        builder.add_node(root, (), [(unit * (1 + k / 7),)])
        builder.add_node(root, (shared,), [(unit / 3,)])
    problem = builder.build(roots)
    instance = from_problem(problem, price(problem, TIME))
    # With the shared class each root takes the cheaper way, which is always over it.
    optimum = min(unit * (7 + 20 / 3), math.fsum(unit * (1 + k / 7) for k in range(20)))
    found = solve_exactly(instance)
    assert found.proven
    assert found.lower_bound <= optimum * (1 + 1e-15)
    assert found.lower_bound == pytest.approx(optimum, rel=1e-7)
    assert found.choice is not None
    assert instance.evaluate(found.choice) == pytest.approx(optimum, rel=1e-7)


def shared_covers(n: int, density: float, seed: int) -> Problem:
    """Roots that one of two priced classes gives: the relaxation takes half of each."""
    rng = random.Random(seed)
    builder = ProblemBuilder(("time",))
    classes = [builder.add_class() for _ in range(n)]
    for cls in classes:
        builder.add_node(cls, (), [(float(rng.randint(7, 12)),)])
    roots = []
    for pair in itertools.combinations(classes, 2):
        if rng.random() < density:
            roots.append(builder.add_class())
            for cls in pair:
                builder.add_node(roots[-1], (cls,), [(0.0,)])
    return builder.build(roots)


def test_cores_prove_repeatably_before_the_search_around(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one worker that follows the relaxation leaves open does not reach later stages."""
    monkeypatch.setattr(stages, "_proven_alone", lambda part, answer, *rest: answer)
    problem = shared_covers(26, 0.5, seed=1)
    found = extract(problem, TIME)
    assert found.status == "optimal"
    assert "cores" in found.stages_s
    assert not {"cutting planes", "neighbourhoods"} & set(found.stages_s)
    assert extract(problem, TIME).choice == found.choice
    monkeypatch.setattr(stages, "_CORE_OPTIONS", 0)
    without = extract(problem, TIME)
    assert without.cost == pytest.approx(found.cost)
    assert {"cutting planes", "neighbourhoods"} & set(without.stages_s)
