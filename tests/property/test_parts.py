"""Graphs cut into parts and put together again."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat_opt.cost.analytic import ProfilePricer
from eqsat_opt.ir.graph.graph import OPAQUE, Graph
from eqsat_opt.lab.search import BackendPricer, Budget, Frame, PriceCache
from eqsat_opt.lab.search.methods.autograph import AutoGraph
from eqsat_opt.lab.search.methods.ios import Ios
from eqsat_opt.lab.search.methods.nimble import Nimble
from eqsat_opt.lab.search.rewriting.decoding import decoded
from eqsat_opt.lab.search.rewriting.parts import part_of, running_values, whole_of
from eqsat_opt.lab.testing import GraphMaker, evaluate, random_inputs, typed_graphs
from eqsat_opt.proving.selection import default_rules
from eqsat_opt.rules import Numerics
from eqsat_opt.runtime.devices.profile import load_profile

RULES = tuple(default_rules(Numerics.RELAXED))
PROFILE = load_profile("rtx2080ti")


def framed(graph: Graph) -> Frame:
    pricer = ProfilePricer(PROFILE)
    prices = PriceCache.of(BackendPricer(pricer))
    return Frame(graph, RULES, prices, "streams", profile=PROFILE, backends=pricer.backends)


def cut(frame: Frame, places: list[int]) -> tuple[Graph, list[Graph]]:
    """The graph and its parts, cut before some of its operators."""
    graph, names = decoded(frame.terms, frame.start.graph)
    keys = list(running_values(frame.terms, frame.start.graph))
    first = {
        key: names.get(key) or frame.terms.opaque_node(frame.terms.known[key]).outputs[0]
        for key in keys
    }
    ends = sorted({0, len(keys), *(place for place in places if place < len(keys))})
    return graph, [part_of(graph, [first[key] for key in keys[a:b]]) for a, b in pairwise(ends)]


@settings(max_examples=20)
@given(typed_graphs(), st.lists(st.integers(1, 6), max_size=2), st.integers(0, 1 << 30))
def test_parts_make_the_whole(graph: Graph, places: list[int], pick: int) -> None:
    own = framed(graph)
    whole, parts = cut(own, places)
    same = whole_of(whole, [(part, part) for part in parts])
    same.check()
    assert own.on(same).start.key == own.start.key
    changed = []
    for part in parts:
        part.check()
        frame = own.on(part)
        found = frame.substitutions(frame.start)
        after = part
        if found:
            state = frame.apply(frame.start, found[pick % len(found)])
            after = frame.outcome(state).graph
        changed.append((part, after))
    other = whole_of(whole, changed)
    other.check()
    if all(node.op != OPAQUE for node in graph.nodes):
        inputs = random_inputs(graph)
        for before, now in zip(evaluate(graph, inputs), evaluate(other, inputs), strict=True):
            np.testing.assert_allclose(now, before, rtol=1e-6, atol=1e-6)


@settings(max_examples=8)
@given(typed_graphs(), st.booleans())
def test_what_is_found_computes_the_same(graph: Graph, is_staged: bool) -> None:
    frame = framed(graph)
    if is_staged:
        found = Ios(stages=100).run(frame, Budget())
    else:
        found = AutoGraph(size_l=2, size_u=4, candidates=4, visits=5).run(frame, Budget(60))
        assert found.value <= frame.start.value
    found.graph.check()
    inputs = random_inputs(graph)
    for before, now in zip(evaluate(graph, inputs), evaluate(found.graph, inputs), strict=True):
        np.testing.assert_allclose(now, before, rtol=1e-6, atol=1e-6)


def test_a_value_known_at_compile_time_may_become_another_of_the_same_name() -> None:
    """Its name stays, where a rule replaces what it computes."""
    g = GraphMaker()
    x = g.input("x", 4, 4)
    weights = g.weight(4, 4), g.weight(4, 4)
    graph = g.graph(g("MatMul", x, g("Add", *weights)))
    (part,) = cut(framed(graph), [])[1]
    first, second = part.nodes
    nodes = replace(first, op="Sub"), second
    other = whole_of(graph, [(part, part.with_nodes(nodes))])
    other.check()
    inputs = random_inputs(graph)
    wanted = evaluate(graph.with_nodes(nodes), inputs)
    np.testing.assert_array_equal(evaluate(other, inputs)[0], wanted[0])


def test_opaque_nodes_belong_to_parts() -> None:
    g = GraphMaker()
    x = g.input("x", 2, 3)
    first = g("Relu", x)
    (middle,) = g.opaque("Unknown", first, outputs=(g.type(x),))
    last = g("Tanh", g("Add", middle, x))
    graph = g.graph(last, first)
    own = framed(graph)
    whole, parts = cut(own, [1, 2])
    assert [part.inputs for part in parts] == [("x",), ("v0",), ("v1_0", "x")]
    assert own.on(whole_of(whole, [(part, part) for part in parts])).start.key == own.start.key


def test_graphs_of_nothing() -> None:
    g = GraphMaker()
    x = g.input("x", 2, 0)
    for graph in (g.graph(x), g.graph(g.weight(3)), g.graph(g("Relu", x))):
        frame = framed(graph)
        for search in (AutoGraph(), Ios(), Nimble()):
            found = search.run(frame, Budget(), 0)
            assert found.value == frame.start.value
            assert found.outcome.streams == 1
