"""Recurrent layers, written step by step: their derivatives follow from the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat_opt.errors import ModelError
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.training.derivatives.table import defines
from eqsat_opt.training.tape import TapeValue

__all__: list[str] = []

_BIAS, _LENGTHS, _STATE, _CELL, _PEEPHOLES = 3, 4, 5, 6, 7
"""Numbers of the optional operands in ONNX; before these come data and both weights."""


@dataclass(frozen=True)
class _Run:
    """The results of one direction: states in the order of the data, the last state and cell."""

    states: tuple[TapeValue, ...]
    last: TapeValue
    cell: TapeValue


@dataclass(frozen=True)
class _Cell:
    """The parameters of one direction.

    Attributes:
        recurrent: recurrent weights, transposed: [hidden, gates * hidden].
        own_bias: the bias that is added to the recurrent product, if there is one.
        peepholes: weights of the cell in gates, if there are any.
        attrs: the attributes of the layer.
    """

    recurrent: TapeValue
    own_bias: TapeValue | None
    peepholes: TapeValue | None
    attrs: Mapping[str, Any]

    def product(self, state: TapeValue, lo: int = 0, hi: int | None = None) -> TapeValue:
        """Return the recurrent product with its bias, or columns of it."""
        weights, bias = self.recurrent, self.own_bias
        if hi is not None:
            weights = weights.apply("Slice", axis=1, lo=lo, hi=hi)
            bias = bias and bias.apply("Slice", axis=0, lo=lo, hi=hi)
        result = state @ weights
        return result if bias is None else result + bias


def _columns(x: TapeValue, number: int, size: int) -> TapeValue:
    return x.apply("Slice", axis=x.rank - 1, lo=number * size, hi=(number + 1) * size)


def _size(value: TapeValue) -> int:
    size = value.shape[-1]
    assert isinstance(size, int)
    return size


def _lstm(
    x: TapeValue, state: TapeValue, cell: TapeValue, layer: _Cell
) -> tuple[TapeValue, TapeValue]:
    size = _size(state)
    added = x + layer.product(state)
    inner, out, forget, new = (_columns(added, number, size) for number in range(4))
    if layer.peepholes is not None:
        of_inner, of_out, of_forget = (_columns(layer.peepholes, n, size) for n in range(3))
        inner, forget = inner + cell * of_inner, forget + cell * of_forget
    kept = forget.apply("Sigmoid") * cell
    cell = kept + inner.apply("Sigmoid") * new.apply("Tanh")
    if layer.peepholes is not None:
        out = out + cell * of_out
    return out.apply("Sigmoid") * cell.apply("Tanh"), cell


def _gru(
    x: TapeValue, state: TapeValue, cell: TapeValue, layer: _Cell
) -> tuple[TapeValue, TapeValue]:
    size = _size(state)
    both = x.apply("Slice", axis=x.rank - 1, lo=0, hi=2 * size)
    gates = (both + layer.product(state, 0, 2 * size)).apply("Sigmoid")
    update, reset = _columns(gates, 0, size), _columns(gates, 1, size)
    if layer.attrs["linear_before_reset"]:
        inner = reset * layer.product(state, 2 * size, 3 * size)
    else:
        inner = layer.product(reset * state, 2 * size, 3 * size)
    new = (_columns(x, 2, size) + inner).apply("Tanh")
    return (1.0 - update) * new + update * state, cell


def _rnn(
    x: TapeValue, state: TapeValue, cell: TapeValue, layer: _Cell
) -> tuple[TapeValue, TapeValue]:
    return (x + layer.product(state)).apply(layer.attrs["activation"]), cell


_STEPS = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}


def _direction(one: TapeValue, number: int) -> TapeValue:
    """Return the part of a parameter that belongs to a direction, without the axis of these."""
    return one.apply("Slice", axis=0, lo=number, hi=number + 1).reshape(*one.shape[1:])


def _run(
    kind: str,
    given: Mapping[int, TapeValue],
    number: int,
    is_reverse: bool,
    attrs: Mapping[str, Any],
) -> _Run:
    x = given[0]
    steps, samples, features = x.shape
    assert isinstance(steps, int)
    weights, recurrent = (_direction(given[place], number) for place in (1, 2))
    rows, hidden = recurrent.shape
    assert isinstance(rows, int)
    bias = _direction(given[_BIAS], number) if _BIAS in given else None
    layer = _Cell(
        recurrent.turned(),
        bias and bias.apply("Slice", axis=0, lo=rows, hi=2 * rows),
        _direction(given[_PEEPHOLES], number) if _PEEPHOLES in given else None,
        attrs,
    )
    zeros = x.tape.filled(0.0, TensorType(x.dtype, (samples, hidden)))
    state = _direction(given[_STATE], number) if _STATE in given else zeros
    cell = _direction(given[_CELL], number) if _CELL in given else zeros
    # One product for the data of all steps is faster than one for each.
    products = x.reshape(samples * steps, features) @ weights.turned()
    if bias is not None:
        products = products + bias.apply("Slice", axis=0, lo=0, hi=rows)
    products = products.reshape(steps, samples, rows)
    states: list[TapeValue] = []
    for place in range(steps - 1, -1, -1) if is_reverse else range(steps):
        row = products.apply("Slice", axis=0, lo=place, hi=place + 1).reshape(samples, rows)
        state, cell = _STEPS[kind](row, state, cell, layer)
        states.append(state)
    return _Run(tuple(states[::-1] if is_reverse else states), state, cell)


def _layer(kind: str, operands: Sequence[TapeValue], attrs: Mapping[str, Any]) -> TapeValue:
    given = dict(zip(attrs["given"], operands, strict=True))
    if _LENGTHS in given or not isinstance(given[0].shape[0], int):
        why = "lengths of sequences" if _LENGTHS in given else "an open number of steps"
        raise ModelError(
            f"{kind} has no derivative here with {why}; fix the number of steps with --fix-shape, "
            "or freeze the parameters before and in the layer"
        )
    directions = 2 if attrs["direction"] == "bidirectional" else 1
    runs = []
    for number in range(directions):
        is_reverse = attrs["direction"] == "reverse" or number == 1
        runs.append(_run(kind, given, number, is_reverse=is_reverse, attrs=attrs))
    tape, output = operands[0].tape, attrs["output"]
    if output:
        ends = [run.last if output == 1 else run.cell for run in runs]
        parts = [end.reshape(1, *end.shape) for end in ends]
        return tape.apply("Concat", *parts, axis=0)
    rows = []
    for run in runs:
        states = [state.reshape(1, 1, *state.shape) for state in run.states]
        rows.append(tape.apply("Concat", *states, axis=0))
    return tape.apply("Concat", *rows, axis=1)


def _defined(kind: str) -> None:
    @defines(kind)
    def definition(operands: Sequence[TapeValue], attrs: Mapping[str, Any]) -> TapeValue:
        return _layer(kind, operands, attrs)


for _kind in _STEPS:
    _defined(_kind)
