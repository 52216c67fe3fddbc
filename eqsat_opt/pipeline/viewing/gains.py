"""Gains in sight: rules that apply to a model as it is and make it cheaper at one place.

One step of one rule is only the beginning of what a search finds, and steps exclude each other. So
these gains are hints on whether a search is worthwhile, and neither bounds nor promises.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from eqsat_opt.cost.operators import OperatorCost, graph_cost_us
from eqsat_opt.ir.graph.graph import OPAQUE, Graph, attributes
from eqsat_opt.ir.ops import IllTyped, get_op
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.rules.bindings import Undefined, operator
from eqsat_opt.rules.library import book
from eqsat_opt.rules.matcher import Match, Matcher
from eqsat_opt.rules.patterns import in_any_order
from eqsat_opt.rules.rule import Numerics, Phase, Rule, directed
from eqsat_opt.rules.term import Apply, Term, Var

__all__ = ["Gain", "gains_in_sight"]

_TRIES = 500
"""Most matches of one rule that are priced."""

_LEAST = 0.002
"""Least saving that is listed, as a share of the estimated time."""


@dataclass(frozen=True)
class Gain:
    """A rule that makes a model cheaper in one step.

    Attributes:
        rule: name of the rule, in the direction in which it applies.
        places: number of places at which it saves something.
        share: largest saving at one place, as a share of the model's estimated time.
        equation: the rule as an equation.
    """

    rule: str
    places: int
    share: float
    equation: str


def gains_in_sight(
    graph: Graph, sizes: Mapping[str, int], *, time_limit_s: float
) -> tuple[tuple[Gain, ...], int]:
    """Return the rules of the book that save something in one step, the largest saving first.

    Savings are estimated from operations and bytes by a roofline, and from launches.

    Args:
        graph: a graph in normal form.
        sizes: a size for each symbolic dimension.
        time_limit_s: processor time after which to stop; the remaining rules are counted.

    Returns:
        The gains, and the number of rules that were not tried.
    """
    until = time.process_time() + time_limit_s
    cost = OperatorCost(sizes=sizes)
    total_us = graph_cost_us(graph, cost)
    matcher, prices = Matcher(graph, in_any_order), _Prices(graph, cost)
    rules = directed([rule for rule in map(_admitted, book().values()) if rule is not None])
    found, untried = [], 0
    for rule in rules:
        if time.process_time() > until:
            untried += 1
            continue
        best: dict[tuple[str, ...], float] = {}
        for match in islice(matcher.matches(rule), _TRIES):
            if match.refusal is None:
                saved_us = prices.saved_us(match)
                best[match.roots] = max(best.get(match.roots, 0.0), saved_us)
        listed = [saved_us for saved_us in best.values() if saved_us > _LEAST * total_us]
        if listed:
            found.append(Gain(rule.name, len(listed), max(listed) / total_us, str(rule)))
    return tuple(sorted(found, key=lambda gain: (-gain.share, gain.rule))), untried


def _admitted(rule: Rule) -> Rule | None:
    return None if rule.phase is Phase.DERIVATION else rule.admitted(Numerics.REASSOCIATE)


class _Prices:
    """Prices of both sides of a match, in which what others still read stays."""

    def __init__(self, graph: Graph, cost: OperatorCost) -> None:
        self._graph, self._cost = graph, cost
        self._constant = set(graph.constants)
        self._readers: dict[str, set[str]] = {name: {""} for name in graph.outputs}
        for node in graph.nodes:
            if node.op != OPAQUE and all(name in self._constant for name in node.reads):
                self._constant.update(node.outputs)
            for name in node.reads:
                self._readers.setdefault(name, set()).add(node.outputs[0])

    def saved_us(self, match: Match) -> float:
        """Return the estimated time that a match saves, µs; negative where it costs more."""
        roots, inside = set(match.roots), set(match.covered)
        gone = [
            name
            for name in dict.fromkeys(match.covered)
            if name in roots or self._readers.get(name, set()) <= inside
        ]
        before = sum(map(self._own_us, gone))
        try:
            made: dict[str, float] = {}
            for term in match.rule.rhs:
                self._term(term, match, made)
        except (IllTyped, Undefined, KeyError):
            return 0.0
        return before - sum(made.values())

    def _own_us(self, name: str) -> float:
        node = self._graph.producers.get(name)
        if node is None or name in self._constant:
            return 0.0
        types = [(self._graph.types[one], one in self._constant, one) for one in node.reads]
        return self._cost.time_us(node.op, node.attrs, types)

    def _term(self, term: Term, match: Match, made: dict[str, float]) -> tuple[TensorType, bool]:
        """Return the type of a term and whether it is constant, and note its operators' times."""
        if isinstance(term, Var):
            return match.bindings.types[term.name], match.values[term.name] in self._constant
        assert isinstance(term, Apply)
        operands = [self._term(arg, match, made) for arg in term.args]
        op, attrs = operator(term, match.bindings)
        type_ = get_op(op).type_fn([one for one, _ in operands], attrs)
        is_constant = all(const for _, const in operands)
        identities = [
            (one, const, str(arg)) for (one, const), arg in zip(operands, term.args, strict=True)
        ]
        made[str(term)] = self._cost.time_us(op, attributes(**attrs), identities)
        return type_, is_constant
