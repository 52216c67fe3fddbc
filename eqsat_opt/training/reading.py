"""Models of onnxruntime-training, whose gradient operators become plain operators."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnx_ir

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.errors import ModelError
from eqsat_opt.ir.graph.graph import OPAQUE, Graph
from eqsat_opt.ir.onnx.exporter import export_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.onnx.mapping import Call, Reader, Untranslatable
from eqsat_opt.ir.passes.simplification.simplify import simplify
from eqsat_opt.training.lowering import LOWERINGS, Given, Lowering
from eqsat_opt.training.tape import Tape, TapeValue

__all__ = ["has_gradient_operators", "lowered_model"]


def has_gradient_operators(model: onnx_ir.Model) -> bool:
    """Return whether a model has operators that only onnxruntime-training has."""
    return any(_is_gradient(node) for node in model.graph)


def _is_gradient(node: Any) -> bool:
    is_defined_elsewhere = node.domain not in ("", "ai.onnx", "com.microsoft")
    return not is_defined_elsewhere and node.op_type in LOWERINGS


def lowered_model(model: onnx_ir.Model) -> onnx_ir.Model:
    """Return a model with plain operators in place of gradient operators.

    A model without gradient operators is returned as it is.

    Raises:
        ModelError: a gradient operator cannot be lowered as it is applied.
    """
    if not has_gradient_operators(model):
        return model
    foreign = {name: _reader(lowering) for name, lowering in LOWERINGS.items()}
    graph = import_model(model, foreign=foreign)
    for node in graph.nodes:
        if node.op == OPAQUE and node.payload is not None and _is_gradient(node.payload):
            name = next(filter(None, (node.name, *node.outputs)))
            raise ModelError(
                f"{name!r} ({node.payload.op_type}) cannot be read as plain operators: its "
                "operands, their types or its attributes are not supported; give the shapes of "
                "inputs, or export the model without it"
            )
    return export_model(simplify(graph, Numerics.REASSOCIATE))


def _reader(lowering: Lowering) -> Reader:
    return partial(_read, lowering)


def _read(lowering: Lowering, call: Call, context: Any) -> None:
    """Read a call by its lowering, written on a tape of its own."""
    types = {name: context.type(name) for name in call.inputs if name}
    tape = Tape(Graph(tuple(types), (), (), {}, types=types))
    operands = [tape.value(name) if name else None for name in call.inputs]
    given = Given(tape, operands, call.attrs, lambda number: context.dims(call.inputs[number]))
    try:
        results = lowering(given)
    except ModelError as error:
        raise Untranslatable from error
    wanted = dict(zip(call.outputs, results, strict=False))
    if len(wanted) < len(call.outputs) or any(
        value is None for name, value in wanted.items() if name
    ):
        raise Untranslatable
    _copy(tape, {name: value for name, value in wanted.items() if name and value}, context)


def _copy(tape: Tape, results: dict[str, TapeValue], context: Any) -> None:
    """Define results of a call as values of a tape that begins with its operands."""
    targets: dict[str, str] = {}
    for name, value in results.items():
        targets.setdefault(value.name, name)
    places: dict[str, str] = {}

    def place(name: str) -> str:
        constant = tape.held(name)
        if name not in places and constant is not None:
            places[name] = context.constant(np.asarray(constant.load()))
        return places.get(name, name)

    done: set[str] = set()
    for value in results.values():
        for node in tape.part(value, frozenset()):
            if node.output not in done:
                done.add(node.output)
                inputs = [place(one) for one in node.inputs]
                target = targets.get(node.output)
                places[node.output] = context.emit(node.op, inputs, target, **dict(node.attrs))
    for name, value in results.items():
        if place(value.name) != name:
            context.alias(place(value.name), name)
