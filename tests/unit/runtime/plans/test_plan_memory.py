"""Places in the arena, and launches on streams."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat_opt.common.precision import Precision
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.lab import zoo
from eqsat_opt.pipeline.plans import plan_model
from eqsat_opt.runtime.plan.memory import LiveValue, arrange
from eqsat_opt.runtime.plan.order import HappensBefore, happens_before
from eqsat_opt.runtime.plan.plan import ALIGNMENT_BYTES, Launch, Plan
from eqsat_opt.runtime.plan.streams import Schedule, makespan_us, schedule, serial

EMPTY = Plan("cpu", Precision.STRICT, {}, (), (), (), {}, ())
NOTHING = Kernel((), (), ())


def order_of(placed: Schedule) -> HappensBefore:
    """The order of launches that do nothing; they are numbered as they are submitted."""
    launches = tuple(
        Launch(
            str(number), "numpy", NOTHING, "default", (), (),
            stream=placed.stream[number], waits=placed.waits[number],
            records=placed.records[number],
        )
        for number in placed.order
    )  # fmt: skip
    return happens_before(replace(EMPTY, launches=launches, joins=placed.joins))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[float], list[tuple[int, int]]]:
    n = draw(st.integers(1, 9))
    pairs = [(a, b) for b in range(n) for a in range(b)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=14)) if pairs else []
    return [float(draw(st.integers(1, 5))) for _ in range(n)], edges


# ** streams **


@given(graphs(), st.integers(1, 4))
def test_schedules_keep_the_order(
    graph: tuple[list[float], list[tuple[int, int]]], limit: int
) -> None:
    times, edges = graph
    placed = schedule(times, edges, limit)
    assert sorted(placed.order) == list(range(len(times)))
    assert placed.streams <= limit
    order = order_of(placed)
    number = {launch: i for i, launch in enumerate(placed.order)}
    assert all(order.is_before(number[a], number[b]) for a, b in edges)
    assert all(order.is_joined(i) for i in range(len(times)))
    assert makespan_us(placed, times) <= sum(times)


@given(graphs())
def test_free_streams_order_nothing_else_and_need_the_fewest_events(
    graph: tuple[list[float], list[tuple[int, int]]],
) -> None:
    """Nimble's theorems: all that may run at once may, with an event per edge left unmatched."""
    times, edges = graph
    n = len(times)
    placed = schedule(times, edges, n)
    order = order_of(placed)
    number = {launch: i for i, launch in enumerate(placed.order)}
    reach = np.eye(n, dtype=bool)
    for a, b in sorted(edges, key=lambda edge: edge[1]):
        reach[:, b] |= reach[:, a]
    for a, b in permutations(range(n), 2):
        assert order.is_before(number[a], number[b]) == reach[a, b]
    longest = list(times)
    for b in range(n):
        longest[b] += max((longest[a] for a, other in edges if other == b), default=0.0)
    assert makespan_us(placed, times) == max(longest)
    needed = [
        (a, b)
        for a, b in set(edges)
        if not any(reach[a, c] and reach[c, b] for c in range(n) if c not in (a, b))
    ]
    assert sum(map(len, placed.waits)) == len(needed) - _matched(needed, n)


def _matched(edges: list[tuple[int, int]], n: int) -> int:
    """Edges of a maximum matching of sources with targets, by trying all."""

    def best(source: int, taken: frozenset[int]) -> int:
        if source == n:
            return 0
        with_one = [
            1 + best(source + 1, taken | {b}) for a, b in edges if a == source and b not in taken
        ]
        return max([best(source + 1, taken), *with_one])

    return best(0, frozenset())


def test_an_event_costs_time() -> None:
    placed = schedule([4.0, 4.0, 4.0], [(0, 2), (1, 2)], 2)
    assert placed.streams == 2
    assert makespan_us(placed, [4.0, 4.0, 4.0]) == 8.0
    assert makespan_us(placed, [4.0, 4.0, 4.0], event_us=1.0) == 9.0
    assert makespan_us(serial(3), [4.0, 4.0, 4.0], event_us=1.0) == 12.0


