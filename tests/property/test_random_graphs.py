"""Rules on random typed graphs, through both readers: the e-graph and the substitution."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from eqsat_opt.egraph import Budget, saturate
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.lab.testing import evaluate, random_inputs, typed_graphs
from eqsat_opt.lab.testing.eclasses import check_eclasses
from eqsat_opt.proving.selection import default_rules
from eqsat_opt.rules import Numerics
from eqsat_opt.rules.matcher import Matcher
from eqsat_opt.rules.rule import directed
from tests.oracles.substitution import apply, matches

RULES = default_rules(Numerics.REFACTOR)
DIRECTED = directed(RULES)
SMALL = Budget(nodes=3_000, iterations=6, algebra_iterations=1)


@settings(max_examples=max(20, settings().max_examples // 2))
@given(typed_graphs())
def test_every_enode_computes_its_class(graph: Graph) -> None:
    report = check_eclasses(saturate(graph, RULES, SMALL))
    assert not report.bad, str(report)
    assert not report.skipped


@given(typed_graphs())
def test_every_substitution_keeps_the_outputs(graph: Graph) -> None:
    inputs = random_inputs(graph)
    expected = evaluate(graph, inputs)
    matcher = Matcher(graph)
    for one in DIRECTED:
        for match in list(matches(matcher, one))[:3]:
            result = apply(graph, match)
            result.check()
            for before, after in zip(expected, evaluate(result, inputs), strict=True):
                np.testing.assert_allclose(
                    after,
                    before,
                    rtol=1e-7,
                    atol=1e-9 * max(1.0, np.abs(before).max()),
                    err_msg=one.name,
                )
