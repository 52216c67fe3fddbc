"""Steps of recurrent cells, found by the equation of the state that each of them computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from eqsat_opt.ir.graph.graph import Graph, Node
from eqsat_opt.ir.graph.handles import uniform_value
from eqsat_opt.ir.passes.recurrences.affine_forms import AffineForm, AffineForms, ColumnRange

__all__ = ["CellStep", "steps_in"]


@dataclass(frozen=True)
class CellStep:
    """One step of a cell.

    Attributes:
        op: the operator whose step it is, ``LSTM`` or ``GRU``.
        state: the value that it computes, [N, H].
        before: the state before it; of an LSTM it is only known by what its gates read.
        gates: the values that the gates read, in the order of ONNX.
        cell: the memory of an LSTM after it.
        cell_before: its memory before; ``None`` for zeros.
        reset: the product of reset gate and state that the last gate of a GRU reads.
        inner: the part of the state that the last gate of a GRU reads, before it is reset.
    """

    op: str
    state: str
    gates: tuple[AffineForm, ...]
    before: str | None = None
    cell: str = ""
    cell_before: str | None = None
    reset: str = ""
    inner: AffineForm | ColumnRange | None = None


def steps_in(forms: AffineForms) -> Iterator[CellStep]:
    """Yield every value of a graph that may be the state after a step, with its step."""
    for node in forms.graph.nodes:
        if node.op == "Mul":
            found = _lstm(node, forms)
        elif node.op == "Add":
            found = _gru(node, forms)
        else:
            continue
        if found is not None:
            yield found


def _operands(name: str, op: str, graph: Graph) -> Iterator[tuple[str, str]]:
    """Yield the operands of a commutative operator that computes a value, in either order."""
    node = graph.producers.get(name)
    if node is not None and node.op == op:
        yield node.inputs[0], node.inputs[1]
        yield node.inputs[1], node.inputs[0]


def _producer(name: str, op: str, graph: Graph) -> Node | None:
    node = graph.producers.get(name)
    return node if node is not None and node.op == op else None


def _lstm(node: Node, forms: AffineForms) -> CellStep | None:
    """Find h = σ(o)·tanh(c), where c = σ(f)·c' + σ(i)·tanh(g); c' is absent if it is zero."""
    graph = forms.graph
    for gate, squashed in _operands(node.output, "Mul", graph):
        o = forms.activated(gate, "Sigmoid")
        tanh = _producer(squashed, "Tanh", graph)
        if o is None or tanh is None:
            continue
        cell = tanh.inputs[0]
        new = _new(cell, forms)
        if new is not None:
            # Without a cell before there is no forget gate.
            return CellStep("LSTM", node.output, (new[0], o, AffineForm(), new[1]), cell=cell)
        for kept, added in _operands(cell, "Add", graph):
            new = _new(added, forms)
            if new is None:
                continue
            for gate, before in _operands(kept, "Mul", graph):
                f = forms.activated(gate, "Sigmoid")
                if f is not None:
                    gates = new[0], o, f, new[1]
                    return CellStep("LSTM", node.output, gates, cell=cell, cell_before=before)
    return None


def _new(name: str, forms: AffineForms) -> tuple[AffineForm, AffineForm] | None:
    """Return i and g of a value σ(i)·tanh(g)."""
    for gate, squashed in _operands(name, "Mul", forms.graph):
        i, g = forms.activated(gate, "Sigmoid"), forms.activated(squashed, "Tanh")
        if i is not None and g is not None:
            return i, g
    return None


def _gru(node: Node, forms: AffineForms) -> CellStep | None:
    """Find h = (1 - σ(z))·n + σ(z)·h', or n + σ(z)·(h' - n), where n = tanh(…)."""
    graph = forms.graph
    for first, second in _operands(node.output, "Add", graph):
        for gate, before in _operands(second, "Mul", graph):
            z = forms.activated(gate, "Sigmoid")
            if z is None:
                continue
            for rest, new in _operands(first, "Mul", graph):
                if _is_one_minus(rest, gate, graph) and (
                    found := _gru_with(node.output, z, before, new=new, forms=forms)
                ):
                    return found
            difference = _producer(before, "Sub", graph)
            if difference is not None and difference.inputs[1] == first:
                found = _gru_with(node.output, z, difference.inputs[0], new=first, forms=forms)
                if found:
                    return found
    return None


def _is_one_minus(name: str, gate: str, graph: Graph) -> bool:
    node = _producer(name, "Sub", graph)
    if node is None or node.inputs[1] != gate:
        return False
    one = graph.constants.get(node.inputs[0])
    return one is not None and uniform_value(one) == 1.0


def _gru_with(
    state: str, z: AffineForm, before: str, *, new: str, forms: AffineForms
) -> CellStep | None:
    graph = forms.graph
    tanh = _producer(new, "Tanh", graph)
    n = None if tanh is None else forms.form(tanh.inputs[0])
    if n is None:
        return None
    if not n.addends:
        for data, _ in n.products:
            for gate, other in _operands(data.name, "Mul", graph):
                r = forms.activated(gate, "Sigmoid")
                if r is not None and other == before and data.pick is None:
                    return CellStep("GRU", state, (z, r, n), before, reset=data.name)
        return None
    if len(n.addends) > 1:
        return None
    (part,) = n.addends
    rest = AffineForm(n.products, n.bias)
    for gate, inner in _operands(part.name, "Mul", graph):
        r, form = forms.activated(gate, "Sigmoid"), forms.form(inner)
        if r is None or part.lo:
            continue
        if form is not None:
            return CellStep("GRU", state, (z, r, rest), before, inner=form)
        if inner in graph.constants:  # the product with a constant state
            return CellStep(
                "GRU", state, (z, r, rest), before, inner=ColumnRange(inner, 0, part.hi)
            )
    return None
