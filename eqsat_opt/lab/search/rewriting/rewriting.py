"""Evaluation and application of rewrites of one graph.

A rewrite gives new keys to its roots and to all that reads them. The cost of the new graph follows
from the terms that the rewrite adds and those that nothing reads any more; the other terms only get
new keys. So a trial builds no graph; that is done when a search returns to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from eqsat_opt.ir.graph.canonical import KEY_BYTES, graph_key
from eqsat_opt.lab.search.rewriting.matching import Substitution
from eqsat_opt.lab.search.rewriting.terms import Term, TermGraph, Terms

__all__ = ["RewriteTrial", "Rewritten", "Workbench", "rewritten"]

_REMEMBERED = 1_000_000
"""Entries of cached cones, so that a graph of thousands of operators does not fill the memory."""


@dataclass(frozen=True, slots=True)
class RewriteTrial:
    """The evaluation of a graph after a rewrite.

    Attributes:
        key: canonical key.
        value: objective value.
        size: number of operators that run.
    """

    key: bytes
    value: float
    size: int


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A graph after a rewrite.

    Attributes:
        graph: the graph.
        new: those of its terms that were not known before.
        moved: key before to key after, of the roots and of all that depends on them.
        consumed: keys of the replaced roots.
    """

    graph: TermGraph
    new: Mapping[bytes, Term]
    moved: Mapping[bytes, bytes]
    consumed: tuple[bytes, ...] = ()


def rewritten(terms: Terms, graph: TermGraph, rewrite: Substitution) -> Rewritten:
    """Return the graph after ``rewrite``; its terms are not added to ``terms``."""
    known = terms.known
    new = {term.key: term for term in rewrite.made}
    moved = dict(zip(rewrite.consumed, rewrite.results, strict=True))
    for key in graph.order:
        term = known[key]
        if key not in moved and any(operand in moved for operand in term.operands):
            keys = (moved.get(operand, operand) for operand in term.operands)
            other = terms.moved(term, [known.get(k) or new[k] for k in keys])
            moved[key] = other.key
            new.setdefault(other.key, other)
    outputs = tuple(moved.get(key, key) for key in graph.outputs)
    result = terms.graph(outputs, new)
    added = {key: new[key] for key in result.order if key in new and key not in known}
    return Rewritten(result, added, moved, rewrite.consumed)


