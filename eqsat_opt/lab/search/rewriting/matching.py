"""Matches of rules in graphs, and the terms that rules make there.

The left side of a rule is one pattern per root. The bindings of a pattern at a term depend on that
term alone, so they are found once; roots are then joined over the variables that they share. A
rewrite, too, is made once and serves every graph in which its roots are live.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

from eqsat_opt.ir.graph.graph import attributes
from eqsat_opt.ir.ops import IllTyped
from eqsat_opt.lab.search.rewriting.terms import Term, TermGraph, Terms
from eqsat_opt.rules.bindings import Bindings, Undefined, holds, operator
from eqsat_opt.rules.patterns import Binding, joined, match, operators_of, settled
from eqsat_opt.rules.rule import Rule, directed
from eqsat_opt.rules.term import Apply, Condition, Var
from eqsat_opt.rules.term import Term as Pattern

__all__ = ["Matching", "Substitution"]

_REMEMBERED = 100_000
"""Bindings and rewrites that are cached; beyond that the cache is emptied."""

_Look = tuple[str, tuple[str, ...]]
"""The top of a term: its operator and those of its operands."""


@dataclass(frozen=True, slots=True)
class Substitution:
    """The application of one rule at one place, in any graph that has this place.

    Attributes:
        rule: name of the directed rule.
        number: number of the rule, in the order in which they were given.
        site: keys of the terms that match the roots of its left side; with `number`, the identity
            of the substitution.
        matched: keys of all terms that the left side matches, its roots among them.
        bound: keys of the values of its variables.
        consumed: keys of the terms that are replaced.
        results: keys of the terms that replace them.
        made: terms of the right side, operands first; some may exist already.
        is_plain: whether no made term is or reads a replaced one, and each result is constant where
            the replaced term is.
    """

    rule: str
    number: int
    site: tuple[bytes, ...]
    matched: frozenset[bytes]
    bound: frozenset[bytes]
    consumed: tuple[bytes, ...]
    results: tuple[bytes, ...]
    made: tuple[Term, ...]
    is_plain: bool


@dataclass(frozen=True)
class _Root:
    """A root of a rule, and the operators that each operand may have; an empty set allows any."""

    number: int
    index: int
    operands: tuple[frozenset[str], ...]

    def may_meet(self, operators: tuple[str, ...]) -> bool:
        """Return whether the operators of a term's operands fit the root."""
        return len(operators) == len(self.operands) and all(
            not wanted or found in wanted
            for wanted, found in zip(self.operands, operators, strict=True)
        )


@lru_cache(maxsize=4)
def _indexed(rules: tuple[Rule, ...]) -> tuple[tuple[Rule, ...], Mapping[str, Sequence[_Root]]]:
    """Return the rules in both directions, and their roots by operator.

    The index is cached, so all searches on one book share it.
    """
    both = tuple(directed(rules))
    roots: dict[str, list[_Root]] = defaultdict(list)
    for number, rule in enumerate(both):
        for index, root in enumerate(rule.lhs):
            assert isinstance(root, Apply)
            for op in operators_of(root):
                roots[op].append(_Root(number, index, tuple(map(operators_of, root.args))))
    return both, roots


