"""Chains of steps of a cell, written as one layer: the operators LSTM and GRU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.passes.recurrences.affine_forms import AffineForms, ColumnRange, Data
from eqsat_opt.ir.passes.recurrences.cells import CellStep, steps_in
from eqsat_opt.ir.passes.recurrences.parameters import Layer, Parameters, parameters_of
from eqsat_opt.ir.passes.recurrences.sequences import (
    stacked,
    stretch_of,
    whole,
    without_restacking,
)
from eqsat_opt.ir.passes.recurrences.writing import Writing
from eqsat_opt.ir.values.types import TensorType

__all__ = ["with_layers"]

_LEAST = 3
"""Least number of steps of a layer; of two wide steps the operator is slower than its parts."""

_OWN_READERS = 2
"""Number of readers of the cell of an LSTM that belong to its own steps."""

_TOLERANCE = 1e-6
"""Greatest difference of biases, relative to the greatest bias, that counts as rounding."""


@dataclass(frozen=True)
class _Chain:
    """Successive steps with the same parameters.

    Attributes:
        steps: the steps.
        data: for each step what its gates read besides the state.
        parameters: the parameters.
        state, cell: the values before the first step; ``None`` for zeros.
    """

    steps: tuple[CellStep, ...]
    data: tuple[tuple[Data, ...], ...]
    parameters: Parameters
    state: str | None = None
    cell: str | None = None


def with_layers(graph: Graph) -> Graph:
    """Return the graph with recurrent cells, unrolled over steps, as operators.

    1. The states of an LSTM over three steps or more, with equal weights, are one LSTM.
    2. The states of a GRU likewise, with the reset gate before or after the product.
    3. A first state of zeros, whose products were folded, is left out.
    4. Data that are elements of one tensor, in this order or in reverse, are the layer's operand as
       they are; others are stacked. States that are stacked are the layer's result.
    """
    while (found := _with_layer(graph)) is not None:
        graph = found
    return graph


def _with_layer(graph: Graph) -> Graph | None:
    forms = AffineForms(graph)
    for chain in _chains(forms):
        if _is_independent(chain, graph):
            return without_restacking(_written(chain, graph))
    return None


# ** chains **


def _chains(forms: AffineForms) -> Iterator[_Chain]:
    """Yield the longest chains of a graph."""
    graph = forms.graph
    by_state: dict[str, CellStep] = {}
    by_cell: dict[str, CellStep] = {}
    for step in steps_in(forms):
        type_ = graph.tensor_type(step.state)
        if type_ is not None and type_.dtype == "float32" and type_.rank == 2:
            by_state[step.state] = step
            if step.cell:
                by_cell[step.cell] = step
    after: dict[str, CellStep] = {}
    has_before: set[str] = set()
    for step in by_state.values():
        is_gru = step.op == "GRU"
        before = by_state.get(step.before or "") if is_gru else by_cell.get(step.cell_before or "")
        if before is None or before.op != step.op or before.state in after:
            continue
        if parameters_of(step, Data(before.state)) is None:
            continue
        after[before.state] = step
        has_before.add(step.state)
    for step in by_state.values():
        if step.state in has_before:
            continue
        steps = [step]
        while steps[-1].state in after:
            steps.append(after[steps[-1].state])
        yield from _pieces(steps, graph)


def _pieces(steps: Sequence[CellStep], graph: Graph) -> Iterator[_Chain]:
    """Yield the parts of a chain with equal parameters, of which no inner cell is read outside."""
    first = 0
    while first + 1 < len(steps):
        before, second = steps[first : first + 2]
        found = parameters_of(second, Data(before.state))
        assert found is not None
        chain = _begun(before, found[0], graph)
        if chain is None:  # the first state is computed apart from the others
            chain = _Chain((), (), found[0], state=before.state, cell=before.cell or None)
            first += 1
        for step in steps[first + len(chain.steps) :]:
            if chain.steps and graph.uses[before.cell] > _OWN_READERS:
                break
            found = parameters_of(step, Data(before.state))
            if found is None or found[0] != chain.parameters:
                break
            chain = replace(chain, steps=(*chain.steps, step), data=(*chain.data, found[1]))
            before = step
        if len(chain.steps) >= _LEAST:
            yield chain
        first += len(chain.steps)


def _begun(step: CellStep, wanted: Parameters, graph: Graph) -> _Chain | None:
    """Return the chain of a first step alone; ``None`` if its state or parameters are others."""
    cell = None if _is_zero(step.cell_before, graph) else step.cell_before
    if cell is not None and graph.types[cell] != graph.types[step.state]:
        return None
    states = [data for data, block in step.gates[0].products if block == wanted.recurrent[0]]
    for state in (*states, None):
        found = parameters_of(step, state)
        if found is None or (state is not None and state.pick is not None):
            continue
        parameters, data = found
        if state is not None and step.op == "GRU" and state.name != step.before:
            continue
        if state is not None and graph.types.get(state.name) != graph.types[step.state]:
            continue
        if state is None and not _is_zero(step.before, graph):
            continue
        if _fits(parameters, wanted, graph):
            name = None if state is None or _is_zero(state.name, graph) else state.name
            return _Chain((step,), (data,), wanted, state=name, cell=cell)
    return None


def _is_zero(name: str | None, graph: Graph) -> bool:
    """Return whether a state is zeros, or is absent, since what was computed from zeros was."""
    if name is None:
        return True
    node = graph.producers.get(name)
    if node is not None and node.op == "Expand":
        name = node.inputs[0]
    constant = graph.constants.get(name)
    return constant is not None and not np.any(constant.load())


def _fits(own: Parameters, wanted: Parameters, graph: Graph) -> bool:
    """Return whether a first step has the parameters of the others, as far as it shows them."""
    if (own.inner is None) != (wanted.inner is None):
        return False
    for number, blocks in enumerate(wanted.weights):
        if not own.weights[number]:
            continue  # a forget gate that had nothing to forget
        if own.recurrent[number] not in (None, wanted.recurrent[number]):
            return False
        if own.weights[number] != blocks:
            return False
        if not _equal(own.bias[number], wanted.bias[number], graph):
            return False
    return own.inner is None or wanted.inner is None or _equal(own.inner, wanted.inner, graph)


def _equal(first: tuple[ColumnRange, ...], second: tuple[ColumnRange, ...], graph: Graph) -> bool:
    if first == second:
        return True
    a, b = (_sum(parts, graph) for parts in (first, second))
    if a is None or b is None:
        return False
    greatest = max(float(np.max(np.abs(one), initial=0.0)) for one in (a, b))
    return bool(np.all(np.abs(a - b) <= _TOLERANCE * greatest))


def _sum(parts: tuple[ColumnRange, ...], graph: Graph) -> npt.NDArray[np.float64] | None:
    """Return the sum of vectors; ``None`` if one has rows that differ."""
    total = np.zeros(1)
    for part in parts:
        values = np.asarray(graph.constants[part.name].load(), np.float64)
        rows = values.reshape(-1, values.shape[-1])[:, part.lo : part.hi]
        if np.any(rows != rows[:1]):
            return None
        total = total + rows[0]
    return total


def _is_independent(chain: _Chain, graph: Graph) -> bool:
    """Return whether all data and first states are known before the first step."""
    later = {name for step in chain.steps for name in (step.state, step.cell) if name}
    for node in graph.nodes:
        if not later.isdisjoint(node.reads):
            later.update(node.outputs)
    read = {data.name for step in chain.data for data in step}
    return later.isdisjoint({*read, chain.state or "", chain.cell or ""} - {""})


# ** writing **


def _written(chain: _Chain, graph: Graph) -> Graph:
    """Return the graph in which a chain is one operator."""
    made = _with_states(chain, graph, from_all=False)
    inner = {step.state for step in chain.steps[:-1]}
    if any(not inner.isdisjoint(node.reads) for node in made.nodes) or inner & set(made.outputs):
        return _with_states(chain, graph, from_all=True)
    return made


def _with_states(chain: _Chain, graph: Graph, *, from_all: bool) -> Graph:
    """Write a chain as an operator whose results define the states.

    Args:
        chain: the chain.
        graph: the graph.
        from_all: whether the last state is read from the result that has all of them.
    """
    writing, steps = Writing(graph), len(chain.steps)
    producers = graph.producers
    writing.about(source for step in chain.steps for source in producers[step.state].sources)
    state = graph.types[chain.steps[0].state]
    assert isinstance(state, TensorType)
    samples, hidden = state.shape
    direction, data = _sequence(chain, graph, writing)
    layer = Layer(
        chain.steps[0].op,
        chain.parameters,
        data,
        samples=samples,
        hidden=hidden,
        state=chain.state,
        cell=chain.cell,
        direction=direction,
    )
    states = layer.states(writing)
    for number, step in enumerate(chain.steps):
        place = number if direction == "forward" else steps - 1 - number
        if number == steps - 1 and not from_all:
            writing.reshape(layer.last(1, writing), samples, hidden, name=step.state)
        else:
            element = writing.cut(states, 0, place, place + 1)
            writing.reshape(element, samples, hidden, name=step.state)
    last = chain.steps[-1]
    if last.cell:
        writing.reshape(layer.last(2, writing), samples, hidden, name=last.cell)
    return writing.result()


def _sequence(chain: _Chain, graph: Graph, writing: Writing) -> tuple[str, str]:
    """Return the direction, and the data of all steps as one value: [T, N, F]."""
    columns = [list(one) for one in zip(*chain.data, strict=True)]
    stretches = [stretch_of(one, graph) for one in columns]
    is_reverse = all(one is not None and one.is_reverse for one in stretches)
    parts = [
        stacked(column, writing)
        if stretch is None or stretch.is_reverse != is_reverse
        else whole(stretch, writing)
        for column, stretch in zip(columns, stretches, strict=True)
    ]
    return "reverse" if is_reverse else "forward", writing.concat(parts, axis=2)
