"""Replacing one match of a rule in a graph: the plain oracle for what searches do on terms."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from eqsat_opt.ir.graph.graph import OPAQUE, Graph, Node, attributes
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.rules.bindings import Bindings, operator
from eqsat_opt.rules.matcher import Match, Matcher, is_renamable
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import Apply, Term, Var

__all__ = ["apply", "matches"]


class _Builder:
    """Nodes of the right side; equal ones, the graph's own included, are shared."""

    def __init__(self, graph: Graph, match: Match) -> None:
        self.graph = graph
        self.match = match
        self.bindings = Bindings(
            {name: _tensor_type(graph, value) for name, value in match.values.items()},
            dict(match.bindings.attrs),
        )
        self.nodes: list[Node] = []
        self.types: dict[str, TensorType] = {}
        self._sources = tuple(
            dict.fromkeys(
                source
                for node in map(graph.producers.__getitem__, match.covered)
                for source in (node.sources or ((node.name,) if node.name else ()))
            )
        )
        equations = zip(match.roots, match.rule.lhs, match.rule.rhs, strict=True)
        replaced = {root for root, left, right in equations if left is not right}
        self._known = {
            (node.op, node.inputs, node.attrs): node.outputs[0]
            for node in graph.nodes
            if node.op != OPAQUE and node.outputs[0] not in replaced
        }

    def build(self, term: Term, output: str | None = None) -> str:
        """The value of ``term``; a new node called ``output`` if that is given."""
        if isinstance(term, Var):
            return self.match.values[term.name]
        assert isinstance(term, Apply)
        inputs = tuple(self.build(arg) for arg in term.args)
        op, values = operator(term, self.bindings)
        key = (op, inputs, attributes(**values))
        if output is None and key in self._known:
            return self._known[key]
        operands = [self.types.get(name) or _tensor_type(self.graph, name) for name in inputs]
        name = output or self._fresh(op)
        self.types[name] = get_op(op).type_fn(operands, values)
        self._known.setdefault(key, name)
        self.nodes.append(
            Node(
                op,
                inputs=inputs,
                outputs=(name,),
                attrs=key[2],
                name="",
                sources=self._sources,
                rules=(self.match.rule.name,),
            )
        )
        return name

    def _fresh(self, op: str) -> str:
        base = f"{self.match.roots[0]}:{op}"
        number = 0
        while f"{base}{number}" in self.graph.types or f"{base}{number}" in self.types:
            number += 1
        return f"{base}{number}"


def _tensor_type(graph: Graph, value: str) -> TensorType:
    type_ = graph.tensor_type(value)
    assert type_ is not None
    return type_


def matches(graph: Graph | Matcher, rule: Rule) -> Iterator[Match]:
    """Every place in ``graph`` where ``rule`` applies."""
    matcher = Matcher(graph) if isinstance(graph, Graph) else graph
    return (match for match in matcher.matches(rule) if match.refusal is None)


def apply(graph: Graph, match: Match) -> Graph:
    """Replace the left side of ``match`` by the right side.

    Interface names stay; where an output becomes another output or an input, the graph lists that
    value at its place. Nodes that nothing needs any more are gone.
    """
    builder = _Builder(graph, match)
    replaced: set[str] = set()
    renamed: dict[str, str] = {}
    for root, left, right in zip(match.roots, match.rule.lhs, match.rule.rhs, strict=True):
        if right is left:
            continue
        replaced.add(root)
        if not isinstance(right, Var):
            builder.build(right, root)
            continue
        value = match.values[right.name]
        if root in graph.pinned and is_renamable(graph, value) and value not in renamed:
            renamed[value] = root
        else:
            renamed[root] = value
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op != OPAQUE and node.outputs[0] in replaced:
            nodes += builder.nodes
            builder.nodes = []
        else:
            nodes.append(node)
    nodes = [_rename(node, renamed) for node in nodes]
    # A root may take the name of a value that itself takes the name of another root.
    renamed = {name: renamed.get(other, other) for name, other in renamed.items()}
    outputs = tuple(renamed.get(name, name) for name in graph.outputs)
    types = {**graph.types, **builder.types}
    ordered = Graph(
        inputs=graph.inputs,
        outputs=outputs,
        nodes=_sorted(nodes),
        constants=graph.constants,
        types=types,
        model=graph.model,
    )
    kept = tuple(ordered.live_nodes())
    needed = {*graph.inputs, *outputs, *(n for node in kept for n in (*node.reads, *node.outputs))}
    return replace(
        ordered,
        nodes=kept,
        constants={name: c for name, c in graph.constants.items() if name in needed},
        types={name: t for name, t in types.items() if name in needed},
    )


def _rename(node: Node, renamed: Mapping[str, str]) -> Node:
    if not any(name in renamed for name in (*node.inputs, *node.outputs)):
        return node
    inputs = tuple(renamed.get(name, name) for name in node.inputs)
    return replace(
        node, inputs=inputs, outputs=tuple(renamed.get(name, name) for name in node.outputs)
    )


def _sorted(nodes: list[Node]) -> tuple[Node, ...]:
    """Topological order, as close to the given one as can be."""
    producer = {name: i for i, node in enumerate(nodes) for name in node.outputs if name}
    readers: dict[int, list[int]] = defaultdict(list)
    missing = []
    for i, node in enumerate(nodes):
        below = {producer[name] for name in node.reads if name in producer}
        missing.append(len(below))
        for j in below:
            readers[j].append(i)
    ready = [i for i, count in enumerate(missing) if not count]
    order: list[Node] = []
    while ready:
        i = heapq.heappop(ready)
        order.append(nodes[i])
        for j in readers[i]:
            missing[j] -= 1
            if not missing[j]:
                heapq.heappush(ready, j)
    assert len(order) == len(nodes), "a match that depends on its own result was applied"
    return tuple(order)
