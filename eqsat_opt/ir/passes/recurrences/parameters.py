"""The parameters of a step of a recurrent cell, and the layer that has them as an operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat_opt.ir.passes.recurrences.affine_forms import AffineForm, Block, ColumnRange, Data
from eqsat_opt.ir.passes.recurrences.cells import CellStep
from eqsat_opt.ir.passes.recurrences.writing import Writing
from eqsat_opt.ir.values.dims import Dim, dim_max

__all__ = ["Layer", "Parameters", "parameters_of"]


@dataclass(frozen=True)
class Parameters:
    """The weights and biases of a step, equal for all steps of a layer.

    Attributes:
        recurrent: for each gate what multiplies the state, ``None`` where nothing does.
        weights: for each gate what multiplies the data.
        bias: for each gate what is added.
        inner: the addend of the last gate of a GRU before the reset gate; ``None`` without one.
    """

    recurrent: tuple[Block | None, ...]
    weights: tuple[tuple[Block, ...], ...]
    bias: tuple[tuple[ColumnRange, ...], ...]
    inner: tuple[ColumnRange, ...] | None = None


@dataclass(frozen=True)
class Layer:
    """A layer as an operator.

    Attributes:
        op: ``LSTM`` or ``GRU``.
        parameters: weights and biases.
        data: the input of all steps: [T, N, F].
        samples, hidden: sizes N and H of a state.
        state, cell: the values before the first step, [N, H]; ``None`` for zeros.
        direction: ``forward`` or ``reverse``.
    """

    op: str
    parameters: Parameters
    data: str
    samples: Dim
    hidden: Dim
    state: str | None = None
    cell: str | None = None
    direction: str = "forward"

    def states(self, writing: Writing) -> str:
        """Write the states after all steps, in the order of the data: [T, N, H]."""
        steps = writing.type(self.data).shape[0]
        shape = (_at_least_one(steps) if self.op == "GRU" else steps, _at_least_one(self.samples))
        value = writing.reshape(self._written(0, writing), *shape, self.hidden)
        value = _trimmed(value, 1, self.samples, writing=writing)
        return _trimmed(value, 0, steps, writing=writing)

    def last(self, output: int, writing: Writing) -> str:
        """Write the last state, of output 1, or the last cell, of output 2: [1, N, H].

        The layer has at least one step.
        """
        return _trimmed(self._written(output, writing), 1, self.samples, writing=writing)

    def _written(self, output: int, writing: Writing) -> str:
        """Write the operator with all that it reads, and return one of its results.

        onnxruntime ends the process if there is no sample, and in a GRU if there is no step; one of
        zeros is added then.

        Args:
            output: 0 for all states [T, 1, N, H], 1 for the last, 2 for the last cell [1, N, H].
            writing: where it is written.
        """
        data = _filled(self.data, 1, writing)
        operands = {0: _filled(data, 0, writing) if self.op == "GRU" else data}
        operands.update(_weights(self.parameters, writing, self.hidden))
        for number, first in ((5, self.state), (6, self.cell)):
            if first is not None and (number == 5 or self.op == "LSTM"):
                whole = writing.reshape(first, 1, self.samples, self.hidden)
                operands[number] = _filled(whole, 1, writing)
        attrs: dict[str, Any] = {"given": tuple(operands), "direction": self.direction}
        if self.op == "GRU":
            attrs["linear_before_reset"] = int(self.parameters.inner is not None)
        return writing.apply(self.op, tuple(operands.values()), output=output, **attrs)


def _at_least_one(size: Dim) -> Dim:
    return size if isinstance(size, int) else dim_max(size, 1)


def _filled(value: str, axis: int, writing: Writing) -> str:
    """Add one element of zeros along an axis that may be empty, if it is."""
    type_ = writing.type(value)
    size = type_.shape[axis]
    if isinstance(size, int):
        return value
    zero = writing.constant("zero", np.zeros((1,) * type_.rank, np.float32))
    shape = (*type_.shape[:axis], _at_least_one(size) - size, *type_.shape[axis + 1 :])
    return writing.concat([value, writing.apply("Expand", [zero], shape=shape)], axis)


def _trimmed(value: str, axis: int, size: Dim, *, writing: Writing) -> str:
    """Keep the first elements of an axis that was filled."""
    if writing.type(value).shape[axis] == size:
        return value
    return writing.apply("Gather", [value, writing.numbers(size)], axis=axis)


def parameters_of(step: CellStep, state: Data | None) -> tuple[Parameters, tuple[Data, ...]] | None:
    """Return the parameters of a step and its data, ``None`` if its gates do not fit together.

    Args:
        step: the step.
        state: the state that it reads; ``None`` if it was folded.
    """
    recurrent: list[Block | None] = []
    weights: list[tuple[Block, ...]] = []
    data: tuple[Data, ...] | None = None
    for number, gate in enumerate(step.gates):
        is_new = number == 2 and step.op == "GRU"
        of_state = Data(step.reset) if is_new and step.reset else state
        if is_new and step.inner is not None:
            of_state = None
        own = [block for one, block in gate.products if one == of_state]
        rest = {one: block for one, block in gate.products if one != of_state}
        if len(own) > 1 or len(own) + len(rest) != len(gate.products) or gate.addends:
            return None
        if data is None:
            data = tuple(rest)
        if set(rest) != set(data) and gate.products:
            return None
        recurrent.append(own[0] if own else None)
        weights.append(tuple(rest[one] for one in data) if gate.products else ())
    inner = None
    if isinstance(step.inner, AffineForm):
        if step.inner.addends or [one for one, _ in step.inner.products] != [state]:
            return None
        recurrent[2] = step.inner.products[0][1]
        inner = _ordered(step.inner.bias)
    if isinstance(step.inner, ColumnRange):
        inner = (step.inner,)
    if state is not None and None in recurrent:
        return None
    bias = tuple(_ordered(gate.bias) for gate in step.gates)
    if not data:
        return None
    return Parameters(tuple(recurrent), tuple(weights), bias, inner), data


def _ordered(parts: Sequence[ColumnRange]) -> tuple[ColumnRange, ...]:
    return tuple(sorted(parts, key=lambda part: (part.name, part.lo)))


def _weights(parameters: Parameters, writing: Writing, hidden: object) -> dict[int, str]:
    """Write the weights [1, G·H, F], recurrent weights [1, G·H, H] and biases [1, 2·G·H]."""
    assert isinstance(hidden, int)
    weights = [
        writing.concat([writing.block(block) for block in gate], axis=0)
        for gate in parameters.weights
    ]
    recurrent = [writing.block(block) for block in parameters.recurrent if block is not None]
    operands = {}
    for number, blocks in ((1, weights), (2, recurrent)):
        matrix = writing.apply("Transpose", [writing.concat(blocks, axis=1)], perm=(1, 0))
        operands[number] = writing.reshape(matrix, 1, *writing.type(matrix).shape)
    if any(parameters.bias) or parameters.inner:
        gates = len(parameters.bias)
        sums = (*parameters.bias, *[()] * (gates - 1), parameters.inner or ())
        vectors = [writing.vectors(parts, hidden, "float32") for parts in sums]
        operands[3] = writing.reshape(writing.concat(vectors, axis=0), 1, 2 * gates * hidden)
    return operands
