"""Coverage of a search by the saturated e-graph, and the rules by which graphs leave it.

A graph is represented if each of its operators is an e-node over the classes of its operands, up to
its outputs, which are then in the classes of the model's outputs. The e-graph does not run all
rules as a search does: equations replace merges of siblings, and some rules run in windows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields

from eqsat_opt.egraph import Saturation
from eqsat_opt.egraph.terms import LEAF, OUT
from eqsat_opt.ir.graph.graph import OPAQUE, Attrs, index_of
from eqsat_opt.lab.search import Budget, Frame, Search, SearchResult, State
from eqsat_opt.lab.search.rewriting.matching import Substitution
from eqsat_opt.lab.search.rewriting.rewriting import RewriteTrial
from eqsat_opt.lab.search.rewriting.terms import INPUT, OUTPUT, WEIGHT, Term, TermGraph, Terms

__all__ = ["Representation", "Represented", "covered_by", "visited"]


@dataclass(frozen=True)
class Representation:
    """The share of a search's graphs that the e-graph represents.

    Attributes:
        graphs: number of graphs that the search has met.
        represented: number of these that the e-graph represents.
        left_by: rule to a number of unrepresented graphs: those where the first substitution that
            leads out of the e-graph is by this rule.
    """

    graphs: int
    represented: int
    left_by: Mapping[str, int]


class Represented:
    """A lookup of graphs in a saturated e-graph."""

    def __init__(self, saturation: Saturation) -> None:
        lowered, eclasses = saturation.lowered, saturation.eclasses
        self._lowered = lowered
        classes = eclasses.term_class.tolist()
        self._leaf = {
            lowered.leaf_names[term.index]: classes[number]
            for number, term in enumerate(lowered.terms)
            if term.op == LEAF
        }
        self._nodes: dict[tuple[str, str, tuple[int, ...]], int] = {}
        for loop in eclasses.loops:
            self._nodes[self._key(loop.op, loop.attrs, loop.children)] = loop.eclass
        for node in range(eclasses.n_nodes):
            key = self._key(eclasses.op[node], eclasses.attrs[node], eclasses.children(node))
            self._nodes[key] = int(eclasses.class_of[node])
        self._roots = tuple(classes[lowered.value[name]] for name in lowered.graph.outputs)

    def _key(
        self, op: str, attrs: Attrs, children: tuple[int, ...]
    ) -> tuple[str, str, tuple[int, ...]]:
        if op == OPAQUE:  # The number of an opaque node is another one in the terms of a search.
            node = self._lowered.opaque[index_of(attrs)]
            return op, repr(node.outputs), children
        return op, repr(attrs), children  # the text is equal where NaN differs from itself

    def has(self, graph: TermGraph, terms: Terms) -> bool:
        """Return whether a graph is represented."""
        found: dict[bytes, int] = {}
        for key in graph.order:
            cls = self._class(terms.known[key], terms, found)
            if cls is not None:
                found[key] = cls
        return tuple(found.get(key, -1) for key in graph.outputs) == self._roots

    def _class(self, term: Term, terms: Terms, found: Mapping[bytes, int]) -> int | None:
        if term.op in (INPUT, WEIGHT):
            return self._leaf.get(terms.leaf_name(term))
        if any(key not in found for key in term.operands):
            return None
        children = tuple(found[key] for key in term.operands)
        if term.op == OPAQUE:
            return self._nodes.get((OPAQUE, repr(terms.opaque_node(term).outputs), children))
        op = OUT if term.op == OUTPUT else term.op
        return self._nodes.get((op, repr(term.attrs), children))


@dataclass
class _Recorded(Frame):
    """A frame that remembers every graph that a search keeps."""

    seen: dict[bytes, State] = field(default_factory=dict, kw_only=True)

    def apply(
        self, state: State, substitution: Substitution, trial: RewriteTrial | None = None
    ) -> State:
        """Apply the substitution as `Frame` does, and remember the resulting graph."""
        found = super().apply(state, substitution, trial)
        self.seen.setdefault(found.key, found)
        return found


def visited(
    search: Search, frame: Frame, budget: Budget, seed: int = 0
) -> tuple[SearchResult, Terms, tuple[State, ...]]:
    """Run a search; return its result, its terms and the distinct graphs that it kept.

    The original is the first of the graphs.
    """
    given = {one.name: getattr(frame, one.name) for one in fields(Frame) if one.init}
    recorded = _Recorded(**given)
    recorded.seen[recorded.start.key] = recorded.start
    result = search.run(recorded, budget, seed)
    return result, recorded.terms, tuple(recorded.seen.values())


def covered_by(saturation: Saturation, terms: Terms, states: Iterable[State]) -> Representation:
    """Count the graphs that an e-graph represents, and the rules by which the others leave it."""
    known = Represented(saturation)
    answers: dict[bytes, bool] = {}

    def has(state: State) -> bool:
        if state.key not in answers:
            answers[state.key] = known.has(state.graph, terms)
        return answers[state.key]

    left: Counter[str] = Counter()
    count = 0
    for state in states:
        count += 1
        if has(state):
            continue
        one = state
        while one.parent is not None and not has(one.parent):
            one = one.parent
        left[one.step.rule if one.step is not None else "the model"] += 1
    return Representation(count, count - left.total(), dict(left.most_common()))