class Matching:
    """An index of the rewrites of one set of rules in graphs over one set of terms.

    Attributes:
        compared: how often a left side was to be compared with a term that its top operators fit.
            Cached answers count too: the work of a search does not depend on earlier searches.
    """

    def __init__(self, terms: Terms, rules: Sequence[Rule]) -> None:
        self.compared = 0
        self._terms = terms
        self._rules, self._roots = _indexed(tuple(rules))
        # Numbers of rules: matches of `_single` depend on one term alone, those of `_joint` do not.
        self._ordered = [[c for c in one.when if c.kind == "follows"] for one in self._rules]
        numbers = range(len(self._rules))
        self._depth = max((_depth(root) for rule in self._rules for root in rule.lhs), default=0)
        self._joint = [n for n in numbers if len(self._rules[n].lhs) > 1 or self._ordered[n]]
        self._single = frozenset(numbers).difference(self._joint)
        # Caches for the top of a term: the rules, or the roots of rules, that may match it.
        self._fitting: dict[_Look, list[int]] = {}
        self._fitting_roots: dict[_Look, list[tuple[int, int]]] = {}
        self._bound: dict[tuple[int, int, bytes], Binding[bytes] | None] = {}
        self._at: dict[bytes, tuple[Substitution, ...]] = {}
        self._n_fitting: dict[bytes, int] = {}
        self._made: dict[tuple[int, tuple[bytes, ...]], Substitution | None] = {}

    def rewrites(self, graph: TermGraph) -> list[Substitution]:
        """List every place in ``graph`` where a rule applies, by rule and then by place.

        Rewrites of constants alone are left out: they cost nothing and change nothing that runs.
        """
        self._forget()
        known = self._terms.known
        live = [known[key] for key in graph.order]
        found = [
            rewrite
            for term in live
            if term.operands and not term.const
            for rewrite in self._at_term(term)
        ]
        if self._joint:
            found += self._at_several(live, self._place(graph))
        found.sort(key=lambda one: one.number)
        return found

    def around(self, graph: TermGraph, touched: Set[bytes]) -> list[Substitution]:
        """List the rewrites of ``graph`` that meet any of some terms, in the order of `rewrites`.

        Only terms near these are compared with rules.
        """
        self._forget()
        known = self._terms.known
        near = set(touched)
        for _ in range(self._depth):
            near.update(key for key in graph.order if not near.isdisjoint(known[key].operands))
        live = [known[key] for key in graph.order if key in near]
        found = [
            rewrite
            for term in live
            if term.operands and not term.const
            for rewrite in self._at_term(term)
        ]
        if self._joint:
            found += self._at_several_near(graph, live)
        found.sort(key=lambda one: one.number)
        return [
            one
            for one in found
            if not (touched.isdisjoint(one.matched) and touched.isdisjoint(one.bound))
        ]

    def at(self, number: int, site: Sequence[bytes], graph: TermGraph) -> Substitution | None:
        """Return the rewrite of one rule at one place of ``graph``, with its roots in any order."""
        live = set(graph.order)
        if not live.issuperset(site):
            return None
        if number in self._single:
            term = self._terms.known[site[0]]
            if not term.operands or term.const:
                return None
            if term.key in self._at:
                self.compared += 1
                return next((one for one in self._at[term.key] if one.number == number), None)
            binding = self._bound_at(number, 0, term.key)
            return None if binding is None else self._rewrite(number, (binding,))
        place = self._place(graph)
        for roots in permutations(site):
            parts = [self._bound_at(number, index, key) for index, key in enumerate(roots)]
            bound = [[part] for part in parts if part is not None]
            if len(bound) == len(parts):
                for rewrite in self._joined(number, bound, place):
                    return rewrite
        return None

    def _place(self, graph: TermGraph) -> Mapping[bytes, int]:
        """Return the positions of terms.

        Inputs and constants have those of the original, other terms those of ``graph``.
        """
        place = {**self._terms.rank}
        for key in graph.order:
            place.setdefault(key, len(place))
        return place

    def _look(self, term: Term) -> _Look:
        known = self._terms.known
        return term.op, tuple([known[key].op for key in term.operands])

    def _meeting(self, look: _Look) -> Iterator[_Root]:
        op, operands = look
        return (root for root in self._roots.get(op, ()) if root.may_meet(operands))

    def _forget(self) -> None:
        if len(self._bound) + len(self._at) + len(self._made) > _REMEMBERED:
            self._bound.clear()
            self._at.clear()
            self._n_fitting.clear()
            self._made.clear()

    def _bind(self, number: int, index: int, key: bytes) -> Binding[bytes] | None:
        """Return the binding of a root of a rule at a term, which is computed in one way."""
        return next(iter(match(self._rules[number].lhs[index], self._terms, key)), None)

    # One root -------------------------------------------------------------------------------------

    def _at_term(self, term: Term) -> tuple[Substitution, ...]:
        if term.key not in self._at:
            look = self._look(term)
            if look not in self._fitting:
                self._fitting[look] = [
                    root.number for root in self._meeting(look) if root.number in self._single
                ]
            self._n_fitting[term.key] = len(self._fitting[look])
            bound = ((n, self._bind(n, 0, term.key)) for n in self._fitting[look])
            made = (self._rewrite(n, (binding,)) for n, binding in bound if binding is not None)
            self._at[term.key] = tuple(rewrite for rewrite in made if rewrite is not None)
        self.compared += self._n_fitting[term.key]
        return self._at[term.key]

    # Several roots --------------------------------------------------------------------------------

    def _fitting_at(self, term: Term) -> Sequence[tuple[int, int]]:
        """Return rules of several roots, and which of their roots may match a term."""
        if not term.operands:
            return ()
        look = self._look(term)
        if look not in self._fitting_roots:
            self._fitting_roots[look] = [
                (root.number, root.index)
                for root in self._meeting(look)
                if root.number not in self._single
            ]
        return self._fitting_roots[look]

    def _bound_at(self, number: int, index: int, key: bytes) -> Binding[bytes] | None:
        where = (number, index, key)
        self.compared += 1
        if where not in self._bound:
            self._bound[where] = self._bind(*where)
        return self._bound[where]

    def _at_several(self, live: Sequence[Term], place: Mapping[bytes, int]) -> list[Substitution]:
        """Return the rewrites by rules of several roots at terms of ``live``."""
        found: dict[int, list[list[Binding[bytes]]]] = {
            number: [[] for _ in self._rules[number].lhs] for number in self._joint
        }
        for term in live:
            for number, index in self._fitting_at(term):
                binding = self._bound_at(number, index, term.key)
                if binding is not None:
                    found[number][index].append(binding)
        return [
            rewrite
            for number, bindings in found.items()
            if all(bindings)
            for rewrite in self._joined(number, bindings, place)
        ]

    def _at_several_near(self, graph: TermGraph, near: Sequence[Term]) -> list[Substitution]:
        """Return the rewrites by rules of several roots with a root among some terms of a graph.

        Another root that shares a variable is matched only at terms above the value of the
        variable.
        """
        pivots: dict[int, dict[int, list[Binding[bytes]]]] = defaultdict(lambda: defaultdict(list))
        for term in near:
            for number, index in self._fitting_at(term):
                binding = self._bound_at(number, index, term.key)
                if binding is not None:
                    pivots[number][index].append(binding)
        if not pivots:
            return []
        place, readers = self._place(graph), dict[bytes, list[bytes]]()
        for key in graph.order:
            for operand in dict.fromkeys(self._terms.known[key].operands):
                readers.setdefault(operand, []).append(key)
        return [
            rewrite
            for number in sorted(pivots)
            for rewrite in self._joined(
                number, self._others(number, pivots[number], graph, readers), place
            )
        ]

    def _others(
        self,
        number: int,
        pivots: Mapping[int, Sequence[Binding[bytes]]],
        graph: TermGraph,
        readers: Mapping[bytes, Sequence[bytes]],
    ) -> list[list[Binding[bytes]]]:
        """Return each root's given bindings and those that may join ones of other roots."""
        lhs, found = self._rules[number].lhs, []
        for index, root in enumerate(lhs):
            own = {one.root: one for one in pivots.get(index, ())}
            places = dict[bytes, None]()
            for other, bindings in pivots.items():
                anchor = next(_anchored(root, lhs[other]), None) if other != index else None
                if anchor is not None:
                    name, depth = anchor
                    front = dict.fromkeys(one.values[name] for one in bindings)
                    for _ in range(depth):
                        front = dict.fromkeys(r for key in front for r in readers.get(key, ()))
                    places |= front
                elif other != index:
                    places |= dict.fromkeys(graph.order)
            for key in places:
                if key not in own and (number, index) in self._fitting_at(self._terms.known[key]):
                    binding = self._bound_at(number, index, key)
                    if binding is not None:
                        own[key] = binding
            found.append(list(own.values()))
        return found

    def _joined(
        self,
        number: int,
        found: Sequence[Sequence[Binding[bytes]]],
        place: Mapping[bytes, int],
    ) -> Iterator[Substitution]:
        for parts in joined(self._rules[number].lhs, found):
            if all(_follows(condition, parts, place) for condition in self._ordered[number]):
                key = (number, tuple(part.root for part in parts))
                if key not in self._made:
                    self._made[key] = self._independent(number, parts, place)
                rewrite = self._made[key]
                if rewrite is not None:
                    yield rewrite

    def _independent(
        self, number: int, parts: tuple[Binding[bytes], ...], place: Mapping[bytes, int]
    ) -> Substitution | None:
        """Return the rewrite, unless an operand is computed from a root: that would be a cycle."""
        targets = {part.root for part in parts}
        first = min(place[key] for key in targets)
        if len(parts) > 1:
            stack = [key for part in parts for key in part.values.values()]
            seen: set[bytes] = set()
            while stack:
                key = stack.pop()
                if key in targets:
                    return None
                if key not in seen and place[key] > first:
                    seen.add(key)
                    stack += self._terms.known[key].operands
        return self._rewrite(number, parts)

    # The right side -------------------------------------------------------------------------------

    def _rewrite(self, number: int, parts: Sequence[Binding[bytes]]) -> Substitution | None:
        rule, variables = self._rules[number], settled(parts)
        if variables is None:
            return None
        values, bindings = variables

        def related(kind: str, first: str, second: str) -> bool:
            return kind == "follows" or values[first] != values[second]

        if not all(holds(condition, bindings, related) for condition in rule.when):
            return None
        roots = [self._terms.known[part.root] for part in parts]
        builder = _Builder(
            terms=self._terms, rule=rule.name, values=values, bindings=bindings, parts=parts
        )
        try:
            results = [
                root if left is right else builder.build(right)
                for root, left, right in zip(roots, rule.lhs, rule.rhs, strict=True)
            ]
        except (IllTyped, Undefined):
            return None
        if any(new.type != old.type for new, old in zip(results, roots, strict=True)):
            return None
        changed = [(o, n) for o, n in zip(roots, results, strict=True) if o.key != n.key]
        if all(old.const for old, _ in changed):
            return None
        made = tuple(builder.made.values())
        replaced = {old.key for old, _ in changed}
        is_plain = all(old.const == new.const for old, new in changed) and not any(
            term.key in replaced or not replaced.isdisjoint(term.operands) for term in made
        )
        return Substitution(
            rule=rule.name,
            number=number,
            site=tuple(part.root for part in parts),
            matched=frozenset(key for part in parts for key in part.covered),
            bound=frozenset(values.values()),
            consumed=tuple(old.key for old, _ in changed),
            results=tuple(new.key for _, new in changed),
            made=made,
            is_plain=is_plain,
        )


