"""Models with redrawn rounding of sums, which show how precisely a model determines its outputs.

Where large terms cancel, a sum in another order is as right as the original, and far from it. So
every sum gets a random error relative to the *terms* that are added, every other result one
relative to itself; how far the outputs move is what reordering explains (Monte Carlo arithmetic:
Parker, 1997). Sums of small whole numbers are exact in every order and get no error: 1 − gate is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from eqsat_opt.ir.onnx.data_movement import MOVING
from eqsat_opt.ir.ops.functions import FUNCTIONS

__all__ = [
    "NARROW", "absolute_error", "element_types", "is_exact", "noisy", "with_other_zeros",
]  # fmt: skip

_EPSILON: Mapping[int, float] = {
    TensorProto.DOUBLE: 2.0**-49,
    TensorProto.FLOAT: 2.0**-20,
    TensorProto.FLOAT16: 2.0**-8,
    TensorProto.BFLOAT16: 2.0**-5,
}
"""Relative error of some roundings, by type."""

_EXACT = 2.0**10
"""Whole numbers up to this add up exactly, in float16 too."""

NARROW = {TensorProto.FLOAT16, TensorProto.BFLOAT16}
"""Types whose sums are computed in single precision and rounded once."""
_SHARE_OF_TERMS = 2.0**-6

_DRAWN = {TensorProto.FLOAT, TensorProto.DOUBLE}
"""Types of which the runtime draws random numbers."""

_NO_RANDOM_OPSET = 22
"""From this opset on the runtime has no operator that draws numbers, except Dropout."""

_ONE, _HALF, _TRAINS, _SIGN = "noise.one", "noise.half", "noise.trains", "noise.sign"
_SIGN_SIZE = 3.0**-0.5
"""Size of random signs whose mean square is that of uniform numbers from -1 to 1."""

_LEAST_NORMAL: Mapping[int, float] = {
    TensorProto.DOUBLE: 2.0**-1022,
    TensorProto.FLOAT: 2.0**-126,
    TensorProto.FLOAT16: 2.0**-14,
    TensorProto.BFLOAT16: 2.0**-126,
}
"""Least normal number by type; below it, results are rounded to multiples of the least number."""

_LEAST_OPSET = 11

_QUOTIENTS = {"Div": 1, "Reciprocal": 0}
"""Operator to the operand whose sign at zero decides which infinity is the result."""

_TWO_TERMS = {"Add", "Sub"}
_MANY_TERMS = {
    "MatMul", "Gemm", "Conv", "ConvTranspose", "ReduceSum", "ReduceMean", "AveragePool",
    "GlobalAveragePool", "Sum", "Mean", "Einsum", "CumSum",
}  # fmt: skip
_ONE_OF_TERMS = {"ReduceSum", "ReduceMean", "CumSum"}
"""Sums of which only the first operand has terms."""
_EXACT_OPS = MOVING | {
    "Relu", "LeakyRelu", "PRelu", "Neg", "Abs", "Max", "Min", "Clip", "Pad", "Where", "Equal",
    "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "And", "Or", "Not", "Xor", "Cast", "Shape",
    "Constant", "ConstantOfShape", "Range", "MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin",
    "Sign", "Size", "IsNaN", "IsInf", "GatherND", "ArgMax", "ArgMin", "TopK", "NonZero", "OneHot",
    "Trilu", "Dropout", "Mod", "ReverseSequence",
}  # fmt: skip
_ABSOLUTE = {"Sigmoid", "Elu", "Selu", "Celu", "Softplus", "Mish"}
"""Functions that libraries compute by way of numbers near 1, so small results have few digits."""
_PRODUCTS_OF_THEM = {"Gelu", "Swish", "FastGelu", "QuickGelu", "BiasGelu"}
"""Products of such a function and the operand."""
_QUARTER = 0.25

_SINGLE = {
    "Mul",
    "Div",
    "Pow",
    "Reciprocal",
    "Softmax",
    "LogSoftmax",
    "Resize",
    "Upsample",
    "ScatterElements",
    "ScatterND",
    "LSTM",
    "GRU",
    "RNN",
} | {name for name, function in FUNCTIONS.items() if "exact" not in function.traits} - _EXACT_OPS


_ROUNDED = {"Add", "Sub", "Mul", "Div", "Sqrt", "Reciprocal", "Mod", "Fmod"}
"""Operators for which IEEE 754 fixes every bit of the result."""


def noisy(
    model: onnx.ModelProto, *, partly: bool = False, by_libraries: bool = False
) -> onnx.ModelProto | None:
    """Return the model with random errors in it; ``None`` if it has parts that are not known here.

    Args:
        model: the model, with its types inferred where they are no floats of one kind; its file may
            be needed for its weights.
        partly: whether an operator that is not known gets an error relative to its results.
        by_libraries: whether errors are limited to results that libraries are free to compute in
            several ways: those of long sums and functions, in whatever order the graph is.
    """
    opset = _opset(model)
    if opset < _LEAST_OPSET or (model.functions and not partly):
        return None
    known = _TWO_TERMS | _MANY_TERMS | _SINGLE
    if not partly and any(
        node.domain or (node.op_type not in known and not is_exact(node))
        for node in model.graph.node
    ):
        return None
    types = element_types(model)
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    for name, value in ((_ONE, 1.0), (_HALF, 0.5), (_TRAINS, True), (_SIGN, _SIGN_SIZE)):
        scalar = np.asarray(value, bool if name == _TRAINS else np.float32)
        result.graph.initializer.append(numpy_helper.from_array(scalar, name))
    for number, node in enumerate(model.graph.node):
        kind = types.get(node.output[0], 0) if node.output else 0
        is_fixed = is_exact(node) or (by_libraries and node.op_type in _ROUNDED)
        if is_fixed or kind not in _EPSILON:
            result.graph.node.append(node)
            continue
        prefix = f"noise.{number}"
        result.graph.initializer.extend(_numbers(prefix, kind))
        nodes = _with_error(node, prefix, number, kind=kind, opset=opset)
        result.graph.node.extend(nodes)
    return result


def is_exact(node: NodeProto) -> bool:
    """Return whether a result has the bits of an operand, or is one number whatever the order."""
    named = {attribute.name: attribute.s.decode() for attribute in node.attribute}
    if node.op_type in ("Resize", "Upsample"):
        return bool(named.get("mode", "nearest") == "nearest")
    if node.op_type in ("ScatterElements", "ScatterND", "Scatter"):
        return named.get("reduction", "none") not in ("add", "mul")
    return node.op_type in _EXACT_OPS


def absolute_error(node: NodeProto, kind: int) -> float:
    """Return how far any result of a function that is computed near 1 may be off; 0 for others.

    Args:
        node: the node.
        kind: element type of its result.
    """
    return _QUARTER * _EPSILON.get(kind, 0.0) if node.op_type in _ABSOLUTE else 0.0


def with_other_zeros(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return the model with the sign of each divisor that is 0 turned; ``None`` without divisions.

    No class promises that sign, so none promises the results that follow from it.
    """
    if _opset(model) < _LEAST_OPSET:
        return None
    constants = {tensor.name for tensor in model.graph.initializer}
    types = element_types(model)
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    is_changed = False
    for number, node in enumerate(model.graph.node):
        place = None if node.domain else _QUOTIENTS.get(node.op_type)
        kind = types.get(node.output[0], 0) if node.output else 0
        if place is None or kind not in _EPSILON or node.input[place] in constants:
            result.graph.node.append(node)
            continue
        is_changed = True
        prefix = f"zeros.{number}"
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        for name, value in (("zero", 0), ("turn", -1), ("keep", 1)):
            scalar = np.asarray(value).astype(dtype)
            result.graph.initializer.append(numpy_helper.from_array(scalar, f"{prefix}.{name}"))
        divisor = node.input[place]
        sign = [f"{prefix}.is", f"{prefix}.turn", f"{prefix}.keep"]
        result.graph.node.extend(
            [
                helper.make_node("Equal", [divisor, f"{prefix}.zero"], [f"{prefix}.is"]),
                helper.make_node("Where", sign, [f"{prefix}.sign"]),
                helper.make_node("Mul", [divisor, f"{prefix}.sign"], [f"{prefix}.out"]),
            ]
        )
        inner = NodeProto()
        inner.CopyFrom(node)
        inner.input[place] = f"{prefix}.out"
        result.graph.node.append(inner)
    return result if is_changed else None


