"""All graphs that rules reach, part by part where no substitution spans two parts.

Independent parts multiply: two parts of 100 graphs each have 10,000 together, but if a sum is
minimised, the 200 graphs of the parts suffice. Whether parts are independent depends on all that
they may become, so parts are joined as soon as something that spans two is met. When all graphs of
each part are known, each with all else unchanged, everything that a part may make of a value is one
class, as in an e-graph (Willsey et al., POPL 2021). A match of a rule in any combination of the
parts' graphs is a match among these classes. If no match spans two parts, the graphs that the rules
reach are all combinations.

A cost is the sum over parts if no part drops a value of another or makes an equal one, and, with
fused kernels, if no kernel can reach from one part into another. All this is checked too.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat_opt.common.union_find import UnionFind
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.lab.search.frame import Frame
from eqsat_opt.lab.search.pricing.kernel_ways import has_siblings
from eqsat_opt.lab.search.rewriting.matching import Substitution
from eqsat_opt.lab.search.rewriting.state import State
from eqsat_opt.lab.search.rewriting.terms import Term
from eqsat_opt.lab.search.running import Run
from eqsat_opt.rules.bindings import holds
from eqsat_opt.rules.patterns import Binding, Enode, is_a, operators_of, settled
from eqsat_opt.rules.rule import Rule, directed
from eqsat_opt.rules.term import MAP, Apply, Var
from eqsat_opt.rules.term import Term as Pattern

__all__ = ["PartGraphs", "is_separable", "search_parts"]


def is_separable(frame: Frame) -> bool:
    """Return whether a graph costs the sum of the costs of its parts."""
    return frame.level != "streams" and frame.prices.valuation.is_sum


@dataclass(frozen=True)
class _Met:
    """A graph, and the terms that compute the values of the original there.

    Attributes:
        state: the graph.
        order: its terms, operands first.
        image: value of the original, by key, to the term that replaces it, dead or live.
        origin: term that runs to the value of the original that it computes.
        doubles: pairs of a term and a value of the original, where the term computes a second value
            of the original or is known at compile time in place of one.
    """

    state: State
    order: tuple[bytes, ...]
    image: Mapping[bytes, bytes]
    origin: Mapping[bytes, bytes]
    doubles: tuple[tuple[bytes, bytes], ...]

    @classmethod
    def of(cls, state: State, image: Mapping[bytes, bytes], known: Mapping[bytes, Term]) -> _Met:
        """Build the record of a graph whose image of the original's values is known."""
        order = state.graph.order
        live, origin, doubles = set(order), dict[bytes, bytes](), []
        for value, now in image.items():
            if now in origin or (now in live and not known[now].runs):
                doubles.append((now, value))
            elif now in live:
                origin[now] = value
        return cls(state, order, image, origin=origin, doubles=tuple(doubles))

    def after(self, state: State, known: Mapping[bytes, Term]) -> _Met:
        """Return the record of the graph after one more substitution."""
        moved = state.moved
        image = {value: moved.get(now, now) for value, now in self.image.items()}
        return _Met.of(state, image, known)


@dataclass(frozen=True)
class PartGraphs:
    """All graphs in which one part alone has changed.

    Attributes:
        operators: operators of the part, by their keys in the original.
        graphs: the graphs, by key, the original first.
    """

    operators: frozenset[bytes]
    graphs: Mapping[bytes, _Met]

    @property
    def best(self) -> State:
        """The cheapest graph."""
        found = (one.state for one in self.graphs.values() if one.state.is_result)
        return min(found, key=lambda one: one.value)

    @property
    def largest(self) -> int:
        """The largest number of operators that run in a graph."""
        return max(one.state.size for one in self.graphs.values())


