"""The values of integer tensors whose elements are sizes, such as shapes and parts of them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir

from eqsat_opt.ir.graph.graph import Node
from eqsat_opt.ir.onnx.folding import evaluate_opaque
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.ir.values.dims import Dim, SymDim, dim_max, dim_min, floor_div, is_size
from eqsat_opt.ir.values.types import TensorType, ValueType

__all__ = ["CHOOSING", "chosen_values", "elementwise", "measured_values", "shape_values"]

Array = npt.NDArray[Any]

CHOOSING = {"Compress": 0, "OneHot": 2}
"""Operators without a record whose result is made of elements of one operand, with its place."""


def measured_values(node: onnx_ir.Node, type_: ValueType | None) -> Array | None:
    """Return the result of a Shape or a Size as dimensions, ``None`` if the rank is unknown.

    Args:
        node: the node.
        type_: type of its operand.
    """
    if not isinstance(type_, TensorType):
        return None
    if node.op_type == "Size":
        return np.asarray(type_.size, dtype=object)
    start = node.attributes.get_int("start", 0)
    dims = type_.shape[start : node.attributes.get_int("end", None)]
    result = np.empty(len(dims), dtype=object)
    result[:] = dims
    return result


def chosen_values(node: onnx_ir.Node, operands: Sequence[Array | None], opset: int) -> Array | None:
    """Return the value of a node of :data:`CHOOSING`, ``None`` if it is unknown.

    Args:
        node: the node.
        operands: the array of dimensions in its place, and constants that choose; ``None`` for an
            operand that is absent or unknown.
        opset: operator set of the default domain.
    """
    place = CHOOSING[node.op_type]
    values = operands[place]
    assert values is not None
    numbers = np.arange(values.size, dtype=np.int64).reshape(values.shape)
    found = evaluate_opaque(node, [*operands[:place], numbers, *operands[place + 1 :]], opset)
    return None if found is None else values.reshape(-1)[found[0]]


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
    if node.op in _FOLDS:
        kept, axes = bool(node.attr("keepdims")), tuple(node.attr("axes"))
        return _folded(_FOLDS[node.op], operands[0], axes, kept)
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
        case "Add" | "Sub" | "Mul" | "Neg" | "Not" | "And" | "Or" | "Xor":
            return _FUNCTIONS[node.op]
        case "Abs":
            return lambda dim: dim_max(dim, -1 * dim)
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
        case "Less" | "LessOrEqual":
            least = int(node.op == "Less")
            return lambda left, right: _is_above(is_size, right, left, least)
        case "Greater" | "GreaterOrEqual":
            return partial(_is_above, is_size, least=int(node.op == "Greater"))
    return None


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Neg": lambda dim: -1 * dim,
    "Not": operator.not_,
    "And": operator.and_,
    "Or": operator.or_,
    "Xor": operator.xor,
}

_FOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "ReduceMax": dim_max,
    "ReduceMin": dim_min,
    "ReduceProd": operator.mul,
    "ReduceSum": operator.add,
}
"""Reductions of sizes, with the function that joins two elements."""


def _folded(
    function: Callable[[Any, Any], Any], values: Array, axes: tuple[int, ...], is_kept: bool
) -> Array | None:
    """Join the elements along axes in turn; return ``None`` where there are none to join."""
    rows = np.moveaxis(values, axes, range(len(axes)))
    rows = rows.reshape(-1, *rows.shape[len(axes) :])
    if not len(rows):
        return None
    result = np.asarray(reduce(partial(elementwise, function), rows), dtype=object)
    return np.expand_dims(result, axes) if is_kept else result


def _floor(left: Any, right: Any) -> Any:
    """Divide by a positive number and round down; by a size, which no run has as 0, if exact."""
    if isinstance(right, SymDim):
        whole = floor_div(left, right)
        return whole if whole * right == left else None
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


def _is_above(is_size: Callable[[Dim], bool], left: Any, right: Any, least: int) -> bool | None:
    """Return whether a size exceeds another by ``least`` or more, ``None`` if unknown."""
    if is_size(left - right - least):
        return True
    return False if is_size(right - left + (least - 1)) else None
