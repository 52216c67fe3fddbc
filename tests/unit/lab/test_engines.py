"""Methods on e-graphs: ours without its parts, and TENSAT's products of matches."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.egraph import Budget, lower, saturate_terms
from eqsat_opt.errors import OptionError
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.lab.comparison.engines import IN_PLACE_OF, EqSat, Tensat, laws_of
from eqsat_opt.lab.comparison.operators import operator_graph
from eqsat_opt.lab.comparison.products import Products, of_several_roots
from eqsat_opt.lab.comparison.saturated import Saturated, saturated
from eqsat_opt.lab.comparison.settings import CompareSettings
from eqsat_opt.lab.search import Budget as SearchBudget
from eqsat_opt.lab.search import Frame, PriceCache
from eqsat_opt.lab.search.methods.exhaustive import Exhaustive
from eqsat_opt.lab.testing import GraphMaker, evaluate, random_inputs
from eqsat_opt.proving.selection import load_rules, standings

RULES = load_rules(
    "matmul/merge-weights,concat/adjacent-slices,concat/adjacent-slices-nested,"
    "concat/slice-of-slice,concat/whole-slice",
    Numerics.BITEXACT,
)


def siblings(count: int = 2) -> Graph:
    """Products of one input that are concatenated: together they are one product."""
    g = GraphMaker()
    x = g.input("x", 4, 6)
    whole = g("MatMul", x, g.weight(6, 3))
    for width in range(4, 3 + count):
        whole = g("Concat", whole, g("MatMul", x, g.weight(6, width)), axis=1)
    return g.graph(whole)


def run(engine: EqSat | Tensat, graph: Graph, rules: object = RULES) -> Saturated:
    found = saturated(graph, rules, PriceCache.of(), Budget(), engine=engine, deterministic=True)  # type: ignore[arg-type]
    inputs = random_inputs(graph)
    after = evaluate(found.outcome.graph, inputs)
    for before, now in zip(evaluate(graph, inputs), after, strict=True):
        np.testing.assert_allclose(now, before, rtol=1e-9, atol=1e-9)
    return found


def exhaustive(graph: Graph) -> float:
    frame = Frame(operator_graph(lower(graph)), tuple(RULES), PriceCache.of())
    return Exhaustive().run(frame, SearchBudget(0), 0).value


def test_a_product_of_matches_merges_siblings() -> None:
    graph = siblings()
    assert run(Tensat(rounds=0), graph).outcome.value > exhaustive(graph)
    found = run(Tensat(), graph)
    assert found.outcome.value == pytest.approx(exhaustive(graph))
    assert [node.op for node in found.outcome.graph.nodes if node.op == "MatMul"] == ["MatMul"]


def test_three_siblings_need_two_rounds() -> None:
    graph = siblings(3)
    values = [run(Tensat(rounds=rounds), graph).outcome.value for rounds in (0, 1, 2)]
    assert values[0] > values[1] > values[2]
    assert values[2] == pytest.approx(exhaustive(graph))


def test_a_round_more_might_find_more() -> None:
    assert run(Tensat(rounds=1), siblings()).stopped_by == "iterations"
    g = GraphMaker()
    alone = g.graph(g("MatMul", g.input("x", 4, 6), g.weight(6, 3)))
    assert run(Tensat(rounds=1), alone).stopped_by == "saturated"


def test_what_would_close_a_cycle_is_left_out() -> None:
    """The second product with a weight reads the first."""
    g = GraphMaker()
    w = g.weight(3, 3)
    first = g("MatMul", g.input("x", 2, 3), w)
    lowered = lower(g.graph(g("MatMul", g("Tanh", first), w)))
    batch = load_rules("matmul/batch-steps", Numerics.BITEXACT)
    joint, others = of_several_roots(batch)
    assert len(joint) == 1
    assert not others
    eclasses, _ = saturate_terms(lowered, others, Budget())
    filtered, whole = (
        Products(lowered, joint, most=100, filters=filters) for filters in (True, False)
    )
    assert not filtered.extend(eclasses, Budget().deadline)
    assert filtered.cyclic
    assert whole.extend(eclasses, Budget().deadline)
    assert not whole.cyclic


def test_terms_that_are_added_are_limited() -> None:
    lowered = lower(siblings(4))
    joint, others = of_several_roots(RULES)
    eclasses, _ = saturate_terms(lowered, others, Budget())
    few, all_ = (Products(lowered, joint, most=most) for most in (1, 1000))
    for one in (few, all_):
        assert one.extend(eclasses, Budget().deadline)
    assert len(few.seeds.terms) < len(all_.seeds.terms)


def test_without_seeds_siblings_stay_apart() -> None:
    graph = siblings()
    rules = load_rules("default", Numerics.REASSOCIATE)
    merged, apart = (run(EqSat(seeds=seeds), graph, rules).outcome.graph for seeds in (True, False))
    assert [sum(node.op == "MatMul" for node in one.live_nodes()) for one in (merged, apart)] == [
        1,
        2,
    ]


def test_the_greedy_extraction_is_never_better() -> None:
    rules = load_rules("default", Numerics.REASSOCIATE)
    exact, greedy = (run(EqSat(extract=how), siblings(3), rules) for how in ("exact", "greedy"))
    assert exact.outcome.value <= greedy.outcome.value
    assert exact.status == "optimal"


def test_parameters_come_from_the_command_line() -> None:
    settings = CompareSettings(
        ("eqsat", "tensat"), {"eqsat": {"seeds": "false"}, "tensat": {"rounds": "2"}}
    )
    assert settings.engines == {"eqsat": EqSat(seeds=False), "tensat": Tensat(rounds=2)}
    assert not settings.searches
    assert CompareSettings.from_json(settings.to_json()).engines == settings.engines
    for parameters, message in (
        ({"tensat": {"rounds": "-1"}}, "rounds is -1"),
        ({"tensat": {"extract": "best"}}, "choose exact or greedy"),
        ({"eqsat": {"sedes": "false"}}, "eqsat has no parameter 'sedes'"),
        ({"dpp": {"length": "3"}}, "'dpp', which is not among the methods"),
    ):
        with pytest.raises(OptionError, match=message):
            CompareSettings(("eqsat", "tensat"), parameters)


def test_a_rule_that_merges_has_laws_in_its_place() -> None:
    rules = load_rules("matmul/merge-weights", Numerics.BITEXACT)
    found = run(EqSat(), siblings(), [*rules, *RULES[1:]])
    assert found.outcome.value == pytest.approx(exhaustive(siblings()))
    assert [rule.name for rule in laws_of(rules)] == ["matmul/slice-columns"]
    assert not laws_of(load_rules("default", Numerics.RELAXED))
    names = {law for laws in IN_PLACE_OF.values() for law in laws}
    assert {*names, *IN_PLACE_OF} <= standings().keys()