def search_parts(run: Run, growth: float) -> list[PartGraphs]:
    """Visit all graphs of every part; the run remembers the best whole graph.

    Args:
        run: the run of the search; when its budget is spent, its exception ends this function.
        growth: graphs with at least this many times as many operators as the original are dropped.

    Returns:
        The parts. Any combination of their graphs is a graph that the rules reach.
    """
    start, known = run.frame.start, run.frame.terms.known
    running = [key for key in start.graph.order if known[key].runs]
    groups = UnionFind[bytes]()  # operators of the original that belong to one part
    searched: dict[frozenset[bytes], PartGraphs] = {}
    while True:
        parts = []
        for operators in map(frozenset, groups.classes(running)):
            part = searched.get(operators) or _all_of(run, operators, groups, growth)
            if part is None:
                break
            searched[operators] = part
            parts.append(part)
        else:
            classes = _Classes(run, parts)
            joined = [groups.join(one) for one in classes.couplings(groups)]
            if any(joined):
                continue
            if _combined(run, parts, classes):
                return parts
            groups.join(key for part in parts for key in part.operators)


def _all_of(
    run: Run, operators: frozenset[bytes], groups: UnionFind[bytes], growth: float
) -> PartGraphs | None:
    """Return all graphs of a part; ``None`` if a substitution joins it with other parts.

    Cheap graphs come first, so that a budget that does not last yields good ones.
    """
    known, start = run.frame.terms.known, run.frame.start
    own = groups.find(next(iter(operators)))
    first = _Met.of(start, {key: key for key in start.graph.order if known[key].runs}, known)
    met, waiting = {start.key: first}, [(start.value, 0, first)]
    while waiting:
        _, _, one = heapq.heappop(waiting)
        for step in run.substitutions(one.state):
            owners = {
                groups.find(one.origin[key]) if key in one.origin else own
                for key in step.matched
                if known[key].runs
            }
            if own not in owners:
                continue
            if groups.join(owners):
                return None
            trial = run.attempt(one.state, step)
            if trial.size >= growth * start.size:
                run.pruned += 1
            elif trial.key in met:
                run.duplicates += 1
            else:
                found = one.after(run.apply(one.state, step, trial), known)
                met[trial.key] = found
                heapq.heappush(waiting, (trial.value, len(met), found))
        one.state.forget()
    return PartGraphs(operators, met)


def _combined(run: Run, parts: Sequence[PartGraphs], classes: _Classes) -> bool:
    """Apply the best graph of each part; return whether that is possible at the expected cost.

    It may fail: which of two computed weights comes first depends on the whole graph.
    """
    known, start = run.frame.terms.known, run.frame.start
    now = parts[0].graphs[start.key] if parts else None
    for part in parts:
        for before, step in _steps(part):
            assert now is not None
            wanted = step.number, classes.site(before, step)
            chosen = next(
                (
                    one
                    for one in run.frame.substitutions(now.state)
                    if (one.number, classes.site(now, one)) == wanted
                ),
                None,
            )
            if chosen is None:
                return False
            now = now.after(run.apply(now.state, chosen), known)
    expected = start.value + math.fsum(part.best.value - start.value for part in parts)
    return now is None or math.isclose(now.state.value, expected, rel_tol=1e-9)


def _steps(part: PartGraphs) -> list[tuple[_Met, Substitution]]:
    """Return the steps to the best graph of a part, each with the graph before it."""
    found, state = [], part.best
    while state.parent is not None and state.step is not None:
        found.append((part.graphs[state.parent.key], state.step))
        state = state.parent
    return found[::-1]


# Dependences between parts ------------------------------------------------------------------------

_Way = tuple[bytes, tuple[int, ...]]
"""An operator on classes."""

_NONE = -1
"""The class of a term that no part makes."""