class _Builder:
    """A builder of the terms of a right side."""

    def __init__(
        self,
        terms: Terms,
        rule: str,
        values: Mapping[str, bytes],
        bindings: Bindings,
        parts: Sequence[Binding[bytes]],
    ) -> None:
        self._terms = terms
        self._rule = rule
        self._values = values
        self._bindings = bindings
        self._sources = tuple(
            dict.fromkeys(s for part in parts for k in part.covered for s in terms.known[k].sources)
        )
        self.made: dict[bytes, Term] = {}

    def build(self, pattern: Pattern) -> Term:
        if isinstance(pattern, Var):
            return self._terms.known[self._values[pattern.name]]
        assert isinstance(pattern, Apply)
        operands = [self.build(arg) for arg in pattern.args]
        op, values = operator(pattern, self._bindings)
        term = self._terms.make(
            op, attributes(**values), operands, sources=self._sources, rules=(self._rule,)
        )
        return self.made.setdefault(term.key, term)


def _depth(pattern: Pattern) -> int:
    """Return the number of operators from the root of a pattern to its deepest variable."""
    return 1 + max(map(_depth, pattern.args), default=0) if isinstance(pattern, Apply) else 0


def _anchored(root: Pattern, other: Pattern) -> Iterator[tuple[str, int]]:
    """Yield the variables shared with another root, and their depth below this one."""
    shared = other.variables()
    front, depth = [root], 0
    while front:
        for one in front:
            if isinstance(one, Var) and one.name in shared:
                yield one.name, depth
        front = [arg for one in front if isinstance(one, Apply) for arg in one.args]
        depth += 1


def _follows(
    condition: Condition, parts: Sequence[Binding[bytes]], place: Mapping[bytes, int]
) -> bool:
    first, second = (
        next(part.values[name] for part in parts if name in part.values) for name in condition.args
    )
    return place[first] < place[second]