def _opset(model: onnx.ModelProto) -> int:
    return max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)


def element_types(model: onnx.ModelProto) -> dict[str, int]:
    """Return the element type, by name, of every value for which it can be inferred."""
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # values of unknown type stay without noise
        graph = model.graph
    values = [*graph.value_info, *graph.input, *graph.output]
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    return types | {tensor.name: tensor.data_type for tensor in graph.initializer}


def _numbers(prefix: str, kind: int) -> Iterator[TensorProto]:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    numbers = {
        "epsilon": _EPSILON[kind],
        "zero": 0.0,
        "exact": _EXACT,
        "normal": _LEAST_NORMAL[kind],
        "quarter": _QUARTER,
        "share": _SHARE_OF_TERMS,
    }
    for name, value in numbers.items():
        yield numpy_helper.from_array(np.asarray(value).astype(dtype), f"{prefix}.{name}")


def _drawn(make: Callable[..., str], like: str, seed: int, *, kind: int, opset: int) -> str:
    """Draw random numbers from -1 to 1, in the type of the errors."""
    if opset < _NO_RANDOM_OPSET:
        drawn = kind if kind in _DRAWN else TensorProto.FLOAT
        limits = {"low": -1.0, "high": 1.0, "seed": float(seed), "dtype": drawn}
        numbers = make("RandomUniformLike", like, **limits)
    else:  # dropout of ones gives 0 or 2, and less 1 that is -1 or 1, before both are scaled
        drawn = TensorProto.FLOAT
        ones = make("Expand", _ONE, make("Shape", like))
        kept = make("Dropout", ones, _HALF, _TRAINS, seed=seed)
        numbers = make("Mul", make("Sub", kept, _ONE), _SIGN)
    return numbers if drawn == kind else make("Cast", numbers, to=kind)