class _Classes:
    """The values that the graphs of all parts compute, as classes of interchangeable terms.

    A value of the original is one class, whatever term computes it. A new term is identified by its
    operator and the classes of its operands.
    """

    def __init__(self, run: Run, parts: Sequence[PartGraphs]) -> None:
        self._frame, self._parts, self._tick = run.frame, parts, run.tick
        self._known = run.frame.terms.known
        self._number: dict[bytes | _Way, int] = {}
        self._joined = UnionFind[int]()
        self._term: list[Term] = []  # one term of each class
        self._owner: dict[int, bytes] = {}  # an operator of the part that makes a class that runs
        self._found: dict[tuple[int, _Way], Term] = {}
        self._met = [
            self._classes(one, next(iter(part.operators)))
            for part in parts
            for one in part.graphs.values()
        ]
        graphs = [one for part in parts for one in part.graphs.values()]
        for one, classes in zip(graphs, self._met, strict=True):
            for now, value in one.doubles:
                self._joined.join((classes[now], self._number[value]))
        while self._close():
            pass
        tops = [self._joined.find(number) for number in range(len(self._term))]
        self._ways: dict[int, dict[_Way, Term]] = {top: {} for top in tops}
        self._owners: dict[int, set[bytes]] = {top: set() for top in tops}
        self._readers: dict[int, set[int]] = {top: set() for top in tops}
        for (number, (operator, operands)), term in self._found.items():
            inside, own = tuple(map(self._joined.find, operands)), self._joined.find(number)
            self._ways[own][operator, inside] = term
            for operand in inside:
                self._readers[operand].add(own)
        for number, owner in self._owner.items():
            self._owners[self._joined.find(number)].add(owner)

    def _new(self, name: bytes | _Way, term: Term) -> int:
        number = self._number.setdefault(name, len(self._term))
        if number == len(self._term):
            self._term.append(term)
        return number

    def _classes(self, one: _Met, owner: bytes) -> dict[bytes, int]:
        """Return the class of each term of a graph, and add new classes."""
        self._tick()
        found: dict[bytes, int] = {}
        for key in one.order:
            term, value = self._known[key], one.origin.get(key)
            way = term.operator, tuple(found[c] for c in term.operands)
            number = found[key] = self._new(value or (way if term.operands else key), term)
            if term.operands:
                self._found.setdefault((number, way), term)
            if term.runs:
                self._owner.setdefault(number, value or owner)
        return found

    def _close(self) -> bool:
        """Unite classes with equal operators on equal operands; return whether there were any."""
        first: dict[_Way, int] = {}
        find = self._joined.find
        joined = [
            self._joined.join(
                (first.setdefault((operator, tuple(map(find, operands))), number), number)
            )
            for number, (operator, operands) in self._found
        ]
        return any(joined)

    def site(self, one: _Met, step: Substitution) -> list[int]:
        """Return the classes of a substitution's site, which do not depend on other parts."""
        found: dict[bytes, int] = {}
        for key in one.order:
            term, value = self._known[key], one.origin.get(key)
            way = term.operator, tuple(found[c] for c in term.operands)
            found[key] = self._number.get(value or (way if term.operands else key), _NONE)
        return sorted(found[key] for key in step.site)

    # Patterns

    def _enodes(self, value: int, op: str) -> Iterator[Enode[int]]:
        """Yield the ways to compute a class."""
        for way, one in self._ways[value].items():
            if is_a(one.op, op):
                yield Enode(way, one.op, one.attrs, way[1])
        term = self._term[value]
        if not term.operands:
            yield from (
                Enode(term.key, one.op, one.attrs, ())
                for one in self._frame.terms.enodes(term.key, op)
            )

    def _meet(
        self, goals: Sequence[tuple[Pattern, int]], binding: Binding[int]
    ) -> Iterator[Binding[int]]:
        """Yield the bindings of patterns at classes, in any combination of the parts' graphs.

        Two terms of one class may be live in a graph, so a class may be computed in several ways at
        once.
        """
        if not goals:
            yield binding
            return
        (pattern, value), *others = goals
        if isinstance(pattern, Var):
            type_ = self._term[value].type
            if isinstance(type_, TensorType) and binding.values.get(pattern.name, value) == value:
                further = binding.copy()
                further.values[pattern.name] = value
                further.variables.types[pattern.name] = type_
                yield from self._meet(others, further)
            return
        assert isinstance(pattern, Apply)
        for enode in self._enodes(value, pattern.op):
            attrs: dict[str, Any] = dict(enode.attrs)
            if pattern.op == MAP:
                attrs = {"f": (enode.op, enode.attrs)}
            further = binding.copy()
            if len(enode.operands) == len(pattern.args) and all(
                further.bind(one, attrs[name]) for name, one in pattern.attrs.items()
            ):
                further.covered[value] = enode
                inside = tuple(zip(pattern.args, enode.operands, strict=True))
                yield from self._meet((*inside, *others), further)

    # Couplings

    def couplings(self, groups: UnionFind[bytes]) -> Iterator[Iterable[bytes]]:
        """Yield groups of operators whose parts are not independent."""
        for part in self._parts:
            own = next(iter(part.operators))
            for one in part.graphs.values():
                live = {*one.origin.values(), *(value for _, value in one.doubles)}
                yield from ((own, value) for value in one.image.keys() - live - part.operators)
                for pair in one.doubles:  # a reader of both reads fewer distinct values now
                    number = self._joined.find(self._number[pair[1]])
                    near = (number, *self._readers[number])
                    yield [owner for other in near for owner in self._owners[other]]
        yield from self._owners.values()
        for rule in directed(self._frame.rules):
            yield from self._spanned(rule, groups)
        if self._frame.level == "kernels":
            yield from self._fused()

    def _spanned(self, rule: Rule, groups: UnionFind[bytes]) -> Iterator[Iterable[bytes]]:
        """Yield the operators of several parts that a match of a rule may span."""
        places = [
            [
                number
                for number, ways in self._ways.items()
                if any(term.op in operators_of(root) for term in ways.values())
            ]
            for root in rule.lhs
        ]

        def bindings(index: int, before: Binding[int]) -> Iterator[Binding[int]]:
            if index == len(places):
                yield before
                return
            for number in places[index]:
                self._tick()
                for one in self._meet([(rule.lhs[index], number)], before):
                    yield from bindings(index + 1, one)

        for one in bindings(0, Binding(_NONE)) if all(places) else ():
            owners = [owner for number in one.covered for owner in self._owners[number]]
            if len(set(map(groups.find, owners))) > 1 and _may_hold(rule, one):
                yield owners

    def _fused(self) -> Iterator[Iterable[bytes]]:
        """Yield operators that may share a kernel, or that decide whether a value needs one."""
        may_cover = self._frame.covering.may_cover
        siblings: dict[int, set[bytes]] = defaultdict(set)
        for number, ways in self._ways.items():
            for (_, operands), term in ways.items():
                for operand in operands:
                    if any(may_cover(term, one) for one in self._ways[operand].values()):
                        yield (*self._owners[number], *self._owners[operand])
                    if has_siblings(term):  # Slices of one value may be one kernel
                        siblings[operand] |= self._owners[number]
        yield from siblings.values()
        for part in self._parts:
            met = list(part.graphs.values())
            first = self._read(part, met[0])
            for one in met[1:]:
                for value in first ^ self._read(part, one):
                    yield (value, next(iter(part.operators)))

    def _read(self, part: PartGraphs, one: _Met) -> set[bytes]:
        """Return the values of other parts that a part reads."""
        values = (
            one.origin.get(operand)
            for key in one.order
            if self._known[key].runs and one.origin.get(key) in (None, *part.operators)
            for operand in self._known[key].operands
        )
        return {value for value in values if value is not None and value not in part.operators}


def _may_hold(rule: Rule, binding: Binding[int]) -> bool:
    """Return whether the conditions of a rule may hold in some graph with this binding."""
    variables = settled((binding,))
    return variables is not None and all(
        holds(condition, variables[1], lambda _kind, _one, _other: True) for condition in rule.when
    )
