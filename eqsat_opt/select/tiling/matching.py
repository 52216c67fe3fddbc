"""Matching of kernel patterns on the frozen e-graph: instruction selection over all spellings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat_opt.ir.values.types import ValueType
from eqsat_opt.rules.bindings import holds
from eqsat_opt.rules.patterns import Binding, Enode, in_any_order, is_a, match, names_in, settled
from eqsat_opt.rules.term import MAP, Condition
from eqsat_opt.runtime.backends.protocol import KernelPattern
from eqsat_opt.select.tiling.classes import NodeClasses

__all__ = ["PatternMatch", "Tiled", "match_at"]

_CHOICES = 256
"""Greatest number of choices between e-nodes in a match: large classes multiply them."""


@dataclass(frozen=True)
class PatternMatch:
    """An occurrence of a pattern: the covered e-node of each inner class.

    All other classes that the covered e-nodes read are operands.
    """

    root: int
    covered: dict[int, int] = field(default_factory=dict)


class Tiled:
    """The classes of an e-graph as values that patterns match, with operands in any order."""

    def __init__(self, eclasses: NodeClasses) -> None:
        self.eclasses = eclasses
        self._enodes: dict[int, dict[str, list[Enode[int]]]] = {}
        self._admitted: dict[Any, bool] = {}

    def enodes(self, value: int, op: str) -> Sequence[Enode[int]]:
        """Return the e-nodes of a class with an operator; only literals if it is folded."""
        by_operator = self._enodes.get(value)
        if by_operator is None:
            eclasses = self.eclasses
            by_operator = self._enodes[value] = defaultdict(list)
            for node in eclasses.nodes_of[value]:
                name, operands = eclasses.op[node], eclasses.children(node)
                if not (eclasses.is_const[value] and operands):
                    own = in_any_order(Enode(node, name, eclasses.attrs[node], operands))
                    for known in (name, MAP) if is_a(name, MAP) else (name,):
                        by_operator[known] += own
        return by_operator.get(op, ())

    def type(self, value: int) -> ValueType:
        """Return the type of a class."""
        return self.eclasses.types[value]

    def is_const(self, value: int) -> bool:
        """Return whether a class is known at compile time."""
        return bool(self.eclasses.is_const[value])

    def admits(self, conditions: tuple[Condition, ...], binding: Binding[int]) -> bool:
        """Return whether a binding fulfils the conditions, with a cache for repeated questions."""
        variables = settled((binding,))
        if variables is None:
            return False
        values, bindings = variables
        names = (values.get(name, bindings.attrs.get(name)) for name in names_in(conditions))
        key = conditions, tuple(names)
        if key not in self._admitted:
            self._admitted[key] = all(
                holds(c, bindings, lambda _, a, b: values[a] != values[b]) for c in conditions
            )
        return self._admitted[key]


def match_at(tiled: Tiled, pattern: KernelPattern, cls: int, node: int) -> Iterator[PatternMatch]:
    """Yield distinct matches of ``pattern`` rooted at an e-node; inner values are no operands."""
    seen: set[tuple[tuple[int, int], ...]] = set()
    for binding in match(pattern.pattern, tiled, cls, at=node, most=_CHOICES):
        if not binding.covered.keys().isdisjoint(binding.values.values()):
            continue  # a fused kernel cannot read what it computes itself
        covered = {cls: int(enode.key) for cls, enode in binding.covered.items()}
        key = tuple(sorted(covered.items()))
        if key not in seen and tiled.admits(pattern.when, binding):
            seen.add(key)
            yield PatternMatch(cls, covered)
