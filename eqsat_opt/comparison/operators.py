"""The common ground of the methods: the model as operators that rules know, each a kernel alone."""

from __future__ import annotations

from dataclasses import replace

from eqsat_opt.egraph import Lowered
from eqsat_opt.egraph.terms import LEAF, OUT
from eqsat_opt.ir.folding import fold
from eqsat_opt.ir.graph import OPAQUE, Constant, Graph, Node
from eqsat_opt.ir.import_context import identity_node
from eqsat_opt.ir.types import TensorType, ValueType

__all__ = ["fold_constants", "operator_graph"]

_NO_LIMIT = 1 << 62


def operator_graph(lowered: Lowered) -> Graph:
    """The terms that the e-graph starts from, as a graph.

    A convolution's bias is an addition, a long concatenation a chain of binary ones, a uniform
    constant a scalar literal. So rules meet the same operators in a search and in the e-graph.
    """
    graph = lowered.graph
    name_of: dict[int, str] = {}
    taken = {*graph.types, *lowered.constants}
    for name in sorted(lowered.value, key=lambda n: n not in graph.pinned):
        if name in graph.types and name not in graph.constants:
            name_of.setdefault(lowered.value[name], name)
    types: dict[str, ValueType] = {name: graph.types[name] for name in graph.inputs}
    constants: dict[str, Constant] = {}
    nodes: list[Node] = []
    for number, term in enumerate(lowered.terms):
        if term.op == LEAF:
            name_of[number] = name = lowered.leaf_names[int(term.attrs[0][1])]  # type: ignore[arg-type]
            if name in lowered.constants:
                constants[name] = lowered.constants[name]
            types[name] = term.type
        elif term.op == OPAQUE:
            node = lowered.opaque[int(term.attrs[0][1])]  # type: ignore[arg-type]
            children = iter(term.children)
            inputs = tuple(name_of[next(children)] if name else "" for name in node.inputs)
            for name in node.captures:
                if name in graph.constants:
                    constants[name], types[name] = graph.constants[name], graph.types[name]
                elif (found := name_of[lowered.value[name]]) != name and name not in types:
                    # Two values of the model are one term; its subgraphs know both by name.
                    types[name] = graph.types[name]
                    nodes.append(identity_node(found, name))
            nodes.append(replace(node, inputs=inputs))
            types.update((name, graph.types[name]) for name in node.outputs if name)
        elif term.op == OUT:
            node = lowered.opaque[int(lowered.terms[term.children[0]].attrs[0][1])]  # type: ignore[arg-type]
            name_of[number] = node.outputs[int(term.attrs[0][1])]  # type: ignore[arg-type]
        else:
            name = name_of.get(number) or _fresh(f"{term.op.lower()}_{number}", taken)
            name_of[number] = name
            types[name] = term.type
            operands = tuple(name_of[child] for child in term.children)
            own = term.sources[0] if term.sources else ""
            nodes.append(Node(term.op, operands, (name,), term.attrs, own, term.sources))
    outputs = tuple(
        name if name in types else name_of[lowered.value[name]] for name in graph.outputs
    )
    result = Graph(graph.inputs, outputs, tuple(nodes), constants, types, graph.model)
    return result.with_nodes(tuple(result.live_nodes()))


def _fresh(base: str, taken: set[str]) -> str:
    name, number = base, 0
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    taken.add(name)
    return name


def fold_constants(graph: Graph) -> Graph:
    """The same graph, where what is known at compile time is a constant; computed when loaded."""
    constants = dict(graph.constants)
    nodes = []
    for node in graph.nodes:
        folded = None
        if node.op != OPAQUE and all(name in constants for name in node.reads):
            type_ = graph.tensor_type(node.output)
            assert isinstance(type_, TensorType)
            folded = fold(node, [constants[name] for name in node.reads], type_, _NO_LIMIT)
        if folded is None:
            nodes.append(node)
        else:
            constants[node.output] = folded
    read = {name for node in nodes for name in node.reads} | set(graph.outputs)
    kept = {name: handle for name, handle in constants.items() if name in read}
    return graph.with_nodes(tuple(nodes), constants=kept)
