"""The cheapest kernels of a graph: beside extraction, and after substitutions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat_opt.cost.analytic import ProfilePricer
from eqsat_opt.cost.metrics import metric_name
from eqsat_opt.egraph import Budget, saturate
from eqsat_opt.extract import AnyObjective, ProblemBuilder, extract, parse_objective
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.lab.comparison.operators import operator_graph
from eqsat_opt.lab.search import BackendPricer, Frame, PriceCache
from eqsat_opt.lab.search.pricing.pricing import ImplementationRow
from eqsat_opt.lab.testing import GraphMaker, typed_graphs
from eqsat_opt.proving.selection import default_rules
from eqsat_opt.rules import Numerics
from eqsat_opt.runtime.devices.profile import load_profile
from eqsat_opt.select.tiling.tiling import tile

RULES = tuple(default_rules(Numerics.RELAXED))
PRICER = ProfilePricer(load_profile("v100"))


def frame(graph: Graph, goal: AnyObjective | None = None) -> Frame:
    prices = PriceCache.of(BackendPricer(PRICER), goal)
    return Frame(graph, RULES, prices, "kernels", backends=PRICER.backends)


def extracted(graph: Graph, goal: AnyObjective) -> tuple[Graph, float]:
    """The graph of operators, and its least value by exact extraction from the same kernels."""
    saturation = saturate(graph, (), Budget())
    found = tile(saturation.eclasses, PRICER.backends)
    prices = PriceCache.of(BackendPricer(PRICER), goal)
    metrics = prices.valuation.metrics
    builder = ProblemBuilder(metrics)
    for _ in range(found.n_classes):
        builder.add_class()
    for item, kernel in zip(found.items, found.kernels, strict=True):
        rows: tuple[ImplementationRow, ...] = ()
        if item.kind == "opaque" or (kernel is None and item.steps):
            rows = (prices.unknown,)
        elif kernel is not None:
            rows = prices.rows(kernel)
        costs = [tuple(row.metrics[name] for name in metrics) for row in rows]
        builder.add_node(item.cls, item.reads, costs or [(0.0,) * len(metrics)])
    lowered = saturation.lowered
    classes = saturation.eclasses.term_class
    roots = dict.fromkeys(int(classes[lowered.value[name]]) for name in lowered.graph.outputs)
    best = extract(builder.build(roots), goal, deterministic=True)
    assert best.status == "optimal"
    return operator_graph(lowered), best.cost


@pytest.mark.parametrize("objective", ["time", "time*bytes", "bytes/(time+flops)"])
@settings(max_examples=40)
@given(graph=typed_graphs())
def test_it_is_the_extraction_without_rules(objective: str, graph: Graph) -> None:
    goal = parse_objective(objective, (), metric=metric_name)
    start, wanted = extracted(graph, goal)
    own = frame(start, goal)
    assert own.start.value == pytest.approx(wanted, rel=1e-6, abs=1e-3)
    outcome = own.outcome(own.start)
    assert outcome.value == own.start.value
    assert goal.value(outcome.metrics) == pytest.approx(own.start.value, rel=1e-6, abs=1e-3)
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
@given(typed_graphs(), st.integers(0, 1 << 30), st.sampled_from(["time", "bytes*time"]))
def test_what_is_solved_again_around_a_change_is_all_that_changes(
    graph: Graph, pick: int, objective: str
) -> None:
    own = frame(graph, parse_objective(objective, (), metric=metric_name))
    state = own.start
    for _ in range(2):
        found = own.substitutions(state)
        for one in found:
            trial = own.attempt(state, one)
            after = own.apply(state, one, trial)
            whole = own.covering.cover(after.graph)
            assert trial.value == pytest.approx(whole.value, rel=1e-9, abs=1e-5)
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
