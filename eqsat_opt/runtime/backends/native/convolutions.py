"""Which convolutions of a model as onnxruntime runs it our kernels can take over, and how.

They read and write the same blocked buffers, so that a node is replaced alone, with nothing around
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import helper

__all__ = ["DOMAIN", "Algorithm", "Convolution", "convolutions", "with_algorithms", "with_names"]

DOMAIN = "eqsat_opt"
"""Of the operators of our library."""

_BLOCKED = "com.microsoft.nchwc"


@dataclass(frozen=True)
class Algorithm:
    """Winograd's minimal filtering F(m, r) along both axes.

    Attributes:
        tile: outputs per tile, height and width: the m.
        in_run: whether weights are transformed in each run, which reads and keeps less memory, and
            not once when the model is loaded.
    """

    tile: tuple[int, int]
    in_run: bool = False

    def __str__(self) -> str:
        return f"winograd-{self.tile[0]}x{self.tile[1]}{'-in-run' if self.in_run else ''}"

    @property
    def outputs(self) -> int:
        """Outputs per tile: the more, the fewer products and the larger the errors."""
        return self.tile[0] * self.tile[1]


def _both(*tiles: tuple[int, int]) -> tuple[Algorithm, ...]:
    return tuple(Algorithm(tile, in_run) for tile in tiles for in_run in (False, True))


_ALGORITHMS: Mapping[tuple[int, int], Sequence[Algorithm]] = {
    (3, 3): _both((2, 2), (4, 4)),
    (5, 5): _both((2, 2), (4, 4)),
    (1, 3): _both((1, 4)),
    (3, 1): _both((4, 1)),
    (1, 7): _both((1, 2)),
    (7, 1): _both((2, 1)),
}
"""By kernel; what the library was compiled for."""

_ACTIVATIONS: Mapping[str, tuple[int, int]] = {
    "": (0, 0),
    "Relu": (1, 0),
    "LeakyRelu": (2, 1),
    "Clip": (3, 2),
    "Sigmoid": (4, 0),
    "HardSigmoid": (5, 2),
}
"""What onnxruntime fuses: our number of it, and how many parameters it has."""


@dataclass(frozen=True)
class Convolution:
    """A node that can be replaced, and by what.

    Attributes:
        name: of the node.
        algorithms: any of which computes it.
    """

    name: str
    algorithms: tuple[Algorithm, ...]


def with_names(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model, its nodes renamed so that no two have one name."""
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    for i, node in enumerate(copied.graph.node):
        node.name = f"{i}:{node.op_type}"
    return copied


def convolutions(model: onnx.ModelProto, block: int) -> Iterator[Convolution]:
    """The nodes that can be replaced.

    Args:
        model: a graph as onnxruntime optimises it on this machine, its nodes with names.
        block: channels per block here.
    """
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.domain == _BLOCKED and node.op_type == "Conv":
            weights = shapes.get(node.input[1], ())
            if len(weights) == 4 and _is_plain(node, weights, shapes, block):
                found = _ALGORITHMS.get((weights[2], weights[3]), ())
                if found:
                    yield Convolution(node.name, tuple(found))


def with_algorithms(
    model: onnx.ModelProto, chosen: Mapping[str, Algorithm], block: int
) -> onnx.ModelProto:
    """The model with some nodes replaced.

    Args:
        model: the one whose `convolutions` these are.
        chosen: name of a node to how it shall be computed.
        block: channels per block here.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for node in result.graph.node:
        if node.name in chosen:
            _replace(node, chosen[node.name], block)
    if all(opset.domain != DOMAIN for opset in result.opset_import):
        result.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return result


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _is_plain(
    node: onnx.NodeProto,
    weights: Sequence[int],
    shapes: Mapping[str, Sequence[int]],
    block: int,
) -> bool:
    """Whether it is a convolution of one group without strides, on whole blocks."""
    attrs = _attributes(node)
    activation, parameters = _activation(node)
    return (
        attrs.get("auto_pad", b"NOTSET") == b"NOTSET"
        and attrs.get("group", 1) == 1
        and all(one == 1 for name in ("strides", "dilations") for one in attrs.get(name) or ())
        and weights[0] % block == 0
        and weights[1] % block == 0
        and activation in _ACTIVATIONS
        and len(parameters) == _ACTIVATIONS[activation][1]
        and (len(node.input) < 3 or not node.input[2] or node.input[2] in shapes)
    )


def _activation(node: onnx.NodeProto) -> tuple[str, tuple[float, ...]]:
    attrs = _attributes(node)
    name = attrs.get("activation", b"")
    parameters = attrs.get("activation_params") or ()
    return name.decode(), tuple(parameters)


def _replace(node: onnx.NodeProto, algorithm: Algorithm, block: int) -> None:
    attrs = _attributes(node)
    name, parameters = _activation(node)
    alpha, beta = (*parameters, 0.0, 0.0)[:2]
    made = helper.make_node(
        "WinogradConv",
        list(node.input),
        list(node.output),
        name=node.name,
        domain=DOMAIN,
        block=block,
        pads=list(attrs.get("pads") or (0, 0, 0, 0)),
        tile=list(algorithm.tile),
        transform_in_run=int(algorithm.in_run),
        activation=_ACTIVATIONS[name][0],
        alpha=float(alpha),
        beta=float(beta),
    )
    node.CopyFrom(made)
