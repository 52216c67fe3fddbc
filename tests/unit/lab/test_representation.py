"""Graphs of a search that the saturated e-graph represents."""

from __future__ import annotations

import pytest

from benchmarks.representation import Representation, covered_by, visited
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.egraph import NO_SEEDS, lower, saturate
from eqsat_opt.ir.graph.graph import OPAQUE, Graph, Node
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.lab.comparison.operators import operator_graph
from eqsat_opt.lab.search import Budget, Frame, PriceCache
from eqsat_opt.lab.search.methods.exhaustive import Exhaustive
from eqsat_opt.lab.testing import GraphMaker
from eqsat_opt.proving.selection import load_rules


def covered(
    graph: Graph, rules: str, of_engine: str | None = None, *, seeds: bool = True
) -> Representation:
    frame = Frame(
        operator_graph(lower(graph)), tuple(load_rules(rules, Numerics.REFACTOR)), PriceCache.of()
    )
    _, terms, states = visited(Exhaustive(parts=False), frame, Budget(0))
    of_both = load_rules(of_engine or rules, Numerics.REFACTOR)
    return covered_by(saturate(graph, of_both, seeds=None if seeds else NO_SEEDS), terms, states)


def sums() -> Graph:
    g = GraphMaker()
    x, y, z = (g.input(name, 4, 4) for name in "xyz")
    return g.graph(g("Relu", g("Add", g("Mul", x, y), g("Mul", x, z))))


def test_all_graphs_of_one_root_rules_are_in_it() -> None:
    found = covered(sums(), "elementwise/factor,elementwise/mul-commute")
    assert found.graphs > 4
    assert found == Representation(found.graphs, found.graphs, {})


def test_what_the_engine_was_not_given_is_named() -> None:
    rules = "elementwise/factor,elementwise/mul-commute"
    found = covered(sums(), rules, "elementwise/mul-commute")
    assert 1 < found.represented < found.graphs
    assert set(found.left_by) == {"elementwise/factor"}
    assert found.represented + sum(found.left_by.values()) == found.graphs


@pytest.mark.parametrize("seeds", [True, False])
def test_a_merge_is_represented_by_seeds(seeds: bool) -> None:
    g = GraphMaker()
    x = g.input("x", 4, 6)
    graph = g.graph(*(g("MatMul", x, g.weight(6, n)) for n in (3, 5)))
    found = covered(graph, "matmul/merge-weights,matmul/slice-columns", seeds=seeds)
    assert found == (
        Representation(2, 2, {}) if seeds else Representation(2, 1, {"matmul/merge-weights": 1})
    )


def test_opaque_nodes_and_captures_are_found() -> None:
    node = Node(OPAQUE, ("x",), ("a", "b"), name="unknown")
    types = dict.fromkeys("xabcy", TensorType("float32", (4, 4)))
    nodes = (node, Node("Mul", ("a", "b"), ("c",)), Node("Add", ("c", "x"), ("y",)))
    graph = Graph(("x",), ("y",), nodes, constants={}, types=types)
    found = covered(graph, "elementwise/mul-commute,elementwise/add-commute")
    assert found == Representation(4, 4, {})
