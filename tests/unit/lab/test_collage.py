"""Collage: patterns that rules make, placement of operators, and what evolves from it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations, product
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat_opt.cost.analytic import ProfilePricer
from eqsat_opt.cost.metrics import TIME
from eqsat_opt.errors import OptionError
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.lab.search import BackendPricer, Budget, Frame, PriceCache, Quoted, Usual
from eqsat_opt.lab.search.methods.collage import Collage
from eqsat_opt.lab.search.methods.evolution import Evolution
from eqsat_opt.lab.search.pricing.board import Reading
from eqsat_opt.lab.search.pricing.outcome import PricedGraph
from eqsat_opt.lab.search.pricing.placement import Registered
from eqsat_opt.lab.search.pricing.regions import (
    PatternRegistry,
    PatternRule,
    grown,
    post_dominators,
)
from eqsat_opt.lab.search.rewriting.terms import Term
from eqsat_opt.lab.testing import GraphMaker
from eqsat_opt.rules.term import Var, ops
from eqsat_opt.runtime.backends.protocol import DEFAULT, KernelPattern
from eqsat_opt.runtime.devices.profile import load_profile

X, W = Var("x"), Var("w")
ANY = PatternRule("any", lambda _term, _known: True)


@dataclass(frozen=True)
class Table:
    """Backend to the time of each operator; a fused kernel takes that of its slowest step."""

    times: Mapping[str, Mapping[str, float]]

    @property
    def metrics(self) -> Sequence[str]:
        return Usual().metrics

    def quotes(self, kernel: Kernel) -> Sequence[Quoted]:
        (plain,) = Usual().quotes(kernel)
        return [
            Quoted(name, DEFAULT, {**plain.metrics, TIME: max(known[s.op] for s in kernel.steps)})
            for name, known in self.times.items()
            if all(step.op in known for step in kernel.steps)
        ]


TIMES = {
    "plain": {"MatMul": 9.0, "Relu": 4.0, "Tanh": 5.0, "Sigmoid": 5.0},
    "fast": {"MatMul": 3.0, "Relu": 3.5},
    "wide": {"MatMul": 8.0, "Relu": 1.0, "Tanh": 2.0, "Sigmoid": 7.0},
}
PATTERNS = {
    "plain": [KernelPattern("product and relu", ops.Relu(ops.MatMul(X, W)))],
    "fast": [],
    "wide": [KernelPattern("relu and tanh", ops.Tanh(ops.Relu(X)))],
}


def chain() -> Graph:
    g = GraphMaker()
    value = g.input("x", 4, 4)
    for op in ("Relu", "Tanh", "Sigmoid", "Relu"):
        value = g(op, g("MatMul", value, g.weight(4, 4)))
    return g.graph(value)


def framed(
    names: Sequence[str],
    graph: Graph | None = None,
    board: Any = None,
    times: Mapping[str, Mapping[str, float]] = TIMES,
) -> Frame:
    backends: Any = [SimpleNamespace(name=n, patterns=lambda n=n: PATTERNS[n]) for n in names]
    table = Table({name: times[name] for name in names})
    return Frame(
        graph or chain(), (), PriceCache.of(table), "kernels", backends=backends, board=board
    )


@dataclass(frozen=True)
class Terms:
    """A graph as terms: those that run, all, the outputs, and the key of each value."""

    running: Mapping[bytes, Term]
    known: Mapping[bytes, Term]
    outputs: Sequence[bytes]
    key: Mapping[str, bytes]

    @staticmethod
    def of(graph: Graph) -> Terms:
        frame = Frame(graph, (), PriceCache.of())
        start, known = frame.start.graph, frame.terms.known
        running = {key: known[key] for key in start.order if known[key].runs}
        names = {name: key for key, name in frame.terms.names.items()}
        return Terms(running, known, start.outputs, names)

    def grown(self, rule: PatternRule, name: str) -> list[list[str]]:
        """Operators of the regions that hold a value, from the first to the last."""
        return [
            [term.op for key, term in self.running.items() if key in region]
            for _, region in grown(rule, self.running, self.outputs, self.known)
            if self.key[name] in region
        ]


def diamond() -> tuple[Graph, Mapping[str, str]]:
    g = GraphMaker()
    first = g("Relu", g.input("x", 4, 4))
    left, right = g("Tanh", first), g("Sigmoid", first)
    last = g("Neg", g("Add", left, right))
    side = g("Abs", left)
    names = {"first": first, "left": left, "right": right, "last": last, "side": side}
    return g.graph(last, side), names


def test_post_dominators_of_a_diamond() -> None:
    graph, names = diamond()
    terms = Terms.of(graph)
    key = {name: terms.key[value] for name, value in names.items()}
    found = post_dominators(terms.running, terms.outputs)
    both = terms.running[key["last"]].operands[0]
    assert found == {key["right"]: both, both: key["last"]}


def test_a_region_grows_to_where_all_paths_meet() -> None:
    g = GraphMaker()
    first = g("Relu", g.input("x", 4, 4))
    last = g("Neg", g("Add", g("Tanh", first), g("Sigmoid", first)))
    terms = Terms.of(g.graph(last))
    assert [set(one) for one in terms.grown(ANY, first)] == [
        {"Relu", "Tanh", "Sigmoid", "Add"},
        {"Relu", "Tanh", "Sigmoid", "Add", "Neg"},
    ]
    assert not terms.grown(PatternRule("picky", lambda term, _: term.op != "Tanh"), first)


def test_a_product_takes_elementwise_operators_and_no_second_product() -> None:
    g = GraphMaker()
    x = g.input("x", 4, 4)
    product_ = g("MatMul", x, g.weight(4, 4))
    added = g("Relu", g("Add", product_, g.weight(1, 4)))
    terms = Terms.of(g.graph(g("MatMul", added, g.weight(4, 4))))
    assert terms.grown(ANY, product_) == [["MatMul", "Add"], ["MatMul", "Add", "Relu"]]


def test_a_rule_adds_kernels() -> None:
    frame = framed(["wide"])
    registry = PatternRegistry.of(frame.backends)
    plain = Collage().place(frame, registry, Budget()).value
    accepts = frozenset({"Relu", "Tanh", "Sigmoid", "MatMul"})
    registry.add_backend_pattern_rule(PatternRule("wide", lambda term, _: term.op in accepts))
    assert Collage().place(frame, registry, Budget()).value < plain


def test_a_pattern_adds_a_kernel() -> None:
    frame = framed(["fast"], chain_of_relus())
    registry = PatternRegistry.of(frame.backends)
    assert Collage().place(frame, registry, Budget()).value == 6.5
    registry.add_backend_pattern("fast", KernelPattern("fused", ops.Relu(ops.MatMul(X, W))))
    assert Collage().place(frame, registry, Budget()).value == 3.5


def chain_of_relus() -> Graph:
    g = GraphMaker()
    return g.graph(g("Relu", g("MatMul", g.input("x", 4, 4), g.weight(4, 4))))


@pytest.mark.parametrize("order", list(permutations(("fast", "wide"))))
def test_more_backends_never_cost_more(order: Sequence[str]) -> None:
    """Figure 11, from the backend that knows all operators."""
    names, costs = ["plain"], []
    for name in ("", *order):
        names += [name] if name else []
        costs.append(Collage(population=0).run(framed(names), Budget(), 0).value)
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > costs[-1]


@given(st.data())
def test_on_random_prices_more_backends_never_cost_more(data: st.DataObject) -> None:
    """Whatever each backend runs and in which order they come; evolution never loses either."""
    operators = ("MatMul", "Relu", "Tanh", "Sigmoid")
    prices = st.dictionaries(st.sampled_from(operators), st.integers(1, 9).map(float))
    times = {"plain": dict.fromkeys(operators, 9.0), "fast": data.draw(prices)}
    times["wide"] = data.draw(prices)
    names = ["plain", *data.draw(st.permutations(["fast", "wide"]))]
    switch_us, before = float(data.draw(st.integers(0, 5))), math.inf
    for count in range(1, 4):
        frame = framed(names[:count], times=times)
        by_operators = Collage(population=0, switch_us=switch_us).run(frame, Budget(), 0)
        assert by_operators.value <= before
        assert by_operators.value == frame.outcome(frame.start).value
        before = by_operators.value
        evolved = Collage(population=4, rounds=2, switch_us=switch_us).run(frame, Budget(), 0)
        costs = [with_switches(one.outcome, switch_us) for one in (evolved, by_operators)]
        assert costs[0] <= costs[1]


def with_switches(outcome: PricedGraph, switch_us: float) -> float:
    """What the second step compares."""
    backends = [one.backend for one in outcome.kernels.values()]
    return outcome.value + switch_us * sum(a != b for a, b in pairwise(backends))


def test_the_first_step_is_the_cover_of_the_frame() -> None:
    frame = framed(["plain", "fast", "wide"])
    base = Registered(frame.terms, PatternRegistry.of(frame.backends), frame.start.graph)
    assert base.cover(frame.start.graph).value == frame.start.value
    assert Collage().run(frame, Budget(), 0).value == frame.start.value


def test_on_a_device_by_its_profile() -> None:
    profile = load_profile("v100")
    pricer = ProfilePricer(profile)
    frame = Frame(
        chain(), (), PriceCache.of(BackendPricer(pricer)), "kernels", profile=profile,
        backends=pricer.backends,
    )  # fmt: skip
    assert Collage().run(frame, Budget(), 0).value == frame.start.value


def test_where_switching_costs_operators_move_together() -> None:
    first = Collage(population=0, switch_us=20.0).run(framed(["plain", "fast"]), Budget(), 0)
    assert {one.backend for one in first.outcome.kernels.values()} == {"plain", "fast"}
    found = Collage(switch_us=20.0).run(framed(["plain", "fast"]), Budget(), 0)
    assert {one.backend for one in found.outcome.kernels.values()} == {"plain"}
    assert "evolved" in found.notes[0]
    assert found.value >= first.value  # what is judged knows no switches


@dataclass
class CountingBoard:
    """Takes as long as there are kernels of one backend."""

    backend: str
    measured: int = 0

    tells_backends: ClassVar[bool] = True

    def measure(self, outcome: PricedGraph) -> Reading:
        self.measured += 1
        return Reading(float(sum(o.backend == self.backend for o in outcome.kernels.values())))


def test_a_board_decides_where_there_is_one() -> None:
    board = CountingBoard("wide")
    found = Collage(library="plain").run(framed(["plain", "wide"], board=board), Budget(), 0)
    assert {one.backend for one in found.outcome.kernels.values()} == {"plain"}
    assert found.tried >= board.measured > 1  # equal placements are measured once
    told = Collage(library="plain", plans=True).run(
        framed(["plain", "wide"], board=board), Budget(), 0
    )
    assert told.outcome == found.outcome
    assert "plans takes" in told.notes[-1]


def test_plans_are_measured_where_backends_run() -> None:
    with pytest.raises(OptionError, match="give --measure and several --backends"):
        Collage(plans=True).run(framed(["plain", "wide"]), Budget(), 0)


@pytest.mark.parametrize("seed", range(6))
def test_evolution_against_all_genomes(seed: int) -> None:
    weights = [(seed * 7 + i * i) % 11 - 5 for i in range(6)]
    asked: list[tuple[bool, ...]] = []

    def cost(genome: tuple[bool, ...]) -> float:
        asked.append(genome)
        pairs = pairwise(genome)
        return sum(w for w, gene in zip(weights, genome, strict=True) if gene) + 0.5 * sum(
            a != b for a, b in pairs
        )

    found = Evolution().best(6, cost, seed)
    assert asked[:2] == [(False,) * 6, (True,) * 6]
    assert len(asked) == len(set(asked))
    assert found == Evolution().best(6, cost, seed)
    assert cost(found) == min(cost(one) for one in product((False, True), repeat=6))


def test_a_budget_ends_it_and_the_first_step_stays() -> None:
    found = Collage().run(framed(["plain", "fast"]), Budget(cpu_s=1e-9), 0)
    assert found.stopped_by == "cpu"
    assert found.value == found.original.value


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"population": 1}, "population is 1"),
        ({"population": -2}, "population is -2"),
        ({"tournament": 0}, "tournament is 0"),
        ({"rounds": -1}, "rounds is -1"),
        ({"switch_us": -1.0}, "switch_us is -1"),
        ({"switch_us": float("inf")}, "switch_us is inf"),
    ],
)
def test_settings_without_meaning_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Collage(**given)


def test_what_it_cannot_place_is_refused() -> None:
    with pytest.raises(OptionError, match="give --level kernels"):
        Collage().run(Frame(chain(), (), PriceCache.of()), Budget(), 0)
    with pytest.raises(OptionError, match="choose from plain, fast"):
        Collage(library="wide").run(framed(["plain", "fast"]), Budget(), 0)
