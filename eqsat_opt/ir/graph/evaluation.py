"""Evaluation of operators and kernels in NumPy, as the registry defines them; needs no onnx."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_opt.ir.graph.graph import Attrs
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.ir.values.types import StaticType, TensorType, numpy_dtype

__all__ = ["evaluate_kernel", "evaluate_operator"]

Array = npt.NDArray[Any]


def evaluate_operator(op: str, attrs: Attrs, operands: Sequence[Array], type_: TensorType) -> Array:
    """Return the value of an operator of the registry, in the element type of ``type_``."""
    if isinstance(type_, StaticType) and 0 in type_.shape:  # Not all operators accept empty arrays.
        return np.zeros(type_.shape, numpy_dtype(type_.dtype))
    with np.errstate(all="ignore"):
        result = get_op(op).eval_fn(FLOAT, operands, dict(attrs))
    return np.asarray(result).astype(numpy_dtype(type_.dtype), copy=False)


def evaluate_kernel(kernel: Kernel, operands: Sequence[Array]) -> list[Array]:
    """Return the outputs of a kernel of literal sizes; they may share memory with the operands."""
    values = list(operands)
    for number, step in enumerate(kernel.steps, start=len(operands)):
        arguments = [values[i] for i in step.operands]
        values.append(evaluate_operator(step.op, step.attrs, arguments, kernel.types[number]))
    return [values[i] for i in kernel.outputs]
