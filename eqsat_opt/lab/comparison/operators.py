"""The graph that all methods start from: operators that rules know, each a kernel of its own."""

from __future__ import annotations

from eqsat_opt.egraph import Lowered
from eqsat_opt.egraph.terms import LEAF, OUT
from eqsat_opt.ir.graph.graph import OPAQUE, Graph, Node
from eqsat_opt.ir.onnx.folding import fold
from eqsat_opt.ir.passes.rebuild import GraphWriter
from eqsat_opt.ir.values.types import StaticType

__all__ = ["fold_constants", "operator_graph"]

_NO_LIMIT = 1 << 62


def operator_graph(lowered: Lowered) -> Graph:
    """Return the terms that the e-graph starts from, as a graph.

    The bias of a convolution is an addition, a long concatenation a chain of binary ones, and a
    uniform constant a scalar literal. So rules meet the same operators in a search and in the
    e-graph.
    """
    graph = lowered.graph
    writer = GraphWriter(graph, taken=lowered.constants)
    name_of = writer.preferred(lowered.value)
    for number, term in enumerate(lowered.terms):
        if term.op == LEAF:
            name_of[number] = name = lowered.leaf_names[term.index]
            if name in lowered.constants:
                writer.constant(name, lowered.constants[name])
        elif term.op == OPAQUE:
            node = lowered.opaque[term.index]
            operands = [name_of[child] for child in term.children]
            own = sum(map(bool, node.inputs))
            writer.opaque(node, operands[:own], operands[own:])
        elif term.op == OUT:
            node = lowered.opaque[lowered.terms[term.children[0]].index]
            name_of[number] = node.outputs[term.index]
        else:
            if number not in name_of:
                name_of[number] = writer.fresh(f"{term.op.lower()}_{number}")
            node = Node(
                op=term.op,
                inputs=tuple(name_of[child] for child in term.children),
                outputs=(name_of[number],),
                attrs=term.attrs,
                name=term.sources[0] if term.sources else "",
                sources=term.sources,
            )
            writer.node(node, term.type)
    return writer.graph([name_of[lowered.value[name]] for name in graph.outputs])


def fold_constants(graph: Graph) -> Graph:
    """Return the graph with constants for all values that are known at compile time.

    Each constant is evaluated on loading.
    """
    constants = dict(graph.constants)
    nodes = []
    for node in graph.nodes:
        folded, type_ = None, graph.types[node.outputs[0]]
        is_known = node.op != OPAQUE and all(name in constants for name in node.reads)
        if is_known and isinstance(type_, StaticType):
            folded = fold(node, [constants[name] for name in node.reads], type_, _NO_LIMIT)
        if folded is None:
            nodes.append(node)
        else:
            constants[node.output] = folded
    read = {name for node in nodes for name in node.reads} | set(graph.outputs)
    kept = {name: handle for name, handle in constants.items() if name in read}
    return graph.with_nodes(tuple(nodes), constants=kept)
