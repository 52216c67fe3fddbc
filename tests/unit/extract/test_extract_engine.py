"""The engine on small e-graphs whose answers are known, and the answer's check of itself."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import eqsat_opt
from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract import (
    EXTRACTORS,
    Extraction,
    Objective,
    Problem,
    ProblemBuilder,
    TracePoint,
    alternatives,
    extract,
    read_json,
)

TIME = Objective({"time": 1.0})
GYM = Path(__file__).parents[4] / "shared" / "data" / "gym"
PACKAGE = Path(eqsat_opt.__file__).parent


def sharing_pays() -> Problem:
    """Both users of class 0 have a private child of 3; the common child of 4 is cheaper in all."""
    builder = ProblemBuilder(("time",))
    top, left, right, common, one, two = (builder.add_class() for _ in range(6))
    builder.add_node(top, (left, right), [(1.0,)])
    builder.add_node(left, (one,), [(1.0,)])
    builder.add_node(left, (common,), [(1.0,)])
    builder.add_node(right, (two,), [(1.0,)])
    builder.add_node(right, (common,), [(1.0,)])
    builder.add_node(common, (), [(4.0,)])
    builder.add_node(one, (), [(3.0,)])
    builder.add_node(two, (), [(3.0,)])
    return builder.build([top])


def chain(layers: int, *, alike: bool) -> Problem:
    """A long network in which each layer is a small choice of its own: three or one merged."""
    builder = ProblemBuilder(("time",))
    below = builder.add_class()
    builder.add_node(below, (), [(1.0,)])
    for layer in range(layers):
        merged = builder.add_class()
        builder.add_node(merged, (below,), [(5.0 if alike else 5.0 + layer % 7,)])
        branches = []
        for _ in range(3):
            branch = builder.add_class()
            builder.add_node(branch, (below,), [(3.0,)])
            builder.add_node(branch, (merged,), [(0.5,)])
            branches.append(branch)
        below = builder.add_class()
        builder.add_node(below, branches, [(1.0,), (2.0,)])
    return builder.build([below])


def test_sharing_is_seen() -> None:
    result = extract(sharing_pays(), TIME)
    assert result.cost == 7.0
    assert result.status == "optimal"
    assert result.choice == {0: (0, 0), 1: (2, 0), 2: (4, 0), 3: (5, 0)}
    assert result.metrics == {"time": 7.0}
    assert EXTRACTORS["tree"].run(sharing_pays(), TIME).cost == 9.0
    assert str(result) == "optimal: cost 7, bound 7 (gap 0.00%), 4 classes"


def test_a_cycle_is_never_chosen_though_it_looks_free() -> None:
    builder = ProblemBuilder(("time",))
    a, b = builder.add_class(), builder.add_class()
    builder.add_node(a, (b,), [(0.0,)])
    builder.add_node(b, (a,), [(0.0,)])
    builder.add_node(b, (), [(5.0,)])
    builder.add_node(a, (), [(6.0,)])
    problem = builder.build([a, b])
    for extractor in EXTRACTORS.values():
        result = extractor.run(problem, TIME)
        assert result.check(problem) == 5.0


@pytest.mark.parametrize("name", sorted(EXTRACTORS))
def test_roots_that_need_themselves_are_infeasible(name: str) -> None:
    builder = ProblemBuilder(("time",))
    a, b = builder.add_class(), builder.add_class()
    builder.add_node(a, (b,), [(1.0,)])
    builder.add_node(b, (a,), [(1.0,)])
    problem = builder.build([a])
    result = EXTRACTORS[name].run(problem, TIME)
    assert result.status == "infeasible"
    assert math.isinf(result.cost)
    assert math.isinf(result.check(problem))
    assert json.loads(json.dumps(result.to_json()))["cost"] is None
    assert "infeasible" in str(result)


def test_a_limit_takes_the_dearer_implementation_where_it_pays() -> None:
    builder = ProblemBuilder(("time", "energy"))
    top, leaf = builder.add_class(), builder.add_class()
    builder.add_node(top, (leaf,), [(1.0, 9.0), (2.0, 4.0)])
    builder.add_node(leaf, (), [(1.0, 9.0), (4.0, 1.0)])
    problem = builder.build([top])
    free = extract(problem, TIME)
    assert (free.cost, free.metrics["energy"]) == (2.0, 18.0)
    limited = extract(problem, Objective({"time": 1.0}, limits={"energy": 13.0}))
    assert limited.check(problem) == 3.0
    assert limited.choice == {0: (0, 1), 1: (1, 0)}
    tightest = extract(problem, Objective({"time": 1.0}, limits={"energy": 5.0}))
    assert tightest.choice == {0: (0, 1), 1: (1, 1)}
    assert extract(problem, Objective({"time": 1.0}, limits={"energy": 4.9})).status == "infeasible"


def test_weights_trade_metrics() -> None:
    builder = ProblemBuilder(("time", "energy"))
    builder.add_node(builder.add_class(), (), [(1.0, 9.0), (2.0, 4.0)])
    problem = builder.build([0])
    assert extract(problem, TIME).choice == {0: (0, 0)}
    assert extract(problem, Objective({"time": 1.0, "energy": 1.0})).choice == {0: (0, 1)}


def test_incumbent_wins_ties_and_is_beaten_only_by_less() -> None:
    builder = ProblemBuilder(("time",))
    cls = builder.add_class()
    for _ in range(3):
        builder.add_node(cls, (), [(2.0,)])
    assert extract(builder.build([cls]), TIME, incumbent={0: (2, 0)}).choice == {0: (2, 0)}
    builder.add_node(cls, (), [(1.0,)])
    assert extract(builder.build([cls]), TIME, incumbent={0: (2, 0)}).choice == {0: (3, 0)}


def test_incumbent_may_hold_more_than_is_needed_but_not_less() -> None:
    problem = sharing_pays()
    full = {0: (0, 0), 1: (1, 0), 2: (3, 0), 3: (5, 0), 4: (6, 0), 5: (7, 0)}
    result = extract(problem, TIME, incumbent=full, method="greedy")
    assert result.check(problem) <= 9.0
    with pytest.raises(ExtractionError, match=r"incumbent is not a solution.*class 5"):
        extract(problem, TIME, incumbent={c: n for c, n in full.items() if c != 5})


@pytest.mark.parametrize(
    ("option", "value"),
    [("method", "magic"), ("time_limit_s", -1.0), ("time_limit_s", math.nan), ("gap", 1.0)],
)
def test_options_without_meaning_are_refused(option: str, value: Any) -> None:
    arguments: dict[str, Any] = {option: value}
    with pytest.raises(ExtractionError, match="method" if option == "method" else option):
        extract(sharing_pays(), TIME, **arguments)


def test_no_time_still_gives_a_bounded_answer() -> None:
    problem = chain(30, alike=False)
    result = extract(problem, TIME, method="greedy", time_limit_s=0.0)
    result.check(problem)
    assert 0 < result.lower_bound <= result.cost


def test_no_solution_in_time_is_an_error_and_not_infeasible() -> None:
    # The greedies look along rays of prices, and no ray meets this limit: three pairs, one of two.
    builder = ProblemBuilder(("time", "a", "b"))
    top = builder.add_class()
    pair = [builder.add_class() for _ in range(2)]
    builder.add_node(top, pair, [(0.0, 0.0, 0.0)])
    for cls in pair:
        builder.add_node(cls, (), [(1.0, 2.0, 0.0), (1.0, 0.0, 2.0)])
    problem = builder.build([top])
    objective = Objective({"time": 1.0}, limits={"a": 3.0, "b": 3.0})
    assert extract(problem, objective).check(problem) == 2.0
    with pytest.raises(ExtractionError, match="allow more time"):
        extract(problem, objective, method="greedy")


def test_independent_layers_are_solved_without_the_solver() -> None:
    script = (
        "import sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import test_extract_engine as t\n"
        "for alike in (True, False):\n"
        "    result = t.extract(t.chain(200, alike=alike), t.TIME)\n"
        "    assert result.status == 'optimal', result\n"
        "assert 'ortools' not in sys.modules\n"
        "print(result.cost)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        cwd=PACKAGE.parent,
    )
    assert done.returncode == 0, done.stderr
    # Per layer 1 + min(9, 1.5 + 5 + layer % 7): 7.5, 8.5, 9.5, then 10 four times.
    layers = [1 + min(9.0, 6.5 + layer % 7) for layer in range(200)]
    assert float(done.stdout) == pytest.approx(1 + sum(layers))


def test_progress_tells_falling_costs_and_rising_bounds() -> None:
    seen: list[TracePoint] = []
    result = extract(chain(40, alike=False), TIME, progress=seen.append)
    assert tuple(seen) == result.trace
    assert seen[0].stage == "greedy"
    for before, after in itertools.pairwise(seen):
        assert after.cost <= before.cost
        assert after.lower_bound >= before.lower_bound
        assert after.time_s >= before.time_s
    assert seen[-1].cost == pytest.approx(result.cost)


def test_equal_calls_give_equal_results() -> None:
    problem = chain(20, alike=False)
    assert extract(problem, TIME, seed=3) == extract(problem, TIME, seed=3)


def test_check_finds_every_kind_of_lie() -> None:
    problem = sharing_pays()
    true = extract(problem, TIME)

    def lie(**changes: Any) -> Extraction:
        return dataclasses.replace(true, **changes)

    for wrong, message in (
        (lie(cost=6.0), "claimed cost"),
        (lie(metrics={"time": 6.0}), "claimed time"),
        (lie(lower_bound=8.0), "lower bound"),
        (lie(choice={c: n for c, n in true.choice.items() if c != 3}), "incomplete"),
        (lie(choice={**true.choice, 4: (6, 0)}), "no root needs it"),
        (lie(choice={**true.choice, 1: (3, 0)}), "not in it"),
        (lie(choice={**true.choice, 1: (2, 1)}), "no implementation 1"),
        (lie(objective=Objective({"time": 1.0}, limits={"time": 6.0})), "above its limit"),
        (lie(status="infeasible"), "must choose nothing"),
    ):
        with pytest.raises(ExtractionError, match=message):
            wrong.check(problem)


def test_check_finds_cycles() -> None:
    builder = ProblemBuilder(("time",))
    a, b = builder.add_class(), builder.add_class()
    builder.add_node(a, (b,), [(1.0,)])
    builder.add_node(b, (a,), [(1.0,)])
    problem = builder.build([a])
    cyclic = Extraction({a: (0, 0), b: (1, 0)}, 2.0, 0.0, 1.0, "feasible", {"time": 2.0}, TIME)
    with pytest.raises(ExtractionError, match="cyclic"):
        cyclic.check(problem)


def test_alternatives_start_with_the_second_best() -> None:
    problem = sharing_pays()
    best = extract(problem, TIME)
    second = alternatives(problem, TIME, best, 1)
    assert [e.cost for e in second] == [9.0]
    assert second[0].lower_bound == best.lower_bound
    assert alternatives(problem, TIME, best, 0) == ()


def test_extractors_that_know_no_limits_say_so() -> None:
    with pytest.raises(ExtractionError, match="no limits"):
        EXTRACTORS["tree"].run(sharing_pays(), Objective({"time": 1.0}, limits={"time": 9.0}))


def test_import_is_free_of_solvers() -> None:
    script = "import sys, eqsat_opt.extract; assert 'ortools' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=PACKAGE.parent)


def test_no_module_imports_highspy() -> None:
    """It and ortools bring two builds of one library, and cannot share a process."""
    sources = sorted(PACKAGE.rglob("*.py"))
    assert sources
    for source in sources:
        text = source.read_text(encoding="utf-8")
        assert not re.search(r"^\s*(import|from)\s+highspy", text, re.MULTILINE), source


@pytest.mark.skipif(
    not GYM.is_dir(), reason="the public extraction-gym data is not beside the tree"
)
@pytest.mark.parametrize(
    "name",
    [
        "dummy_examples/choice",
        "egg/math_associate_adds",
        "egg/math_simplify_root",
        "eggcc-bril/range_check.bril",
        "flexc/7bdc5ff7-82f5-4bd0-a8c6-f3a735e016dc",
        "impress/mul512",
        "rover/box_filter_5iteration_egraph",
        "rover/mcm_3_7_21_original_8iteration_egraph",
        "tensat/resnet50",
        "tensat/resnet50_acyclic",
        "tensat/vgg_acyclic",
    ],
)
def test_public_instances_reach_their_proven_optima(name: str) -> None:
    optima = json.loads((GYM / "optima.json").read_text(encoding="utf-8"))
    problem = read_json(GYM / f"{name}.json").problem
    result = extract(problem, Objective({"cost": 1.0}), deterministic=False, time_limit_s=60.0)
    assert result.check(problem) == pytest.approx(optima[f"{name}.json"], rel=1e-6)
    assert result.status == "optimal"
