"""Evaluation of nodes whose operands are known before a model runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
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
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.ir.ops.global_pool import GLOBAL_POOLS
from eqsat_opt.ir.values.dims import Dim, SymDim, dim_max, dim_min, floor_div, is_size, literal
from eqsat_opt.ir.values.types import StaticType, TensorType

__all__ = [
    "elementwise",
    "evaluate",
    "evaluate_opaque",
    "exact_value",
    "fold",
    "folding_flops",
    "is_deterministic",
    "is_exact",
    "rounds_alike",
    "shape_values",
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


def shape_values(
    node: Node, operands: Sequence[Array], is_size: Callable[[Dim], bool] = is_size
) -> Array | None:
    """Return the value of a node on integer tensors whose elements are dimensions.

    Args:
        node: a node of a registry operator.
        operands: arrays of integers and dimensions.
        is_size: whether a dimension is known not to be negative.

    Returns:
        An array of objects, ``None`` if an element is unknown.
    """
    arithmetic = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}
    if node.op in arithmetic:
        return np.asarray(arithmetic[node.op](*operands), dtype=object)
    function = _of_sizes(node, is_size)
    if function is not None:
        result = elementwise(function, *operands)
        return None if any(v is None for v in result.reshape(-1)) else result
    if node.op == "Where":
        if any(not isinstance(c, (bool, int, np.bool_)) for c in operands[0].reshape(-1)):
            return None
        return np.asarray(np.where(operands[0].astype(bool), *operands[1:]), dtype=object)
    if node.op == "Cast":
        return operands[0] if node.attr("to") in ("int64", "int32") else None
    if node.op == "ReduceProd":
        kept = bool(node.attr("keepdims"))
        return np.asarray(np.prod(operands[0], axis=node.attr("axes"), keepdims=kept), dtype=object)
    if get_op(node.op).kind == "movement" and node.op != "Pad":
        target = dict(node.attrs).get("shape", ())
        if isinstance(target, tuple) and any(isinstance(d, SymDim) for d in target):
            return None
        try:
            indices = [
                o.astype(np.int64) if node.op == "Gather" and i else o
                for i, o in enumerate(operands)
            ]
            result = get_op(node.op).eval_fn(FLOAT, indices, dict(node.attrs))
        except (TypeError, IndexError):  # an index that is not a number yet
            return None
        return np.asarray(result, dtype=object)
    return None


def elementwise(function: Callable[..., Any], *operands: Array) -> Array:
    """Apply a function to the elements of arrays of objects that broadcast."""
    return np.asarray(np.frompyfunc(function, len(operands), 1)(*operands), dtype=object)


def _of_sizes(node: Node, is_size: Callable[[Dim], bool]) -> Callable[..., Any] | None:
    """Return the function of two sizes that an operator computes, ``None`` if there is none.

    The function returns ``None`` where its value is unknown.
    """
    match node.op:
        case "Max":
            return dim_max
        case "Min":
            return dim_min
        case "Div":
            return partial(_quotient, is_size)
        case "Mod" if node.attr("fmod"):
            return partial(_rest, partial(_quotient, is_size))
        case "Mod":
            return partial(_rest, _floor)
        case "Equal":
            return partial(_equal, is_size)
    return None


def _floor(left: Any, right: Any) -> Any:
    """Divide by a positive number and round down."""
    if isinstance(right, SymDim):
        return 1 if left == right else None
    return floor_div(left, right) if right > 0 else None


def _quotient(is_size: Callable[[Dim], bool], left: Any, right: Any) -> Any:
    """Divide by a positive number and round towards zero, as ONNX does."""
    below = _floor(left, right)
    if below is None or is_size(left) or below * right == left:
        return below
    if not isinstance(left, SymDim):
        return below + 1
    if is_size(left + (right - 1)):
        return dim_max(0, below)
    # Either maximum is 0, by the sign of the numerator.
    return dim_max(0, below) - dim_max(0, floor_div(left * -1, right))


def _rest(quotient: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    whole = quotient(left, right)
    return None if whole is None else left - whole * right


def _equal(is_size: Callable[[Dim], bool], left: Any, right: Any) -> bool | None:
    """Return whether two sizes are equal, ``None`` if unknown.

    Sizes are not negative; apart from that, two different polynomials may have the same value.
    """
    if left == right:
        return True
    if isinstance(left, SymDim) and isinstance(right, SymDim):
        return None
    if not isinstance(left, SymDim) and not isinstance(right, SymDim):
        return False
    size, literal = (left, right) if isinstance(left, SymDim) else (right, left)
    return False if literal < 0 and is_size(size) else None
