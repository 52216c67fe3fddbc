"""Parts of a graph as graphs of their own, and whole graphs rebuilt from parts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from eqsat_opt.ir.graph.graph import OPAQUE, Graph, Node
from eqsat_opt.ir.passes.rebuild import GraphWriter
from eqsat_opt.lab.search.rewriting.terms import OUTPUT, TermGraph, Terms

__all__ = ["Part", "part_of", "running_values", "whole_of"]

Part = Graph
"""Some nodes of a graph; its inputs are the values that they read, its outputs those that others
read."""


def running_values(terms: Terms, graph: TermGraph) -> dict[bytes, tuple[bytes, ...]]:
    """Return the operators that run, each with those that it reads, operands first."""
    known = terms.known
    found: dict[bytes, tuple[bytes, ...]] = {}
    for key in graph.order:
        if known[key].runs:
            makers = (known[c].operands[0] if known[c].op == OUTPUT else c
                      for c in known[key].operands)  # fmt: skip
            found[key] = tuple(one for one in dict.fromkeys(makers) if one in found)
    return found


def part_of(graph: Graph, inside: Collection[str]) -> Part:
    """Return some nodes as a graph, with all constants that they read.

    Args:
        graph: the whole graph.
        inside: the first outputs of the nodes, none of which reads another part that reads them.
    """
    own = set(inside)
    constant = set(graph.constants)
    wanted = {node.outputs for node in graph.nodes if not own.isdisjoint(node.outputs)}
    for node in graph.nodes:
        if node.op != OPAQUE and constant.issuperset(node.reads):
            constant.update(node.outputs)
    needed: set[str] = set()
    kept = []
    for node in reversed(graph.nodes):
        if node.outputs in wanted or (
            constant.issuperset(node.outputs) and not needed.isdisjoint(node.outputs)
        ):
            kept.append(node)
            needed.update(node.reads)
    kept.reverse()
    made = [name for node in kept for name in node.outputs if name]
    read = dict.fromkeys(name for node in kept for name in node.reads)
    elsewhere = {name for node in graph.nodes if node.outputs not in wanted for name in node.reads}
    elsewhere.update(graph.outputs)
    inputs = tuple(name for name in read if name not in graph.constants and name not in set(made))
    names = {*inputs, *made, *(name for name in read if name in graph.constants)}
    return Graph(
        inputs=inputs,
        outputs=tuple(name for name in made if name in elsewhere and name not in constant),
        nodes=tuple(kept),
        constants={name: graph.constants[name] for name in read if name in graph.constants},
        types={name: graph.types[name] for name in names},
        parameters=graph.parameters.intersection(inputs),
    )


def whole_of(graph: Graph, parts: Sequence[tuple[Part, Part]]) -> Graph:
    """Build a graph whose parts are replaced.

    Args:
        graph: the whole graph.
        parts: each part before and after; none reads a later one, and all that runs is in them.
    """
    writer = GraphWriter(graph)
    now: dict[str, str] = {name: name for name in graph.inputs}
    for name, handle in graph.constants.items():
        writer.constant(name, handle)
        now[name] = name
    constant, known = set(graph.constants), dict[str, Node]()
    for node in graph.nodes:  # nodes known at compile time are in no part
        if node.op != OPAQUE and constant.issuperset(node.reads):
            constant.update(node.outputs)
            known[node.output] = node
            writer.node(node, *(graph.types[name] for name in node.outputs))
            now[node.output] = node.output
    for before, after in parts:
        inner = {name: now[name] for name in before.inputs}
        for name, handle in after.constants.items():
            if name not in now:
                writer.constant(name, handle)
            inner[name] = name
        kept = {name for node in before.nodes for name in node.outputs}
        for node in after.nodes:
            if node.op == OPAQUE:
                reads = [inner[name] for name in node.inputs if name]
                writer.opaque(node, reads, [inner[name] for name in node.captures if name])
                inner.update((name, name) for name in node.outputs if name)
                continue
            (name,) = node.outputs
            written = replace(node, inputs=tuple(inner[one] for one in node.inputs))
            if name in known and _computes_as(written, known[name]):
                inner[name] = name
                continue
            # A value that a rule made may have the name of the value that it replaces.
            inner[name] = name if name in kept and name not in known else writer.fresh(name)
            written = replace(written, outputs=(inner[name],))
            writer.node(written, after.types[name])
        now.update(
            (old, inner[new]) for old, new in zip(before.outputs, after.outputs, strict=True)
        )
    return writer.graph([now[name] for name in graph.outputs])


def _computes_as(one: Node, other: Node) -> bool:
    return (one.op, one.attrs, one.inputs) == (other.op, other.attrs, other.inputs)
