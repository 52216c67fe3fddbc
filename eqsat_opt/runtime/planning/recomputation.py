"""Values that are computed twice, so that they need no memory in between.

A graph of a training step keeps values of the forward part for the backward part. Between the uses
of such a value a chosen few can be dropped, and computed again before the first use after the gap
(Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost). The operators run in
the order of the graph, or in one that frees memory early.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from eqsat_opt.errors import PlanError
from eqsat_opt.ir.graph.graph import Graph, Node
from eqsat_opt.ir.ops import get_op, is_known
from eqsat_opt.ir.values.dims import literal
from eqsat_opt.ir.values.types import require_static
from eqsat_opt.runtime.memory.orders import Lifetimes, in_order, least_peak

__all__ = ["Recomputation", "RecomputationFront", "recomputation_front", "with_recomputation"]

_EXACT = 10
"""Candidates up to which every choice of them is tried."""

_TRIED = 6
"""Candidates that the search for a large graph tries in each round, the largest ones."""

_ROUNDS = 200

_LESS = 0.995
"""Share of the memory of one choice from which on another one counts as better."""

_AGAIN = "__again"
"""The end of the name of a value that is computed again."""

_BALANCE = 10
"""Floating point operations that take a processor as long as moving a byte."""


@dataclass(frozen=True)
class Recomputation:
    """Values to compute twice.

    Attributes:
        values: their names.
        peak_bytes: the most bytes of values that are live at once.
        traffic_bytes: bytes that the additional operators read and write.
        flops: their floating point operations.
        graph: the graph that they are values of, in the order in which it is to run.
    """

    values: frozenset[str]
    peak_bytes: int
    traffic_bytes: int
    flops: int
    graph: Graph = field(repr=False, compare=False)

    @property
    def work(self) -> float:
        """The additional work, in bytes moved or as much time as these."""
        return self.traffic_bytes + self.flops / _BALANCE


@dataclass(frozen=True)
class RecomputationFront:
    """Choices of which each takes noticeably less memory than those with less additional work.

    Attributes:
        choices: by rising additional work; the first computes nothing twice.
        lower_bound_bytes: no order of these operators, and no repetition of any, needs less.
        order_bound_bytes: without repetition no order needs less.
        candidates: number of values that may be computed twice.
        is_exact: whether every choice of candidates was tried.
    """

    choices: tuple[Recomputation, ...]
    lower_bound_bytes: int
    order_bound_bytes: int
    candidates: int
    is_exact: bool

    def __str__(self) -> str:
        found = "all" if self.is_exact else "some"
        lines = [
            f"at least {self.lower_bound_bytes / 1e6:.3g} MB in any order, "
            f"{self.order_bound_bytes / 1e6:.3g} MB if nothing is computed twice; {found} choices "
            f"of {self.candidates} values to compute twice",
            "  peak MB  of the first  dropped  additional MB moved  and MFLOP",
        ]
        first = self.choices[0].peak_bytes
        lines += [
            f"{one.peak_bytes / 1e6:9.4g}  {one.peak_bytes / max(first, 1):12.1%}  "
            f"{len(one.values):7}  {one.traffic_bytes / 1e6:19.4g}  {one.flops / 1e6:9.4g}"
            for one in self.choices
        ]
        return "\n".join(lines)

    def within(self, limit_bytes: float) -> Iterator[Recomputation]:
        """Yield the choices within a limit, those of least additional work first."""
        return (one for one in self.choices if one.peak_bytes <= limit_bytes)

    def failure(self, limit_bytes: float) -> PlanError:
        """Return the error for a limit that no plan keeps."""
        least = min(one.peak_bytes for one in self.choices)
        return PlanError(
            f"no plan within {limit_bytes:.6g} B was found: values of the least choice found take "
            f"{least} B, and none can take less than {self.lower_bound_bytes} B; raise the limit "
            "or lower the batch size"
        )


class _Sequence:
    """A graph of literal sizes as a sequence of operators.

    Attributes:
        graph: the graph.
        candidates: values that may be computed twice, to the place of the first use after the gap.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._sizes = {
            name: 0 if name in graph.constants else graph.static_type(name).bytes
            for name in {*graph.inputs, *(n for node in graph.nodes for n in node.outputs)}
        }
        uses: dict[str, list[int]] = {}
        for place, node in enumerate(graph.nodes):
            for name in dict.fromkeys((*node.outputs, *node.inputs)):
                uses.setdefault(name, []).append(place)
        self._uses = uses
        begins = {
            node.output: self._after_gap(node.output)
            for node in graph.nodes
            if self._may_repeat(node)
        }
        self.candidates = {name: begin for name, begin in begins.items() if begin is not None}

    def _may_repeat(self, node: Node) -> bool:
        return is_known(node.op) and node.output not in self.graph.outputs

    def _after_gap(self, name: str) -> int | None:
        places = self._uses[name]
        width, place = max(
            ((after - before, after) for before, after in itertools.pairwise(places)),
            default=(0, 0),
        )
        return place if width > 2 else None

    def nodes(self, chosen: Iterable[str]) -> Iterator[tuple[Node, bool]]:
        """Yield the operators in order, with those that are repeated, and whether each is one."""
        begins = {name: self.candidates[name] for name in chosen}
        made: dict[str, str] = {}
        waiting: list[tuple[Node, bool]] = []

        def at(name: str, place: int, *, repeats: bool = False) -> str:
            is_dropped = name in begins and place >= begins[name]
            # An operand that nothing else keeps is computed again too, back to what is kept.
            if not is_dropped and not (repeats and self._is_gone(name, place)):
                return name
            if name not in made:
                node = self.graph.producers[name]
                inputs = tuple(at(one, place, repeats=True) for one in node.inputs)
                made[name] = f"{name}{_AGAIN}"
                waiting.append((replace(node, inputs=inputs, outputs=(made[name],), name=""), True))
            return made[name]

        for place, node in enumerate(self.graph.nodes):
            inputs = tuple(at(name, place) for name in node.inputs)
            yield from waiting
            waiting.clear()
            yield (node if inputs == node.inputs else replace(node, inputs=inputs)), False

    def _is_gone(self, name: str, place: int) -> bool:
        node = self.graph.producers.get(name)
        return node is not None and self._may_repeat(node) and self._uses[name][-1] < place

    def bytes_of(self, name: str) -> int:
        """Return the bytes of a value or of its repetition; constants are no part of the arena."""
        return self._sizes.get(name.removesuffix(_AGAIN), self._sizes.get(name, 0))

    def choice(self, chosen: frozenset[str]) -> tuple[Recomputation, int]:
        """Return a choice with its peak and additional work, and the place of the peak."""
        nodes = list(self.nodes(chosen))
        last: dict[str, int] = dict.fromkeys(self.graph.inputs, -1)
        for place, (node, _) in enumerate(nodes):
            last.update(dict.fromkeys((*node.inputs, *node.outputs), place))
        last.update(dict.fromkeys(self.graph.outputs, len(nodes)))
        dying: dict[int, list[str]] = {}
        for name, place in last.items():
            dying.setdefault(place, []).append(name)
        live = peak = sum(map(self.bytes_of, self.graph.inputs))
        where = original = traffic = flops = 0
        for place, (node, is_repeated) in enumerate(nodes):
            live += sum(map(self.bytes_of, node.outputs))
            if live > peak:
                peak, where = live, original
            live -= sum(map(self.bytes_of, dying.get(place, ())))
            if is_repeated:
                traffic += sum(map(self.bytes_of, (*node.inputs, *node.outputs)))
                flops += self._flops(node)
            else:
                original += 1
        return Recomputation(chosen, peak, traffic, flops=flops, graph=self.graph), where

    def _flops(self, node: Node) -> int:
        types = self.graph.types
        names = [name.removesuffix(_AGAIN) for name in (*node.inputs, node.output)]
        *operands, result = (require_static(types[name]) for name in names)
        return literal(get_op(node.op).flops(operands, result, dict(node.attrs)))

    def lower_bound_bytes(self) -> int:
        """Return bytes that are live at once in any order: those of one operator, or of an end."""
        own = [sum(map(self.bytes_of, {*node.inputs, *node.outputs})) for node in self.graph.nodes]
        ends = (self.graph.inputs, dict.fromkeys(self.graph.outputs))
        return max([*own, *(sum(map(self.bytes_of, end)) for end in ends)])

    def across(self, place: int, chosen: frozenset[str]) -> list[str]:
        """Return candidates that are live at a place in their gap, the largest first."""
        found = [
            name
            for name, begin in self.candidates.items()
            if name not in chosen and self._gap_begin(name, begin) < place < begin
        ]
        return sorted(found, key=self.bytes_of, reverse=True)

    def _gap_begin(self, name: str, begin: int) -> int:
        return max(place for place in self._uses[name] if place < begin)


