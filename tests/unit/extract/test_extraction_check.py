"""`Extraction.check` recomputes everything that an extraction claims, critical path included."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract import Extraction, Objective, Problem, ProblemBuilder, TracePoint, extract
from eqsat_opt.extract.extraction import active_order, longest_chain
from eqsat_opt.extract.objective import AnyObjective, Product, Ratio


def diamond() -> Problem:
    """Two branches of 2 and 5 between a leaf of 1 and a top of 3; energy is 1 everywhere."""
    builder = ProblemBuilder(("time", "energy"))
    top, short, long, leaf = (builder.add_class() for _ in range(4))
    builder.add_node(top, (short, long), [(3.0, 1.0)])
    builder.add_node(short, (leaf,), [(2.0, 1.0)])
    builder.add_node(long, (leaf,), [(5.0, 1.0)])
    builder.add_node(leaf, (), [(1.0, 1.0)])
    return builder.build([top])


CHOICE = {0: (0, 0), 1: (1, 0), 2: (2, 0), 3: (3, 0)}
TOTALS = {"time": 11.0, "energy": 4.0}
PATH = {**TOTALS, "critical_path": 9.0}  # leaf, long branch, top


@pytest.mark.parametrize(
    ("objective", "cost", "metrics"),
    [
        (Objective({"time": 1.0}), 11.0, TOTALS),
        (Objective({"time": 1.0}, 2.0), 29.0, PATH),
        (Objective({"energy": 1.0}, 1.0, path={"time": 1.0}), 13.0, PATH),
        (Objective({"time": 1.0}, limits={"critical_path": 9.0}), 11.0, PATH),
        (Product({"time": 1.0, "energy": 2.0}), 176.0, TOTALS),
        (Ratio({"time": 2.0}, {"energy": 1.0}), 5.5, TOTALS),
    ],
)
def test_every_objective_is_recomputed(
    objective: AnyObjective, cost: float, metrics: dict[str, float]
) -> None:
    true = Extraction(CHOICE, cost, cost, 0.0, "optimal", metrics, objective)
    assert true.check(diamond()) == pytest.approx(cost)
    for name in metrics:
        wrong = dataclasses.replace(true, metrics={**metrics, name: metrics[name] + 0.01})
        with pytest.raises(ExtractionError, match=f"the claimed {name}"):
            wrong.check(diamond())
    with pytest.raises(ExtractionError, match="the claimed cost"):
        dataclasses.replace(true, cost=cost * 0.99).check(diamond())


def test_the_engine_passes_its_own_check() -> None:
    objective = Objective({"time": 1.0}, 2.0)
    found = extract(diamond(), objective)
    assert found.check(diamond()) == 29.0
    assert found.metrics == PATH


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (Objective({"time": 1.0}, limits={"critical_path": 8.9}), "critical_path is 9.0, above"),
        (Objective({"time": 1.0}, limits={"energy": 3.9}), "energy is 4.0, above"),
        (Objective({"time": 1.0}, caps={"time": 4.9}), "time is 5.0 in class 2, above"),
        (Objective({"time": 1.0, "bytes": 1.0}), "names the metric bytes"),
    ],
)
def test_limits_and_caps_are_checked(objective: Objective, message: str) -> None:
    metrics = PATH if objective.needs_path else TOTALS
    claimed = Extraction(CHOICE, 11.0, 0.0, 1.0, "feasible", metrics, objective)
    with pytest.raises(ExtractionError, match=message):
        claimed.check(diamond())


def points(*triples: tuple[float, float, float]) -> tuple[TracePoint, ...]:
    return tuple(TracePoint("search", *triple) for triple in triples)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gap": 0.5}, "the claimed gap"),
        ({"lower_bound": 10.0, "gap": 1 / 11}, "optimal although the gap"),
        ({"trace": points((1.0, 12.0, 0.0), (0.5, 11.0, 0.0))}, "back in time"),
        ({"trace": points((0.1, 12.0, 0.0), (0.5, 13.0, 0.0))}, "cost that rises"),
        ({"trace": points((0.1, 12.0, 2.0), (0.5, 11.0, 1.0))}, "bound that falls"),
    ],
)
def test_gap_status_and_trace_must_fit(changes: dict[str, Any], message: str) -> None:
    true = Extraction(CHOICE, 11.0, 11.0, 0.0, "optimal", TOTALS, Objective({"time": 1.0}))
    assert true.check(diamond()) == 11.0
    with pytest.raises(ExtractionError, match=message):
        dataclasses.replace(true, **changes).check(diamond())


def test_the_longest_chain_of_several_roots() -> None:
    builder = ProblemBuilder(("time",))
    classes = [builder.add_class() for _ in range(3)]
    builder.add_node(0, (), [(4.0,)])
    builder.add_node(1, (2, 2), [(1.0,)])
    builder.add_node(2, (), [(2.0,)])
    problem = builder.build(classes[:2])
    choice = {c: (c, 0) for c in classes}
    order = active_order(problem, choice)
    objective = Objective({"time": 1.0}, 1.0)
    assert longest_chain(problem, choice, order, objective.path_vector(problem.metrics)) == 4.0
