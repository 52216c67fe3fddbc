"""Recurrent layers: LSTM, GRU and RNN, with each output as a function of its own.

The operands are those of ONNX without the absent ones; ``given`` has the numbers of those that are
present. LSTM and GRU have the default activations of ONNX.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat_opt.ir.ops._base import (
    OUTPUT,
    Array,
    AttrMap,
    Domain,
    EvalFn,
    FlopsFn,
    TypeFn,
    define,
    require,
)
from eqsat_opt.ir.values.dims import Dim, SymDim
from eqsat_opt.ir.values.types import FLOATS, TensorType

__all__ = ["DIRECTIONS", "RECURRENCES"]

DIRECTIONS = ("forward", "reverse", "bidirectional")
_BIAS, _LENGTHS, _STATE, _CELL, _PEEPHOLES = 3, 4, 5, 6, 7
"""Numbers of the optional operands; before these come data, weights and recurrent weights."""


@dataclass(frozen=True)
class Recurrence:
    """The definition of one kind of layer.

    Attributes:
        gates: number of gates; the weights have one block for each.
        outputs: number of outputs: all states, the last state, and the last cell.
        operands: number of operands that ONNX allows.
        step: returns the next state and cell, given the domain, the products of a step's data with
            the weights, the present state and cell, and the parameters of the layer.
        attrs: attributes with their values.
    """

    gates: int
    outputs: int
    operands: int
    step: Callable[[Domain, Array, tuple[Array, Array], _Layer], tuple[Array, Array]]
    attrs: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Layer:
    """Parameters of one direction: weights, recurrent weights, biases, peepholes, attributes."""

    weights: Array
    recurrent: Array
    bias: Array
    own_bias: Array
    peepholes: Array | None
    attrs: AttrMap


def _split(x: Array, parts: int) -> list[Array]:
    return np.split(x, parts, axis=-1)


def _lstm(d: Domain, x: Array, states: tuple[Array, Array], layer: _Layer) -> tuple[Array, Array]:
    """Compute one step of an LSTM, whose gates are input, output, forget and cell in order."""
    h, c = states
    added = d.add(d.add(x, d.matmul(h, layer.recurrent.T)), layer.own_bias)
    i, o, f, g = _split(added, 4)
    if layer.peepholes is not None:
        of_i, of_o, of_f = _split(layer.peepholes, 3)
        i, f = d.add(i, d.mul(c, of_i)), d.add(f, d.mul(c, of_f))
    kept = d.mul(d.apply("Sigmoid", {}, f), c)
    c = d.add(kept, d.mul(d.apply("Sigmoid", {}, i), d.apply("Tanh", {}, g)))
    if layer.peepholes is not None:
        o = d.add(o, d.mul(c, of_o))
    return d.mul(d.apply("Sigmoid", {}, o), d.apply("Tanh", {}, c)), c


def _gru(d: Domain, x: Array, states: tuple[Array, Array], layer: _Layer) -> tuple[Array, Array]:
    """Compute one step of a GRU, whose gates are update, reset and hidden in order."""
    h, c = states
    x_zr, x_h = x[..., : -h.shape[-1]], x[..., -h.shape[-1] :]
    size = h.shape[-1]
    recurrent, bias = layer.recurrent, layer.own_bias
    zr = d.add(d.add(x_zr, d.matmul(h, recurrent[:-size].T)), bias[:-size])
    z, r = _split(d.apply("Sigmoid", {}, zr), 2)
    if layer.attrs["linear_before_reset"]:
        inner = d.mul(r, d.add(d.matmul(h, recurrent[-size:].T), bias[-size:]))
    else:
        inner = d.add(d.matmul(d.mul(r, h), recurrent[-size:].T), bias[-size:])
    new = d.apply("Tanh", {}, d.add(x_h, inner))
    rest = d.sub(np.broadcast_to(d.constant(1, z), z.shape), z)
    return d.add(d.mul(rest, new), d.mul(z, h)), c


def _rnn(d: Domain, x: Array, states: tuple[Array, Array], layer: _Layer) -> tuple[Array, Array]:
    h, c = states
    added = d.add(d.add(x, d.matmul(h, layer.recurrent.T)), layer.own_bias)
    return d.apply(layer.attrs["activation"], {}, added), c


RECURRENCES: Mapping[str, Recurrence] = {
    "LSTM": Recurrence(4, outputs=3, operands=8, step=_lstm),
    "GRU": Recurrence(3, outputs=2, operands=6, step=_gru, attrs={"linear_before_reset": (0, 1)}),
    "RNN": Recurrence(
        1, outputs=2, operands=6, step=_rnn, attrs={"activation": ("Tanh", "Relu", "Sigmoid")}
    ),
}
"""Kinds of recurrent layers by operator."""


def _typing(kind: Recurrence) -> TypeFn:
    def type_(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
        given = tuple(attrs["given"])
        require(given[:3] == (0, 1, 2) and len(given) == len(inputs), "operands {}", given)
        require(list(given) == sorted(set(given)) and max(given) < kind.operands, "{}", given)
        x, weights, recurrent = inputs[:3]
        ranks = [x.rank for x in inputs]
        wanted = [{_BIAS: 2, _LENGTHS: 1, _PEEPHOLES: 2}.get(number, 3) for number in given]
        require(ranks == wanted, "operands of ranks {}", ranks)
        dtypes = {one.dtype for one, n in zip(inputs, given, strict=True) if n != _LENGTHS}
        require(len(dtypes) == 1 and dtypes <= FLOATS, "a layer of {}", inputs)
        lengths = [one for one, n in zip(inputs, given, strict=True) if n == _LENGTHS]
        require(all(one.dtype == "int32" for one in lengths), "lengths {}", lengths)
        steps, samples, features = x.shape
        directions = 2 if attrs["direction"] == "bidirectional" else 1
        hidden = recurrent.shape[2]
        require(steps != 0 and samples != 0, "a sequence of nothing")
        fits = recurrent.shape == (directions, hidden * kind.gates, hidden)
        fits = fits and weights.shape[:2] == (directions, hidden * kind.gates)
        both = weights.shape[2], features
        fits = fits and (both[0] == both[1] or any(isinstance(size, SymDim) for size in both))
        require(fits, "weights {} and {} for {}", weights, recurrent, x)
        if attrs[OUTPUT] == 0:
            return TensorType(x.dtype, (steps, directions, samples, hidden))
        return TensorType(x.dtype, (directions, samples, hidden))

    return type_


def _flops(kind: Recurrence) -> FlopsFn:
    def flops(inputs: Sequence[TensorType], _output: TensorType, _attrs: AttrMap) -> Dim:
        steps, samples, features = inputs[0].shape
        directions, rows, hidden = inputs[2].shape
        return steps * samples * directions * rows * ((features + hidden) * 2 + 10)

    return flops


def _evaluating(kind: Recurrence) -> EvalFn:
    def evaluate(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
        given = dict(zip(attrs["given"], operands, strict=True))
        directions = 2 if attrs["direction"] == "bidirectional" else 1
        parts = []
        for number in range(directions):
            is_reverse = attrs["direction"] == "reverse" or number == 1
            parts.append(_run(domain, kind, given, direction=(number, is_reverse), attrs=attrs))
        axis = 1 if attrs[OUTPUT] == 0 else 0
        return np.stack([part[attrs[OUTPUT]] for part in parts], axis=axis)

    return evaluate


def _run(
    domain: Domain,
    kind: Recurrence,
    given: Mapping[int, Array],
    direction: tuple[int, bool],
    attrs: AttrMap,
) -> tuple[Array, Array, Array]:
    """Return all states of one direction, the last state, and the last cell."""
    number, is_reverse = direction
    x, weights, recurrent = given[0], given[1][number], given[2][number]
    steps, samples, _ = x.shape
    rows, hidden = recurrent.shape
    bias = given[_BIAS][number] if _BIAS in given else np.zeros(2 * rows, x.dtype)
    peepholes = given[_PEEPHOLES][number] if _PEEPHOLES in given else None
    layer = _Layer(
        weights, recurrent, bias[:rows], own_bias=bias[rows:], peepholes=peepholes, attrs=attrs
    )
    zeros = np.zeros((samples, hidden), x.dtype)
    state = given[_STATE][number] if _STATE in given else zeros
    cell = given[_CELL][number] if _CELL in given else zeros
    lengths = given.get(_LENGTHS, np.full(samples, steps)).astype(np.int64)
    states = np.zeros((steps, samples, hidden), x.dtype)
    for step in range(steps):
        # In reverse direction, each sequence begins at its own last element.
        places = lengths - 1 - step if is_reverse else np.full(samples, step)
        alive = step < lengths
        taken = x[np.where(alive, places, 0), np.arange(samples)]
        product = domain.add(domain.matmul(taken, layer.weights.T), layer.bias)
        new_state, new_cell = kind.step(domain, product, (state, cell), layer)
        state = np.where(alive[:, None], new_state, state)
        cell = np.where(alive[:, None], new_cell, cell)
        states[places[alive], np.flatnonzero(alive)] = new_state[alive]
    return states, state, cell


for _name, _kind in RECURRENCES.items():
    _attrs: dict[str, Any] = {
        "given": "ints",
        "direction": "str",
        OUTPUT: "int",
        **{
            key: "int" if isinstance(values[0], int) else "str"
            for key, values in _kind.attrs.items()
        },
    }
    define(
        "contraction",
        _name,
        _attrs,
        _typing(_kind),
        eval_fn=_evaluating(_kind),
        arity=(3, _kind.operands),
        flops=_flops(_kind),
        choices={
            "direction": DIRECTIONS,
            OUTPUT: tuple(range(_kind.outputs)),
            **_kind.attrs,
        },
    )
