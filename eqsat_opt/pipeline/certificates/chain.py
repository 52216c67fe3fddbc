"""The rules that make a result of its original, read from the e-graph of the search."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, TypeAlias

from eqsat_opt.egraph import EClasses, Lowered
from eqsat_opt.errors import StageError
from eqsat_opt.ir.graph.graph import Attrs, Graph, attributes
from eqsat_opt.ir.ops import IllTyped, is_known
from eqsat_opt.ir.values.types import ValueType
from eqsat_opt.pipeline.certificates.comparison import agree
from eqsat_opt.pipeline.certificates.term_table import LAW, AppliedRule, Compared, Step, TermTable
from eqsat_opt.rules.bindings import REFUSED, Bindings, holds, operator
from eqsat_opt.rules.library import named_rules
from eqsat_opt.rules.patterns import Enode, in_any_order, is_a, joined, match, settled
from eqsat_opt.rules.rule import Rule, directed, opposite
from eqsat_opt.rules.term import MAP, Apply, Term, Var

__all__ = ["Chain", "find_chain", "rules_by_name"]

_CHOICES = 64
"""Greatest number of choices between e-nodes in a match."""


@dataclass(frozen=True)
class Chain:
    """Rules applied to terms, from which the outputs of two graphs are equal.

    Attributes:
        steps: the applications; a step changes terms that are there, or that earlier steps made.
        open: outputs for which no such steps were found.
        terms: the terms that the steps are about.
    """

    steps: tuple[Step, ...]
    open: tuple[str, ...]
    terms: TermTable


@dataclass
class _Host:
    """The classes of an e-graph as values that patterns match, constants and loops included."""

    eclasses: EClasses
    nodes: dict[int, dict[str, list[Enode[int]]]] = field(default_factory=dict)
    classes: dict[tuple[str, Attrs, tuple[int, ...]], int] = field(default_factory=dict)
    origins: dict[tuple[str, Attrs, tuple[int, ...]], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        found: dict[int, dict[str, list[Enode[int]]]] = defaultdict(lambda: defaultdict(list))
        for key, cls, op, attrs, operands, origin in _all_nodes(self.eclasses):
            for one in in_any_order(Enode(key, op, attrs, operands)):
                self.classes.setdefault((op, attrs, one.operands), cls)
                self.origins.setdefault((op, attrs, one.operands), origin)
                for name in (op, MAP) if is_a(op, MAP) else (op,):
                    found[cls][name].append(one)
        self.nodes = found

    def enodes(self, value: int, op: str) -> Sequence[Enode[int]]:
        return self.nodes[value].get(op, ()) if value in self.nodes else ()

    def type(self, value: int) -> ValueType:
        return self.eclasses.types[value]

    def is_const(self, value: int) -> bool:
        return bool(self.eclasses.is_const[value])

    def class_of(
        self, term: Term, values: dict[str, int], bindings: Bindings, origins: list[int]
    ) -> int | None:
        """Return the class of a term; ``None`` where the e-graph does not have it.

        The origins of its e-nodes are added to ``origins``.
        """
        if isinstance(term, Var):
            return values[term.name]
        assert isinstance(term, Apply)
        operands = []
        for arg in term.args:
            operand = self.class_of(arg, values, bindings, origins)
            if operand is None:
                return None
            operands.append(operand)
        op, attrs = operator(term, bindings)
        key = op, attributes(**attrs), tuple(operands)
        origins.append(self.origins.get(key, 0))
        return self.classes.get(key)


def _all_nodes(
    eclasses: EClasses,
) -> Iterator[tuple[Any, int, str, Attrs, tuple[int, ...], int]]:
    for node in range(eclasses.n_nodes):
        cls, origin = int(eclasses.class_of[node]), int(eclasses.origin[node])
        yield node, cls, eclasses.op[node], eclasses.attrs[node], eclasses.children(node), origin
    for number, one in enumerate(eclasses.loops):
        yield -1 - number, one.eclass, one.op, one.attrs, one.children, one.origin


def rules_by_name(rules: Sequence[Rule]) -> dict[str, Rule]:
    """Return rules of a search, and those that steps may use besides, once per direction."""
    return {rule.name: rule for rule in directed([*rules, *named_rules(_CONCATS)])}


def find_chain(
    lowered: Lowered,
    eclasses: EClasses,
    rules: Sequence[Rule],
    graph: Graph,
    *,
    time_limit_s: float = 30.0,
) -> Chain:
    """Find the rules that make a graph of the original.

    Args:
        lowered: the original.
        eclasses: an e-graph of it that holds the graph.
        rules: the rules of the search.
        graph: the graph, with the inputs and outputs of the original.
        time_limit_s: limit on the time.

    Raises:
        StageError: the graph has parts that are not known.
    """
    deadline = time.monotonic() + time_limit_s
    terms = TermTable(lowered)
    goals = [
        (name, lowered.value[own], made)
        for own, (name, made) in zip(
            lowered.graph.outputs, terms.add_graph(graph).items(), strict=True
        )
    ]
    places = _representatives(terms, eclasses)
    named = rules_by_name(rules)
    instances: list[AppliedRule] = []
    host = _Host(eclasses)
    # All e-nodes come from those of the model by applications that made them, which therefore lead
    # to a result in the direction of their rules; other applications may do so against it.
    matches = _matches(host, directed(rules))
    found = itertools.takewhile(lambda _: time.monotonic() < deadline, matches)
    for _, (rule, values, bindings) in sorted(found, key=itemgetter(0)):
        if time.monotonic() > deadline or _met(terms, goals):
            break
        if not all(one in places for one in values.values()):
            continue
        instance = AppliedRule(
            rule.name, {name: places[one] for name, one in values.items()}, dict(bindings.attrs)
        )
        try:
            pairs = terms.sides(rule, instance)
        except (StageError, IllTyped):
            continue
        instances.append(instance)
        for left, right in pairs:
            terms.closure.unite(left, right, len(instances) - 1)
    for instance in _flattened(terms):
        instances.append(instance)
        (pair,) = terms.sides(named[_CONCATS], instance)
        terms.closure.unite(*pair, len(instances) - 1)
    compared = _compared(terms, host, places, goals, first=len(instances))
    reasons: set[tuple[int, bool]] = set()
    for _, left, right in goals:
        if terms.closure.same(left, right):
            reasons |= terms.closure.reasons(left, right)
    needed = dict(sorted(reasons))  # what is read both ways stays as it is
    needed.pop(LAW, None)
    steps: list[Step] = [*instances, *(Compared(*pair) for pair in compared)]
    open_ = tuple(name for name, a, b in goals if not terms.closure.same(a, b))
    used = (_read(steps[number], named, forward) for number, forward in sorted(needed.items()))
    return Chain(tuple(used), open_, terms)


def _flattened(terms: TermTable) -> Iterator[AppliedRule]:
    """Yield steps that join Concats from the right, as one of many operands may be any of these."""
    for number in itertools.count():
        if number >= len(terms.types) or number > _TERMS:
            return
        (op, attrs), operands, _ = terms.heads(number)
        if op == "Concat" and len(operands) == 2:
            (inner, axis), parts, _ = terms.heads(operands[0])
            if (inner, axis, len(parts)) == (op, attrs, 2):
                values = {"x": parts[0], "y": parts[1], "z": operands[1]}
                yield AppliedRule(_CONCATS, values, dict(attrs))


def _read(step: Step, rules: Mapping[str, Rule], forward: bool) -> Step:
    """Return a step in the direction in which it is read, where a rule says that too."""
    if forward or isinstance(step, Compared):
        return step
    other = opposite(step.rule)
    return replace(step, rule=other) if other in rules else step


def _compared(
    terms: TermTable,
    host: _Host,
    places: dict[int, int],
    goals: Sequence[tuple[str, int, int]],
    first: int,
) -> list[tuple[int, int]]:
    """Make terms equal that are so in the e-graph for reasons that it does not hold.

    A fused operator is recognised in an e-graph of its own, of which only the result remains.

    Args:
        terms: the terms so far.
        host: the e-graph.
        places: a term of each class.
        goals: outputs, each as the original and as the result make it.
        first: number of the first of these equations.

    Returns:
        The equations, from which more may follow.
    """
    found: list[tuple[int, int]] = []
    if _met(terms, goals):
        return found
    classes: dict[int, int] = {}
    by_root = {terms.closure.root(place): cls for cls, place in places.items()}
    for _, _, goal in goals:
        for term in _below(terms, goal):
            cls = by_root.get(terms.closure.root(term))
            if cls is None:
                (op, attrs), operands, _ = terms.heads(term)
                if all(one in classes for one in operands):
                    cls = host.classes.get((op, attrs, tuple(classes[one] for one in operands)))
            if cls is None or cls not in places:
                continue
            classes[term] = cls
            if not terms.closure.same(term, places[cls]) and agree(terms, term, places[cls]):
                terms.closure.unite(term, places[cls], first + len(found))
                found.append((term, places[cls]))
                by_root = {terms.closure.root(place): cls for cls, place in places.items()}
    return found


def _below(terms: TermTable, goal: int) -> list[int]:
    """Return a term and those that it is made of, operands first."""
    order: list[int] = []
    seen: set[int] = set()
    stack = [(goal, False)]
    while stack:
        term, done = stack.pop()
        if done:
            order.append(term)
        elif term not in seen:
            seen.add(term)
            stack.append((term, True))
            stack += [(one, False) for one in terms.closure.terms[term][1]]
    return order


def _met(terms: TermTable, goals: Sequence[tuple[str, int, int]]) -> bool:
    return all(terms.closure.same(left, right) for _, left, right in goals)


def _representatives(terms: TermTable, eclasses: EClasses) -> dict[int, int]:
    """Return a term of each class: one of the original if there is one, else the earliest."""
    places: dict[int, int] = {}
    for number, cls in enumerate(eclasses.term_class.tolist()):
        places.setdefault(cls, number)
    pending = sorted(range(eclasses.n_nodes), key=lambda node: int(eclasses.origin[node]))
    while pending:
        later = []
        for node in pending:
            cls = int(eclasses.class_of[node])
            operands = eclasses.children(node)
            if cls in places:
                continue
            if any(one not in places for one in operands) or not is_known(eclasses.op[node]):
                later.append(node)
                continue
            try:
                places[cls] = terms.apply(
                    eclasses.op[node], eclasses.attrs[node], tuple(places[one] for one in operands)
                )
            except IllTyped:
                continue
        if len(later) == len(pending):
            break
        pending = later
    return places


_Match: TypeAlias = tuple[Rule, dict[str, int], Bindings]
_CONCATS = "equations/concat-assoc"
_TERMS = 100_000
"""Greatest number of terms."""
_NEVER = 1 << 62
"""Origin of applications that made no e-node: after all others."""


def _matches(host: _Host, rules: Sequence[Rule]) -> Iterator[tuple[int, _Match]]:
    """Yield each place where a rule holds in the e-graph, with the classes of its variables.

    Each comes with the origin of e-nodes of the right side that were made by that rule.
    """
    by_operator: dict[str, list[int]] = defaultdict(list)
    for cls, nodes in host.nodes.items():
        for op in nodes:
            by_operator[op].append(cls)
    for rule in rules:
        found = [
            [
                binding
                for cls in by_operator.get(root.op, ())
                for binding in match(root, host, cls, most=_CHOICES)
            ]
            for root in rule.lhs
            if isinstance(root, Apply)
        ]
        for parts in joined(rule.lhs, found):
            variables = settled(parts)
            if variables is None:
                continue
            values, bindings = variables
            if not all(holds(one, bindings, lambda *_: True) for one in rule.when):
                continue
            origins: list[int] = []
            try:
                made = [host.class_of(term, values, bindings, origins) for term in rule.rhs]
            except REFUSED:
                continue
            if made == [part.root for part in parts]:
                own = [one for one in origins if host.eclasses.rule_at(one) == rule.name]
                yield max(own, default=_NEVER), (rule, values, bindings)
