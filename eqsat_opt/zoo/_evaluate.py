"""Run one ONNX node at a time, so that a graph under construction knows what it computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
from onnx import NodeProto, helper

__all__ = ["IR_VERSION", "OPSET", "Attribute", "NodeEvaluator", "make_node"]

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


class NodeEvaluator:
    """Evaluates single nodes with onnxruntime, with one session per node signature.

    One thread and no graph optimisation: the same inputs give the same bits again, and a session
    costs well under a millisecond, so a graph of thousands of nodes is traced in seconds.
    """

    def __init__(self) -> None:
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
        """Return the only output of one node of the default domain."""
        signature = tuple((array.dtype.str, array.shape) for array in inputs)
        key: _Key = (op_type, tuple(sorted(attributes.items())), signature)
        if key not in self._sessions:
            self._sessions[key] = self._session(op_type, inputs, attributes)
        feeds = {f"x{i}": array for i, array in enumerate(inputs)}
        output: npt.NDArray[Any] = self._sessions[key].run(None, feeds)[0]
        return output

    def _session(
        self,
        op_type: str,
        inputs: Sequence[npt.NDArray[Any]],
        attributes: Mapping[str, Attribute],
    ) -> Any:
        values = [
            helper.make_tensor_value_info(
                f"x{i}", helper.np_dtype_to_tensor_dtype(np.dtype(array.dtype)), array.shape
            )
            for i, array in enumerate(inputs)
        ]
        node = make_node(op_type, [value.name for value in values], "y", attributes)
        graph = helper.make_graph(
            [node], op_type, values, [helper.make_empty_tensor_value_info("y")]
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
        )
        return ort.InferenceSession(
            model.SerializeToString(), self._options, providers=["CPUExecutionProvider"]
        )
