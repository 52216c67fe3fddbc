"""Result types of operators that only onnxruntime knows, as it infers them when it loads a node."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir

from eqsat_opt.ir.values.dim_names import fresh_dim
from eqsat_opt.ir.values.dims import Dim, SymDim
from eqsat_opt.ir.values.types import DTYPE_CODES, TensorType, ValueType

__all__ = ["runtime_types"]

_IR_VERSION = 8

_STANDARD = ("", "ai.onnx", "ai.onnx.ml")
"""Domains of operators of which onnxruntime knows no more than onnx."""

_DTYPES = {"float": "float32", "double": "float64"}
"""Names of element types in onnxruntime that differ from ours."""


def runtime_types(
    node: onnx_ir.Node,
    operands: Sequence[ValueType | None],
    types: Sequence[ValueType],
    *,
    constant: Callable[[str], npt.NDArray[Any] | None],
    opsets: Mapping[str, int],
) -> list[ValueType]:
    """Fill in known types of the results of a node.

    Args:
        node: a node without bodies.
        operands: the types of its operands, ``None`` if absent or unknown.
        types: types of its results as far as they are already known; these stay.
        constant: the contents of a small constant by its name.
        opsets: the operator sets of the model.
    """
    known = list(types)
    if node.domain in _STANDARD or all(isinstance(type_, TensorType) for type_ in types):
        return known
    import onnxruntime  # slow to import, rarely needed

    proto = onnx_ir.to_proto(node)
    symbols: dict[str, Dim] = {}
    inputs, initializers = [], []
    for index, (name, type_) in enumerate(zip(list(proto.input), operands, strict=True)):
        if not name:
            continue
        if not isinstance(type_, TensorType):
            return known
        proto.input[index] = f"i{index}"
        array = constant(name)
        if array is not None:
            initializers.append(onnx.numpy_helper.from_array(np.asarray(array), f"i{index}"))
            continue
        code = DTYPE_CODES[type_.dtype]
        symbols.update((str(dim), dim) for dim in type_.shape if isinstance(dim, SymDim))
        dims = [dim if isinstance(dim, int) else str(dim) for dim in type_.shape]
        inputs.append(onnx.helper.make_tensor_value_info(f"i{index}", code, dims))
    for index, name in enumerate(proto.output):
        proto.output[index] = f"o{index}" if name else ""
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in proto.output if name]
    graph = onnx.helper.make_graph([proto], "node", inputs, outputs, initializers)
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=_IR_VERSION)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised as exceptions anyway
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception:  # an operator of a library of the user's, or one of another device
        return known
    for one in session.get_outputs():
        place = int(one.name[1:])
        name = node.outputs[place].name or ""
        element = re.fullmatch(r"tensor\((\w+)\)", one.type)
        dtype = _DTYPES.get(element[1], element[1]) if element else ""
        # No shape looks like that of a scalar.
        if one.shape and dtype in DTYPE_CODES and not isinstance(known[place], TensorType):
            shape = (
                dim if isinstance(dim, int) else symbols.get(dim or "", fresh_dim(name, axis))
                for axis, dim in enumerate(one.shape)
            )
            known[place] = TensorType(dtype, tuple(shape))
    return known
