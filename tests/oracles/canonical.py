"""Canonical keys of whole graphs: the oracle for those that searches keep up to date."""

from __future__ import annotations

from eqsat_opt.ir.graph.canonical import (
    constant_key,
    graph_key,
    input_key,
    opaque_key,
    operator_key,
    output_key,
    term_key,
)
from eqsat_opt.ir.graph.graph import OPAQUE, Graph

__all__ = ["canonical_hash", "canonical_keys"]


def canonical_keys(graph: Graph) -> dict[str, bytes]:
    """Value name to key, for every value that is defined."""
    keys = {name: input_key(i, graph.types[name]) for i, name in enumerate(graph.inputs)}
    keys.update((name, constant_key(handle)) for name, handle in graph.constants.items())
    for node in graph.nodes:
        operands = [keys[name] for name in node.reads]
        if node.op == OPAQUE:
            bundle = term_key(opaque_key(node), operands)
            for index, name in enumerate(node.outputs):
                if name:
                    keys[name] = term_key(output_key(index), (bundle,))
        else:
            keys[node.output] = term_key(operator_key(node.op, node.attrs), operands)
    return keys


def canonical_hash(graph: Graph) -> str:
    """The key of the graph in hexadecimal; what no output needs does not count."""
    keys = canonical_keys(graph)
    return graph_key(keys[name] for name in graph.outputs).hex()
