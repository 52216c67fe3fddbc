"""Patterns that a rule makes: how far a kernel may grow from each operator (Collage, §3.2).

A backend declares which operators it supports and which it fuses. From each operator the pattern
grows to its immediate post-dominator, which every path from there to an output passes, with all
operators between them. While the backend fuses that, there is a pattern, and it grows on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from eqsat_opt.ir.graph.graph import OPAQUE
from eqsat_opt.ir.ops import get_op, is_known
from eqsat_opt.lab.search.rewriting.terms import INPUT, OUTPUT, WEIGHT, Term
from eqsat_opt.runtime.backends.protocol import Backend, KernelPattern

__all__ = [
    "MOST_OPERATORS",
    "PatternRegistry",
    "PatternRule",
    "fuses_as_tvm",
    "grown",
    "kind_of",
    "post_dominators",
]

MOST_OPERATORS = 256
"""Limit on the operators of one pattern, as in TVM."""

_KINDS = {"pointwise": 0, "movement": 2, "reduction": 3, "window": 3, "contraction": 4}
_BROADCAST, _INJECTIVE, _REDUCE, _FUSABLE, _NEVER = 1, 2, 3, 4, 8


def kind_of(term: Term, known: Mapping[bytes, Term]) -> int:
    """Return how freely TVM fuses an operator: 0 elementwise to 4 with its consumers; 8 never."""
    if not is_known(term.op) or term.op == OPAQUE:
        return _NEVER
    kind = _KINDS[get_op(term.op).kind]
    types = {known[key].type for key in term.operands if not known[key].const}
    return _BROADCAST if kind == 0 and types - {term.type} else kind


def fuses_as_tvm(first: int, others: Sequence[int], sink: int) -> bool:
    """Return whether operators between the first and the sink, and the sink, join the first.

    A contraction fuses with operators that broadcast, and at its end with one that moves elements.
    An elementwise operator may end in a reduction.

    Args:
        first: kind of the operator that the pattern grows from.
        others: kinds of the operators between.
        sink: kind of the last operator.
    """
    if first == _FUSABLE:
        return max(others, default=0) <= _BROADCAST and sink <= _INJECTIVE
    if first <= _INJECTIVE:
        return max(others, default=0) <= _INJECTIVE and sink <= _REDUCE
    return False


@dataclass(frozen=True)
class PatternRule:
    """A rule for the operators that a backend runs as one kernel.

    Attributes:
        backend: name of the backend.
        accepts: returns whether the backend supports an operator, given all terms by key.
        fuses: a function such as `fuses_as_tvm`.
    """

    backend: str
    accepts: Callable[[Term, Mapping[bytes, Term]], bool]
    fuses: Callable[[int, Sequence[int], int], bool] = fuses_as_tvm


@dataclass
class PatternRegistry:
    """The patterns that backends run as one kernel, besides single operators.

    Attributes:
        patterns: single patterns, each with the name of its backend.
        rules: rules that make further patterns on a graph.
    """

    patterns: list[tuple[str, KernelPattern]] = field(default_factory=list)
    rules: list[PatternRule] = field(default_factory=list)

    @classmethod
    def of(cls, backends: Sequence[Backend]) -> PatternRegistry:
        """Build a registry of the patterns that backends bring."""
        return cls([(one.name, pattern) for one in backends for pattern in one.patterns()])

    def add_backend_pattern(self, backend: str, pattern: KernelPattern) -> None:
        """Add a pattern of a backend."""
        self.patterns.append((backend, pattern))

    def add_backend_pattern_rule(self, rule: PatternRule) -> None:
        """Add a rule that makes the patterns of a backend."""
        self.rules.append(rule)


def post_dominators(graph: Mapping[bytes, Term], outputs: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return each term's immediate post-dominator; a term with separate paths to outputs has none.

    Args:
        graph: the terms that run, operands first.
        outputs: outputs of the graph.
    """
    end = b""
    readers: dict[bytes, set[bytes]] = {key: set() for key in graph}
    for key, term in graph.items():
        for operand in term.operands:
            if operand in readers:
                readers[operand].add(key)
    depth, above = {end: 0}, dict[bytes, bytes]()
    for key in reversed(list(graph)):
        ways = [*readers[key], *([end] if key in outputs else ())]
        meet = ways[0] if ways else end
        for other in ways[1:]:
            while meet != other:
                if depth[meet] >= depth[other]:
                    meet = above[meet]
                else:
                    other = above[other]
        depth[key], above[key] = depth[meet] + 1, meet
    return {key: one for key, one in above.items() if one != end}


def grown(
    rule: PatternRule,
    graph: Mapping[bytes, Term],
    outputs: Sequence[bytes],
    known: Mapping[bytes, Term],
) -> list[tuple[bytes, frozenset[bytes]]]:
    """Return the patterns that a rule makes, each as its last term and all its terms.

    Args:
        rule: the rule of a backend.
        graph: the terms that run, operands first.
        outputs: outputs of the graph.
        known: the terms that run, inputs and constants.
    """
    ends = post_dominators(graph, outputs)
    readers: dict[bytes, list[bytes]] = {key: [] for key in graph}
    for key, term in graph.items():
        for operand in dict.fromkeys(term.operands):
            if operand in readers:
                readers[operand].append(key)
    accepted = {
        key
        for key, term in graph.items()
        if term.op not in (INPUT, WEIGHT, OUTPUT) and rule.accepts(term, known)
    }
    kinds = {key: kind_of(term, known) for key, term in graph.items()}
    found = []
    for key in graph:
        if key not in accepted:
            continue
        region, last, first = {key}, key, kinds[key]
        while (sink := ends.get(last)) is not None:
            between, stack = set[bytes](), [r for r in readers[last] if r != sink]
            while stack:
                one = stack.pop()
                if one not in between:
                    between.add(one)
                    stack += [r for r in readers[one] if r != sink]
            if not ({*between, sink} <= accepted) or len(region) + len(between) >= MOST_OPERATORS:
                break
            if not rule.fuses(first, [kinds[one] for one in between], kinds[sink]):
                break
            region |= {*between, sink}
            found.append((sink, frozenset(region)))
            last, first = sink, max(first, kinds[sink])
    return found