def test_nothing_can_be_scheduled() -> None:
    assert schedule([], [], 3) == serial(0)
    assert makespan_us(serial(0), []) == 0.0


# ** memory **


@given(graphs(), st.integers(1, 3), st.data())
def test_values_that_live_at_once_lie_apart(
    graph: tuple[list[float], list[tuple[int, int]]], limit: int, data: st.DataObject
) -> None:
    times, edges = graph
    order = order_of(schedule(times, edges, limit))
    n = len(times)
    values = []
    for _ in range(data.draw(st.integers(1, 6))):
        from_start, to_end = data.draw(st.booleans()), data.draw(st.booleans())
        # The first use, in the order of submission, writes, so it is before all others.
        first = data.draw(st.integers(0, n - 1))
        later = [i for i in range(n) if order.is_before(first, i)]
        uses = data.draw(st.lists(st.sampled_from(later), unique=True)) if later else []
        size = data.draw(st.sampled_from((0, 1, 256, 300, 1000)))
        values.append(LiveValue(size, (first, *uses), from_start, to_end))
    arena = arrange(values, order)
    assert all(offset % ALIGNMENT_BYTES == 0 for offset in arena.offsets)
    assert arena.lower_bound_bytes <= arena.size_bytes
    assert arena.size_bytes % ALIGNMENT_BYTES == 0

    def is_before(a: LiveValue, b: LiveValue) -> bool:
        return (
            not a.to_end
            and not b.from_start
            and all(order.is_before(i, j) for i in a.launches for j in b.launches)
        )

    places = list(zip(values, arena.offsets, strict=True))
    for i, (a, at) in enumerate(places):
        assert at + a.size_bytes <= arena.size_bytes
        for b, other in places[:i]:
            disjoint = at + a.size_bytes <= other or other + b.size_bytes <= at
            assert disjoint or is_before(a, b) or is_before(b, a) or not a.size_bytes * b.size_bytes


@given(graphs(), st.integers(1, 3), st.data())
def test_no_arena_is_smaller_than_the_bound(
    graph: tuple[list[float], list[tuple[int, int]]], limit: int, data: st.DataObject
) -> None:
    """What lives at once during a launch is surely there in any order, by its definition."""
    times, edges = graph
    order = order_of(schedule(times, edges, limit))
    n = len(times)
    values = []
    for _ in range(data.draw(st.integers(1, 5))):
        uses = data.draw(st.lists(st.integers(0, n - 1), min_size=1, unique=True))
        values.append(LiveValue(ALIGNMENT_BYTES, tuple(uses), data.draw(st.booleans())))
    arena = arrange(values, order)
    alive = [
        sum(
            (v.from_start or any(order.is_before(u, i) or u == i for u in v.launches))
            and any(order.is_before(i, u) or u == i for u in v.launches)
            for v in values
        )
        for i in range(n)
    ]
    starting = sum(v.from_start for v in values)
    assert arena.lower_bound_bytes == ALIGNMENT_BYTES * max([*alive, starting, 1])


def test_nothing_needs_no_arena() -> None:
    order = order_of(serial(1))
    assert arrange([], order).size_bytes == 0
    assert arrange([LiveValue(0, (0,))], order).size_bytes == 0
    assert arrange([LiveValue(5, (), True)], order_of(serial(0))).size_bytes == ALIGNMENT_BYTES


@pytest.mark.parametrize(
    "name", ["inception_v3", "nasnet_a", "bert", "nasrnn", "squeezenet", "cnn_training"]
)
def test_arenas_are_near_the_bound(name: str) -> None:
    plan = plan_model(zoo.build(name, scale="tiny"), backend="numpy")
    assert plan.arena_bytes <= 1.05 * plan.lower_bound_bytes
