"""Applications: places in a graph where a rule applies as the graph is written."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.rules.matcher import Matcher
from eqsat_opt.rules.near_misses import node_name
from eqsat_opt.rules.patterns import in_any_order
from eqsat_opt.rules.rule import Rule, directed

__all__ = ["Application", "applications"]

_TRIES = 2_000
"""Most matches of the left sides of one rule that are examined, as roots may combine freely."""


@dataclass(frozen=True)
class Application:
    """A place where a rule applies.

    Attributes:
        rule: name of the rule, in the direction in which it was read.
        nodes: names of the nodes that its left sides cover, the roots first, in the graph's order.
    """

    rule: str
    nodes: tuple[str, ...]


def applications(
    graph: Graph, rules: Sequence[Rule], *, time_limit_s: float = 2.0
) -> tuple[Application, ...]:
    """Find the places where rules apply in a graph, each place once.

    Rules are read in all their directions and orders of commuting operands; what is not reached in
    time is left out.
    """
    deadline = time.monotonic() + time_limit_s
    matcher = Matcher(graph, in_any_order)
    order = {name: number for number, name in enumerate(graph.producers)}
    found: dict[Application, None] = {}
    for rule in directed(rules):
        for match in islice(matcher.matches(rule), _TRIES):
            if time.monotonic() > deadline:
                return tuple(found)
            if match.refusal is None:
                inner = sorted(set(match.covered) - set(match.roots), key=lambda one: order[one])
                nodes = dict.fromkeys(node_name(graph, one) for one in (*match.roots, *inner))
                found[Application(rule.name, tuple(nodes))] = None
    return tuple(found)
