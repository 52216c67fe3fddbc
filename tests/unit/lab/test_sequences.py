"""OCGGS's searches: the same sets of graphs in fewer sequences, and what sampling keeps."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.egraph import lower
from eqsat_opt.errors import OptionError
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.lab.comparison.operators import operator_graph
from eqsat_opt.lab.search import Budget, Frame, MetaFlow, PriceCache
from eqsat_opt.lab.search.methods.dpp import Dpp
from eqsat_opt.lab.search.methods.enumeration import Enumeration
from eqsat_opt.lab.search.methods.pruning import Pruning
from eqsat_opt.lab.search.methods.sampling import Sampling
from eqsat_opt.lab.search.methods.sequences import Walk
from eqsat_opt.lab.search.rewriting.state import State
from eqsat_opt.lab.testing import GraphMaker
from eqsat_opt.proving.selection import default_rules, load_rules
from eqsat_opt.rules import Rule, families

BOOK = {one.name: one for rules in families().values() for one in rules}
ENDLESS = Budget(0)
Exhaustive = Enumeration | Pruning | Dpp


def frame(graph: Graph, rules: Sequence[Rule] = ()) -> Frame:
    return Frame(
        operator_graph(lower(graph)), tuple(rules) or tuple(default_rules()), PriceCache.of()
    )


def sru_step(width: int = 16) -> Graph:
    """One step of a simple recurrent unit: three products of one input, and gates."""
    g = GraphMaker()
    c, x = g.input("c", 1, width), g.input("x", 1, width)
    moved, forget, reset = (g("MatMul", x, g.weight(width, width)) for _ in range(3))
    forget, reset = g("Sigmoid", forget), g("Sigmoid", reset)
    c = g("Add", g("Mul", forget, c), g("Mul", forget, moved))
    return g.graph(g("Add", g("Mul", reset, c), g("Mul", reset, x)))


def resnet(blocks: int, channels: int = 8) -> Graph:
    """Blocks of two 3 x 3 convolutions beside a 1 x 1 one, as OCGGS builds its ResNet."""
    g = GraphMaker()
    x = g.input("x", 1, channels, 8, 8)
    for _ in range(blocks):
        long = g("Relu", g.conv(x, g.weight(channels, channels, 3, 3), pad=1))
        long = g.conv(long, g.weight(channels, channels, 3, 3), pad=1)
        short = g("Relu", g.conv(x, g.weight(channels, channels, 1, 1)))
        x = g("Relu", g("Add", long, short))
    return g.graph(x)


def twins() -> Graph:
    """Two equal chains, of which rewriting one makes it differ from the other, and then equal."""
    g = GraphMaker()
    x, y = g.input("x", 2, 2), g.input("y", 2, 2)
    left, right = g("Mul", g("Add", x, y), x), g("Mul", g("Add", y, x), x)
    return g.graph(g("Add", left, right), left)


def reached(frame: Frame, length: int) -> set[bytes]:
    """All graphs within ``length`` steps, each followed once: the oracle."""
    walk = Walk(frame, ENDLESS)
    seen, level = {walk.frame.start.key}, [walk.frame.start]
    for _ in range(length):
        found: dict[bytes, State] = {}
        for state in level:
            for step in walk.frame.matching.rewrites(state.graph):
                after = walk.apply(state, step)
                found.setdefault(after.key, after)
        level = [state for key, state in found.items() if key not in seen]
        seen.update(found)
    return seen


def states(method: Exhaustive | Sampling, frame: Frame) -> list[State]:
    return list(method.states(Walk(frame, ENDLESS)))


@pytest.mark.parametrize(
    ("graph", "length"), [(sru_step(), 2), (resnet(2), 3), (resnet(3), 2), (twins(), 3)]
)
def test_all_orders_and_one_reach_the_same_graphs(graph: Graph, length: int) -> None:
    start = frame(graph)
    wanted = reached(start, length)
    every, pruned, reused = (
        states(method, start) for method in (Enumeration(length), Pruning(length), Dpp(length))
    )
    for found in (every, pruned, reused):
        assert {one.key for one in found} == wanted
        assert max(one.length for one in found) <= length
    assert len(pruned) < len(every)
    assert len(reused) <= len(every)


def test_independent_substitutions_are_followed_in_one_order() -> None:
    """Of several chains, each rewritten once: subsets of them, not permutations."""
    g = GraphMaker()
    parts = [g("Add", g.input(f"x{i}", 2, 2), g.input(f"y{i}", 2, 2)) for i in range(4)]
    start = frame(g.graph(*parts), [BOOK["elementwise/add-commute"]])
    # Each may be commuted, and commuted back: 1 + 4 + 6 + 4 + 1 graphs.
    assert len({one.key for one in states(Pruning(4), start)}) == 16
    one_way = [one for one in states(Pruning(2), start) if one.length == 2]
    assert len(one_way) == 6 + 4
    assert sum(one.length == 2 for one in states(Enumeration(2), start)) == 4 * 3 + 4


def test_a_step_that_enables_another_is_followed_in_its_order() -> None:
    """(xy + z) + xw: factoring is possible only once the products have met."""
    g = GraphMaker()
    x, y, z, w = (g.input(name, 4, 4) for name in "xyzw")
    graph = g.graph(g("Add", g("Add", g("Mul", x, y), z), g("Mul", x, w)))
    rules = [BOOK[f"elementwise/{name}"] for name in ("factor", "add-assoc", "add-commute")]
    start = frame(graph, rules)
    for method in (Enumeration(3), Pruning(3), Dpp(3)):
        found = method.run(start, ENDLESS, 0)
        assert "elementwise/factor" in found.steps
        assert found.value < found.original.value
        assert found.stopped_by == "exhausted"
        assert len(found.steps) <= 3


def test_what_is_looked_for_around_a_step_is_what_meets_it() -> None:
    walk = Walk(frame(sru_step()), ENDLESS)
    for step in walk.frame.matching.rewrites(walk.frame.start.graph):
        state = walk.apply(walk.frame.start, step)
        touched = state.touched
        whole = walk.frame.matching.rewrites(state.graph)
        near = walk.frame.matching.around(state.graph, touched)
        assert near == [one for one in whole if not touched.isdisjoint(one.matched | one.bound)]
        # What does not meet the step applied before.
        before = {
            (one.number, one.site) for one in walk.frame.matching.rewrites(walk.frame.start.graph)
        }
        images = {state.image(site) for site in before}
        for one in whole:
            assert one in near or (one.number, one.site) in images
            assert walk.at(state, (one.number, one.site)) == one


@pytest.mark.parametrize(
    ("graph", "names"), [(resnet(3), "metaflow"), (resnet(3), "default"), (sru_step(), "default")]
)
def test_matches_that_are_kept_are_not_compared_again(graph: Graph, names: str) -> None:
    rules = load_rules(names, Numerics.REFACTOR)
    pruning = Pruning(2).run(frame(graph, rules), ENDLESS, 0)
    dpp = Dpp(2).run(frame(graph, rules), ENDLESS, 0)
    assert (dpp.value, dpp.graphs) == (pruning.value, pruning.graphs)
    assert dpp.compared < pruning.compared


def test_sampling_finds_the_best_of_a_small_model() -> None:
    start = frame(sru_step())
    best = MetaFlow().run(start, ENDLESS, 0)
    found = Sampling().run(start, ENDLESS, 0)
    assert found.value == best.value
    assert found.stopped_by == "exhausted"
    assert found.graphs > 0
    assert found.compared > 0


def test_parameters_of_sampling_narrow_it() -> None:
    g = GraphMaker()
    x, y, z, w = (g.input(name, 4, 4) for name in "xyzw")
    graph = g.graph(g("Add", g("Mul", g("Sub", x, y), z), g("Mul", w, g("Sub", x, y))))
    start = frame(graph)
    kept = {one.key for one in states(Sampling(length=3), start)}
    strict = {one.key for one in states(Sampling(length=3, rises=0), start)}
    few = states(Sampling(length=3, samples=2), start)
    assert strict <= reached(start, 3)
    assert kept <= reached(start, 3)
    assert len(few) < len(states(Sampling(length=3), start))


def test_budgets_end_a_search() -> None:
    start = frame(sru_step())
    for method in (Enumeration(), Pruning(), Dpp(), Sampling()):
        found = method.run(start, Budget(graphs=3), 0)
        assert found.stopped_by == "graphs"
        assert found.graphs == 3
        again = method.run(start, Budget(graphs=3), 0)
        assert (again.value, again.steps, again.tried) == (
            found.value,
            found.steps,
            found.tried,
        )


def test_nothing_to_do() -> None:
    g = GraphMaker()
    start = frame(g.graph(g("Tanh", g.input("x", 2))))
    for method in (Enumeration(), Pruning(), Dpp(), Sampling()):
        found = method.run(start, ENDLESS, 0)
        assert found.steps == ()
        assert found.value == found.original.value


def test_bad_parameters() -> None:
    for kind in (Enumeration, Pruning, Dpp, Sampling):
        for length in (0, -1, 101):
            with pytest.raises(OptionError, match=f"{kind.name}.length is {length}"):
                kind(length=length)
    for samples in (0, -2, 3):
        with pytest.raises(OptionError, match="give an even number"):
            Sampling(samples=samples)
    with pytest.raises(OptionError, match="give 0 or more"):
        Sampling(rises=-1)
