"""The graphs of a page: operators before and after a search, what changed, and what kernels cost.

A browser lays them out. Large graphs are drawn around their changes, as far as there is room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from eqsat_opt.common.text import shortened
from eqsat_opt.cost.quotes import Quote, Source
from eqsat_opt.ir.graph.graph import OPAQUE, Graph, Node
from eqsat_opt.ir.graph.plain_names import plain_operator, plain_sizes
from eqsat_opt.runtime.backends.protocol import Offer
from eqsat_opt.select.choosing.forms import MadeValue
from eqsat_opt.select.choosing.pricing import PricedCandidates
from eqsat_opt.select.proposal import Proposal
from eqsat_opt.select.rebuilding.assignment import PlacedGraph

__all__ = ["DrawnGraph", "DrawnNode", "drawn_graphs"]

MOST_NODES = 250
"""Most operators of a graph that are drawn, for a layout in about a second."""

_SOURCES: Mapping[Source, str] = {
    "measured": "measured here",
    "recorded": "recorded on the device",
    "analytic": "by the profile of the device",
    "expected": "expected from measured kernels of the kind",
    "bound": "a lower bound by its operations and bytes",
}
"""Sources of prices in words."""

_LONGEST = 120
"""Characters of the longest name."""


@dataclass(frozen=True)
class DrawnNode:
    """An operator, an input or an output.

    Attributes:
        id: its number in the graph.
        op: operator in plain words, or the name of an input or output.
        kind: ``kept``, ``new`` (made by rules), ``gone`` (not in the other graph), ``input`` or
            ``output``.
        name: name of the node.
        type: element type and shape of the result.
        reads: names of the operands, with types.
        rules: the rules that made it.
        kernel: number of the launch that computes it; ``None`` if none is priced.
        time_us: price of that launch, µs.
        source: source of the price in words.
    """

    id: int
    op: str
    kind: str
    name: str
    type: str
    reads: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    kernel: int | None = None
    time_us: float | None = None
    source: str = ""


@dataclass(frozen=True)
class DrawnGraph:
    """A graph, or the part of it that is drawn.

    Attributes:
        nodes: operators in running order, inputs first and outputs last.
        edges: pairs of numbers of nodes: who makes a value, and who reads it.
        hidden: number of operators that are not drawn.
    """

    nodes: tuple[DrawnNode, ...]
    edges: tuple[tuple[int, int], ...]
    hidden: int


def drawn_graphs(proposal: Proposal, after: PlacedGraph) -> tuple[DrawnGraph, DrawnGraph]:
    """Return the normalised original and another graph of a search, with what differs marked.

    Args:
        proposal: the search.
        after: one of its graphs.
    """
    before = proposal.placed[-1]
    kept = {mark for node in after.graph.nodes if not node.rules for mark in _marks(node)}
    choice = proposal.choice
    return (
        _drawn(
            before,
            _Prices(choice.own, choice.prices),
            {n for n, node in enumerate(before.graph.nodes) if kept.isdisjoint(_marks(node))},
            "gone",
        ),
        _drawn(
            after,
            _Prices(choice.priced, choice.prices),
            {number for number, node in enumerate(after.graph.nodes) if node.rules},
            "new",
        ),
    )


def _marks(node: Node) -> Iterator[str]:
    """Yield the marks of a node that stays: its results, and its nodes in the model."""
    yield from (f"value {name}" for name in node.outputs if name)
    yield from (f"node {name}" for name in node.sources)


_Launch = tuple[int | None, float | None, str]

_UNPRICED: _Launch = (None, None, "")


class _Prices:
    """The launch of each value of a placed graph, and its price."""

    def __init__(self, priced: PricedCandidates, prices: Mapping[Offer, Quote]) -> None:
        self._prices = prices
        self._kernels = {
            id(item): kernel
            for item, kernel in zip(priced.candidates.items, priced.kernels, strict=True)
        }

    def of(self, placed: PlacedGraph) -> dict[str, _Launch]:
        """Return for a value its launch, the price of that in µs, and the source of the price."""
        made: dict[int, MadeValue] = {}
        for one in placed.placed:
            if isinstance(one, MadeValue):
                made.setdefault(one.cls, one)
        found: dict[str, _Launch] = {}
        for name, cls in placed.raised.kernel_of.items():
            unit = made.get(cls)
            if unit is not None and unit.run.candidate.kind == "part":
                unit = made.get(unit.run.candidate.reads[0])
            kernel = None if unit is None else self._kernels.get(id(unit.run.candidate))
            if unit is None or kernel is None:
                continue
            quote = self._prices.get(Offer(kernel, unit.run.backend, unit.run.implementation))
            if quote is not None:
                found[name] = (unit.cls, quote.time_us, _SOURCES.get(quote.source, quote.source))
        return found


def _drawn(placed: PlacedGraph, prices: _Prices, marked: set[int], kind: str) -> DrawnGraph:
    graph, launch_of = placed.graph, prices.of(placed)
    shown = _shown(graph, marked)
    ids: dict[str, int] = {}
    nodes: list[DrawnNode] = []
    edges: list[tuple[int, int]] = []

    def add(op: str, kind: str, name: str, type_: str, node: Node | None = None) -> int:
        launch, time_us, source = launch_of.get(node.outputs[0], _UNPRICED) if node else _UNPRICED
        nodes.append(
            DrawnNode(
                id=len(nodes),
                op=shortened(op, _LONGEST),
                kind=kind,
                name=shortened(name, _LONGEST),
                type=shortened(type_, _LONGEST),
                reads=()
                if node is None
                else tuple(shortened(_typed(graph, n), _LONGEST) for n in node.reads),
                rules=() if node is None else node.rules,
                kernel=launch,
                time_us=time_us,
                source=source,
            )
        )
        return len(nodes) - 1

    read = {name for number in shown for name in graph.nodes[number].reads}.union(graph.outputs)
    for name in graph.inputs:
        if name in read:
            ids[name] = add(name, "input", name, _type(graph, name))
    for number in sorted(shown):
        node = graph.nodes[number]
        op = node.payload.op_type if node.op == OPAQUE else plain_operator(node.op)
        own = add(
            op,
            kind if number in marked else "kept",
            node.name or node.outputs[0],
            ", ".join(_type(graph, name) for name in node.outputs if name),
            node,
        )
        edges += [(ids[name], own) for name in dict.fromkeys(node.reads) if name in ids]
        ids.update(dict.fromkeys(filter(None, node.outputs), own))
    for name in graph.outputs:
        if name in ids:
            edges.append((ids[name], add(name, "output", name, _type(graph, name))))
    return DrawnGraph(tuple(nodes), tuple(edges), len(graph.nodes) - len(shown))


def _shown(graph: Graph, marked: set[int]) -> set[int]:
    """Return the nodes to draw: all if there is room, else the marked ones and what is near."""
    if len(graph.nodes) <= MOST_NODES:
        return set(range(len(graph.nodes)))
    number_of = {name: i for i, node in enumerate(graph.nodes) for name in node.outputs if name}
    near: list[set[int]] = [set() for _ in graph.nodes]
    for number, node in enumerate(graph.nodes):
        for name in node.reads:
            if name in number_of:
                near[number].add(number_of[name])
                near[number_of[name]].add(number)
    found = set(sorted(marked)[:MOST_NODES])
    waiting = deque(sorted(found) or range(1))
    found.update(waiting)
    while waiting:
        for other in sorted(near[waiting.popleft()] - found):
            if len(found) >= MOST_NODES:
                return found
            found.add(other)
            waiting.append(other)
    return found


def _type(graph: Graph, name: str) -> str:
    return plain_sizes(str(graph.types.get(name, "")))


def _typed(graph: Graph, name: str) -> str:
    constant = "constant " if name in graph.constants else ""
    return f"{constant}{name}: {_type(graph, name)}"
