"""Objectives by hand: critical path, limits, products, quotients, trade-offs, and their text."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import extraction_objectives
from eqsat_opt.errors import ExtractionError, OptionError
from eqsat_opt.extract import (
    Front,
    Objective,
    Problem,
    ProblemBuilder,
    Product,
    Ratio,
    TracePoint,
    alternatives,
    extract,
    pareto,
    parse_objective,
    read_json,
    write_json,
)
from eqsat_opt.extract.alternatives import distance
from eqsat_opt.extract.critical_path import costliest_chain
from eqsat_opt.extract.objective import AnyObjective
from eqsat_opt.extract.paths import lagrange, mixed
from eqsat_opt.extract.paths.instance import from_problem
from eqsat_opt.extract.paths.model import solve_paths
from eqsat_opt.extract.solve.answer import EffortSettings
from eqsat_opt.extract.spec import limit_texts, objective_text
from eqsat_opt.extract.tradeoff import product, ratio
from eqsat_opt.extract.tradeoff.plane import Box, HalfPlane, corners, lower_hull

GYM = Path(__file__).parents[4] / "shared" / "data" / "gym"


def two_streams() -> Problem:
    """A merged operator of 5, or two of 3 that can run at once; both make a pair for the top."""
    builder = ProblemBuilder(("time", "energy"))
    top, left, right, merged = (builder.add_class() for _ in range(4))
    builder.add_node(top, (left, right), [(0.0, 0.0)])
    builder.add_node(left, (), [(3.0, 1.0)])
    builder.add_node(right, (), [(3.0, 1.0)])
    builder.add_node(left, (merged,), [(0.0, 0.0)])
    builder.add_node(right, (merged,), [(0.0, 0.0)])
    builder.add_node(merged, (), [(5.0, 4.0)])
    return builder.build([top])


def knapsack() -> Problem:
    """Four classes, each slow and thrifty, or fast and hungry: three trade-offs of each."""
    builder = ProblemBuilder(("time", "energy"))
    top = builder.add_class()
    parts = [builder.add_class() for _ in range(4)]
    builder.add_node(top, parts, [(0.0, 0.0)])
    for k, cls in enumerate(parts):
        builder.add_node(cls, (), [(1.0, 9.0 + k), (2.0, 4.0), (4.0, 1.0)])
    return builder.build([top])


def test_the_critical_path_decides_between_merging_and_streams() -> None:
    problem = two_streams()
    assert extract(problem, Objective({"time": 1.0})).metrics["time"] == 5.0
    light = extract(problem, Objective({"time": 1.0}, 0.25))
    assert (light.metrics["time"], light.metrics["critical_path"]) == (5.0, 5.0)
    heavy = extract(problem, Objective({"time": 1.0}, 2.0))
    assert (heavy.metrics["time"], heavy.metrics["critical_path"]) == (6.0, 3.0)
    assert (heavy.cost, heavy.lower_bound, heavy.status) == (12.0, 12.0, "optimal")


def test_a_limit_on_the_critical_path() -> None:
    problem = two_streams()
    limited = extract(problem, Objective({"time": 1.0}, limits={"critical_path": 4.0}))
    assert limited.metrics["critical_path"] == 3.0
    other = Objective({"energy": 1.0}, limits={"critical_path": 2.9}, path={"time": 1.0})
    assert extract(problem, other).status == "infeasible"


@pytest.mark.parametrize(("limit", "cost"), [(1e30, 5.0), (1e-30, None)])
def test_a_limit_far_beyond_all_totals(limit: float, cost: float | None) -> None:
    builder = ProblemBuilder(("time", "energy"))
    top, leaf = builder.add_class(), builder.add_class()
    builder.add_node(top, (leaf,), [(1e-6, 2.0)])
    builder.add_node(leaf, (), [(2.0, 3.0), (1.0, 9.0)])
    problem = builder.build([top])
    objective = Objective({"energy": 1.0}, limits={"time": limit})
    instance = from_problem(problem, problem.impl_cost[:, 1], objective)
    solved = solve_paths(instance, mode="single")
    assert (solved.choice and instance.value(solved.choice)) == cost


@pytest.mark.parametrize(("limit", "cost"), [(9.0, 1.0), (8.9, 10.0)])
def test_the_solver_uses_all_the_time_that_a_limit_leaves(limit: float, cost: float) -> None:
    builder = ProblemBuilder(("time", "energy"))
    top, leaf = builder.add_class(), builder.add_class()
    builder.add_node(top, (leaf,), [(5.0, 0.0)])
    builder.add_node(leaf, (), [(1.0, 10.0), (4.0, 1.0)])
    problem = builder.build([top])
    objective = Objective({"energy": 1.0}, limits={"critical_path": limit}, path={"time": 1.0})
    instance = from_problem(problem, problem.impl_cost[:, 1], objective)
    solved = solve_paths(instance, mode="single")
    assert solved.choice is not None
    assert instance.value(solved.choice) == solved.lower_bound == cost


def test_the_path_may_be_measured_in_another_metric() -> None:
    objective = Objective({"energy": 1.0}, 10.0, path={"time": 1.0})
    assert extract(two_streams(), objective).cost == 2.0 + 30.0


def test_caps_drop_implementations() -> None:
    problem = two_streams()
    capped = extract(problem, Objective({"time": 1.0}, caps={"energy": 3.0}))
    assert capped.metrics["time"] == 6.0
    assert extract(problem, Objective({"time": 1.0}, caps={"energy": 0.5})).status == "infeasible"


def test_least_energy_within_a_time() -> None:
    problem = knapsack()
    for limit, energy in ((16.0, 4.0), (14.0, 7.0), (8.0, 16.0), (5.0, 34.0)):
        found = extract(problem, Objective({"energy": 1.0}, limits={"time": limit}))
        assert found.check(problem) == energy
        assert found.status == "optimal"
    tight = Objective({"energy": 1.0}, limits={"time": 3.9})
    assert extract(problem, tight).status == "infeasible"


def test_lagrangian_bounds_meet_at_a_kink() -> None:
    # Time 8 is where every class takes its middle implementation: there the dual has no gap.
    problem = knapsack()
    steps = list(
        lagrange.bound_limited(
            problem,
            problem.impl_cost[:, 1],
            {"time": 8.0},
            settings=EffortSettings("local", 0.0, 0, True),
            deadline=math.inf,
        )
    )
    assert steps[-1].lower_bound == pytest.approx(16.0)
    rows = list((steps[-1].rows or {}).values())
    assert problem.impl_cost[rows].sum(axis=0).tolist() == [8.0, 16.0]


def test_products_and_quotients() -> None:
    problem = knapsack()
    found = extract(problem, Product({"time": 1.0, "energy": 1.0}))
    seen = [
        (t, e)
        for t, e in (
            (sum(a for a, _ in rows), sum(b for _, b in rows))
            for rows in itertools.product(
                *([(1.0, 9.0 + k), (2.0, 4.0), (4.0, 1.0)] for k in range(4))
            )
        )
    ]
    assert found.check(problem) == min(t * e for t, e in seen)
    assert found.status == "optimal"
    power = extract(problem, Ratio({"energy": 1.0}, {"time": 1.0}))
    assert power.check(problem) == min(e / t for t, e in seen)
    assert power.status == "optimal"
    most = extract(problem, Ratio({"time": 1.0}, {"energy": 1.0}))
    assert most.check(problem) == pytest.approx(min(t / e for t, e in seen))


def test_a_quotient_needs_a_denominator() -> None:
    builder = ProblemBuilder(("time", "energy"))
    builder.add_node(builder.add_class(), (), [(0.0, 1.0)])
    problem = builder.build([0])
    assert extract(problem, Ratio({"energy": 1.0}, {"time": 1.0})).status == "infeasible"
    assert extract(problem, Ratio({"time": 1.0}, {"energy": 1.0})).cost == 0.0


def test_a_quotient_is_not_padded_with_what_no_root_needs() -> None:
    # Slow leaves would lower energy / time, but nothing needs them.
    builder = ProblemBuilder(("time", "energy"))
    top, leaf = builder.add_class(), builder.add_class()
    builder.add_node(top, (), [(1.0, 4.0)])
    builder.add_node(leaf, (), [(9.0, 0.0)])
    builder.add_node(top, (leaf,), [(1.0, 40.0)])
    assert extract(builder.build([top]), Ratio({"energy": 1.0}, {"time": 1.0})).cost == 4.0


def test_a_trade_off_is_complete_and_certified() -> None:
    problem = knapsack()
    shown: list[Front] = []
    front = pareto(problem, "time", "energy", points=50, gap=0.0, progress=shown.append)
    assert front.check(problem) <= 1e-7
    assert front.totals[0] == (4.0, 42.0)
    assert front.totals[-1] == (16.0, 4.0)
    assert (8.0, 16.0) in front.totals
    assert shown
    document = json.loads(json.dumps(front.to_json()))
    assert document["metrics"] == ["time", "energy"]
    assert len(document["points"]) == len(front.points)
    few = pareto(problem, "time", "energy", points=3)
    assert len(few.points) == 3
    assert few.gap > front.gap
    few.check(problem)


def test_trade_off_under_limits_and_without_solution() -> None:
    problem = knapsack()
    front = pareto(problem, "time", "energy", points=50, gap=0.0, limits={"energy": 20.0})
    assert all(energy <= 20.0 for _, energy in front.totals)
    assert pareto(problem, "time", "energy", caps={"time": 0.5}).points == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"first": "time", "second": "time"}, "two different"),
        ({"first": "time", "second": "energy", "points": 1}, "at least 2"),
        ({"first": "time", "second": "speed"}, "speed"),
    ],
)
def test_trade_offs_without_meaning_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ExtractionError, match=message):
        pareto(knapsack(), **arguments)


def test_a_front_finds_lies() -> None:
    problem = knapsack()
    front = pareto(problem, "time", "energy", points=4)
    for wrong, message in (
        (dataclasses.replace(front, gap=0.0), "claimed gap"),
        (dataclasses.replace(front, points=front.points[::-1]), "beats the other"),
        (dataclasses.replace(front, cuts=(*front.cuts, Box(100.0, 100.0))), "a cut forbids"),
    ):
        with pytest.raises(ExtractionError, match=message):
            wrong.check(problem)


def test_half_planes_meet_in_corners() -> None:
    cuts = [HalfPlane(1.0, 0.0, 1.0), HalfPlane(0.0, 1.0, 1.0), HalfPlane(1.0, 1.0, 4.0)]
    assert corners(cuts) == [(1.0, 3.0), (3.0, 1.0)]
    assert cuts[2].factor(2.0, 6.0) == 2.0
    assert cuts[0].factor(3.0, math.inf) == 3.0
    assert Box(2.0, 5.0).factor(4.0, 5.0) == 2.0
    assert Box(2.0, 5.0).excludes(2.0, 4.9, 1e-9)
    assert not Box(2.0, 5.0).excludes(2.1, 0.0, 1e-9)
    points = [(0.0, 4.0), (1.0, 3.5), (2.0, 1.0), (4.0, 0.0), (5.0, 0.0)]
    assert lower_hull(points) == [(0.0, 4.0), (2.0, 1.0), (4.0, 0.0)]


def test_alternatives_can_be_asked_to_differ() -> None:
    problem = knapsack()
    objective = Objective({"time": 1.0, "energy": 1.0})
    best = extract(problem, objective)
    near = alternatives(problem, objective, best, 1)
    assert distance(near[0].choice, best.choice) > 0
    for other in alternatives(problem, objective, best, 2, min_distance=0.5):
        assert distance(other.choice, best.choice) > 0.5
    for other in alternatives(problem, objective, best, 2, min_cost_difference=0.1):
        assert other.cost > best.cost * 1.1
    limited = Objective({"energy": 1.0}, limits={"time": 9.0})
    for other in alternatives(problem, limited, extract(problem, limited), 2):
        assert other.check(problem) >= 16.0 - 4.0
    assert distance({}, {}) == 0.0


@pytest.mark.parametrize(
    "objective",
    [
        Objective({"time": 1.0}, 1.0),
        Objective({"energy": 1.0}, limits={"time": 9.0}),
        Product({"time": 1.0, "energy": 1.0}),
        Ratio({"energy": 1.0}, {"time": 1.0}),
    ],
)
def test_an_interrupt_keeps_what_was_found(
    objective: AnyObjective, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(mixed, "branch_paths", stop)
    monkeypatch.setattr(ratio, "branch_paths", stop)
    monkeypatch.setattr(product, "corners", stop)
    problem = knapsack()
    if not (isinstance(objective, Objective) and objective.critical_path):  # closed by its bound
        with pytest.raises(KeyboardInterrupt):
            extract(problem, objective)
    found = extract(problem, objective, interruptible=True)
    found.check(problem)
    assert found.choice


def test_progress_is_told() -> None:
    points: list[TracePoint] = []
    found = extract(
        knapsack(), Objective({"energy": 1.0}, limits={"time": 9.0}), progress=points.append
    )
    assert points[-1].cost == found.cost
    assert points[-1].lower_bound == found.lower_bound


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Objective({}, limits={"critical_path": 1.0}), "weighs nothing"),
        (lambda: Objective({"time": 0.0}, 1.0), "no length"),
        (lambda: Objective({"time": 1.0}, caps={"time": -1.0}), "cap of time"),
        (lambda: Product({"time": 1.0}), "two metrics"),
        (lambda: Product({"time": 1.0, "energy": 0.0}), "two metrics"),
        (lambda: Product({"time": 1.0, "energy": -1.0}), "exponent of energy"),
        (lambda: Product({"time": 1.0, "energy": 1.0}, limits={"critical_path": 1.0}), "no length"),
        (lambda: Ratio({"time": 1.0}, {"energy": 0.0}), "denominator weighs nothing"),
    ],
)
def test_objectives_without_meaning_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ExtractionError, match=message):
        make()


@pytest.mark.parametrize(
    "objective",
    [
        Objective({"time": 1.0}, 1.0, path={"speed": 1.0}),
        Objective({"time": 1.0}, caps={"speed": 1.0}),
        Product({"time": 1.0, "speed": 1.0}),
        Ratio({"time": 1.0}, {"speed": 1.0}),
    ],
)
def test_metrics_that_are_not_there_are_named(objective: AnyObjective) -> None:
    with pytest.raises(ExtractionError, match="speed"):
        extract(knapsack(), objective)


@pytest.mark.parametrize(
    ("text", "limits", "objective"),
    [
        ("time", (), Objective({"time": 1.0})),
        (" 2*time + energy ", (), Objective({"time": 2.0, "energy": 1.0})),
        ("time+time", (), Objective({"time": 2.0})),
        ("0.5e-3*time_us", (), Objective({"time_us": 0.0005})),
        ("time+0.25*critical_path(time)", (), Objective({"time": 1.0}, 0.25)),
        ("critical_path(time)", (), Objective({}, 1.0, path={"time": 1.0})),
        (
            "energy+critical_path(time+2*energy)",
            (),
            Objective({"energy": 1.0}, 1.0, path={"time": 1.0, "energy": 2.0}),
        ),
        ("energy", ("time=3.5",), Objective({"energy": 1.0}, limits={"time": 3.5})),
        (
            "energy",
            ("time <= 3", "max(workspace)=1e6", "critical_path(time)=2"),
            Objective(
                {"energy": 1.0},
                limits={"time": 3.0, "critical_path": 2.0},
                path={"time": 1.0},
                caps={"workspace": 1e6},
            ),
        ),
        ("time", ("critical_path=2",), Objective({"time": 1.0}, limits={"critical_path": 2.0})),
        ("energy^0.5*time^0.5", (), Product({"energy": 0.5, "time": 0.5})),
        ("energy*time^2", (), Product({"energy": 1.0, "time": 2.0})),
        ("energy/time", (), Ratio({"energy": 1.0}, {"time": 1.0})),
        (
            "(energy+2*time)/time",
            ("energy=9",),
            Ratio({"energy": 1.0, "time": 2.0}, {"time": 1.0}, limits={"energy": 9.0}),
        ),
    ],
)
def test_objectives_can_be_written(
    text: str, limits: tuple[str, ...], objective: AnyObjective
) -> None:
    assert parse_objective(text, limits) == objective
    assert parse_objective(objective_text(objective), limit_texts(objective)) == objective


@pytest.mark.parametrize(
    ("text", "limits", "message"),
    [
        ("", (), "needs a metric where the text ends"),
        ("time+", (), "needs a metric where the text ends"),
        ("time time", (), "'time' where it should end"),
        ("time-energy", (), "'-' where it should end"),
        ("time,energy", (), "',', which has no meaning"),
        ("2time", (), r"needs '\*' where found 'time'"),
        ("0*time", (), "weighs nothing"),
        ("a*b*c", (), "two metrics"),
        ("a^2", (), "two metrics"),
        ("a/b/c", (), "'/' where it should end"),
        ("critical_path", (), r"needs '\('"),
        ("critical_path(a)+critical_path(b)", (), "more than one critical path"),
        ("time", ("time",), "needs '='"),
        ("time", ("time=x",), "needs a number where found 'x'"),
        ("time", ("time=1 2",), "'2' where it should end"),
        ("time", ("time=1", "time=2"), "two limits name the same metric"),
        ("time+critical_path(time)", ("critical_path(energy)=2",), "two kinds"),
        ("energy/time", ("critical_path=3",), "no length"),
    ],
)
def test_text_without_meaning_is_refused(text: str, limits: tuple[str, ...], message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        parse_objective(text, limits)
    assert "\n" not in str(caught.value)


def test_the_benchmark_runs_on_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = ProblemBuilder(("cost",))
    top, leaf = builder.add_class(), builder.add_class()
    builder.add_node(top, (leaf,), [(1.0,)])
    builder.add_node(leaf, (), [(2.0,)])
    write_json(tmp_path / "tiny.json", builder.build([top]), Objective({"cost": 1.0}))
    (tmp_path / "optima.json").write_text("{}", encoding="utf-8")
    out = tmp_path / "results" / "out.json"
    out.parent.mkdir()
    monkeypatch.setattr(sys, "argv", ["benchmark", str(tmp_path), "--json", str(out)])
    assert extraction_objectives.main() == 0
    entries = json.loads(out.read_text(encoding="utf-8"))["entries"]
    assert [entry["status"] for entry in entries] == ["optimal", "optimal"]
    assert entries[0]["cost"] == 6.0
    assert entries[1]["metrics"]["time"] <= entries[1]["limits"]["time"] * (1 + 1e-9)
    assert "tiny.json" in capsys.readouterr().out


@pytest.mark.skipif(
    not GYM.is_dir(), reason="the public extraction-gym data is not beside the tree"
)
@pytest.mark.parametrize("name", ["vgg", "vgg_acyclic", "resnet50_acyclic"])
def test_critical_paths_of_public_instances_are_proven(name: str) -> None:
    problem = read_json(GYM / "tensat" / f"{name}.json").problem
    result = extract(problem, Objective({"cost": 1.0}, 1.0), time_limit_s=60.0)
    result.check(problem)
    assert result.status == "optimal"


def test_the_dearest_chain_proves_a_deep_graph_without_the_solver() -> None:
    # Twenty layers with a cheap and a dear operator each: the optimum is one chain.
    builder = ProblemBuilder(("time",))
    below = builder.add_class()
    builder.add_node(below, (), [(1.0,)])
    members, option_class, cost = [[0]], [0], [1.0]
    children: list[tuple[int, ...]] = [()]
    for layer in range(1, 20):
        cls = builder.add_class()
        members.append([])
        for price in (1.0 + layer % 3, 4.0):
            builder.add_node(cls, (below,), [(price,)])
            members[cls].append(len(cost))
            option_class.append(cls)
            children.append((below,))
            cost.append(price)
        below = cls
    bound = costliest_chain(members, option_class, children, cost, [below])
    found = extract(builder.build([below]), Objective({"time": 1.0}), method="greedy")
    assert found.cost == bound == found.lower_bound
    assert found.status == "optimal"
