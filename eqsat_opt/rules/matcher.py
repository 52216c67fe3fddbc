"""Matches of a rule in one graph.

A rule is read left to right; give :func:`~eqsat_opt.rules.rule.directed` rules to have both ways.
Binary patterns match binary nodes only: a convolution with a bias or a concatenation of three
tensors has another number of operands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eqsat_opt.ir.graph.graph import OPAQUE, Graph
from eqsat_opt.ir.graph.handles import uniform_value
from eqsat_opt.ir.ops import IllTyped
from eqsat_opt.ir.ops.functions import FUNCTIONS
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.rules.bindings import Bindings, Undefined, holds, type_of
from eqsat_opt.rules.patterns import Enode, is_a, joined, literal, match, settled
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import MAP, Apply, Condition, Var

__all__ = [
    "Match",
    "Matcher",
    "Refusal",
    "is_renamable",
]


@dataclass(frozen=True)
class Refusal:
    """The reason why a match of all left sides does not apply.

    Attributes:
        number: conditions that hold before the one that fails; all where none fails.
        condition: the condition that fails; ``None`` where the right side is to blame.
        text: the fault of the right side.
    """

    number: int
    condition: Condition | None
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Match:
    """One place where all left sides of a rule match.

    Attributes:
        rule: read left to right.
        roots: values that the left sides define.
        covered: the values inside, roots included.
        values: tensor variable to value.
        bindings: the types of these, and attribute variable to value.
        refusal: why the rule does not apply; ``None`` if it does.
    """

    rule: Rule
    roots: tuple[str, ...]
    covered: tuple[str, ...]
    values: Mapping[str, str]
    bindings: Bindings
    refusal: Refusal | None


class Matcher:
    """A finder of the matches of many rules in one graph, whose indices are built once.

    ``orders`` lists the orders of operands in which a node is read; by default, only that in which
    it is written.
    """

    def __init__(
        self,
        graph: Graph,
        orders: Callable[[Enode[str]], tuple[Enode[str], ...]] = lambda enode: (enode,),
    ) -> None:
        self.graph = graph
        self._results: dict[str, list[str]] = defaultdict(list)
        self._position = {name: i for i, name in enumerate((*graph.inputs, *graph.constants))}
        self._constant = set(graph.constants)
        for node in graph.nodes:
            for op in (node.op, MAP) if node.op in FUNCTIONS else (node.op,):
                self._results[op].append(node.outputs[0])
            if node.op != OPAQUE and all(name in self._constant for name in node.reads):
                self._constant.update(node.outputs)
            for name in node.outputs:
                self._position[name] = len(self._position)
        self._captured = {name for node in graph.nodes for name in node.captures}
        self._orders = orders
        self._enodes: dict[str, tuple[Enode[str], ...]] = {}

    def matches(self, rule: Rule) -> Iterator[Match]:
        """Yield every place where the left sides match, in order of the first root."""
        found = [
            [
                binding
                for value in self._results[root.op if isinstance(root, Apply) else ""]
                for binding in match(root, self, value)
            ]
            for root in rule.lhs
        ]
        for parts in joined(rule.lhs, found):
            variables = settled(parts)
            if variables is not None:
                values, bindings = variables
                roots = tuple(part.root for part in parts)
                yield Match(
                    rule=rule,
                    roots=roots,
                    covered=tuple(value for part in parts for value in part.covered),
                    values=values,
                    bindings=bindings,
                    refusal=self._refusal(rule, roots, values, bindings),
                )

    # The host of patterns -------------------------------------------------------------------------

    def enodes(self, value: str, op: str) -> list[Enode[str]]:
        """Return the node that makes a value, in all orders, or a uniform constant as a literal."""
        if value not in self._enodes:
            node, handle = self.graph.producers.get(value), self.graph.constants.get(value)
            number = None if handle is None else uniform_value(handle)
            self._enodes[value] = ()
            if node is not None:
                self._enodes[value] = self._orders(Enode(value, node.op, node.attrs, node.inputs))
            elif handle is not None and number is not None:
                self._enodes[value] = (literal(value, number, handle.type.dtype),)
        return [enode for enode in self._enodes[value] if is_a(enode.op, op)]

    def type(self, value: str) -> TensorType | None:
        """Return the type of a value."""
        return self.graph.tensor_type(value)

    def is_const(self, value: str) -> bool:
        """Return whether a value is known at compile time."""
        return value in self._constant

    # Conditions ----------------------------------------------------------------------------------

    def _refusal(
        self,
        rule: Rule,
        roots: tuple[str, ...],
        values: Mapping[str, str],
        bindings: Bindings,
    ) -> Refusal | None:
        """Return the first reason why a match does not apply; ``None`` if it does."""

        def related(kind: str, first: str, second: str) -> bool:
            a, b = values[first], values[second]
            return a != b if kind == "distinct" else self._position[a] < self._position[b]

        for number, condition in enumerate(rule.when):
            if not holds(condition, bindings, related):
                return Refusal(number, condition)
        past = len(rule.when)
        for root, term in zip(roots, rule.rhs, strict=True):
            try:
                made, known = type_of(term, bindings), self.graph.tensor_type(root)
            except (IllTyped, Undefined) as error:
                return Refusal(past, None, f"the right side has no type: {error}")
            if made != known:
                return Refusal(past, None, f"the right side is {made}, the left side {known}")
            if isinstance(term, Var) and not self._may_vanish(root, values[term.name]):
                return Refusal(past, None, "a graph inside this one reads the result by its name")
        if len(roots) > 1 and self._depends(values.values(), roots):
            return Refusal(past, None, "an operand is computed from a result")
        return None

    def _may_vanish(self, root: str, value: str) -> bool:
        """Return whether a value may replace a root.

        A subgraph reads a captured root by its name, so the value has to be able to take that name.
        """
        return root not in self._captured or is_renamable(self.graph, value)

    def _depends(self, values: Any, roots: tuple[str, ...]) -> bool:
        """Return whether an operand is computed from a root, so that a rewrite makes a cycle."""
        first = min(self._position[root] for root in roots)
        stack, seen = [v for v in values if self._position[v] >= first], set()
        while stack:
            name = stack.pop()
            if name in roots:
                return True
            if name in seen or self._position[name] < first:
                continue
            seen.add(name)
            node = self.graph.producers.get(name)
            stack += node.reads if node is not None else ()
        return False


def is_renamable(graph: Graph, value: str) -> bool:
    """Return whether a value may take another name, as nothing outside the graph knows its own."""
    producer = graph.producers.get(value)
    return producer is not None and producer.op != OPAQUE and value not in graph.pinned
