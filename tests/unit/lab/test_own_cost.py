"""Costs that are Python functions, beside the sums that say the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from eqsat_opt.cost.metrics import TIME
from eqsat_opt.errors import OptionError
from eqsat_opt.extract import Objective
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.lab.comparison import CompareSettings
from eqsat_opt.lab.search import Budget, Frame, PriceCache, SearchResult, make_search
from eqsat_opt.lab.search.frame import Level
from eqsat_opt.lab.search.pricing.own_cost import OwnCost, SearchObjective, load_own_cost
from eqsat_opt.lab.testing import GraphMaker
from eqsat_opt.rules import families
from eqsat_opt.runtime.backends.registry import load_backend

RULES = tuple(way for one in families()["matmul"] for way in one.ways)


def chain() -> Graph:
    g = GraphMaker()
    product = g("MatMul", g("MatMul", g.input("x", 4, 8), g.weight(8, 64)), g.weight(64, 8))
    return g.graph(g("Relu", product))


def found(
    objective: SearchObjective, level: Level = "operators", graph: Graph | None = None
) -> SearchResult:
    frame = Frame(
        graph or chain(),
        RULES,
        PriceCache.of(objective=objective),
        level,
        backends=(load_backend("ort"),),
    )
    return make_search("metaflow", {}).run(frame, Budget(50), 0)


@pytest.mark.parametrize("level", ["operators", "kernels"])
def test_a_function_is_the_sum_that_it_computes(level: Level) -> None:
    own = found(OwnCost(lambda time, launches: time + 2 * launches, (TIME, "launches")), level)
    plain = found(Objective({TIME: 1.0, "launches": 2.0}), level)
    assert own.value == pytest.approx(plain.value)
    assert own.steps == plain.steps != ()


def test_what_may_not_be_is_infinite() -> None:
    few = OwnCost(lambda time, launches: time if launches < 3 else math.inf, (TIME, "launches"))
    assert math.isinf(found(few).original.value)
    assert found(few).outcome.metrics["launches"] == 2
    none = found(OwnCost(lambda time: math.inf, (TIME,)))
    assert math.isinf(none.value)
    assert not none.steps


def test_a_limit_holds_beside_a_function() -> None:
    limited = OwnCost(lambda time: 1 / time, (TIME,), limits={"launches": 2})
    assert found(limited).outcome.metrics["launches"] == 2


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda time: math.nan, "is no number; return the cost"),
        (lambda time: None, "ended with TypeError"),
        (lambda time: time / 0, "ended with ZeroDivisionError"),
        (lambda time, bytes: time, "ended with TypeError"),
    ],
)
def test_functions_that_fail_are_named(function: Callable[..., float], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        found(OwnCost(function, (TIME,)))


def test_a_graph_without_operators_has_the_cost_of_nothing() -> None:
    g = GraphMaker()
    empty = g.graph(g.input("x", 2))
    assert found(OwnCost(lambda time: time + 1, (TIME,)), graph=empty).value == 1


def test_functions_come_from_files_and_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "costs_of_a_test.py").write_text("def slow(time, size):\n    return time + size\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for place in ("costs_of_a_test.py", "costs_of_a_test"):
        cost = load_own_cost(f"{place}:slow(time, bytes)", ["max(workspace)=5"])
        assert cost.reads == (TIME, "bytes")
        assert cost.value({TIME: 1.0, "bytes": 2.0}) == 3.0
        assert cost.caps == {"workspace_bytes": 5.0}
    settings = CompareSettings(("metaflow",), objective="costs_of_a_test:slow(time, bytes)")
    assert not settings.is_time
    assert CompareSettings.from_json(settings.to_json()).goal.value({TIME: 1, "bytes": 2}) == 3
    (tmp_path / "broken.py").write_text("import nothing_of_the_kind\n")
    with pytest.raises(OptionError, match="cannot load broken"):
        load_own_cost("broken.py:slow(time)", [])
