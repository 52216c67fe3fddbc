"""Operators that compute something else while a model is trained: batch normalisation, dropout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir

from eqsat_opt.errors import ModelError
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.values.dims import plain_symbol
from eqsat_opt.ir.values.types import DTYPE_CODES, TensorType
from eqsat_opt.training.tape import Tape

__all__ = [
    "Mask",
    "has_dropout",
    "with_batch_statistics",
    "with_masks",
    "with_plain_normalisations",
]

_RATIO, _MOMENTUM = 0.5, 0.9
"""Defaults of ONNX for the ratio of Dropout and the momentum of BatchNormalization."""


@dataclass(frozen=True)
class Mask:
    """A Dropout that became a product with a given mask.

    Attributes:
        node: the node of the model.
        input: the name of the mask, an input: 1 at elements that are kept, 0 at others.
        ratio: the share of elements to drop; kept elements are divided by 1 - ratio.
    """

    node: str
    input: str
    ratio: float


# ** dropout **


def has_dropout(model: onnx_ir.Model) -> bool:
    """Return whether a model has a Dropout that drops something in training."""
    return any(ratio for _, ratio in _dropouts(model.graph))


def _dropouts(graph: onnx_ir.Graph) -> Iterator[tuple[onnx_ir.Node, float]]:
    for node in graph:
        if node.op_type != "Dropout" or node.domain not in ("", "ai.onnx"):
            continue
        ratio = node.attributes.get_float("ratio", _RATIO)
        if len(node.inputs) > 1 and node.inputs[1] is not None:
            given = onnx_ir.convenience.get_const_tensor(node.inputs[1])
            if given is None:
                raise ModelError(
                    f"the ratio of {node.name!r} (Dropout) is computed; make it a constant"
                )
            ratio = float(np.asarray(given.numpy()).reshape(()))
        if not 0 <= ratio < 1:
            raise ModelError(
                f"the ratio of {node.name!r} (Dropout) is {ratio:g}; it must be below 1"
            )
        yield node, ratio


def with_masks(
    model: onnx_ir.Model, types: Mapping[str, TensorType]
) -> tuple[onnx_ir.Model, list[Mask]]:
    """Return a copy of a model in which each Dropout is a product with a mask, a new input.

    Args:
        model: the model, which is not changed.
        types: the types of its values.

    Raises:
        ModelError: the type of an operand is unknown, or a mask is read.
    """
    model = model.clone()
    graph, masks = model.graph, []
    for node, ratio in list(_dropouts(graph)):
        if not ratio:
            continue
        x = node.inputs[0]
        assert x is not None
        type_ = types.get(x.name or "")
        if type_ is None:
            raise ModelError(
                f"the shape of the operand of {node.name!r} (Dropout) is unknown; give the shapes "
                "of inputs with --fix-shape"
            )
        if len(node.outputs) > 1 and (node.outputs[1].uses() or node.outputs[1].is_graph_output()):
            raise ModelError(f"the mask of {node.name!r} (Dropout) is read; drop its readers")
        name = f"{node.outputs[0].name}.mask"
        dims = [size if isinstance(size, int) else plain_symbol(size) for size in type_.shape]
        element = onnx_ir.TensorType(onnx_ir.DataType(DTYPE_CODES[type_.dtype]))
        mask = onnx_ir.Value(name=name, type=element, shape=onnx_ir.Shape(dims))
        scale = onnx_ir.Value(
            name=f"{name}.scale",
            const_value=onnx_ir.tensor(
                np.asarray(1.0 / (1.0 - ratio), np.dtype(type_.dtype)), name=f"{name}.scale"
            ),
        )
        graph.register_initializer(scale)
        graph.inputs.append(mask)
        kept = onnx_ir.node("Mul", [x, mask], num_outputs=1)
        scaled = onnx_ir.node("Mul", [kept.outputs[0], scale], num_outputs=1)
        onnx_ir.convenience.replace_nodes_and_values(
            graph, node, [node], [kept, scaled], [node.outputs[0]], [scaled.outputs[0]]
        )
        masks.append(Mask(node.name or "", name, ratio))
    return model, masks


# ** batch normalisation **


def with_plain_normalisations(model: onnx_ir.Model) -> onnx_ir.Model:
    """Return a model whose batch normalisations read statistics that the model holds.

    Those of models that were written in training mode return the next statistics too, which a
    training graph returns anyway.

    Raises:
        ModelError: the next statistics are read.
    """
    if not any(map(_trains, model.graph)):
        return model
    model = model.clone()
    for node in list(model.graph):
        if not _trains(node):
            continue
        if any(value.uses() or value.is_graph_output() for value in node.outputs[1:]):
            raise ModelError(
                f"the statistics of {node.name!r} (BatchNormalization) are read; export the model "
                "without them"
            )
        kept = {n: a.value for n, a in node.attributes.items() if n in ("epsilon", "momentum")}
        plain = onnx_ir.node("BatchNormalization", node.inputs, kept, name=node.name)
        onnx_ir.convenience.replace_nodes_and_values(
            model.graph, node, [node], [plain], [node.outputs[0]], [plain.outputs[0]]
        )
    return model


def _trains(node: onnx_ir.Node) -> bool:
    is_batch = node.op_type == "BatchNormalization" and node.domain in ("", "ai.onnx")
    return is_batch and bool(node.attributes.get_int("training_mode", 0))


def with_batch_statistics(graph: Graph) -> tuple[Graph, dict[str, str]]:
    """Return a graph whose batch normalisations normalise by the statistics of the batch.

    Returns:
        The graph, and the statistics that the model holds to their next values: a share of the
        old value (the attribute ``momentum`` of the node), and the rest of the batch's. The
        variance is that of the batch as a population, as ONNX defines it.
    """
    momenta = _momenta(graph)
    tape = Tape(graph.with_nodes(()))
    updates: dict[str, str] = {}
    for node in graph.nodes:
        if node.op != "BatchNormalization" or node.inputs[3] in updates:
            tape.append(node)
            continue
        x, scale, shift, mean, variance = (tape.value(name) for name in node.inputs)
        axes = (0, *range(2, x.rank))
        column = (1, *scale.shape, *(1,) * (x.rank - 2))
        centred = x.apply("Center", axes=axes)
        normal = centred.apply("RmsN", axes=axes, epsilon=node.attr("epsilon"))
        scaled = normal * scale.reshape(*column)
        tape.apply("Add", scaled, shift.reshape(*column), name=node.output)
        found = (x.mean(axes, keepdims=False), (centred * centred).mean(axes, keepdims=False))
        share = momenta.get(node.output, _MOMENTUM)
        for old, new in zip((mean, variance), found, strict=True):
            updates[old.name] = (old * share + new * (1.0 - share)).name
    made = tape.graph(graph.inputs, (*graph.outputs, *updates.values()))
    return made, updates


def _momenta(graph: Graph) -> dict[str, float]:
    """Return the momentum of each batch normalisation of the model, by its result."""
    nodes = graph.model.graph if graph.model is not None else ()
    return {
        node.outputs[0].name: node.attributes.get_float("momentum", _MOMENTUM)
        for node in nodes
        if node.op_type == "BatchNormalization"
    }
