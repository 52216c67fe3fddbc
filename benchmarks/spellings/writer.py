"""Models written node by node, and what they spell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = [
    "HEADS",
    "HEAD_SIZE",
    "LAYER_EPSILON",
    "RMS_EPSILON",
    "SHAPE",
    "WIDTH",
    "Spelling",
    "Writer",
    "spelled",
]

SHAPE = (2, 6, 24)
HEADS, HEAD_SIZE, WIDTH = 4, 6, 24
LAYER_EPSILON, RMS_EPSILON = 1e-5, 1e-6


@dataclass(frozen=True)
class Spelling:
    """One model and the operator that it does, or does not, spell.

    Attributes:
        family: as the table calls it.
        name: what was varied.
        model: with input ``x`` and output ``y``.
        op: registry operator.
        attrs: attributes that it has.
        anywhere: whether the operator may equal any value and not only the output.
    """

    family: str
    name: str
    model: onnx.ModelProto
    op: str
    attrs: dict[str, float | str] = field(default_factory=dict)
    anywhere: bool = False


class Writer:
    """Writes a model node by node; values are names."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)]
        self.rng = np.random.default_rng(0)

    def __call__(self, op: str, *operands: str | float, **attrs: Any) -> str:
        """A node; numbers become constants."""
        names = [o if isinstance(o, str) else self.constant(np.float32(o)) for o in operands]
        output = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, names, [output], **attrs))
        return output

    def constant(self, value: npt.ArrayLike) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def vector(self, *shape: int) -> str:
        """A weight of single precision."""
        drawn = self.rng.standard_normal(shape or (WIDTH,))
        return self.constant((0.5 * drawn).astype(np.float32))

    def ints(self, *values: int) -> str:
        return self.constant(np.asarray(values, np.int64))

    def input(self, name: str, *shape: int) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def model(self, output: str) -> onnx.ModelProto:
        node = helper.make_node("Identity", [output], ["y"])
        result = helper.make_empty_tensor_value_info("y")
        graph = helper.make_graph(
            [*self.nodes, node], "spelling", self.inputs, [result], self.constants
        )
        opsets = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def spelled(
    family: str, name: str, write: Callable[[Writer], str], op: str, **attrs: float | str
) -> Spelling:
    writer = Writer()
    return Spelling(family, name, writer.model(write(writer)), op, attrs, family == "attention")
