"""Rules of several roots on an e-graph, as TENSAT applies them (Yang et al., MLSys 2021, §4).

The matches of each root are listed, and their product is taken. A combination is applied if its
matches agree on shared variables and its right sides are well typed. The results enter the e-graph
as further terms and equations, and the e-graph is saturated again.

A combination is left out if a value that it reads may be computed, by any e-nodes, from one of the
roots that it replaces: it would close a cycle. One pass over the e-graph decides this for all
combinations of a round (the paper's efficient filter), so cycles that two combinations of a round
close together remain. The extraction here never chooses a cycle, so nothing is removed afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.egraph import EClasses, Lowered, Seeder, Seeds
from eqsat_opt.ir.ops import IllTyped
from eqsat_opt.rules.bindings import Bindings, Undefined, holds, operator
from eqsat_opt.rules.patterns import Binding, joined, match, settled
from eqsat_opt.rules.rule import Phase, Rule, directed
from eqsat_opt.rules.term import Apply, Term, Var
from eqsat_opt.select.tiling.matching import Tiled

__all__ = ["Products", "of_several_roots"]

_CHOICES = 256
"""Limit on the combinations of e-nodes that are followed at one root."""

_APART = (Phase.RECOGNISE, Phase.DERIVATION)


def of_several_roots(rules: Sequence[Rule]) -> tuple[list[Rule], list[Rule]]:
    """Return the rules of several roots, in each direction, and the other rules."""
    joint = [rule for rule in rules if len(rule.lhs) > 1 and rule.phase not in _APART]
    return directed(joint), [rule for rule in rules if rule not in joint]


class Products:
    """The terms and equations that rules of several roots add to a model's e-graph, round by round.

    Attributes:
        applied: rule to the number of its combinations that were applied.
        cyclic: number of combinations that were left out because they would close a cycle.
    """

    def __init__(
        self, lowered: Lowered, rules: Sequence[Rule], *, most: int, filters: bool = True
    ) -> None:
        """Prepare to apply rules of several roots, read from left to right, to a model.

        Args:
            lowered: the model.
            rules: the rules.
            most: limit on the number of terms that are added.
            filters: whether cycles are filtered.
        """
        self._seeder, self._rules = Seeder(lowered), rules
        self._most, self._filters = most, filters
        self.applied: dict[str, int] = {}
        self.cyclic = 0

    @property
    def seeds(self) -> Seeds:
        """All terms and equations that were added."""
        return self._seeder.seeds

    def extend(self, eclasses: EClasses, deadline: Deadline) -> bool:
        """Apply one round, as long as there is time and room; return whether it added anything."""
        before = len(self._seeder.equal)
        found = _Round(eclasses, self._seeder)
        for rule in self._rules:
            for parts in found.combinations(rule):
                if deadline.expired or len(self._seeder.terms) >= self._most:
                    break
                self._apply(rule, parts, found)
        return len(self._seeder.equal) > before

    def _apply(self, rule: Rule, parts: Sequence[Binding[int]], found: _Round) -> None:
        variables = settled(parts)
        if variables is None:
            return
        values, bindings = variables

        def related(kind: str, first: str, second: str) -> bool:
            if kind == "follows":
                return values[first] < values[second]
            return values[first] != values[second]

        if not all(holds(condition, bindings, related) for condition in rule.when):
            return
        roots = [part.root for part in parts]
        if self._filters and found.closes(roots, values.values()):
            self.cyclic += 1
            return
        try:
            made = [found.build(right, values, bindings) for right in rule.rhs]
        except (IllTyped, Undefined):
            return
        pairs = [(found.term(root), new) for root, new in zip(roots, made, strict=True)]
        if any(self._seeder.type(old) != self._seeder.type(new) for old, new in pairs):
            return
        fresh = [pair for pair in pairs if pair[0] != pair[1] and pair not in self._seeder.equal]
        if fresh:
            self._seeder.equal.update(dict.fromkeys(fresh))
            self.applied[rule.name] = self.applied.get(rule.name, 0) + 1


class _Round:
    """One e-graph with its matches, the dependences between classes, and a term for each class."""

    def __init__(self, eclasses: EClasses, seeder: Seeder) -> None:
        self._eclasses, self._seeder, self._host = eclasses, seeder, Tiled(eclasses)
        self._below: list[int] | None = None
        self._chosen = _shallow(eclasses)
        self._term: dict[int, int] = {}
        for term, cls in enumerate(eclasses.term_class.tolist()):
            self._term.setdefault(cls, term)

    def combinations(self, rule: Rule) -> Iterator[tuple[Binding[int], ...]]:
        """Yield combinations of one match for each root, at different classes."""
        running = [
            cls for cls in range(self._eclasses.n_classes) if not self._eclasses.is_const[cls]
        ]
        lists = [
            [one for cls in running for one in match(root, self._host, cls, most=_CHOICES)]
            for root in rule.lhs
        ]
        return joined(rule.lhs, lists)

    def closes(self, roots: Sequence[int], values: Iterable[int]) -> bool:
        """Return whether a value may be computed from a root."""
        if self._below is None:
            self._below = _below(self._eclasses)
        mask = sum(1 << root for root in dict.fromkeys(roots))
        return any(self._below[value] & mask for value in values)

    def term(self, cls: int) -> int:
        """Return the number of a term of a class: the model's own, or a new one."""
        known = self._term.get(cls)
        if known is None:
            node = self._chosen[cls]
            children = [self.term(child) for child in self._eclasses.children(node)]
            attrs = dict(self._eclasses.attrs[node])
            known = self._seeder.apply(self._eclasses.op[node], children, **attrs)
            self._term[cls] = known
        return known

    def build(self, pattern: Term, values: Mapping[str, int], bindings: Bindings) -> int:
        """Add the terms of a right side and return the number of its root."""
        if isinstance(pattern, Var):
            return self.term(values[pattern.name])
        assert isinstance(pattern, Apply)
        operands = [self.build(arg, values, bindings) for arg in pattern.args]
        op, attrs = operator(pattern, bindings)
        return self._seeder.apply(op, operands, **attrs)


def _shallow(eclasses: EClasses) -> dict[int, int]:
    """Return an e-node of least depth for each class; the chosen e-nodes close no cycle."""
    chosen: dict[int, int] = {}
    waiting = list(range(eclasses.n_nodes))
    while waiting:
        ready = [
            node for node in waiting if all(child in chosen for child in eclasses.children(node))
        ]
        fresh = {int(eclasses.class_of[node]): node for node in reversed(ready)}
        fresh = {cls: node for cls, node in fresh.items() if cls not in chosen}
        if not fresh:
            break
        chosen |= fresh
        waiting = [node for node in waiting if int(eclasses.class_of[node]) not in chosen]
    return chosen


def _below(eclasses: EClasses) -> list[int]:
    """Return for each class the classes that it may be computed from, itself included, as bits."""
    below = [1 << cls for cls in range(eclasses.n_classes)]
    readers: list[set[int]] = [set() for _ in below]
    for node in range(eclasses.n_nodes):
        for child in eclasses.children(node):
            readers[child].add(int(eclasses.class_of[node]))
    waiting = dict.fromkeys(range(eclasses.n_classes))
    while waiting:
        cls = next(iter(waiting))
        del waiting[cls]
        for reader in readers[cls]:
            more = below[reader] | below[cls]
            if more != below[reader]:
                below[reader] = more
                waiting[reader] = None
    return below
