"""Recurrent layers: LSTM, GRU and RNN."""

from __future__ import annotations

from typing import Any

from eqsat_opt.ir.graph.graph import Node
from eqsat_opt.ir.onnx.export_context import ExportContext
from eqsat_opt.ir.onnx.import_context import ImportContext
from eqsat_opt.ir.onnx.mapping import Call, expect, literal_ints, reads, writes
from eqsat_opt.ir.ops.recurrences import DIRECTIONS, RECURRENCES

__all__: list[str] = []

_ACTIVATIONS = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh")}
"""Default activations of one direction, in lower case, to which all names are converted."""


@reads(*RECURRENCES)
def _read_recurrence(call: Call, context: ImportContext) -> None:
    """Read a layer with default activations, no clipping, and steps as the first axis.

    An RNN may have another activation of the registry. A layer on constants is left to the runtime,
    whose exponentials round in their own way.
    """
    op = call.op_type
    expect(any(name and name not in context.constants for name in call.inputs))
    expect(not call.get("layout", 0) and not call.get("input_forget", 0))
    expect("clip" not in call.attrs)
    expect(not call.get("activation_alpha", ()) and not call.get("activation_beta", ()))
    direction = call.get("direction", "forward")
    expect(direction in DIRECTIONS)
    count = 2 if direction == "bidirectional" else 1
    named = tuple(name.lower() for name in call.get("activations", ()))
    attrs: dict[str, Any] = {"direction": direction}
    if op == "RNN":
        activation = (named or ("tanh",))[0].capitalize()
        expect(named in ((), (activation.lower(),) * count))
        expect(activation in RECURRENCES[op].attrs["activation"])
        attrs["activation"] = activation
    else:
        expect(named in ((), _ACTIVATIONS[op] * count))
    if op == "GRU":
        attrs["linear_before_reset"] = int(bool(call.get("linear_before_reset", 0)))
    (hidden,) = literal_ints(context.type(call.inputs[2]).shape[2:])
    expect(call.get("hidden_size", hidden) == hidden)
    given = tuple(number for number, name in enumerate(call.inputs) if name)
    context.emit_outputs(op, [call.inputs[number] for number in given], given=given, **attrs)


@writes(*RECURRENCES)
def _write_recurrence(node: Node, context: ExportContext) -> None:
    attrs: dict[str, Any] = dict(node.attrs)
    given: Any = attrs.pop("given")
    operands = [""] * (max(given) + 1)
    for number, name in zip(given, node.inputs, strict=True):
        operands[number] = name
    count = 2 if attrs["direction"] == "bidirectional" else 1
    (attrs["hidden_size"],) = literal_ints(context.type(node.inputs[2]).shape[2:])
    activation = attrs.pop("activation", "Tanh")
    if activation != "Tanh":
        attrs["activations"] = (activation,) * count
    context.op_of_several(node.op, operands, node.outputs, **attrs)
