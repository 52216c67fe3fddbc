"""The cheapest kernels of a graph: beside extraction, and after substitutions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat_opt.cost.analytic import ProfilePricer
from eqsat_opt.egraph import Budget, saturate
from eqsat_opt.extract import Objective, ProblemBuilder, extract
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.lab.comparison.operators import operator_graph
from eqsat_opt.lab.search import BackendPricer, Frame, PriceCache
from eqsat_opt.lab.testing import GraphMaker, typed_graphs
from eqsat_opt.proving.selection import default_rules
from eqsat_opt.rules import Numerics
from eqsat_opt.runtime.devices.profile import load_profile
from eqsat_opt.select.tiling.tiling import tile

RULES = tuple(default_rules(Numerics.RELAXED))
PRICER = ProfilePricer(load_profile("v100"))


def frame(graph: Graph) -> Frame:
    prices = PriceCache.of(BackendPricer(PRICER))
    return Frame(graph, RULES, prices, "kernels", backends=PRICER.backends)


def extracted_us(graph: Graph) -> tuple[Graph, float]:
    """The graph of operators, and its least cost by exact extraction from the same kernels."""
    saturation = saturate(graph, (), Budget())
    found = tile(saturation.eclasses, PRICER.backends)
    prices = PriceCache.of(BackendPricer(PRICER))
    builder = ProblemBuilder(("cost",))
    for _ in range(found.n_classes):
        builder.add_class()
    for item, kernel in zip(found.items, found.kernels, strict=True):
        cost = 0.0
        if item.kind == "opaque" or (kernel is None and item.steps):
            cost = prices.unknown.rank
        elif kernel is not None:
            cost = prices.rows(kernel)[0].rank
        builder.add_node(item.cls, item.reads, [(cost,)])
    lowered = saturation.lowered
    classes = saturation.eclasses.term_class
    roots = dict.fromkeys(int(classes[lowered.value[name]]) for name in lowered.graph.outputs)
    best = extract(builder.build(roots), Objective({"cost": 1.0}), deterministic=True)
    assert best.status == "optimal"
    return operator_graph(lowered), best.cost


@settings(max_examples=60)
@given(typed_graphs())
def test_it_is_the_extraction_without_rules(graph: Graph) -> None:
    start, wanted = extracted_us(graph)
    own = frame(start)
    assert own.start.value == pytest.approx(wanted, abs=1e-3)
    outcome = own.outcome(own.start)
    assert outcome.metrics["time_us"] == pytest.approx(own.start.value, abs=1e-3)
    assert set(start.outputs) - set(start.inputs) - set(start.constants) <= {
        name for one in outcome.kernels.values() for name in one.writes
    } | {name for node in start.nodes if not node.reads for name in node.outputs} | _constant(start)


def _constant(graph: Graph) -> set[str]:
    known = set(graph.constants)
    for node in graph.nodes:
        if all(name in known for name in node.reads):
            known.update(node.outputs)
    return known


@settings(max_examples=40)
@given(typed_graphs(), st.integers(0, 1 << 30))
def test_what_is_solved_again_around_a_change_is_all_that_changes(graph: Graph, pick: int) -> None:
    own = frame(graph)
    state = own.start
    for _ in range(2):
        found = own.substitutions(state)
        for one in found:
            trial = own.attempt(state, one)
            after = own.apply(state, one, trial)
            whole = own.covering.cover(after.graph)
            assert trial.value == pytest.approx(whole.value, abs=1e-5)
            assert trial.key == after.graph.key
        if not found:
            return
        state = own.apply(state, found[pick % len(found)])


def test_an_epilogue_is_fused_and_slices_become_one_kernel() -> None:
    g = GraphMaker()
    x = g.input("x", 1, 8, 8, 8)
    conv = g.conv(x, g.weight(8, 8, 3, 3), g.weight(8), pad=1)
    joined = g("Relu", conv)
    parts = [g("Slice", joined, axis=1, lo=lo, hi=lo + 4) for lo in (0, 4)]
    own = frame(operator_graph(saturate(g.graph(*parts), (), Budget()).lowered))
    names = [one.kernel.name for one in own.outcome(own.start).kernels.values() if one.kernel]
    assert names == ["Conv+Relu", "Slice+Slice"]
    assert math.isfinite(own.start.value)
