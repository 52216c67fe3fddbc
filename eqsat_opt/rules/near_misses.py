"""Near misses: places where a condition or the type of its right side kept a rule from applying."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.graph.plain_names import plain_sizes
from eqsat_opt.rules.bindings import Bindings, Undefined, size
from eqsat_opt.rules.library import book
from eqsat_opt.rules.matcher import Matcher, Refusal
from eqsat_opt.rules.patterns import in_any_order, leaves
from eqsat_opt.rules.rule import Rule, directed
from eqsat_opt.rules.term import Condition, Expr

__all__ = ["NearMiss", "Place", "near_misses", "node_name"]

_PLACES = 3
"""Most places that are named for a miss; the others are only counted."""
_TRIES = 2_000
"""Most matches of the left sides of one rule that are examined, as roots may combine freely."""
_UNTOLD = frozenset({"follows"})
"""Conditions that admit one order of siblings, so that to fail them is no near miss."""


@dataclass(frozen=True)
class Place:
    """A place where a rule nearly applied.

    Attributes:
        node: name of the node at the root of the left side, or that of its output.
        values: each variable of the condition, as the condition spells it, and its value.
    """

    node: str
    values: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return ", ".join(f"{name} = {value}" for name, value in self.values)


@dataclass(frozen=True)
class NearMiss:
    """A left side that matched, and the condition that kept its rule from applying.

    Attributes:
        rule: name of the rule, in the direction in which it was read.
        condition: the condition that did not hold, or the fault of the right side.
        reason: why the rule demands the condition; empty where it gives no reason.
        count: number of places.
        places: the first places.
    """

    rule: str
    condition: str
    reason: str
    count: int
    places: tuple[Place, ...]

    def __str__(self) -> str:
        values = f" ({self.places[0]})" if self.places[0].values else ""
        return f"{self.condition}{values}{f': {self.reason}' if self.reason else ''}"


def near_misses(
    graphs: Iterable[Graph], rules: Sequence[Rule], *, time_limit_s: float = 2.0
) -> tuple[NearMiss, ...]:
    """Find the near misses of rules in graphs; those of the book come last.

    A place where a rule applies in one way is not listed for another way in which it misses. Where
    it misses in several ways, the way in which most of its conditions hold counts.

    Rules are read in all their directions and orders of commuting operands; those that are not
    reached in time are left out. A value of one name is one place in all graphs.
    """
    deadline = time.monotonic() + time_limit_s
    matchers = [Matcher(graph, in_any_order) for graph in graphs]
    known = book()
    found: list[NearMiss] = []
    for rule in directed(sorted(rules, key=lambda rule: rule.base in known)):
        if time.monotonic() > deadline:
            break
        found += _of_rule(matchers, rule, deadline)
    return tuple(found)


_Nearest = tuple[Refusal, Bindings, str]


def _of_rule(matchers: Sequence[Matcher], rule: Rule, deadline: float) -> list[NearMiss]:
    nearest: dict[tuple[str, ...], _Nearest | None] = {}
    for matcher in matchers:
        for match in islice(matcher.matches(rule), _TRIES):
            key = tuple(sorted(match.roots))
            if match.refusal is None:
                nearest[key] = None
            elif _is_nearer(match.refusal, nearest.get(key, _FARTHEST)):
                node = node_name(matcher.graph, match.roots[0])
                nearest[key] = match.refusal, match.bindings, node
            if time.monotonic() > deadline:
                break
    misses: dict[str, list[_Nearest]] = {}
    for one in nearest.values():
        if one is not None and (one[0].condition is None or one[0].condition.kind not in _UNTOLD):
            misses.setdefault(one[0].text or str(one[0].condition), []).append(one)
    return [_miss(rule, text, ones) for text, ones in misses.items()]


_FARTHEST: _Nearest = (Refusal(-1, None), Bindings(), "")


def _is_nearer(refusal: Refusal, known: _Nearest | None) -> bool:
    return known is not None and refusal.number > known[0].number


def _miss(rule: Rule, text: str, ones: Sequence[_Nearest]) -> NearMiss:
    condition = ones[0][0].condition
    places = tuple(
        Place(node, tuple(_values(refusal.condition, bindings)))
        for refusal, bindings, node in ones[:_PLACES]
    )
    return NearMiss(
        rule=rule.name,
        condition=text,
        reason="" if condition is None else condition.reason,
        count=len(ones),
        places=places,
    )


def node_name(graph: Graph, root: str) -> str:
    """Return the name of the node that makes a value, or the value's where it has none."""
    node = graph.producers.get(root)
    return (node.name if node is not None else "") or root


def _values(condition: Condition | None, bindings: Bindings) -> Iterator[tuple[str, str]]:
    """Yield the values of the variables in a condition, each variable once."""
    if condition is None or condition.kind == "distinct":
        return
    for name in condition.args:
        if isinstance(name, str):
            yield name, plain_sizes(str(bindings.types[name]))
    arguments = [arg for arg in condition.args if isinstance(arg, Expr)]
    named = {str(leaf): leaf for arg in arguments for leaf in leaves(arg)}
    for text, leaf in named.items():
        yield text, _value(leaf, bindings)


def _value(leaf: Expr, bindings: Bindings) -> str:
    try:
        value: Any = size(leaf, bindings)
    except Undefined:
        return "undefined"
    return f"{value:g}" if isinstance(value, float) else plain_sizes(str(value))
