"""Where rules apply, and what they make there.

The left side of a rule is one pattern per root. What a pattern binds at a term depends on nothing
but that term, so it is found once; roots are then joined over the variables that they share. A
rewrite, too, is made once and serves every graph in which its roots live.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from eqsat_opt.ir.graph import attributes
from eqsat_opt.ir.ops import IllTyped
from eqsat_opt.ir.types import TensorType
from eqsat_opt.rules.bindings import Bindings, Undefined, bind_attr, holds, operator
from eqsat_opt.rules.rule import Rule, directed
from eqsat_opt.rules.term import Apply, Condition, Var
from eqsat_opt.rules.term import Term as Pattern
from eqsat_opt.search.patterns import Binding, CompiledRule, bind, compile_rule
from eqsat_opt.search.terms import Term, TermGraph, Terms

__all__ = ["Matching", "Rewrite"]

_REMEMBERED = 100_000
"""Bindings and rewrites that are cached; beyond that the cache is emptied."""

_Look = tuple[str, tuple[str, ...]]
"""The top of a term: its operator and those of its operands."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What one rule does at one place, whatever graph the place is in.

    Attributes:
        rule: name of the directed rule.
        number: of the rule, in the order in which they were given.
        roots: keys of the terms that are replaced.
        results: keys of what replaces them.
        made: terms of the right side, operands first; some may exist already.
        is_plain: whether no result is built on a root and all keep their constness.
    """

    rule: str
    number: int
    roots: tuple[bytes, ...]
    results: tuple[bytes, ...]
    made: tuple[Term, ...]
    is_plain: bool


@lru_cache(maxsize=4)
def _compiled(rules: tuple[Rule, ...]) -> tuple[CompiledRule, ...]:
    """Kept, since every search on one book needs the same."""
    return tuple(compile_rule(rule, number) for number, rule in enumerate(directed(rules)))


class Matching:
    """Finds the rewrites of one set of rules in graphs over one set of terms.

    Args:
        terms: of the search.
        rules: read both ways where they are bidirectional.
    """

    def __init__(self, terms: Terms, rules: Sequence[Rule]) -> None:
        self._terms = terms
        compiled = _compiled(tuple(rules))
        self._joint = [one for one in compiled if len(one.roots) > 1 or one.ordered]
        self._single = [one for one in compiled if len(one.roots) == 1 and not one.ordered]
        # What a term looks like from above to the rules, or the roots of rules, that may meet it.
        self._fitting: dict[_Look, tuple[CompiledRule, ...]] = {}
        self._fitting_roots: dict[_Look, tuple[tuple[int, int], ...]] = {}
        self._bound: dict[tuple[int, int, bytes], Binding | None] = {}
        self._at: dict[bytes, tuple[Rewrite, ...]] = {}
        self._made: dict[tuple[int, tuple[bytes, ...]], Rewrite | None] = {}

    def rewrites(self, graph: TermGraph) -> list[Rewrite]:
        """Every place in ``graph`` where a rule applies, by rule and then by place.

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
            place = {**self._terms.rank}
            for key in graph.order:
                place.setdefault(key, len(place))
            found += self._at_several(live, place)
        found.sort(key=lambda one: one.number)
        return found

    def _look(self, term: Term) -> _Look:
        known = self._terms.known
        return term.op, tuple([known[key].op for key in term.operands])

    def _forget(self) -> None:
        if len(self._bound) + len(self._at) + len(self._made) > _REMEMBERED:
            self._bound.clear()
            self._at.clear()
            self._made.clear()

    # One root -------------------------------------------------------------------------------------

    def _at_term(self, term: Term) -> tuple[Rewrite, ...]:
        if term.key not in self._at:
            look = self._look(term)
            rules = self._fitting.get(look)
            if rules is None:
                rules = tuple(one for one in self._single if one.needs[0].fits(*look))
                self._fitting[look] = rules
            bound = ((rule, bind(rule, 0, term, self._terms)) for rule in rules)
            made = (self._rewrite(rule, (term,), (b,)) for rule, b in bound if b is not None)
            self._at[term.key] = tuple(rewrite for rewrite in made if rewrite is not None)
        return self._at[term.key]

    # Several roots --------------------------------------------------------------------------------

    def _at_several(self, live: Sequence[Term], place: Mapping[bytes, int]) -> list[Rewrite]:
        found: list[list[list[tuple[Term, Binding]]]] = [
            [[] for _ in rule.roots] for rule in self._joint
        ]
        for term in live:
            if not term.operands:
                continue
            look = self._look(term)
            if look not in self._fitting_roots:
                self._fitting_roots[look] = tuple(
                    (i, index)
                    for i, rule in enumerate(self._joint)
                    for index, needs in enumerate(rule.needs)
                    if needs.fits(*look)
                )
            for i, index in self._fitting_roots[look]:
                key = (i, index, term.key)
                if key not in self._bound:
                    self._bound[key] = bind(self._joint[i], index, term, self._terms)
                binding = self._bound[key]
                if binding is not None:
                    found[i][index].append((term, binding))
        return [
            rewrite
            for rule, pairs in zip(self._joint, found, strict=True)
            if all(pairs)
            for rewrite in self._joined(rule, pairs, place)
        ]

    def _joined(
        self,
        rule: CompiledRule,
        found: Sequence[Sequence[tuple[Term, Binding]]],
        place: Mapping[bytes, int],
    ) -> Iterator[Rewrite]:
        indices: list[dict[bytes | None, list[tuple[Term, Binding]]]] = []
        for anchor, pairs in zip(rule.anchors, found[1:], strict=True):
            index: dict[bytes | None, list[tuple[Term, Binding]]] = defaultdict(list)
            for term, binding in pairs:
                index[binding.values[anchor].key if anchor else None].append((term, binding))
            indices.append(index)
        for term, binding in found[0]:
            for roots, bindings in self._join(rule, indices, (term,), (binding,)):
                if all(_follows(c, bindings, place) for c in rule.ordered):
                    key = (rule.number, tuple(root.key for root in roots))
                    if key not in self._made:
                        self._made[key] = self._independent(rule, roots, bindings, place)
                    rewrite = self._made[key]
                    if rewrite is not None:
                        yield rewrite

    def _join(
        self,
        rule: CompiledRule,
        indices: Sequence[Mapping[bytes | None, list[tuple[Term, Binding]]]],
        roots: tuple[Term, ...],
        bindings: tuple[Binding, ...],
    ) -> Iterator[tuple[tuple[Term, ...], tuple[Binding, ...]]]:
        done = len(roots) - 1
        if done == len(indices):
            yield roots, bindings
            return
        anchor = rule.anchors[done]
        value = None
        if anchor:
            value = next(b.values[anchor].key for b in bindings if anchor in b.values)
        for term, binding in indices[done].get(value, ()):
            if all(term is not root for root in roots) and all(
                _agree(binding, other) for other in bindings
            ):
                yield from self._join(rule, indices, (*roots, term), (*bindings, binding))

    def _independent(
        self,
        rule: CompiledRule,
        roots: tuple[Term, ...],
        bindings: tuple[Binding, ...],
        place: Mapping[bytes, int],
    ) -> Rewrite | None:
        """The rewrite, unless an operand is computed from a root: that would be a cycle."""
        targets = {root.key for root in roots}
        first = min(place[key] for key in targets)
        if len(roots) > 1:
            stack = [v.key for b in bindings for v in b.values.values()]
            seen: set[bytes] = set()
            while stack:
                key = stack.pop()
                if key in targets:
                    return None
                if key not in seen and place[key] > first:
                    seen.add(key)
                    stack += self._terms.known[key].operands
        return self._rewrite(rule, roots, bindings)

    # The right side -------------------------------------------------------------------------------

    def _rewrite(
        self, rule: CompiledRule, roots: Sequence[Term], parts: Sequence[Binding]
    ) -> Rewrite | None:
        values = {name: term for part in parts for name, term in part.values.items()}
        bindings = Bindings(
            {name: term.type for name, term in values.items() if isinstance(term.type, TensorType)},
            {name: value for part in parts for name, value in part.attrs.items()},
        )
        for pattern, value in (pair for part in parts for pair in part.deferred):
            if not bind_attr(pattern, value, bindings):
                return None

        def related(_kind: str, first: str, second: str) -> bool:
            return values[first].key != values[second].key

        if not all(holds(condition, bindings, related) for condition in rule.local):
            return None
        builder = _Builder(
            terms=self._terms, rule=rule.rule.name, values=values, bindings=bindings, parts=parts
        )
        try:
            results = [
                root if left is right else builder.build(right)
                for root, left, right in zip(roots, rule.rule.lhs, rule.rule.rhs, strict=True)
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
        return Rewrite(
            rule=rule.rule.name,
            number=rule.number,
            roots=tuple(old.key for old, _ in changed),
            results=tuple(new.key for _, new in changed),
            made=made,
            is_plain=is_plain,
        )


class _Builder:
    """Terms of a right side."""

    def __init__(
        self,
        terms: Terms,
        rule: str,
        values: Mapping[str, Term],
        bindings: Bindings,
        parts: Sequence[Binding],
    ) -> None:
        self._terms = terms
        self._rule = rule
        self._values = values
        self._bindings = bindings
        self._sources = tuple(
            dict.fromkeys(s for part in parts for term in part.matched for s in term.sources)
        )
        self.made: dict[bytes, Term] = {}

    def build(self, pattern: Pattern) -> Term:
        if isinstance(pattern, Var):
            return self._values[pattern.name]
        assert isinstance(pattern, Apply)
        operands = [self.build(arg) for arg in pattern.args]
        op, values = operator(pattern, self._bindings)
        term = self._terms.make(
            op, attributes(**values), operands, sources=self._sources, rules=(self._rule,)
        )
        return self.made.setdefault(term.key, term)


def _agree(first: Binding, second: Binding) -> bool:
    return all(
        second.values[name].key == term.key
        for name, term in first.values.items()
        if name in second.values
    ) and all(
        second.attrs[name] == value for name, value in first.attrs.items() if name in second.attrs
    )


def _follows(condition: Condition, bindings: Sequence[Binding], place: Mapping[bytes, int]) -> bool:
    first, second = (
        next(b.values[name].key for b in bindings if name in b.values) for name in condition.args
    )
    return place[first] < place[second]
