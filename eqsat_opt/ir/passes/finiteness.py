"""Whether the values of a model are finite wherever its inputs are, over the real numbers.

A quotient, a logarithm or a root is finite where the sign of its operand is known; signs follow
from constants and from the operators before it. Leaving the range of an element
type does not count, for this as for every class of numerics: an exponential is positive.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from eqsat_opt.ir.graph.graph import OPAQUE, Constant, Graph, Node
from eqsat_opt.ir.graph.handles import is_expensive, splat_value
from eqsat_opt.ir.onnx.data_movement import MOVING
from eqsat_opt.ir.ops import OPS
from eqsat_opt.ir.values.types import FLOATS, OtherType, numpy_dtype

__all__ = ["source_of_infinities"]

_LARGEST_BYTES = 16 << 20
"""Largest constant that is examined; larger ones are weights, whose signs say nothing."""

_BOUNDING = {"Clip", "Clamp", "Min", "Max", "Equal", "Greater", "Less", "GreaterOrEqual",
             "LessOrEqual"}  # fmt: skip
"""Operators that a bound at the end of the range, or beyond, does no harm."""

_KEEPING = MOVING | {
    "ArgMax", "ArgMin", "Cast", "Compress", "Constant", "ConstantOfShape", "ConvInteger", "CumSum",
    "DequantizeLinear", "Dropout", "DynamicQuantizeLinear", "Einsum", "EyeLike", "GRU", "GatherND",
    "GridSample", "Hardmax", "LSTM", "MatMulInteger", "MaxRoiPool", "MaxUnpool",
    "NonMaxSuppression", "NonZero", "OneHot", "QLinearConv", "QLinearMatMul", "QuantizeLinear",
    "RNN", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Range",
    "Resize", "RoiAlign", "ScatterElements", "ScatterND", "Shape", "Size", "TopK", "Trilu",
    "Unique", "Upsample",
}  # fmt: skip
"""Operators of ONNX outside the registry, or in forms that it lacks, with finite results."""


class _Sign(enum.IntEnum):
    """The sign that all elements of a value are known to have."""

    ANY = 0
    NONNEGATIVE = 1
    POSITIVE = 2


def source_of_infinities(graph: Graph) -> str:
    """Return what in a graph is, or for finite inputs may be, infinite or no number.

    That is a constant that is infinite or at the end of its range, an operator with a pole that its
    operand may reach, an operator that the registry does not know, and an input that is only added
    to the operand of a softmax: a mask.

    Args:
        graph: a graph in normal form.

    Returns:
        A noun phrase, such as ``Log 'y'``; empty if there is no such thing.
    """
    return next(_sources(graph), "")


@dataclass
class _Known:
    """The known facts about the values of a graph, from the first node on.

    Attributes:
        graph: the graph.
        signs: value name to sign.
        numbers: name of a constant to the number that all its elements equal.
        nonzero: constants without a 0.
    """

    graph: Graph
    signs: dict[str, _Sign] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    nonzero: set[str] = field(default_factory=set)

    def dtype(self, name: str) -> str:
        """Return the element type of a value; empty for one that no rule handles."""
        type_ = self.graph.types[name]
        return "" if isinstance(type_, OtherType) else type_.dtype

    def of(self, node: Node) -> list[_Sign]:
        """Return the signs of the operands of a node."""
        return [self.signs.get(name, _Sign.ANY) for name in node.inputs]


def _sources(graph: Graph) -> Iterator[str]:
    harmless = _only_bounds(graph)
    known = _Known(graph)
    for name, constant in graph.constants.items():
        least, most, has_zero = _extent(constant)
        if name not in harmless and not _is_inside(max(abs(least), abs(most)), constant.type.dtype):
            yield f"the constant {name!r}"
        known.signs[name] = _sign_of(least)
        if least == most:
            known.numbers[name] = least
        if not has_zero:
            known.nonzero.add(name)
    yield from (f"the mask {name!r}" for name in _masks(known))
    for node in graph.nodes:
        if not _is_finite(node, known):
            label = getattr(node.payload, "op_type", node.op)
            yield f"{label} {next(filter(None, node.outputs), node.name)!r}"
        for output in filter(None, node.outputs):
            known.signs[output] = _sign(node, known)


# Constants ---------------------------------------------------------------------------------------


def _extent(constant: Constant) -> tuple[float, float, bool]:
    """Return the least and greatest element, and whether one is 0; 0 where it is not examined."""
    if constant.type.dtype not in FLOATS or is_expensive(constant) or not constant.type.size:
        return 0.0, 0.0, True
    same = splat_value(constant)
    if same is None and constant.type.bytes > _LARGEST_BYTES:
        return -1.0, 1.0, True
    values = np.asarray(constant.load() if same is None else same)
    if values.dtype.kind not in "fiu":
        values = values.astype(np.float32)
    least, most = float(values.min()), float(values.max())
    if math.isnan(least) or math.isnan(most):
        return -math.inf, math.inf, True
    return least, most, not values.all()


def _is_inside(size: float, dtype: str) -> bool:
    """Return whether a number is in the range of its type, and twice the number is as well."""
    if dtype not in FLOATS:
        return True
    info: Any = ml_dtypes.finfo(numpy_dtype(dtype))  # type: ignore[no-untyped-call]
    return size <= float(info.max) / 2


def _only_bounds(graph: Graph) -> set[str]:
    """Return the constants that are bounds and nothing else."""
    others = {name for node in graph.nodes if node.op not in _BOUNDING for name in node.reads}
    return {name for name in graph.constants if name not in others and name not in graph.outputs}


# Operators ---------------------------------------------------------------------------------------


def _is_finite(node: Node, known: _Known) -> bool:
    """Return whether an operator has finite results wherever its operands are finite."""
    if node.op == OPAQUE:
        one = node.payload
        is_standard = one is not None and not one.domain
        return is_standard and one.op_type in _KEEPING and not node.captures
    if node.op == "IsNaN":
        return False
    dtype = known.dtype(node.output)
    if dtype not in FLOATS:
        return True
    attrs: dict[str, Any] = dict(node.attrs)
    if "value" in attrs and not _is_inside(abs(attrs["value"]), dtype):
        return False
    if "epsilon" in attrs:
        return bool(attrs["epsilon"] > 0)
    if node.op == "LRN":
        return bool(attrs["bias"] > 0 and attrs["alpha"] >= 0)
    given = known.of(node)
    if node.op in ("Div", "Mod"):
        return given[1] is _Sign.POSITIVE or node.inputs[1] in known.nonzero
    if node.op == "Pow":
        return _is_finite_power(given[0], known.numbers.get(node.inputs[1]))
    traits = OPS[node.op].traits
    if "pole" in traits:
        return given[0] is _Sign.POSITIVE
    return "nonnegative" not in traits or given[0] >= _Sign.NONNEGATIVE


def _is_finite_power(base: _Sign, exponent: float | None) -> bool:
    if base is _Sign.POSITIVE:
        return True
    if exponent is None or exponent < 0:
        return False
    return base is _Sign.NONNEGATIVE or exponent == int(exponent)


# Signs -------------------------------------------------------------------------------------------


def _sign_of(least: float) -> _Sign:
    return _Sign.POSITIVE if least > 0 else _Sign.NONNEGATIVE if least >= 0 else _Sign.ANY


def _product(signs: Sequence[_Sign]) -> _Sign:
    return min(signs)


def _sum(signs: Sequence[_Sign]) -> _Sign:
    return _Sign.ANY if min(signs) is _Sign.ANY else max(signs)


def _even(signs: Sequence[_Sign]) -> _Sign:
    return max(signs[0], _Sign.NONNEGATIVE)


def _average(signs: Sequence[_Sign]) -> _Sign:
    return min(signs[0], _Sign.NONNEGATIVE)  # a window may lie in the padding


def _clamped(signs: Sequence[_Sign]) -> _Sign:
    return min(max(signs[0], signs[1]), signs[2])


_LIKE_OPERAND = (
    "Sqrt", "Rsqrt", "Reciprocal", "Cast", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin",
    "ReduceProd", "MaxPool", "GlobalAveragePool", "GlobalMaxPool", "CumSum",
)  # fmt: skip
_SIGNS: Mapping[str, Callable[[Sequence[_Sign]], _Sign]] = {
    "Add": _sum,
    "Mul": _product,
    "Div": _product,
    "Min": _product,
    "Max": max,
    "Clamp": _clamped,
    "AveragePool": _average,
    **dict.fromkeys(("Abs", "Relu", "Square", "HardSigmoid", "ThresholdedRelu"), _even),
    **dict.fromkeys(("Exp", "Sigmoid", "Softplus", "Softmax"), lambda _signs: _Sign.POSITIVE),
    **dict.fromkeys(_LIKE_OPERAND, _product),
}
"""Operator to the sign of its result by those of its operands; others may have any sign."""


def _sign(node: Node, known: _Known) -> _Sign:
    """Return the sign of the results of an operator."""
    if node.op == OPAQUE:
        return _Sign.ANY
    if known.dtype(node.output) == "bool":
        return _Sign.NONNEGATIVE
    attrs: dict[str, Any] = dict(node.attrs)
    given = known.of(node)
    match node.op:
        case "Mul" if node.inputs[0] == node.inputs[1]:
            return _even(given)
        case "Pow":
            number = known.numbers.get(node.inputs[1])
            is_even = number is not None and number % 2 == 0
            return _even(given) if is_even else given[0]
        case "Clip":
            return max(given[0], _sign_of(attrs["min"]))
        case "Shift":
            return _sum((given[0], _sign_of(attrs["offset"])))
        case "Scale":
            return _product((given[0], _sign_of(attrs["factor"])))
        case "Fill" | "Scalar":
            return _sign_of(attrs["value"])
        case "Pad":
            return _product((given[0], _sign_of(attrs["value"])))
        case "Where":
            return _product(given[1:])
        case "Concat":
            return _product(given)
    if node.op in _SIGNS:
        return _SIGNS[node.op](given)
    return given[0] if given and OPS[node.op].is_moving else _Sign.ANY


# Masks -------------------------------------------------------------------------------------------

_MASKED = {"MaskedAttention": 3}
"""Operator to the place of its mask."""


def _masks(known: _Known) -> list[str]:
    """Return the inputs that are only added to operands of a softmax, or moved on the way there."""
    graph = known.graph
    readers: dict[str, list[tuple[Node, int]]] = {}
    for node in graph.nodes:
        for place, name in enumerate(node.reads):
            readers.setdefault(name, []).append((node, place))
    floats = [name for name in graph.inputs if known.dtype(name) in FLOATS]
    return [name for name in floats if _is_mask(name, readers, set(graph.outputs))]


def _is_mask(
    name: str, readers: Mapping[str, Sequence[tuple[Node, int]]], outputs: set[str]
) -> bool:
    pending, seen = [(name, False)], set[tuple[str, bool]]()
    while pending:
        value, is_added = pending.pop()
        if (value, is_added) in seen:
            continue
        seen.add((value, is_added))
        if value in outputs or value not in readers:
            return False
        for node, place in readers[value]:
            if _MASKED.get(node.op) == place or (node.op == "Softmax" and is_added):
                continue
            if node.op != "Add" and (node.op == OPAQUE or not OPS[node.op].is_moving):
                return False
            pending.append((node.output, is_added or node.op == "Add"))
    return True
