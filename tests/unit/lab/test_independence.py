"""Parts of a graph that no substitution spans."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.cost.analytic import ProfilePricer
from eqsat_opt.cost.metrics import metric_name
from eqsat_opt.egraph import lower
from eqsat_opt.extract import parse_objective
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.lab.comparison.operators import operator_graph
from eqsat_opt.lab.search import BackendPricer, Budget, Frame, MetaFlow, PriceCache
from eqsat_opt.lab.search.frame import Level
from eqsat_opt.lab.search.methods.exhaustive import Exhaustive
from eqsat_opt.lab.search.methods.independence import is_separable, search_parts
from eqsat_opt.lab.search.methods.metaflow import backtrack
from eqsat_opt.lab.search.running import Run
from eqsat_opt.lab.testing import GraphMaker
from eqsat_opt.proving.selection import load_rules
from eqsat_opt.rules import Rule, families
from eqsat_opt.runtime.devices.profile import load_profile

BOOK = {one.name: one for rules in families().values() for one in rules}
PRICER = ProfilePricer(load_profile("v100"))
METAFLOW = tuple(load_rules("metaflow", Numerics.REFACTOR))


def forward(*names: str) -> tuple[Rule, ...]:
    return tuple(BOOK[name].ways[0] for name in names)


def framed(graph: Graph, rules: Sequence[Rule], level: Level = "operators") -> Frame:
    prices = PriceCache.of(BackendPricer(PRICER))
    return Frame(
        operator_graph(lower(graph)), tuple(rules), prices, level, backends=PRICER.backends
    )


def counts(frame: Frame) -> list[int]:
    """Graphs of each part that has several."""
    run = Run(frame, Budget(0))
    with run:
        parts = search_parts(run, 4.0)
    return sorted(len(part.graphs) for part in parts if len(part.graphs) > 1)


def all_graphs(frame: Frame) -> tuple[int, float]:
    """One by one: how many there are, and the cheapest."""
    run = Run(frame, Budget(0))
    with run:
        backtrack(run, frame.start, math.inf, growth=4.0)
    return run.graphs, run.best.value


def crossed_pairs(number: int) -> Graph:
    """Convolutions of 1 x 3 and 3 x 1 on one input, behind each other, as in InceptionE."""
    g = GraphMaker()
    x = g.input("x", 1, 8, 8, 8)
    for _ in range(number):
        pair = [
            g("Conv", x, g.weight(4, 8, 3 - 2 * a, 1 + 2 * a), strides=(1, 1), dilations=(1, 1),
              pads=(1 - a, a, 1 - a, a), group=1)
            for a in (1, 0)
        ]  # fmt: skip
        x = g("Concat", *(g("Relu", one) for one in pair), axis=1)
    return g.graph(x)


@pytest.mark.parametrize("level", ["operators", "kernels"])
def test_parts_multiply(level: Level) -> None:
    alone, _ = all_graphs(framed(crossed_pairs(1), METAFLOW, level))
    found = counts(framed(crossed_pairs(2), METAFLOW, level))
    graphs, cheapest = all_graphs(framed(crossed_pairs(2), METAFLOW, level))
    assert math.prod(found) == graphs == alone**2
    every = Exhaustive().run(framed(crossed_pairs(2), METAFLOW, level), Budget(0))
    assert every.value == pytest.approx(cheapest)
    assert every.graphs < graphs
    assert f"which are {graphs} graphs together" in every.notes[0]
    every.graph.check()


def test_what_meets_only_after_both_have_changed_is_one_part() -> None:
    """--x - -y: neither factor is seen before both double negations are gone."""
    g = GraphMaker()
    x, y, z = (g.input(name, 4, 4) for name in "xyz")
    apart = [g("Neg", g("Neg", g("Mul", x, other))) for other in (y, z)]
    graph = g.graph(g("Sub", *apart))
    rules = forward("elementwise/negate-twice", "elementwise/factor-difference")
    frame = framed(graph, rules)
    graphs, cheapest = all_graphs(framed(graph, rules))
    assert counts(frame) == [graphs] == [5]
    assert Exhaustive().run(framed(graph, rules), Budget(0)).value == cheapest


def test_what_becomes_equal_is_one_part() -> None:
    """Relu of --x and of x, which are one operator once the negations are gone."""
    g = GraphMaker()
    x = g.input("x", 4, 4)
    y = g("Exp", x)
    first, second = g("Relu", g("Neg", g("Neg", y))), g("Relu", y)
    third = g("Neg", g("Neg", g("Tanh", x)))
    graph = g.graph(g("Concat", first, second, third, axis=0))
    rules = forward("elementwise/negate-twice")
    graphs, cheapest = all_graphs(framed(graph, rules))
    assert math.prod(counts(framed(graph, rules))) == graphs == 4
    found = Exhaustive().run(framed(graph, rules), Budget(0))
    assert found.value == cheapest
    assert sum(node.op == "Relu" for node in found.graph.nodes) == 1


def test_what_is_read_no_more_belongs_to_what_read_it() -> None:
    """A Slice of a concatenation takes one operand; the other one's operators are gone."""
    g = GraphMaker()
    x = g.input("x", 4, 4)
    both = g("Concat", g("Relu", x), g("Exp", g("Neg", g("Neg", x))), axis=0)
    graph = g.graph(g("Slice", both, axis=0, lo=0, hi=4))
    rules = forward("elementwise/negate-twice", "concat/slice-left")
    graphs, cheapest = all_graphs(framed(graph, rules))
    found = Exhaustive().run(framed(graph, rules), Budget(0))
    assert counts(framed(graph, rules)) == [graphs]
    assert found.value == cheapest
    assert "Exp" not in [node.op for node in found.graph.nodes]


def test_only_sums_fall_into_parts() -> None:
    graph = crossed_pairs(1)
    assert is_separable(framed(graph, ()))
    assert is_separable(framed(graph, (), "kernels"))
    for text, limits in (
        ("time+critical_path(time)", ()), ("bytes^0.5*time^0.5", ()), ("time", ("bytes<=1e9",))
    ):  # fmt: skip
        objective = parse_objective(text, limits, metric=metric_name)
        prices = PriceCache.of(BackendPricer(PRICER), objective)
        frame = Frame(operator_graph(lower(graph)), METAFLOW, prices)
        assert not is_separable(frame)
        found = Exhaustive().run(frame, Budget(0))
        assert found.graphs == all_graphs(framed(graph, METAFLOW))[0]
        assert not found.notes


def test_a_budget_ends_the_search_with_the_best_so_far() -> None:
    graph = crossed_pairs(2)
    found = Exhaustive().run(framed(graph, METAFLOW), Budget(8))
    assert (found.stopped_by, found.graphs) == ("graphs", 8)
    assert found.value <= found.original.value
    found = Exhaustive(growth=1.01).run(framed(graph, METAFLOW), Budget(0))
    assert any("operators, which were left out" in note for note in found.notes)


def test_a_graph_without_operators_has_no_parts() -> None:
    g = GraphMaker()
    graph = g.graph(g.input("x", 2))
    assert Exhaustive().run(framed(graph, METAFLOW), Budget(0)).value == 0
    assert MetaFlow().run(framed(graph, METAFLOW), Budget(0)).value == 0
