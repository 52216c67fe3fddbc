"""Evaluation of one ONNX node at a time, so that a graph under construction has sample values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, helper, numpy_helper

from eqsat_opt.ir.graph.evaluation import evaluate_operator
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.values.types import TensorType

__all__ = ["IR_VERSION", "OPSET", "Attribute", "Evaluator", "evaluator", "make_node"]

OPSET = 17
IR_VERSION = 8

Attribute = int | float | str | tuple[int, ...]
_Key = tuple[Any, ...]


def make_node(
    op_type: str,
    inputs: Sequence[str],
    output: str,
    attributes: Mapping[str, Attribute],
) -> NodeProto:
    """Return a node of the default domain, named after its only output."""
    node = helper.make_node(op_type, inputs, [output], name=output)
    node.attribute.extend(helper.make_attribute(*item) for item in sorted(attributes.items()))
    return node


Evaluator: TypeAlias = Callable[
    [str, Sequence[npt.NDArray[Any]], Mapping[str, Attribute]], npt.NDArray[Any]
]
"""A function from an operator of the default domain, its operands and attributes to its only
output."""


def evaluator() -> Evaluator:
    """Return the evaluator of nodes: onnxruntime, or where it is not installed the registry."""
    try:
        import onnxruntime
    except ImportError:
        return _by_registry
    return _Sessions(onnxruntime)


class _Sessions:
    """An evaluator of single nodes with onnxruntime, with one session per node signature.

    Sessions use one thread and no graph optimisation, so the same inputs give the same bits again.
    A session costs well under a millisecond, so a graph of thousands of nodes is traced in seconds.
    """

    def __init__(self, ort: Any) -> None:
        self._ort = ort
        self._options = ort.SessionOptions()
        self._options.intra_op_num_threads = 1
        self._options.inter_op_num_threads = 1
        self._options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        self._options.enable_cpu_mem_arena = False
        self._sessions: dict[_Key, Any] = {}

    def __call__(
        self,
        op_type: str,
        inputs: Sequence[npt.NDArray[Any]],
        attributes: Mapping[str, Attribute],
    ) -> npt.NDArray[Any]:
        signature = tuple((array.dtype.str, array.shape) for array in inputs)
        key: _Key = (op_type, tuple(sorted(attributes.items())), signature)
        if key not in self._sessions:
            self._sessions[key] = self._ort.InferenceSession(
                _model_of(op_type, inputs, attributes).SerializeToString(),
                self._options,
                providers=["CPUExecutionProvider"],
            )
        feeds = {f"x{i}": array for i, array in enumerate(inputs)}
        output: npt.NDArray[Any] = self._sessions[key].run(None, feeds)[0]
        return output


def _by_registry(
    op_type: str, inputs: Sequence[npt.NDArray[Any]], attributes: Mapping[str, Attribute]
) -> npt.NDArray[Any]:
    """Evaluate the operators of the registry to which a node is imported."""
    model = _model_of(op_type, inputs, attributes)
    values = {f"x{i}": array for i, array in enumerate(inputs)}
    for name, array in values.items():
        if array.dtype == np.int64:  # shapes and axes have to be known
            model.graph.initializer.append(numpy_helper.from_array(array, name))
    kept = [one for one in model.graph.input if values[one.name].dtype != np.int64]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    graph = import_model(load_model(model))
    values.update({name: np.asarray(one.load()) for name, one in graph.constants.items()})
    for node in graph.nodes:
        type_ = graph.types[node.outputs[0]]
        assert isinstance(type_, TensorType), f"{op_type} is no operator of the registry"
        operands = [values[name] for name in node.inputs]
        values[node.outputs[0]] = evaluate_operator(node.op, node.attrs, operands, type_)
    return values[graph.outputs[0]]


def _model_of(
    op_type: str, inputs: Sequence[npt.NDArray[Any]], attributes: Mapping[str, Attribute]
) -> ModelProto:
    """Build a model of one node, whose inputs are all inputs of the model."""
    values = [
        helper.make_tensor_value_info(
            f"x{i}", helper.np_dtype_to_tensor_dtype(np.dtype(array.dtype)), array.shape
        )
        for i, array in enumerate(inputs)
    ]
    node = make_node(op_type, [value.name for value in values], "y", attributes)
    graph = helper.make_graph([node], op_type, values, [helper.make_empty_tensor_value_info("y")])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