def recomputation_front(graph: Graph) -> RecomputationFront:
    """Return the choices between memory and additional work for a graph of literal sizes.

    Every choice is tried for few candidates. For many, each round drops one more value that is live
    at the peak: the one that lowers it most for its work.
    """
    lives = Lifetimes.of(graph)
    given = tuple(range(len(graph.nodes)))
    least = least_peak(lives, [given])
    ordered = {given, least.order} if least.peak_bytes < lives.peak_bytes(given) else {given}
    sequences = [_Sequence(in_order(graph, order)) for order in sorted(ordered)]
    candidates = max(len(one.candidates) for one in sequences)
    is_exact = candidates <= _EXACT
    search = _all if is_exact else _greedy
    found = itertools.chain.from_iterable(map(search, sequences))
    front: list[Recomputation] = []
    for one in sorted(found, key=lambda one: (one.work, one.peak_bytes, len(one.values))):
        if not front or one.peak_bytes < _LESS * front[-1].peak_bytes:
            front.append(one)
    bound = sequences[0].lower_bound_bytes()
    return RecomputationFront(
        tuple(front),
        lower_bound_bytes=bound,
        order_bound_bytes=max(bound, least.lower_bound_bytes),
        candidates=candidates,
        is_exact=is_exact,
    )


def _all(sequence: _Sequence) -> Iterator[Recomputation]:
    names = list(sequence.candidates)
    for count in range(len(names) + 1):
        for chosen in itertools.combinations(names, count):
            yield sequence.choice(frozenset(chosen))[0]


def _greedy(sequence: _Sequence) -> Iterator[Recomputation]:
    present, place = sequence.choice(frozenset())
    yield present
    for _ in range(_ROUNDS):
        tried = [
            sequence.choice(present.values | {name})
            for name in sequence.across(place, present.values)[:_TRIED]
        ]
        yield from (one for one, _ in tried)
        if not tried:
            return

        def worth(pair: tuple[Recomputation, int], before: Recomputation = present) -> float:
            one = pair[0]
            saved = before.peak_bytes - one.peak_bytes
            return saved / max(one.work - before.work, 1.0)

        # Several values may have to go before a peak at several places falls, so the search goes
        # on where none lowers it.
        present, place = max(tried, key=worth)


def with_recomputation(choice: Recomputation) -> Graph:
    """Return an equal graph, in the order in which it is to run, that computes values twice."""
    graph, sequence = choice.graph, _Sequence(choice.graph)
    nodes = tuple(node for node, _ in sequence.nodes(choice.values))
    types = dict(graph.types)
    for node in nodes:
        for name in node.outputs:
            types.setdefault(name, graph.types[name.removesuffix(_AGAIN)])
    return replace(graph, nodes=nodes, types=types)
