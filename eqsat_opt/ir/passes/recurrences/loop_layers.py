"""Loops over the steps of a cell, written as layers: those of Keras with masks, and scans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.passes.recurrences.affine_forms import AffineForms, Block, ColumnRange, Data
from eqsat_opt.ir.passes.recurrences.cells import CellStep, steps_in
from eqsat_opt.ir.passes.recurrences.loops import LoopState, TensorLoop, loops_in, origin
from eqsat_opt.ir.passes.recurrences.parameters import Layer, Parameters, parameters_of
from eqsat_opt.ir.passes.recurrences.writing import Writing

__all__ = ["with_loop_layers"]

_ONE = np.ones((), np.int64)


@dataclass(frozen=True)
class _Choice:
    """A value of a body that is ``new`` where a mask holds, else ``old``."""

    mask: str
    new: str
    old: str


@dataclass(frozen=True)
class _Result:
    """A result of all steps, as a loop returns it.

    Attributes:
        name: the value outside.
        other: the value outside, [N, H], that it is where the mask does not hold.
        is_kept: whether it is that only until the first step that is taken, and then what the last
            one made.
    """

    name: str
    other: str = ""
    is_kept: bool = False


@dataclass(frozen=True)
class _Cell:
    """A loop over one step of a cell.

    Attributes:
        step: the step.
        parameters: its parameters.
        data: the value that its gates read besides the state, in the body.
        state, cell: the carried values; the cell only of an LSTM.
        mask: the value of the body that decides which samples take the step; "" if all do.
        results: the outputs of the loop with all steps.
    """

    step: CellStep
    parameters: Parameters
    data: tuple[Data, ...]
    state: LoopState
    cell: LoopState | None
    mask: str
    results: tuple[_Result, ...]


def with_loop_layers(graph: Graph, normal_form: Callable[[Graph], Graph]) -> Graph:
    """Return the graph with loops over one step of a cell as operators.

    1. A Loop or Scan whose body is a step of an LSTM or GRU is that operator; its results are all
       states.
    2. If a mask chooses between the next state and the present one, each sample's steps that are
       taken come first, in their order, and are put back after the layer. Where the mask does not
       hold, a result is what the loop chooses there.

    Args:
        graph: the graph, normalised.
        normal_form: returns the normal form of a body.
    """
    while True:
        for loop in loops_in(graph, normal_form):
            cell = _cell(loop, graph)
            if cell is not None:
                graph = _written(loop, cell, graph)
                break
        else:
            return graph


# ** the cell of a loop **


def _cell(loop: TensorLoop, graph: Graph) -> _Cell | None:
    body = loop.body
    before = {state.before: state for state in loop.states}
    for step in steps_in(AffineForms(body)):
        cell = before.get(step.cell_before or "") if step.op == "LSTM" else None
        if step.op == "LSTM" and cell is None:
            continue
        for state in loop.states:
            if state is cell or (step.before or state.before) != state.before:
                continue
            found = parameters_of(step, Data(state.before))
            type_ = graph.tensor_type(state.first)
            if found is None or type_ is None or type_.dtype != "float32" or type_.rank != 2:
                continue
            made = _fitted(loop, step, state, cell=cell, graph=graph)
            if made is not None and all(one.pick is None for one in found[1]):
                made = replace(made, parameters=found[0], data=found[1])
                if _is_whole(made, loop, graph):
                    return made
    return None


def _fitted(
    loop: TensorLoop, step: CellStep, state: LoopState, *, cell: LoopState | None, graph: Graph
) -> _Cell | None:
    """Return how a loop carries the states of a step, and what it returns; not yet parameters."""
    body = loop.body
    mask = ""
    pairs = [(state, step.state), *([(cell, step.cell)] if cell is not None else [])]
    for carried, new in pairs:
        if origin(carried.after, body) == new:
            continue
        choice = _choice(carried.after, body)
        if choice is None or (choice.new, choice.old) != (new, carried.before):
            return None
        if mask not in ("", choice.mask):
            return None
        mask = choice.mask
    if mask and any(origin(carried.after, body) == new for carried, new in pairs):
        return None
    results = [
        _result(outer, inner, step, state=state, mask=mask, loop=loop)
        for inner, outer in loop.results
    ]
    empty = Parameters((), (), ())
    made = tuple(one for one in results if one is not None)
    if len(made) < len(results):
        return None
    return _Cell(step, empty, (), state=state, cell=cell, mask=mask, results=made)


def _result(
    outer: str, inner: str, step: CellStep, *, state: LoopState, mask: str, loop: TensorLoop
) -> _Result | None:
    """Return what a value of the body is as a result, ``None`` if it is no state."""
    body = loop.body
    value = origin(inner, body)
    if not mask:
        return _Result(outer) if value == step.state else None
    if value == origin(state.after, body):
        return _Result(outer, state.first, is_kept=True)
    choice = _choice(inner, body)
    if choice is None or (choice.mask, choice.new) != (mask, step.state):
        return None
    for carried in loop.states:
        if choice.old == carried.before and (
            carried is state or origin(carried.after, body) == value
        ):
            return _Result(outer, carried.first, is_kept=True)
    return _Result(outer, choice.old) if choice.old in loop.node.captures else None


def _is_whole(cell: _Cell, loop: TensorLoop, graph: Graph) -> bool:
    """Return whether data and mask are elements of tensors, and all that is read is a result."""
    elements, body = loop.elements, loop.body
    sources = [elements.get(data.name) for data in cell.data]
    if None in sources or (cell.mask and cell.mask not in elements):
        return False
    if any(part.name not in body.constants for part in _parts(cell.parameters)):
        return False
    carried = [cell.state, *([cell.cell] if cell.cell is not None else [])]
    types = {graph.types.get(state.first) for state in carried}
    used = [state for state in loop.states if state.last and graph.uses[state.last]]
    others = {result.other for result in cell.results if result.other}
    types.update(graph.types.get(one) for one in others)
    if cell.mask:
        mask = graph.tensor_type(elements[cell.mask])
        if mask is None or mask.rank != 3 or mask.shape[2] != 1 or mask.dtype != "bool":
            return False
        return len(types) == 1 and not used
    if cell.cell in used and not isinstance(loop.steps, int):
        return False  # without a step, the last cell would be the first one
    return len(types) == 1 and all(state in carried for state in used)


def _parts(parameters: Parameters) -> Iterator[ColumnRange]:
    for block in parameters.recurrent:
        if block is not None:
            yield block.of
    for blocks in parameters.weights:
        yield from (block.of for block in blocks)
    for parts in (*parameters.bias, parameters.inner or ()):
        yield from parts


def _choice(name: str, body: Graph) -> _Choice | None:
    """Return the choice that a value is: Where(m, a, b), or m·a + (not m)·b in numbers."""
    node = body.producers.get(origin(name, body))
    if node is None:
        return None
    if node.op == "Where":
        return _Choice(*node.inputs)
    if node.op != "Add":
        return None
    for first, second in (node.inputs, node.inputs[::-1]):
        for mask, new in _factors(first, body):
            for other, old in _factors(second, body):
                truth, negated = _truth(mask, body), _truth(other, body)
                rest = body.producers.get(negated)
                if truth and rest is not None and rest.op == "Not" and rest.inputs[0] == truth:
                    return _Choice(truth, new, old)
    return None


def _factors(name: str, body: Graph) -> Iterator[tuple[str, str]]:
    node = body.producers.get(name)
    if node is not None and node.op == "Mul":
        yield node.inputs[0], node.inputs[1]
        yield node.inputs[1], node.inputs[0]


def _truth(name: str, body: Graph) -> str:
    """Return the truth value that a number is 1 for; "" for any other value."""
    node = body.producers.get(name)
    if node is None or node.op != "Cast":
        return ""
    type_ = body.tensor_type(node.inputs[0])
    return node.inputs[0] if type_ is not None and type_.dtype == "bool" else ""


# ** writing **


def _written(loop: TensorLoop, cell: _Cell, graph: Graph) -> Graph:
    writing = Writing(graph)
    writing.about(loop.node.sources)
    parameters = _outside(cell.parameters, loop.body, writing)
    data = writing.concat([loop.elements[one.name] for one in cell.data], axis=2)
    samples, hidden = writing.type(cell.state.first).shape
    mask = loop.elements[cell.mask] if cell.mask else ""
    if mask:
        taken = writing.apply("Cast", [mask], to="int64")
        order = writing.apply("TopK", [taken], axis=0, k=loop.steps, largest=1, output=1)
        data = _rearranged(data, order, writing)
    layer = Layer(
        cell.step.op,
        parameters,
        data,
        samples=samples,
        hidden=hidden,
        state=cell.state.first,
        cell=None if cell.cell is None else cell.cell.first,
    )
    if cell.results:
        states = layer.states(writing)
        if mask:
            count = writing.apply("CumSum", [taken], axis=0, exclusive=0, reverse=0)
            one = writing.constant("one", _ONE)
            places = writing.apply("Sub", [count, one])
            states = _rearranged(states, places, writing)
        for result in cell.results:
            if not mask:
                writing.reshape(states, *writing.type(states).shape, name=result.name)
                continue
            zero = writing.constant("zero", 0 * _ONE)
            holds = writing.apply("Greater", [count, zero]) if result.is_kept else mask
            other = writing.reshape(result.other, 1, samples, hidden)
            writing.apply("Where", [holds, states, other], name=result.name)
    for state, output in ((cell.state, 1), (cell.cell, 2)):
        if state is None or not state.last or not graph.uses[state.last]:
            continue
        if isinstance(loop.steps, int):
            value = layer.last(output, writing)
        else:  # without a step, the last state is the first one
            first = writing.reshape(cell.state.first, 1, samples, hidden)
            every = writing.concat([first, layer.states(writing)], axis=0)
            value = writing.apply("Gather", [every, writing.constant("last", -_ONE)], axis=0)
        writing.reshape(value, samples, hidden, name=state.last)
    return writing.result()


def _rearranged(values: str, places: str, writing: Writing) -> str:
    """Write the elements of values [T, N, F] at places [T, N, 1] of the first axis."""
    shape = writing.type(values).shape
    whole = writing.apply("Expand", [places], shape=shape)
    return writing.apply("GatherElements", [values, whole], axis=0)


def _outside(parameters: Parameters, body: Graph, writing: Writing) -> Parameters:
    """Return the parameters with constants of the body as those of the graph around it."""

    def held(part: ColumnRange) -> ColumnRange:
        return replace(part, name=writing.held(part.name, body.constants[part.name]))

    def block(one: Block) -> Block:
        return replace(one, of=held(one.of))

    inner = parameters.inner
    return Parameters(
        tuple(None if one is None else block(one) for one in parameters.recurrent),
        tuple(tuple(map(block, gate)) for gate in parameters.weights),
        tuple(tuple(map(held, gate)) for gate in parameters.bias),
        None if inner is None else tuple(map(held, inner)),
    )