class Workbench:
    """One graph with the indices that make trials of rewrites cheap."""

    def __init__(self, terms: Terms, graph: TermGraph) -> None:
        self.graph = graph
        self._terms = terms
        self._valuation = terms.prices.valuation
        self._live = [terms.known[key] for key in graph.order]
        self._keys = list(graph.order)
        self._place = {key: i for i, key in enumerate(graph.order)}
        place = self._place
        self._operands = [tuple(place[c] for c in term.operands) for term in self._live]
        self._operator = [term.operator for term in self._live]
        self._outputs = [place[key] for key in graph.outputs]
        self._readers: list[list[int]] = [[] for _ in self._live]
        self._uses = [0] * len(self._live)
        for i, operands in enumerate(self._operands):
            for c in operands:
                self._uses[c] += 1
                if not self._readers[c] or self._readers[c][-1] != i:
                    self._readers[c].append(i)
        for i in self._outputs:
            self._uses[i] += 1
        self._until = self._chains() if self._valuation.needs_path else []
        self._cones: dict[tuple[int, ...], list[int]] = {}
        self._room = _REMEMBERED

    def apply(self, rewrite: Substitution) -> TermGraph:
        """Return the graph after ``rewrite``, and add its terms to those of the search."""
        made = rewritten(self._terms, self.graph, rewrite)
        self._terms.remember(made.new.values())
        return made.graph

    def attempt(self, rewrite: Substitution) -> RewriteTrial:
        """Compute key, cost and size of the graph after ``rewrite``, without building it."""
        if rewrite.is_plain:
            trial = self._moved(rewrite)
            if trial is not None:
                return trial
        graph = rewritten(self._terms, self.graph, rewrite).graph
        return RewriteTrial(graph.key, self._valuation.value(graph.costs, graph.length), graph.size)

    def _chains(self) -> list[int]:
        """Return the length of the longest chain that ends at each position."""
        until: list[int] = []
        for term, operands in zip(self._live, self._operands, strict=True):
            until.append(term.row.length + max([until[c] for c in operands], default=0))
        return until

    # Terms that a rewrite moves -------------------------------------------------------------------

    def _cone(self, roots: tuple[int, ...]) -> list[int]:
        """Return the positions of all terms that depend on the roots, operands first."""
        cone = self._cones.get(roots)
        if cone is None:
            readers = self._readers
            seen: set[int] = set()
            stack = list(roots)
            while stack:
                for i in readers[stack.pop()]:
                    if i not in seen:
                        seen.add(i)
                        stack.append(i)
            cone = sorted(seen.difference(roots))
            self._room -= len(cone)
            if self._room >= 0:
                self._cones[roots] = cone
        return cone

    def _moved(self, rewrite: Substitution) -> RewriteTrial | None:
        """Return the trial where no two terms become equal; ``None`` where some do."""
        place = self._place
        roots = tuple([place[key] for key in rewrite.consumed])
        if self._has_doubles(roots, rewrite.results):
            return None
        keys = self._keys.copy()
        for i, key in zip(roots, rewrite.results, strict=True):
            keys[i] = key
        operands, operators = self._operands, self._operator
        cone = self._cone(roots)
        fresh = []
        for i in cone:
            of = operands[i]
            if len(of) == 2:
                data = operators[i] + keys[of[0]] + keys[of[1]]
            else:
                data = operators[i] + b"".join([keys[c] for c in of])
            keys[i] = key = blake2b(data, digest_size=KEY_BYTES).digest()
            fresh.append(key)
        distinct = set(fresh)
        if len(distinct) < len(fresh) or not distinct.isdisjoint(place):
            return None
        made = {term.key: term for term in rewrite.made}
        if not distinct.isdisjoint(made):
            return None
        costs, size = self._balance(roots, rewrite.results, made)
        length = self._length(roots, cone, rewrite.results, made) if self._until else 0
        return RewriteTrial(
            graph_key([keys[i] for i in self._outputs]),
            self._valuation.value(costs, length),
            size,
        )

    def _length(
        self,
        roots: Sequence[int],
        cone: Sequence[int],
        results: Sequence[bytes],
        made: Mapping[bytes, Term],
    ) -> int:
        """Return the longest chain's length after a rewrite; only moved terms are recomputed."""
        until, place, live, operands = self._until.copy(), self._place, self._live, self._operands
        born: dict[bytes, int] = {}

        def of(key: bytes) -> int:
            return until[place[key]] if key in place else born[key]

        for key, term in made.items():
            if key not in place:
                born[key] = term.row.length + max(map(of, term.operands), default=0)
        for i, key in zip(roots, results, strict=True):
            until[i] = of(key)
        for i in cone:
            until[i] = live[i].row.length + max([until[c] for c in operands[i]])
        return max([until[i] for i in self._outputs])

    def _has_doubles(self, roots: Sequence[int], results: Sequence[bytes]) -> bool:
        """Return whether two operands of an operator become one, so that it reads fewer bytes."""
        if len(set(results)) < len(results):
            return True
        for root, key in zip(roots, results, strict=True):
            other = self._place.get(key)
            if other is not None and not set(self._readers[root]).isdisjoint(self._readers[other]):
                return True
        return False

    def _balance(
        self, roots: Sequence[int], results: Sequence[bytes], made: dict[bytes, Term]
    ) -> tuple[tuple[int, ...], int]:
        """Return costs and size of the graph with added terms and without those no longer read."""
        place, live = self._place, self._live
        gained: dict[int, int] = {}
        rows = [self.graph.costs]
        size = self.graph.size
        born: set[bytes] = set()
        stack = list(results)
        while stack:
            key = stack.pop()
            i = place.get(key)
            if i is not None:
                gained[i] = gained.get(i, 0) + 1
            elif key not in born:
                born.add(key)
                term = made[key]
                rows.append(term.row.costs)
                size += term.runs
                stack += term.operands
        lost = []
        dead = set(roots)
        dying = list(roots)
        while dying:
            i = dying.pop()
            lost.append(live[i].row.costs)
            size -= live[i].runs
            for c in self._operands[i]:
                gained[c] = gained.get(c, 0) - 1
                if c not in dead and self._uses[c] + gained[c] == 0:
                    dead.add(c)
                    dying.append(c)
        gain = map(sum, zip(*rows, strict=True))
        loss = map(sum, zip(*lost, strict=True))
        return tuple([more - less for more, less in zip(gain, loss, strict=True)]), size
