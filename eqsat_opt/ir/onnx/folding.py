"""Evaluation of nodes whose operands are known before a model runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir

from eqsat_opt.ir.graph.evaluation import evaluate_operator
from eqsat_opt.ir.graph.graph import Constant, Node
from eqsat_opt.ir.graph.handles import (
    Expression,
    derived_constant,
    held_bytes,
    is_expensive,
    splat_constant,
    splat_value,
)
from eqsat_opt.ir.onnx.types import inner_graphs
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.ops.global_pool import GLOBAL_POOLS
from eqsat_opt.ir.values.dims import literal
from eqsat_opt.ir.values.types import StaticType, TensorType

__all__ = [
    "evaluate",
    "evaluate_opaque",
    "exact_value",
    "fold",
    "folding_flops",
    "is_deterministic",
    "is_exact",
    "rounds_alike",
]

Array = npt.NDArray[Any]

_RANDOM = frozenset(
    {
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Dropout",
    }
)
_LARGEST_POWER = 8
_LARGEST_ROOT = 8

_IR_VERSION = 10
"""IR version of the one-node models for onnxruntime, which reads no version above its own."""


def is_deterministic(node: onnx_ir.Node) -> bool:
    """Return whether the operators of a node are known to give the same result each time."""
    inner = (one for graph in inner_graphs(node) for one in graph)
    return node.domain == "" and node.op_type not in _RANDOM and all(map(is_deterministic, inner))


def is_exact(op: str) -> bool:
    """Return whether all implementations of an operator agree to the last bit."""
    known = get_op(op)
    return known.kind == "movement" or "determined" in known.traits


def rounds_alike(function: str) -> bool:
    """Return whether an elementwise function gives the same bits at every position in its operand.

    Libraries compute several elements at once and the last few by another routine. Where IEEE 754
    does not determine the result (an exponential, a logarithm) the two differ in the last bit, in
    up to one element of a hundred.
    """
    traits = get_op(function).traits
    return function == "LeakyRelu" or "determined" in traits or "exact" in traits


def evaluate(node: Node, operands: Sequence[Array], type_: TensorType) -> Array:
    """Return the value of a registry node, in its element type."""
    return evaluate_operator(node.op, node.attrs, operands, type_)


def exact_value(node: Node, operands: Sequence[Array], type_: TensorType) -> Array | None:
    """Evaluate a registry node on floats if every implementation gives exactly these bits.

    Libraries round most functions in their own ways, but every library returns the exact result if
    it is a number of the type, such as the root of a size that gives the rows of a square.
    """
    if is_exact(node.op):
        return evaluate(node, operands, type_)
    if node.op != "Pow":
        return None
    value = evaluate(node, operands, type_)
    return value if _is_power(*(float(one.reshape(())) for one in (value, *operands))) else None


def _is_power(value: float, base: float, exponent: float) -> bool:
    """Return whether ``value`` is exactly a small power of ``base``, or a root of such a power."""
    if not (0 < base < math.inf and 0 < value < math.inf and abs(exponent) <= _LARGEST_POWER):
        return False
    power = Fraction(exponent)
    root = power.denominator
    return root <= _LARGEST_ROOT and Fraction(value) ** root == Fraction(base) ** power.numerator


def fold(
    node: Node, operands: Sequence[Constant], type_: StaticType, limit_bytes: int
) -> Constant | None:
    """Return the constant that a registry node on constants equals; it is computed when loaded.

    If all operands are splats and the operator preserves this, the result is a splat of any size.

    Returns:
        ``None`` if there is no such constant, or if the result or an operand is larger than both
            ``limit_bytes`` and the memory that the operands take: a splat takes little memory, but
            results computed from it may take much.
    """
    op = get_op(node.op)
    moves = op.keeps_elements and op.arity == (1, 1)
    if moves or (op.kind == "pointwise" and "channel" not in op.traits):
        values = [splat_value(o, 1) for o in operands]
        if all(v is not None for v in values):
            scalars = [np.asarray(v).reshape(()) for v in values]
            value = scalars[0] if moves else evaluate(node, scalars, StaticType(type_.dtype, ()))
            return splat_constant(value, type_.shape)
    room = max(limit_bytes, held_bytes(operands))
    if any(one.bytes > room for one in (type_, *(o.type for o in operands))):
        return None
    if _is_undefined(node, operands):
        return None
    recipe = (node.op, str(node.attrs), *(o.digest for o in operands))
    return derived_constant(
        type_,
        lambda: evaluate(node, [o.load() for o in operands], type_),
        recipe,
        folding_flops(node, operands, type_),
        source=Expression(node.op, node.attrs, tuple(operands)),
    )


def folding_flops(node: Node, operands: Sequence[Constant], type_: TensorType) -> float:
    """Count the operations that compute a constant, and its operands if not computed yet."""
    own = get_op(node.op).flops([o.type for o in operands], type_, dict(node.attrs))
    return literal(own) + sum(o.flops for o in operands)


def _is_undefined(node: Node, operands: Sequence[Constant]) -> bool:
    """Return whether ONNX leaves a value undefined: index out of range, mean of no elements."""
    if node.op == "Gather":
        if is_expensive(operands[1]):
            return True  # too expensive to inspect
        size, indices = operands[0].type.shape[node.attr("axis")], operands[1].load()
        return bool(np.any((indices < -size) | (indices >= size)))
    return node.op in ("ReduceMean", *GLOBAL_POOLS) and 0 in operands[0].type.shape


def evaluate_opaque(
    node: onnx_ir.Node, operands: Sequence[Array | None], opset: int
) -> list[Array] | None:
    """Evaluate a standard node by onnxruntime without optimisations; return ``None`` if that fails.

    The results that a folded model is compared with come from onnxruntime as well, whereas onnx's
    reference implementation has every operator only as in the latest opset.
    """
    import onnxruntime  # slow to import, rarely needed

    if any(True for _ in inner_graphs(node)):
        return None  # a loop may run, and a branch may allocate, without limit
    proto = onnx_ir.to_proto(node)
    feeds = {f"i{index}": o for index, o in enumerate(operands) if o is not None}
    for index in range(len(proto.input)):
        proto.input[index] = f"i{index}" if f"i{index}" in feeds else ""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised as exceptions anyway
    try:
        inputs = [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in feeds.items()
        ]
        outputs = [onnx.helper.make_empty_tensor_value_info(n) for n in proto.output if n]
        graph = onnx.helper.make_graph([proto], "constant", inputs, outputs)
        model = onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=_IR_VERSION
        )
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        results = iter(session.run(None, feeds))
    except Exception:  # onnxruntime lacks operators and types, and raises unrelated classes
        return None
    return [np.asarray(next(results)) if name else np.zeros(0) for name in proto.output]
