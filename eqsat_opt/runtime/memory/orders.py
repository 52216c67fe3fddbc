"""Orders in which operators run, and the most bytes of values that are live at once in each.

The memory of a graph depends on the order of its operators. The search for the order of the least
peak goes from state to state, where a state is the set of operators that have run, by rising peak:
when a state is reached, no order has a lower peak than that of the state, and the first complete
order is the best. Where that takes too many states, the peak of the last one is a lower bound.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from eqsat_opt.errors import EqsatError
from eqsat_opt.ir.graph.graph import Graph, Node
from eqsat_opt.ir.values.dims import evaluate_dim

__all__ = [
    "LeastPeak",
    "Lifetimes",
    "bits_of",
    "by_rank",
    "bytes_of",
    "climbed",
    "in_order",
    "least_peak",
    "shares_memory",
]

_WORK = 60_000
"""Steps that are looked at before the search by rising peak ends; about half a second."""

_WIDTHS = 16
"""Greatest number of states that the search from step to step keeps."""

_TRIES, _TRIED_STEPS = 300, 60_000
"""Changed orders that are tried, and their steps together; about a third of a second."""


@dataclass(frozen=True)
class Lifetimes:
    """Steps that run one after another, with the memory of the values that they read and make.

    Values are numbers. Those that share memory, such as an operand and its other shape, are one.

    Attributes:
        sizes: bytes by value.
        reads, makes: the values that each step reads and makes.
        before: the steps that each step waits for, as bits.
        given: values that are there from the beginning.
        kept: values that are there until the end.
    """

    sizes: tuple[int, ...]
    reads: tuple[tuple[int, ...], ...]
    makes: tuple[tuple[int, ...], ...]
    before: tuple[int, ...]
    given: frozenset[int]
    kept: frozenset[int]

    @classmethod
    def of(
        cls, graph: Graph, sizes: Mapping[str, int] | None = None, *, keeps_inputs: bool = False
    ) -> Lifetimes:
        """Return the lifetimes of a graph; constants and values of unknown size take no memory.

        Args:
            graph: the graph.
            sizes: sizes of symbolic dimensions.
            keeps_inputs: whether inputs belong to the caller, who keeps them.
        """
        number: dict[str, int] = {}
        found: list[int] = []
        maker: dict[str, int] = {}
        reads, before = [], []
        makes: list[tuple[int, ...]] = []

        def added(name: str) -> int:
            number[name] = len(found)
            found.append(0 if name in graph.constants else bytes_of(graph, name, sizes or {}))
            return number[name]

        for name in dict.fromkeys((*graph.inputs, *graph.constants)):
            added(name)
        for step, node in enumerate(graph.nodes):
            before.append(sum(1 << one for one in {maker[n] for n in node.reads if n in maker}))
            maker.update(dict.fromkeys(node.outputs, step))
            reads.append(tuple(dict.fromkeys(number[one] for one in node.reads if one in number)))
            if shares_memory(node) and node.inputs[0] in number:
                number[node.output] = number[node.inputs[0]]
                makes.append(())
            else:
                makes.append(tuple(map(added, node.outputs)))
        given = frozenset(number[name] for name in graph.inputs)
        kept = frozenset(number[name] for name in graph.outputs if name in number)
        return cls(
            sizes=tuple(found),
            reads=tuple(reads),
            makes=tuple(makes),
            before=tuple(before),
            given=given,
            kept=kept | given if keeps_inputs else kept,
        )

    @cached_property
    def users(self) -> tuple[int, ...]:
        """The steps that make or read each value, as bits."""
        found = [0] * len(self.sizes)
        for step, values in enumerate(zip(self.reads, self.makes, strict=True)):
            for value in (*values[0], *values[1]):
                found[value] |= 1 << step
        return tuple(found)

    def joined(self, groups: Sequence[Sequence[int]]) -> Lifetimes:
        """Return the lifetimes where each group of steps is one step; all steps are in groups."""
        group_of = {step: number for number, group in enumerate(groups) for step in group}
        members = [sum(1 << step for step in group) for group in groups]
        sizes = list(self.sizes)
        reads, makes, before = [], [], []
        for number, group in enumerate(groups):
            made = [value for step in group for value in self.makes[step]]
            inner = {v for v in made if v not in self.kept and not self.users[v] & ~members[number]}
            for value in inner:
                sizes[value] = 0
            read = dict.fromkeys(value for step in group for value in self.reads[step])
            reads.append(tuple(value for value in read if value not in made))
            makes.append(tuple(value for value in made if value not in inner))
            waits = {group_of[one] for step in group for one in bits_of(self.before[step])}
            before.append(sum(1 << one for one in waits - {number}))
        return replace(
            self, sizes=tuple(sizes), reads=tuple(reads), makes=tuple(makes), before=tuple(before)
        )

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """The steps that wait for each step."""
        found: list[list[int]] = [[] for _ in self.before]
        for step, waits in enumerate(self.before):
            for first in bits_of(waits):
                found[first].append(step)
        return tuple(map(tuple, found))

    @cached_property
    def beside(self) -> tuple[frozenset[int], ...]:
        """The steps that read a value which each step reads or makes."""
        return tuple(
            frozenset(
                one
                for value in (*self.reads[step], *self.makes[step])
                for one in bits_of(self.users[value])
            )
            for step in range(len(self.reads))
        )

    @cached_property
    def begin_bytes(self) -> int:
        """The bytes that are live before the first step."""
        return sum(self.sizes[value] for value in self.given)

    def after(self, step: int, done: int, live: int) -> tuple[int, int]:
        """Return the bytes that are live while a step runs and after it.

        Args:
            step: the step.
            done: the steps that ran before, as bits.
            live: the bytes that are live before it.
        """
        done |= 1 << step
        freed = [
            self.sizes[value]
            for value in (*self.reads[step], *self.makes[step])
            if value not in self.kept and not self.users[value] & ~done
        ]
        made = (self.sizes[value] for value in self.makes[step])
        during = live + sum(made)
        return during, during - sum(freed)

    def peak_bytes(self, order: Iterable[int]) -> int:
        """Return the most bytes that are live at once in an order of the steps."""
        live = peak = self.begin_bytes
        done = 0
        for step in order:
            during, live = self.after(step, done, live)
            peak = max(peak, during)
            done |= 1 << step
        return peak

    @cached_property
    def least_bytes(self) -> int:
        """The bytes that are live at once in any order: of one step, or at the beginning or end."""
        own = (self._working_set(step) for step in range(len(self.reads)))
        return max([self.begin_bytes, sum(self.sizes[v] for v in self.kept), *own])

    def _working_set(self, step: int) -> int:
        values = {*self.reads[step], *self.makes[step], *(self.kept & self.given)}
        return sum(self.sizes[value] for value in values)


def bytes_of(graph: Graph, name: str, sizes: Mapping[str, int]) -> int:
    """Return the bytes of a value; 0 where its type or a size is not known."""
    type_ = graph.tensor_type(name)
    if type_ is None or type_.dtype == "string":
        return 0
    try:
        return int(evaluate_dim(type_.bytes, dict(sizes)))
    except (EqsatError, KeyError):
        return 0


def shares_memory(node: Node) -> bool:
    """Return whether the result of a node lies where its operand does."""
    return node.op == "Reshape" and len(node.outputs) == 1


@dataclass(frozen=True)
class LeastPeak:
    """An order of steps with a low peak.

    Attributes:
        order: numbers of the steps.
        peak_bytes: the most bytes that are live at once.
        lower_bound_bytes: no order has a lower peak.
    """

    order: tuple[int, ...]
    peak_bytes: int
    lower_bound_bytes: int

    @property
    def is_exact(self) -> bool:
        """Whether no other order needs less."""
        return self.peak_bytes <= self.lower_bound_bytes


@dataclass(frozen=True, slots=True)
class _State:
    """Steps that have run, with the peak so far, the live bytes and the order."""

    peak: int
    live: int
    done: int
    ready: tuple[int, ...]
    last: tuple[int, _Order] | None
    count: int

    def order(self) -> tuple[int, ...]:
        found, last = [], self.last
        while last is not None:
            found.append(last[0])
            last = last[1]
        return tuple(reversed(found))


_Order = tuple[int, "_Order"] | None


class _Search:
    """The states of a graph, the steps between them, and the number of steps looked at."""

    def __init__(self, lives: Lifetimes) -> None:
        self._lives = lives
        self._readers = lives.readers
        self.n_steps = len(lives.reads)
        self.work = 0

    def begin(self) -> _State:
        lives = self._lives
        ready = tuple(step for step in range(self.n_steps) if not lives.before[step])
        return self._forced(
            _State(lives.begin_bytes, lives.begin_bytes, 0, ready=ready, last=None, count=0)
        )

    def next(self, state: _State) -> Iterator[_State]:
        for step in state.ready:
            yield self._forced(self._taken(state, step, *self._after(state, step)))

    def _after(self, state: _State, step: int) -> tuple[int, int]:
        self.work += 1
        return self._lives.after(step, state.done, state.live)

    def _taken(self, state: _State, step: int, during: int, live: int) -> _State:
        done = state.done | 1 << step
        before = self._lives.before
        ready = [one for one in state.ready if one != step]
        ready += [one for one in self._readers[step] if not before[one] & ~done]
        peak = max(state.peak, during)
        return _State(
            peak, live, done, ready=tuple(ready), last=(step, state.last), count=state.count + 1
        )

    def _forced(self, state: _State) -> _State:
        """Take steps as long as one neither needs nor leaves more memory: no order loses by it."""
        floor = max(state.peak, self._lives.least_bytes)
        passed: set[int] = set()
        while True:
            for step in state.ready:
                if step in passed:
                    continue
                during, live = self._after(state, step)
                if live <= state.live and during <= floor:
                    # More fits below the floor now, or what reads the same values is cheaper.
                    passed = set() if live < state.live else passed - self._lives.beside[step]
                    state = self._taken(state, step, during, live)
                    break
                passed.add(step)
            else:
                return state


def bits_of(number: int) -> Iterator[int]:
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low


def least_peak(
    lives: Lifetimes, known: Iterable[Sequence[int]] = (), *, work: int = _WORK
) -> LeastPeak:
    """Return an order of low peak, and a lower bound of the peaks of all orders.

    Args:
        lives: the steps and their values.
        known: orders to begin with.
        work: greatest number of steps that the search by rising peak looks at; with enough of them
            the order is the best.
    """
    search = _Search(lives)
    orders = [*map(tuple, known), _by_width(search, 1)]
    if search.work < work:
        orders.append(_by_width(search, min(_WIDTHS, 1 + work // (2 * search.work + 1))))
    best = min(orders, key=lives.peak_bytes)
    peak = lives.peak_bytes(best)
    if peak > lives.least_bytes:
        best, peak = climbed(lives, best, lives.peak_bytes, lives.least_bytes)
    bound, found = _by_peak(search, lives.least_bytes, peak, work=search.work + work)
    if found is not None:
        best, peak = found, lives.peak_bytes(found)
    return LeastPeak(best, peak, min(bound, peak))


def _by_width(search: _Search, width: int) -> tuple[int, ...]:
    """Return the order that the best few states of each length lead to."""
    states = [search.begin()]
    while any(one.count < search.n_steps for one in states):
        least = min(one.count for one in states)
        found: dict[int, _State] = {one.done: one for one in states if one.count > least}
        for state in states:
            for one in search.next(state) if state.count == least else ():
                other = found.get(one.done)
                if other is None or (one.peak, one.live) < (other.peak, other.live):
                    found[one.done] = one
        ranked = sorted(found.values(), key=lambda one: (one.peak, one.live, -one.count))
        states = ranked[:width]
    return min(states, key=lambda one: one.peak).order()


def _by_peak(
    search: _Search, least: int, known: int, *, work: int
) -> tuple[int, tuple[int, ...] | None]:
    """Search by rising peak, and return a lower bound, and an order better than the known peak."""
    if known <= least:
        return known, None
    heap: list[tuple[int, int, int, _State]] = []
    seen: dict[int, int] = {}
    number = itertools.count()  # states have no order of their own

    def push(state: _State) -> None:
        if state.peak < known and seen.get(state.done, known) > state.peak:
            seen[state.done] = state.peak
            heapq.heappush(heap, (state.peak, -state.count, next(number), state))

    push(search.begin())
    while heap:
        peak, _, _, state = heap[0]
        if state.count == search.n_steps:
            return max(least, peak), state.order()
        if search.work > work:
            return max(least, peak), None
        heapq.heappop(heap)
        if seen[state.done] == peak:
            for one in search.next(state):
                push(one)
    return known, None


def climbed(
    lives: Lifetimes,
    order: Sequence[int],
    peak_bytes: Callable[[Sequence[int]], int],
    least_bytes: int,
) -> tuple[tuple[int, ...], int]:
    """Improve an order by small random changes, the same ones each time.

    Args:
        lives: the steps and their values.
        order: the order to begin with.
        peak_bytes: returns the peak of an order.
        least_bytes: the peak at which no change can help.

    Returns:
        An order and its peak.
    """
    n_steps = len(order)
    rng = random.Random(0)
    rank = {step: float(number) for number, step in enumerate(order)}
    best, lowest = tuple(order), peak_bytes(order)
    for _ in range(min(_TRIES, _TRIED_STEPS // n_steps) if n_steps > 1 else 0):
        if lowest <= least_bytes:
            break
        changed = rng.sample(range(n_steps), min(n_steps, rng.choice((1, 1, 2, 4))))
        tried = {**rank, **{step: rng.uniform(-1, n_steps) for step in changed}}
        other = by_rank(lives, tried)
        if (found := peak_bytes(other)) <= lowest:
            rank, best, lowest = tried, other, found
    return best, lowest


def by_rank(lives: Lifetimes, rank: Mapping[int, float]) -> tuple[int, ...]:
    """Return the steps by rising rank, as far as they need not wait for others."""
    waits = [bits.bit_count() for bits in lives.before]
    ready = [(rank[step], step) for step, count in enumerate(waits) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        _, step = heapq.heappop(ready)
        order.append(step)
        for one in lives.readers[step]:
            waits[one] -= 1
            if not waits[one]:
                heapq.heappush(ready, (rank[one], one))
    return tuple(order)


def in_order(graph: Graph, order: Sequence[int]) -> Graph:
    """Return the graph with its nodes in another order, given by their numbers."""
    return replace(graph, nodes=tuple(graph.nodes[number] for number in order))
