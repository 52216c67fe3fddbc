"""Graphs that replace another keep its interface, its captured names and nothing dead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eqsat_opt.ir.graph.graph import OPAQUE, Graph, Node
from eqsat_opt.ir.passes.rebuild import GraphWriter
from eqsat_opt.lab.testing import GraphMaker


def doubled_relu() -> Graph:
    """Two equal Relus, of which an opaque node captures the second."""
    g = GraphMaker()
    x = g.input("x", 2)
    first, second = g("Relu", x), g("Relu", x)
    made = g.graph(*g.opaque("Loop", first, outputs=(g.type(first),)))
    *plain, loop = made.nodes
    return made.with_nodes((*plain, replace(loop, captures=(second,))))


def test_a_captured_name_stays_when_its_value_has_another() -> None:
    original = doubled_relu()
    first, second, loop = original.nodes
    writer = GraphWriter(original)
    writer.node(first, original.types[first.output])
    writer.opaque(loop, [first.output], [first.output])
    written = writer.graph(original.outputs)
    written.check()
    assert [node.op for node in written.nodes] == ["Relu", OPAQUE, OPAQUE]
    assert written.nodes[1].outputs == second.outputs
    assert written.nodes[1].inputs == first.outputs
    assert written.outputs == original.outputs


def test_an_output_is_the_constant_of_its_name_where_a_node_captures_that() -> None:
    g = GraphMaker()
    first, second = g.constant(np.ones(2)), g.constant(np.ones(2))
    made = g.graph(first, second, *g.opaque("If", outputs=(g.type(first),)))
    (choice,) = made.nodes
    original = made.with_nodes((replace(choice, captures=(second,)),))
    (choice,) = original.nodes
    writer = GraphWriter(original)
    writer.constant(first, original.constants[first])
    writer.opaque(choice, [], [first])
    written = writer.graph([first, first, choice.output])
    written.check()
    assert written.outputs == original.outputs


def test_names_are_fresh_and_dead_nodes_are_dropped() -> None:
    g = GraphMaker()
    original = g.graph(g("Relu", g.input("x", 2)))
    (name,) = original.outputs
    writer = GraphWriter(original, taken=["y"])
    assert (writer.fresh("y"), writer.fresh("y"), writer.fresh(name)) == ("y_1", "y_2", f"{name}_1")
    type_ = original.types[name]
    writer.node(Node("Neg", ("x",), ("y_1",)), type_)
    writer.node(Node("Abs", ("x",), ("y_2",)), type_)
    written = writer.graph(["y_2"])
    written.check()
    assert [node.op for node in written.nodes] == ["Abs"]
    assert written.outputs == ("y_2",)


def test_pinned_names_are_preferred() -> None:
    original = doubled_relu()
    first, second, _ = original.nodes
    values = {"x": 0, first.output: 1, second.output: 1}
    assert GraphWriter(original).preferred(values) == {0: "x", 1: second.output}
