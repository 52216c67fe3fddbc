"""The problem's arrays, the objective and the JSON format: what they accept and how they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract import (
    AnyObjective,
    Objective,
    Problem,
    ProblemBuilder,
    Product,
    Ratio,
    extract,
    read_json,
    write_json,
)

TIME = Objective({"time": 1.0})


def two_classes() -> ProblemBuilder:
    builder = ProblemBuilder(("time", "energy"))
    top, leaf = builder.add_class(), builder.add_class()
    builder.add_node(top, (leaf, leaf), [(3.0, 1.0), (2.0, 5.0)])
    builder.add_node(leaf, (), [(1.0, 1.0)])
    return builder


def test_builder_makes_read_only_csr_arrays_without_duplicate_roots() -> None:
    problem = two_classes().build([0, 1, 0])
    assert problem.roots == (0, 1)
    assert problem.child_ptr.tolist() == [0, 2, 2]
    assert problem.children(0) == [1, 1]
    assert problem.impl_cost.shape == (3, 2)
    assert problem.implementation_node().tolist() == [0, 0, 1]
    assert "2 e-nodes" in repr(problem)
    with pytest.raises(ValueError, match="read-only"):
        problem.impl_cost[0, 0] = 0.0


def test_problem_does_not_share_the_callers_arrays() -> None:
    cost = np.array([[1.0]])
    zero = np.zeros(1, dtype=np.int64)
    problem = Problem(
        n_classes=1,
        node_class=zero,
        child_ptr=np.array([0, 0]),
        child_ix=np.array([], dtype=np.int64),
        impl_ptr=np.array([0, 1]),
        impl_cost=cost,
        metrics=("time",),
        roots=(0,),
    )
    cost[0, 0] = 7.0
    assert problem.impl_cost[0, 0] == 1.0


def test_scalar_takes_the_cheapest_implementation_and_the_first_of_equals() -> None:
    problem = two_classes().build([0])
    cost, impl = problem.scalar(TIME)
    assert (cost.tolist(), impl.tolist()) == ([2.0, 1.0], [1, 0])
    cost, impl = problem.scalar(Objective({"time": 4.0, "energy": 1.0}))  # 13 against 13
    assert (cost.tolist(), impl.tolist()) == ([13.0, 5.0], [0, 0])


def _bad_child(b: ProblemBuilder) -> None:
    b.add_node(0, (9,), [(1.0, 1.0)])


def _bad_class(b: ProblemBuilder) -> None:
    b.add_node(9, (), [(1.0, 1.0)])


def _negative(b: ProblemBuilder) -> None:
    b.add_node(0, (), [(1.0, -1.0)])


def _not_finite(b: ProblemBuilder) -> None:
    b.add_node(0, (), [(float("nan"), 1.0)])


def _unpriced(b: ProblemBuilder) -> None:
    b.add_node(0)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_bad_child, "e-node 2 has child class 9"),
        (_bad_class, "e-node 2 lies in a class that does not exist"),
        (_negative, r"e-node 2 costs -1.0 energy"),
        (_not_finite, "e-node 2 costs nan time"),
        (_unpriced, "e-node 2 has no implementation"),
    ],
)
def test_malformed_nodes_are_refused(spoil: Callable[[ProblemBuilder], None], message: str) -> None:
    builder = two_classes()
    spoil(builder)
    with pytest.raises(ExtractionError, match=message):
        builder.build([0])


@pytest.mark.parametrize(
    ("roots", "message"),
    [
        ([], "has no root"),
        ([5], "root class 5 does not exist"),
        ([2], "root class 2 has no e-node"),
    ],
)
def test_malformed_roots_are_refused(roots: list[int], message: str) -> None:
    builder = two_classes()
    builder.add_class()
    with pytest.raises(ExtractionError, match=message):
        builder.build(roots)


def test_rows_and_metrics_must_fit() -> None:
    with pytest.raises(ExtractionError, match="1 costs"):
        two_classes().add_node(0, (), [(1.0,)])
    with pytest.raises(ExtractionError, match="distinct"):
        ProblemBuilder(("time", "time")).build([])
    problem = two_classes().build([0])
    with pytest.raises(ExtractionError, match="child_ptr must rise"):
        Problem(
            problem.n_classes,
            problem.node_class,
            np.array([0, 5, 2]),
            problem.child_ix,
            problem.impl_ptr,
            problem.impl_cost,
            problem.metrics,
            problem.roots,
        )


@pytest.mark.parametrize(
    ("weights", "critical_path", "limits", "message"),
    [
        ({"time": -1.0}, 0.0, {}, "weight of time"),
        ({"time": 1.0}, 0.0, {"energy": float("inf")}, "limit of energy"),
        ({"time": 0.0}, 0.0, {}, "weighs nothing"),
        ({"time": 1.0}, -1.0, {}, "critical_path"),
    ],
)
def test_objectives_without_meaning_are_refused(
    weights: dict[str, float], critical_path: float, limits: dict[str, float], message: str
) -> None:
    with pytest.raises(ExtractionError, match=message):
        Objective(weights, critical_path, limits=limits)


def test_objective_must_name_metrics_of_the_problem() -> None:
    problem = two_classes().build([0])
    for objective in (Objective({"bytes": 1.0}), Objective({"time": 1.0}, limits={"bytes": 1.0})):
        with pytest.raises(ExtractionError, match="bytes"):
            extract(problem, objective)


def test_json_round_trip(tmp_path: Path) -> None:
    problem = two_classes().build([0])
    file = tmp_path / "e.json"
    write_json(file, problem, TIME, ops=["Add", "x"])
    assert [p.name for p in tmp_path.iterdir()] == ["e.json"]
    again = read_json(file)
    assert again.class_names == ("0", "1")
    assert again.problem.child_ix.tolist() == [1, 1]
    assert again.problem.impl_cost[:, 0].tolist() == [2.0, 1.0]
    assert json.loads(file.read_text())["nodes"]["0.0"]["op"] == "Add"
    assert extract(again.problem, Objective({"cost": 1.0})).cost == 3.0


def peaked() -> Problem:
    """Two kernels, either of which has two ways: fast with much workspace, or slow with little."""
    builder = ProblemBuilder(("time", "workspace"))
    first, second = builder.add_class(), builder.add_class()
    builder.add_node(first, (), [(1.0, 8.0), (3.0, 2.0)])
    builder.add_node(second, (first,), [(1.0, 5.0), (2.0, 0.0)])
    return replace(builder.build([second]), peaks=("workspace",))


def test_of_a_peak_a_solution_has_the_largest_value() -> None:
    problem = peaked()
    found = extract(problem, Objective({"time": 1.0}))
    assert found.metrics == {"time": 2.0, "workspace": 8.0}
    assert found.check(problem) == 2.0
    capped = extract(problem, Objective({"time": 1.0}, caps={"workspace": 5.0}))
    assert capped.metrics == {"time": 4.0, "workspace": 5.0}


@pytest.mark.parametrize(
    "objective",
    [
        Objective({"workspace": 1.0}),
        Objective({"time": 1.0}, limits={"workspace": 9.0}),
        Objective({"time": 1.0}, 1.0, path={"workspace": 1.0}),
        Product({"time": 1.0, "workspace": 1.0}),
        Ratio({"time": 1.0}, {"workspace": 1.0}),
    ],
    ids=["weight", "limit", "path", "product", "ratio"],
)
def test_a_peak_is_no_part_of_a_sum(objective: AnyObjective) -> None:
    with pytest.raises(ExtractionError, match=r"no sum; cap it: max\(workspace\)"):
        extract(peaked(), objective)
    with pytest.raises(ExtractionError, match="speed is a peak, but no metric"):
        replace(peaked(), peaks=("speed",))


def test_json_keeps_peaks(tmp_path: Path) -> None:
    path = tmp_path / "peaks.json"
    write_json(path, peaked())
    assert read_json(path).problem.peaks == ("workspace",)
    path.write_text(path.read_text().replace('"peaks": [', '"peaks": [3, '))
    with pytest.raises(ExtractionError, match="a list of metrics"):
        read_json(path)


def test_json_needs_an_enode_for_each_child(tmp_path: Path) -> None:
    builder = two_classes()
    builder.add_node(0, (builder.add_class(),), [(1.0, 1.0)])
    with pytest.raises(ExtractionError, match="class 2 has no e-node"):
        write_json(tmp_path / "e.json", builder.build([0]), TIME)
    assert list(tmp_path.iterdir()) == []


NODE = {"op": "x", "children": [], "eclass": "a", "cost": 1.0}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "is not JSON"),
        ("[]", "no nodes or root_eclasses"),
        ({"nodes": {"n": {"op": "x"}}, "root_eclasses": []}, "no eclass"),
        ({"nodes": {"n": {**NODE, "children": ["m"]}}, "root_eclasses": ["a"]}, "the child m"),
        ({"nodes": {"n": {**NODE, "cost": "1"}}, "root_eclasses": ["a"]}, "not a number"),
        ({"nodes": {"n": {**NODE, "cost": -1}}, "root_eclasses": ["a"]}, "costs -1.0"),
        ({"nodes": {"n": NODE}, "root_eclasses": ["b"]}, "root class b does not exist"),
        ({"nodes": {"n": NODE}, "root_eclasses": []}, "no root"),
    ],
)
def test_malformed_files_are_refused(tmp_path: Path, content: object, message: str) -> None:
    file = tmp_path / "e.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(ExtractionError, match=message):
        read_json(file)


def test_missing_file_is_an_extraction_error(tmp_path: Path) -> None:
    with pytest.raises(ExtractionError, match="cannot read"):
        read_json(tmp_path / "none.json")
    with pytest.raises(ExtractionError, match="cannot write"):
        write_json(tmp_path / "no" / "e.json", two_classes().build([0]), TIME)
