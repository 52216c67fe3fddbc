"""Searches for several streams, on graphs that can be solved by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat_opt.cost.analytic import ProfilePricer
from eqsat_opt.egraph import Budget as SaturationBudget
from eqsat_opt.egraph import Saturation
from eqsat_opt.errors import OptionError, RuntimeFailed
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.lab.comparison.boards import OrtBoard, ThreadedBoard
from eqsat_opt.lab.comparison.engines import EqSat
from eqsat_opt.lab.comparison.saturated import Saturated, saturated
from eqsat_opt.lab.search import (
    BackendPricer,
    Budget,
    Frame,
    MetaFlow,
    PriceCache,
    PricedGraph,
    Reading,
    make_search,
)
from eqsat_opt.lab.search.frame import Level
from eqsat_opt.lab.search.methods.autograph import AutoGraph
from eqsat_opt.lab.search.methods.ios import Ios, best_stages, blocks, endings
from eqsat_opt.lab.search.methods.nimble import Nimble
from eqsat_opt.lab.search.pricing.board import Board, SimulatedBoard
from eqsat_opt.lab.search.pricing.streaming import Streams
from eqsat_opt.lab.search.rewriting.groups import adjacent_groups, best_sequences
from eqsat_opt.lab.testing import GraphMaker, evaluate, random_inputs
from eqsat_opt.rules import Rule, families
from eqsat_opt.runtime.backends.registry import load_backend
from eqsat_opt.runtime.devices.cores import Cores
from eqsat_opt.runtime.devices.figures import Figure
from eqsat_opt.runtime.devices.profile import DeviceProfile, load_profile

BOOK = {one.name: one for rules in families().values() for one in rules}
V100 = load_profile("v100")
AMPLE = Budget(1000)


def device(**figures: float) -> DeviceProfile:
    named = {name: Figure(value, "made up") for name, value in figures.items()}
    return replace(V100, **named)  # type: ignore[arg-type]


def framed(
    graph: Graph,
    rules: Sequence[str] = (),
    profile: DeviceProfile = V100,
    *,
    level: Level = "streams",
    board: Board | None = None,
) -> Frame:
    pricer = ProfilePricer(profile)
    return Frame(
        graph,
        tuple(BOOK[name] for name in rules),
        PriceCache.of(BackendPricer(pricer)),
        level,
        profile=profile,
        backends=pricer.backends,
        board=board,
    )


def chains(count: int) -> Graph:
    """Products with two weights in a row, beside each other, and their sum."""
    g = GraphMaker()
    x = g.input("x", 128, 256)
    first, *rest = (
        g("MatMul", g("MatMul", x, g.weight(256, 256)), g.weight(256, 256)) for _ in range(count)
    )
    for one in rest:
        first = g("Add", first, one)
    return g.graph(first)


# ** boards **


def test_the_board_simulates_what_a_frame_says() -> None:
    frame = framed(chains(3))
    found = frame.outcome(frame.start)
    assert found.streams == 3
    board = SimulatedBoard(Streams(V100))
    assert board.measure(found).time_us == pytest.approx(found.value)
    alone = frame.guided(frame.objective)
    assert board.measure(alone.outcome(alone.start)).time_us == pytest.approx(found.value)
    assert Reading(97.0, 0.02).is_below(Reading(100.0))
    assert not Reading(97.0, 0.02).is_below(Reading(100.0, 0.04))
    assert not Reading(100.0).is_below(Reading(100.0))


def test_this_machine_is_a_board() -> None:
    g = GraphMaker()
    x = g.input("x", "N", 8)
    graph = g.graph(g("MatMul", g("MatMul", x, g.weight(8, 8)), g.weight(8, 8)))
    board = OrtBoard(sizes={"N": 4, "of no input": 2}, budget_s=0.01)
    prices = PriceCache.of(sizes={"N": 4})
    frame = Frame(graph, (BOOK["matmul/assoc"],), prices, board=board)
    reading = board.measure(frame.outcome(frame.start))
    assert reading.time_us > 0
    assert reading.noise >= 0.02
    found = AutoGraph().run(frame, AMPLE)
    assert found.steps in ((), ("matmul/assoc",))  # as the machine says
    assert found.value == frame.on(found.graph).start.value
    with pytest.raises(OptionError, match="the profile of a device"):
        AutoGraph().run(replace(frame, board=None), AMPLE)


def test_streams_of_this_machine_are_a_board() -> None:
    """Each outcome runs as it is scheduled, and what cannot stand in a plan is said."""
    graph = chains(2)
    tensors = {name: one.load for name, one in graph.constants.items()}
    prices, backends = PriceCache.of(), (load_backend("ort"),)
    board = ThreadedBoard(tensors, budget_s=0.01)
    cores = replace(Cores.of(2), event_us=Figure(0.0, "made up"))
    frame = Frame(graph, (), prices, "streams", profile=cores, backends=backends, board=board)
    found = frame.outcome(frame.start)
    assert found.streams == 2
    assert found.value < sum(one.metrics["time_us"] for one in found.kernels.values())
    assert board.measure(found).time_us > 0
    with pytest.raises(RuntimeFailed, match=r"the graph has no plan: .* is not stored"):
        replace(board, tensors={}).measure(found)
    kernel = next(iter(found.kernels.values())).kernel
    assert kernel is not None
    assert cores.load(kernel).width == 0.5


# ** Nimble **


def test_nimble_assigns_and_changes_nothing() -> None:
    frame = framed(chains(2), ["matmul/assoc"])
    found = make_search("nimble", {}).run(frame, AMPLE, 0)
    assert found.value == frame.start.value
    assert found.outcome.streams == 2
    assert (found.tried, found.steps) == (0, ())
    after = make_search("nimble", {"after": "metaflow"}).run(frame, AMPLE, 0)
    assert after.steps == ("matmul/assoc",) * 2
    assert after.outcome.streams == 2
    assert after.value < found.value
    with pytest.raises(OptionError, match="no search before it; choose from"):
        Nimble("nimble")


# ** AutoGraph **


@dataclass
class _Made(Board):
    """Likes graphs with a number of products."""

    products: int
    noise: float = 0.0
    seen: list[int] = field(default_factory=list)

    def measure(self, outcome: PricedGraph) -> Reading:
        weights = set(outcome.graph.constants)
        count = sum(
            node.op == "MatMul" and not weights.issuperset(node.inputs)
            for node in outcome.graph.nodes
        )
        self.seen.append(count)
        return Reading(100.0 + abs(count - self.products), self.noise)


def test_autograph_folds_every_chain() -> None:
    frame = framed(chains(2), ["matmul/assoc"])
    found = AutoGraph().run(frame, AMPLE)
    assert found.steps == ("matmul/assoc",) * 2
    assert found.stopped_by == "exhausted"
    assert found.value == framed(found.graph).start.value < frame.start.value


def test_the_board_decides() -> None:
    board = _Made(3)
    found = AutoGraph().run(framed(chains(2), ["matmul/assoc"], board=board), AMPLE)
    assert found.steps == ("matmul/assoc",)  # one chain less is costlier by equation 1
    # The original, one of two equal graphs, the least by the equation; no graph twice.
    assert sorted(board.seen) in ([2, 3, 4], [2, 3, 3, 4])
    noisy = _Made(2, noise=0.03)
    found = AutoGraph().run(framed(chains(2), ["matmul/assoc"], board=noisy), AMPLE)
    assert (found.steps, found.value) == ((), found.original.value)


@pytest.mark.parametrize("budget", [Budget(1), Budget(0, substitutions=1), Budget(0, length=1)])
def test_a_spent_budget_leaves_an_answer(budget: Budget) -> None:
    frame = framed(chains(3), ["matmul/assoc"])
    found = AutoGraph(size_l=2, size_u=6).run(frame, budget)
    assert found.value <= frame.start.value
    assert found.graphs <= (budget.graphs or found.graphs)
    assert found.tried <= (budget.substitutions or found.tried)
    assert len(found.steps) <= (budget.length or 3)
    assert found.stopped_by in ("graphs", "substitutions", "length")


def test_runs_of_parts_reach_what_single_parts_do_not() -> None:
    """A chain is cut in its middle: only a run of both parts holds both products."""
    graph = chains(1)
    frame = framed(graph, ["matmul/assoc"])
    single = AutoGraph(size_l=1, size_u=2, dp=False).run(frame, AMPLE)
    assert single.value == frame.start.value
    assert AutoGraph(size_l=1, size_u=2).run(frame, AMPLE).steps == ("matmul/assoc",)


# ** IOS **


@st.composite
def dags(draw: st.DrawFn, most: int = 6) -> dict[int, list[int]]:
    """What each kernel reads."""
    n = draw(st.integers(1, most))
    return {
        i: draw(st.lists(st.integers(0, i - 1), unique=True, max_size=2)) if i else []
        for i in range(n)
    }


def groups_of(members: Sequence[int], reads: Mapping[int, Sequence[int]]) -> list[set[int]]:
    found: list[set[int]] = []
    for one in members:
        near = [g for g in found if any(c in g for c in reads[one])
                or any(one in reads[c] for c in g)]  # fmt: skip
        found = [g for g in found if g not in near] + [{one}.union(*near)]
    return found


@given(st.data())
def test_groups_of_parts(data: st.DataObject) -> None:
    """Against all sets of parts: they are connected and convex."""
    reads = data.draw(dags(5))
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=len(reads), max_size=len(reads)))
    most = data.draw(st.integers(3, 8))
    found = adjacent_groups(reads, sizes, most)

    def paths(one: int) -> set[int]:
        return {one}.union(*(paths(c) for c in reads[one]))

    wanted = set()
    for bits in range(1, 2 ** len(reads)):
        group = {i for i in reads if bits >> i & 1}
        between = set().union(*(paths(i) for i in group)) - group
        is_convex = all(paths(i).isdisjoint(group) for i in between)
        is_small = len(group) == 1 or sum(sizes[i] for i in group) <= most
        if is_convex and is_small and len(groups_of(sorted(group), reads)) == 1:
            wanted.add(frozenset(group))
    assert set(found) == wanted
    assert len(found) == len(wanted)


@given(st.data())
def test_the_best_sequences(data: st.DataObject) -> None:
    """Against all ways to take parts in groups, in any order."""
    reads = data.draw(dags(4))
    values: dict[frozenset[int], list[float]] = {}
    for group in adjacent_groups(reads, [1] * len(reads), len(reads)):
        if len(group) == 1 or data.draw(st.booleans()):
            costs = st.lists(st.integers(0, 9).map(float), min_size=1, max_size=2)
            values[group] = data.draw(costs)

    def ways(taken: frozenset[int]) -> set[frozenset[tuple[frozenset[int], int]]]:
        if len(taken) == len(reads):
            return {frozenset()}
        return {
            rest | {(group, number)}
            for group, graphs in values.items()
            if taken.isdisjoint(group) and {c for i in group for c in reads[i]} - group <= taken
            for number in range(len(graphs))
            for rest in ways(taken | group)
        }

    totals = sorted(sum(values[g][n] for g, n in way) for way in ways(frozenset()))
    most = data.draw(st.integers(1, 6))
    found = best_sequences(reads, values, most)
    assert [total for total, _ in found] == totals[:most]
    for total, sequence in found:
        assert total == sum(values[group][number] for group, number in sequence)
        taken: set[int] = set()
        for group, _ in sequence:
            assert {c for i in group for c in reads[i]} - group <= taken
            taken |= group
        assert taken == set(reads)
    assert len({frozenset(sequence) for _, sequence in found}) == len(found)


def test_wide_graphs_keep_the_order_of_their_parts() -> None:
    reads: dict[int, list[int]] = {i: [] for i in range(12)}
    values = {frozenset((i,)): [1.0] for i in reads}
    (way,) = best_sequences(reads, {**values, frozenset((0, 11)): [0.0]}, 3)
    assert way[0] == 12
    assert best_sequences({}, {}, 3) == [(0.0, ())]


def is_ending(members: Sequence[int], left: Sequence[int], reads: Mapping[int, Any]) -> bool:
    rest = set(left).difference(members)
    return not any(one in reads[other] for one in members for other in rest)


def bits(members: Sequence[int]) -> int:
    return sum(1 << one for one in members)


@given(dags(), st.integers(1, 3), st.integers(1, 3))
def test_endings_are_all_endings(reads: dict[int, list[int]], groups: int, operators: int) -> None:
    wanted = set()
    for size in range(1, len(reads) + 1):
        for members in combinations(reads, size):
            found = groups_of(members, reads)
            is_small = len(found) <= groups and max(map(len, found)) <= operators
            if is_small and is_ending(members, list(reads), reads):
                wanted.add(bits(members))
    listed = list(endings(bits(list(reads)), reads, groups, operators))
    assert set(listed) == wanted
    assert len(listed) == len(wanted)


@given(dags(5), st.integers(1, 2), st.integers(1, 3), st.randoms(use_true_random=False))
def test_stages_against_all_sequences(
    reads: dict[int, list[int]], groups: int, operators: int, draw: Random
) -> None:
    times = {mask: float(draw.randint(1, 20)) for mask in range(1 << len(reads))}

    def least(left: tuple[int, ...]) -> float:
        if not left:
            return 0.0
        return min(
            times[bits(members)] + least(tuple(one for one in left if one not in members))
            for size in range(1, len(left) + 1)
            for members in combinations(left, size)
            if is_ending(members, left, reads)
            and len(groups_of(members, reads)) <= groups
            and max(map(len, groups_of(members, reads))) <= operators
        )

    found = best_stages(reads, times.__getitem__, groups, operators=operators)
    assert sum(times[mask] for mask in found) == least(tuple(reads))
    done = 0
    for mask in found:
        assert not done & mask
        for one in reads:
            if mask >> one & 1:
                assert not bits(reads[one]) & ~(done | mask)
        done |= mask
    assert done == bits(list(reads))
    # Cut off at any time there is still an answer.
    asked = iter(range(draw.randint(0, 6)))
    cut = best_stages(
        reads,
        times.__getitem__,
        groups,
        operators=operators,
        may_go=lambda: next(asked, None) is not None,
    )
    assert sum(cut) == done
    assert sum(times[mask] for mask in cut) >= least(tuple(reads))


def test_blocks_end_where_all_is_ordered() -> None:
    reads = [(), (0,), (0,), (1, 2), (3,), (3,), (4, 5)]
    assert blocks(reads, 100) == [[0], [1, 2, 3], [4, 5, 6]]
    assert blocks(reads, 2) == [[0], [1, 2], [3], [4, 5], [6]]
    assert blocks([], 3) == []
    assert blocks([(), ()], 9) == [[0, 1]]


def siblings() -> Graph:
    """Convolutions of one value, of three sizes, with bias and activation, and one without."""
    g = GraphMaker()
    x = g.input("x", 1, 16, 8, 8)

    def conv(channels: int, size: int) -> str:
        return g.conv(x, g.weight(channels, 16, size, size), pad=size // 2)

    alike = [
        g("Relu", g("Add", conv(channels, size), g.weight(1, channels, 1, 1)))
        for channels, size in ((8, 1), (24, 3), (16, 5))
    ]
    return g.graph(*alike, conv(8, 3))


def test_convolutions_of_one_value_become_one() -> None:
    graph = siblings()
    frame = framed(graph, profile=device(launch_us=20.0, streams=1))
    found = Ios().run(frame, AMPLE)
    assert found.steps == ("ios/merge",)
    assert found.value < frame.start.value
    found.graph.check()
    convolutions = [node for node in found.graph.nodes if node.op == "Conv"]
    assert len(convolutions) == 2  # the fourth has no activation
    inputs = random_inputs(graph)
    for before, now in zip(evaluate(graph, inputs), evaluate(found.graph, inputs), strict=True):
        np.testing.assert_allclose(now, before, rtol=1e-6, atol=1e-6)
    alone = Ios(merge=False).run(frame, AMPLE)
    assert (alone.steps, alone.value) == ((), frame.start.value)


def test_stages_run_side_by_side() -> None:
    frame = framed(chains(3))
    found = Ios().run(frame, AMPLE)
    assert found.outcome.streams == 3
    reading = SimulatedBoard(Streams(V100)).measure(found.outcome)
    assert reading.time_us == pytest.approx(found.value)
    # A stage holds chains of up to three kernels, so all products are in the first one.
    assert found.notes == ("ios: 2 stages, 0 of them merged",)
    assert found.value == pytest.approx(frame.start.value, rel=0.2)
    single = Ios(groups=1).run(frame, AMPLE)
    assert single.value == pytest.approx(frame.guided(frame.objective).start.value)


@pytest.mark.parametrize("stages", [1, 3])
def test_what_is_left_when_stages_are_spent(stages: int) -> None:
    frame = framed(chains(3))
    found = Ios(stages=stages).run(frame, AMPLE)
    assert found.tried <= stages * 3
    assert len(found.outcome.kernels) == len(frame.outcome(frame.start).kernels)
    counted = Ios().run(frame, Budget(substitutions=2))
    assert (counted.tried, counted.stopped_by) == (2, "substitutions")


# ** the e-graph **


def extracted(frame: Frame, engine: EqSat | None = None) -> Saturated:
    assert frame.profile is not None
    return saturated(
        frame.graph,
        frame.rules,
        frame.prices,
        SaturationBudget(),
        engine=engine,
        level=frame.level,
        profile=frame.profile,
        backends=frame.backends,
    )


def test_the_e_graph_is_bounded_by_the_chain_and_by_the_work() -> None:
    # One chain of two products becomes one product: nothing is faster than that.
    one = extracted(framed(chains(1), ["matmul/assoc"]))
    assert one.status == "optimal"
    assert one.lower_bound == pytest.approx(one.outcome.value)
    # Branches side by side: the longest of them, and an event.
    some = extracted(framed(chains(3), ["matmul/assoc"]))
    found = AutoGraph().run(framed(chains(3), ["matmul/assoc"]), AMPLE)
    assert some.lower_bound <= some.outcome.value <= found.value
    # So wide that they share the device: all their work.
    g = GraphMaker()
    x = g.input("x", 4096, 1024)
    wide = g.graph(*(g("MatMul", x, g.weight(1024, 1024)) for _ in range(4)))
    many = extracted(framed(wide, profile=device(launch_us=0.0)))
    assert many.outcome.value * 0.9 < many.lower_bound <= many.outcome.value


@dataclass(frozen=True)
class Unsaturated(EqSat):
    """An e-graph that holds the model alone."""

    def saturate(self, graph: Graph, rules: Sequence[Rule], budget: SaturationBudget) -> Saturation:
        return super().saturate(graph, (), budget)


def test_after_extraction_substitutions_go_on_as_long_as_kernels_end_sooner() -> None:
    g = GraphMaker()
    x = g.input("x", 128, 256)
    short = g("MatMul", x, g.weight(256, 256))
    long = g("MatMul", g("MatMul", x, g.weight(256, 256)), g.weight(256, 256))
    frame = framed(g.graph(g("Add", short, long)), ["matmul/assoc"])
    greedy = MetaFlow(alpha=1.0).run(frame, AMPLE)
    found = extracted(frame, Unsaturated())
    assert found.steps == greedy.steps == ("matmul/assoc",)
    assert found.outcome.value == pytest.approx(greedy.value)
    assert found.trace[-1].cost == found.outcome.value
    assert extracted(frame, Unsaturated(trials=0)).steps == ()


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"size_l": "120", "size_u": "40"}, "size_u is 40, less than size_l, which is 120"),
        ({"size_l": "0"}, "size_l is 0; give at least 1"),
        ({"alpha": "-1"}, "alpha is -1; give a finite weight"),
        ({"alpha": "nan"}, "alpha is nan; give a finite weight"),
        ({"beta": "0.9"}, "beta is 0.9; give at least 1"),
        ({"candidates": "0"}, "candidates is 0"),
        ({"visits": "0"}, "visits is 0"),
        ({"dp": "perhaps"}, "autograph.dp is 'perhaps'; choose true or false"),
    ],
)
def test_parameters_that_make_no_sense(parameters: Mapping[str, str], expected: str) -> None:
    with pytest.raises(OptionError, match=expected):
        make_search("autograph", parameters)
    for name in ("groups", "operators", "block"):
        with pytest.raises(OptionError, match=f"{name} is 0; give at least 1"):
            make_search("ios", {name: "0"})
    with pytest.raises(OptionError, match="stages is -1"):
        make_search("ios", {"stages": "-1"})
