"""The fast reader of a rule on random graphs, against the plain one that builds every graph."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eqsat_opt.cost.metrics import metric_name
from eqsat_opt.cost.operators import OperatorCost, graph_cost_us
from eqsat_opt.extract import parse_objective
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.lab.search.pricing.pricing import PriceCache
from eqsat_opt.lab.search.rewriting.decoding import decode
from eqsat_opt.lab.search.rewriting.matching import Matching
from eqsat_opt.lab.search.rewriting.rewriting import Workbench
from eqsat_opt.lab.search.rewriting.terms import TermGraph, Terms
from eqsat_opt.lab.testing import GraphMaker, evaluate, random_inputs, typed_graphs
from eqsat_opt.proving.selection import default_rules
from eqsat_opt.rules import Numerics
from eqsat_opt.rules.matcher import Matcher
from eqsat_opt.rules.rule import directed
from tests.oracles.canonical import canonical_hash
from tests.oracles.substitution import apply, matches

RULES = default_rules(Numerics.RELAXED)


def value_of(graph: TermGraph) -> float:
    return PriceCache.of().valuation.value(graph.costs, graph.length)


def neighbours_by_substitution(graph: Graph) -> Counter[tuple[str, str]]:
    """Rule and canonical hash of every other graph one substitution away."""
    matcher = Matcher(graph)
    known = {node.output for node in graph.nodes if not node.reads} | set(graph.constants)
    for node in graph.nodes:
        if all(name in known for name in node.reads):
            known.add(node.output)
    own = canonical_hash(graph)
    found: Counter[tuple[str, str]] = Counter()
    for rule in directed(RULES):
        for match in matches(matcher, rule):
            pairs = zip(match.roots, rule.lhs, rule.rhs, strict=True)
            if all(root in known for root, left, right in pairs if left is not right):
                continue
            after = canonical_hash(apply(graph, match))
            if after != own:
                found[(rule.name, after)] += 1
    return found


def two_products() -> Graph:
    """A sum of two products: once its operands are exchanged, the second weight is met first."""
    g = GraphMaker()
    x = g.input("x", 1, 1)
    return g.graph(g("Add", g("MatMul", x, g.weight(1, 1)), g("MatMul", x, g.weight(1, 1))))


@settings(max_examples=60)
@example(two_products(), 0)
@given(typed_graphs(), st.integers(0, 1 << 30))
def test_both_readers_find_the_same_graphs(graph: Graph, pick: int) -> None:
    prices = PriceCache.of()
    terms = Terms(graph, prices)
    matching = Matching(terms, RULES)
    state = terms.start()
    assert state.key.hex() == canonical_hash(graph)
    for _ in range(2):
        plain = decode(terms, state)
        plain.check()
        assert canonical_hash(plain) == state.key.hex()
        bench = Workbench(terms, state)
        rewrites = matching.rewrites(state)
        tried = [(one, bench.attempt(one)) for one in rewrites]
        found = Counter((r.rule, t.key.hex()) for r, t in tried if t.key != state.key)
        assert found == neighbours_by_substitution(plain)
        if not rewrites:
            return
        rewrite, trial = tried[pick % len(tried)]
        state = bench.apply(rewrite)
        assert (state.key, value_of(state), state.size) == (trial.key, trial.value, trial.size)
        after = decode(terms, state)
        np.testing.assert_allclose(value_of(state), graph_cost_us(after, OperatorCost()), atol=1e-3)
        inputs = random_inputs(graph)
        for old, new in zip(evaluate(graph, inputs), evaluate(after, inputs), strict=True):
            scale = max(1.0, float(np.abs(old).max()))
            np.testing.assert_allclose(new, old, rtol=1e-7, atol=1e-9 * scale)


OBJECTIVES = (
    "time",
    "time+0.25*critical_path(time)",
    "critical_path(time)",
    "bytes^0.5*time^0.5",
    "flops/time",
    "time+launches",
)


@settings(max_examples=40)
@given(typed_graphs(), st.sampled_from(OBJECTIVES))
def test_every_trial_is_what_building_the_graph_gives(graph: Graph, text: str) -> None:
    prices = PriceCache.of(None, parse_objective(text, metric=metric_name))
    terms = Terms(graph, prices)
    matching = Matching(terms, RULES)
    state = terms.start()
    bench = Workbench(terms, state)
    for rewrite in matching.rewrites(state):
        built = bench.apply(rewrite)
        trial = bench.attempt(rewrite)
        value = prices.valuation.value(built.costs, built.length)
        assert (built.key, value, built.size) == (trial.key, trial.value, trial.size)