def _with_error(
    node: NodeProto, prefix: str, number: int, *, kind: int, opset: int
) -> Sequence[NodeProto]:
    """Return nodes that compute the result of a node plus an error of the size of its terms."""
    count = 0

    def make(op: str, *operands: str, **attributes: Any) -> str:
        nonlocal count
        count += 1
        name = f"{prefix}.{count}"
        nodes.append(helper.make_node(op, operands, [name], **attributes))
        return name

    raw, out = f"{prefix}.raw", node.output[0]
    inner = NodeProto()
    inner.CopyFrom(node)
    inner.output[0] = raw
    nodes = [inner]
    if node.op_type in _TWO_TERMS:
        sizes = [make("Abs", name) for name in node.input]
        terms = make("Add", *sizes)
        whole = [make("Equal", make("Round", name), name) for name in node.input]
        small = make("Not", make("Greater", terms, f"{prefix}.exact"))
        is_exact = make("And", make("And", *whole), small)
        terms = make("Where", is_exact, f"{prefix}.zero", terms)
    elif node.op_type in _MANY_TERMS:
        twin = NodeProto()
        twin.CopyFrom(node)
        twin.name = ""  # no two nodes may have one name
        floats = 1 if node.op_type in _ONE_OF_TERMS else len(node.input)
        for position in range(floats):
            if node.input[position]:
                twin.input[position] = make("Abs", node.input[position])
        for attribute in twin.attribute:
            if attribute.name in ("alpha", "beta"):
                attribute.f = abs(attribute.f)
        terms = f"{prefix}.terms"
        twin.output[0] = terms
        nodes.append(twin)
        if kind in NARROW:
            scaled = make("Mul", terms, f"{prefix}.share")
            terms = make("Add", scaled, make("Abs", raw))
    else:
        terms = make("Abs", raw)
    if node.op_type in _ABSOLUTE:
        terms = make("Max", terms, f"{prefix}.quarter")
    elif node.op_type in _PRODUCTS_OF_THEM:
        scaled = make("Mul", make("Abs", node.input[0]), f"{prefix}.quarter")
        terms = make("Max", terms, scaled)
    at_least = make("Max", terms, f"{prefix}.normal")
    terms = make("Where", make("Equal", terms, f"{prefix}.zero"), f"{prefix}.zero", at_least)
    draw = _drawn(make, raw, number, kind=kind, opset=opset)
    error = make("Mul", make("Mul", terms, f"{prefix}.epsilon"), draw)
    nodes.append(helper.make_node("Add", [raw, error], [out]))
    return nodes
