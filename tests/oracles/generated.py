"""Graphs of single operators, and models of single generated kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from eqsat_opt.ir.graph.graph import Graph, Node, attributes
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.runtime.backends.generated.kernel import FloatKernel
from eqsat_opt.runtime.backends.generated.lowering import lowered
from eqsat_opt.runtime.backends.generated.source import DOMAIN

__all__ = ["expected_of", "kernel_model", "operator_kernel"]

Array = NDArray[Any]


def operator_kernel(
    op: str, shapes: Sequence[Sequence[int]], attrs: Mapping[str, Any]
) -> FloatKernel:
    """The kernel of one operator on operands of these shapes."""
    names = tuple(f"x{i}" for i in range(len(shapes)))
    types = [TensorType("float32", tuple(shape)) for shape in shapes]
    result = get_op(op).type_fn(types, attrs)
    graph = Graph(
        inputs=names,
        outputs=("y",),
        nodes=(Node(op, names, ("y",), attributes(**attrs), sources=("node",)),),
        constants={},
        types={**dict(zip(names, types, strict=True)), "y": result},
    )
    kernel, inputs, _ = lowered(graph, graph.nodes, graph.outputs)
    assert inputs == tuple(name for name in names if name in inputs)
    return kernel


def expected_of(op: str, operands: Sequence[Array], attrs: Mapping[str, Any]) -> Array:
    """What the registry evaluates in float64, with attributes as float32 has them."""
    rounded = {k: float(np.float32(v)) if isinstance(v, float) else v for k, v in attrs.items()}
    with np.errstate(all="ignore"):
        return np.asarray(
            get_op(op).eval_fn(FLOAT, [x.astype(np.float64) for x in operands], rounded)
        )


def kernel_model(
    kernel: FloatKernel, shapes: Sequence[Sequence[int | str]] = ()
) -> onnx.ModelProto:
    """A model of one node; ``shapes`` are what the model says of its inputs, else the kernel's."""
    given = shapes or kernel.inputs
    float32 = TensorProto.FLOAT
    inputs = [helper.make_tensor_value_info(f"x{i}", float32, s) for i, s in enumerate(given)]
    outputs = [
        helper.make_tensor_value_info(f"y{i}", float32, s) for i, s in enumerate(kernel.outputs)
    ]
    node = helper.make_node(
        kernel.name,
        [value.name for value in inputs],
        [value.name for value in outputs],
        domain=DOMAIN,
        begins=[0] * len(given),
        kernel=kernel.to_json(),
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    graph = helper.make_graph([node], "kernel", inputs, outputs)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)
