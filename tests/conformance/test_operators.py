"""The operator registry means what ONNX means: types and values against onnxruntime."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from eqsat_opt.ir.ops import OPS, OUTPUT, Array, get_op
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.ir.values.types import DTYPE_CODES, TensorType, numpy_dtype

OPSET = 23
REFUSALS = ort.capi.onnxruntime_pybind11_state
RNG = np.random.default_rng(0)


@dataclass
class Case:
    """One application: of the registry's operator, and of the ONNX node that it stands for.

    Attributes:
        operands: of the registry's operator.
        attrs: of the registry's operator.
        onnx_attrs: of the ONNX node.
        extra: ONNX inputs that the registry has as attributes.
        onnx_type: ONNX operator, where its name differs.
    """

    operands: list[Array]
    attrs: dict[str, Any] = field(default_factory=dict)
    onnx_attrs: dict[str, Any] = field(default_factory=dict)
    extra: list[Array | None] = field(default_factory=list)
    onnx_type: str = ""

    def __post_init__(self) -> None:
        """Arithmetic on arrays of rank 0 gives scalars."""
        self.operands = [np.asarray(operand) for operand in self.operands]


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def model_of(op: str, case: Case, result: TensorType) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for i, a in enumerate(case.operands)
    ]
    names = [value.name for value in inputs]
    constants = []
    for i, array in enumerate(case.extra):
        names.append("" if array is None else f"e{i}")
        if array is not None:
            constants.append(numpy_helper.from_array(array, f"e{i}"))
    outputs = [f"y{i}" for i in range(get_op(op).outputs)]
    node = helper.make_node(case.onnx_type or op, names, outputs, **case.onnx_attrs)
    wanted = outputs[case.attrs.get(OUTPUT, 0)]
    output = helper.make_tensor_value_info(wanted, DTYPE_CODES[result.dtype], None)
    graph = helper.make_graph([node], "g", inputs, [output], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


def expected(op: str, case: Case, result: TensorType) -> Array:
    """What onnxruntime computes; the reference implementation where it has no such kernel."""
    model = model_of(op, case, result)
    feeds = {f"x{i}": array for i, array in enumerate(case.operands)}
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    except (REFUSALS.NotImplemented, REFUSALS.Fail):
        return np.asarray(cast(Any, ReferenceEvaluator(model)).run(None, feeds)[0])
    return np.asarray(session.run(None, feeds)[0])


def verify(op: str, case: Case, rtol: float = 2e-5) -> None:
    definition = get_op(op)
    types = [TensorType(str(a.dtype), tuple(int(d) for d in a.shape)) for a in case.operands]
    message = f"{op} {[str(t) for t in types]} {case.attrs}"
    result = definition.type_fn(types, case.attrs)
    actual = definition.eval_fn(FLOAT, case.operands, case.attrs)
    theirs = expected(op, case, result)
    assert result.shape == theirs.shape == actual.shape, message
    assert numpy_dtype(result.dtype) == theirs.dtype == actual.dtype, message
    np.testing.assert_allclose(actual, theirs, rtol=rtol, atol=rtol, err_msg=message)


# Contractions ------------------------------------------------------------------------------------


def spatial(axes: int) -> Iterator[dict[str, Any]]:
    """Strides, pads and dilations of ``axes`` axes."""
    pads = [(0,) * 2 * axes, (1,) * 2 * axes, tuple(range(2 * axes)), (*(2,) * axes, *(0,) * axes)]
    for strides, pad, dilation in itertools.product((1, 2, 3), pads, (1, 2)):
        yield {"strides": (strides,) * axes, "pads": pad, "dilations": (dilation,) * axes}


def convolutions() -> Iterator[Case]:
    for axes, group in ((1, 1), (2, 1), (2, 2), (2, 4), (3, 1)):
        for i, attrs in enumerate(spatial(axes)):
            kernel = (3, 2, 3)[:axes] if i % 2 else (1,) * axes
            x = normal(2, 4, *(9, 8, 7)[:axes])
            w = normal(8, 4 // group, *kernel)
            bias = [normal(8)] if i % 3 == 0 else []
            attrs["group"] = group
            yield Case([x, w, *bias], attrs, attrs)
    attrs = {"strides": (2, 1), "pads": (0, 1, 2, 0), "dilations": (1, 2), "group": 1}
    yield Case([normal(1, 3, 7, 9), normal(5, 3, 2, 4)], attrs, attrs)


def transposed_convolutions() -> Iterator[Case]:
    for axes, group in ((1, 1), (2, 1), (2, 2)):
        for i, attrs in enumerate(spatial(axes)):
            if max(attrs["pads"]) > 1:
                continue
            padding = min(1, attrs["strides"][0] - 1) if i % 2 else 0
            attrs |= {"group": group, "output_padding": (padding,) * axes}
            x, w = normal(2, 4, *(5, 4)[:axes]), normal(4, 3, *(3, 4)[:axes])
            bias = [normal(3 * group)] if i % 3 == 0 else []
            yield Case([x, w, *bias], attrs, attrs)


def products() -> Iterator[Case]:
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((3, 4), (4, 5)), ((4,), (4,)), ((4,), (4, 5)), ((3, 4), (4,)), ((2, 3, 4), (4, 5)),
        ((2, 3, 4), (2, 4, 5)), ((1, 3, 4), (6, 4, 5)), ((2, 1, 3, 4), (5, 4, 2)),
        ((4,), (2, 4, 5)), ((2, 3, 4), (4,)), ((3, 4), (7, 4, 2)),
    ]  # fmt: skip
    for left, right in shapes:
        yield Case([normal(*left), normal(*right)])
    yield Case([RNG.integers(-9, 9, (3, 4)), RNG.integers(-9, 9, (4, 2))])


# Windows -----------------------------------------------------------------------------------------


def pools(*, average: bool) -> Iterator[Case]:
    for axes in (1, 2, 3):
        grid = itertools.product(
            (2, 3), (1, 2, 3), (0, 1), (1, 2), (0, 1), (0, 1) if average else (0,)
        )
        for kernel, stride, pad, dilation, ceil, include in grid:
            after = min(pad + ceil, kernel - 1)
            attrs = {
                "kernel": (kernel,) * axes, "strides": (stride,) * axes,
                "dilations": (dilation,) * axes, "ceil": ceil,
                "pads": (*(pad,) * axes, *(after,) * axes),
            }  # fmt: skip
            names = {"kernel": "kernel_shape", "ceil": "ceil_mode"}
            theirs = {names.get(key, key): value for key, value in attrs.items()}
            if average:
                attrs["count_include_pad"] = theirs["count_include_pad"] = include
            yield Case([normal(1, 2, *(7, 8, 6)[:axes])], attrs, theirs)


def global_pools() -> Iterator[Case]:
    for shape in ((2, 3, 5), (1, 3, 4, 5), (0, 3, 4, 5), (1, 1, 1, 1), (1, 2, 3, 2, 2)):
        yield Case([normal(*shape)])


def response_normalisations() -> Iterator[Case]:
    for size in (1, 3, 5):  # onnxruntime takes odd sizes only.
        attrs = {"size": size, "alpha": 0.3, "beta": 0.75, "bias": 1.5}
        yield Case([normal(2, 6, 3, 4)], attrs, attrs)


# Reductions and normalisations -------------------------------------------------------------------


def reductions() -> Iterator[Case]:
    for axes, keepdims in itertools.product(((0,), (1,), (0, 2), (1, 2, 3), (0, 1, 2, 3)), (0, 1)):
        attrs = {"axes": axes, "keepdims": keepdims}
        extra: list[Array | None] = [np.array(axes, np.int64)]
        yield Case([normal(2, 3, 4, 2)], attrs, {"keepdims": keepdims}, extra)


def softmaxes() -> Iterator[Case]:
    for axis in range(3):
        yield Case([normal(2, 3, 4) * 5], {"axis": axis}, {"axis": axis})
    yield Case([normal(2, 3) * 200], {"axis": 1}, {"axis": 1})


def ordered() -> Iterator[Case]:
    """With ties, of which the first comes first, and in both directions."""
    for axis, largest, output in itertools.product(range(3), (0, 1), (0, 1)):
        for k, x in itertools.product((1, 2, 3), (normal(4, 3, 5), np.rint(normal(3, 4, 3)))):
            onnx_attrs = {"axis": axis, "largest": largest}
            attrs = {**onnx_attrs, "k": k, OUTPUT: output}
            yield Case([x], attrs, onnx_attrs, [np.array([k], np.int64)])
            whole = np.asarray(x * 2, np.int32)
            yield Case([whole], attrs, onnx_attrs, [np.array([k], np.int64)])


def layers(*, shift: bool) -> Iterator[Case]:
    for axis in (1, 2):
        shape = (2, 3, 4)
        parameters = [normal(*shape[axis:]) for _ in range(2 if shift else 1)]
        attrs = {"axis": axis, "epsilon": 1e-3}
        yield Case([normal(*shape), *parameters], attrs, attrs)


def batches() -> Iterator[Case]:
    for shape in ((2, 3), (2, 3, 4), (2, 3, 4, 5)):
        parameters = [normal(3) for _ in range(3)]
        operands = [normal(*shape), *parameters, np.abs(normal(3))]
        yield Case(operands, {"epsilon": 1e-3}, {"epsilon": 1e-3})


def instances() -> Iterator[Case]:
    for shape in ((2, 3, 4), (2, 3, 4, 5)):
        yield Case([normal(*shape), normal(3), normal(3)], {"epsilon": 1e-3}, {"epsilon": 1e-3})


# Movement ----------------------------------------------------------------------------------------


def concatenations() -> Iterator[Case]:
    for axis in range(3):
        shapes = [tuple(n if i == axis else d for i, d in enumerate((2, 3, 4))) for n in (1, 5, 2)]
        yield Case([normal(*shape) for shape in shapes], {"axis": axis}, {"axis": axis})
    yield Case([RNG.integers(0, 9, (2,)), RNG.integers(0, 9, (3,))], {"axis": 0}, {"axis": 0})


def slices() -> Iterator[Case]:
    for axis, (lo, hi) in itertools.product(range(3), ((0, 2), (1, 3), (0, 3), (2, 3))):
        extra: list[Array | None] = [np.array([v], np.int64) for v in (lo, hi, axis)]
        yield Case([normal(3, 4, 3)], {"axis": axis, "lo": lo, "hi": hi}, {}, extra)


def strided_slices() -> Iterator[Case]:
    cuts = ((0, 9, 2), (1, 5, 3), (-1, -9, -1), (4, 0, -2), (3, 3, 1), (-2, 9, 1))
    for axis, cut in itertools.product(range(2), cuts):
        extra: list[Array | None] = [np.array([v], np.int64) for v in (*cut[:2], axis, cut[2])]
        yield Case([normal(5, 5)], {"axis": axis, "cut": cut}, {}, extra, "Slice")


def transposes() -> Iterator[Case]:
    for perm in [*itertools.permutations(range(3)), (0, 2, 3, 1), (3, 1, 0, 2)]:
        yield Case([normal(2, 3, 4, 5)[(0,) * (4 - len(perm))]], {"perm": perm}, {"perm": perm})


def reshapes() -> Iterator[Case]:
    for shape in ((24,), (4, 6), (2, 1, 12), (1, 24)):
        yield Case([normal(2, 3, 4)], {"shape": shape}, {}, [np.array(shape, np.int64)])


def expansions() -> Iterator[Case]:
    for before, after in (
        ((3, 1), (3, 4)),
        ((1,), (2, 3)),
        ((2, 1, 4), (5, 2, 3, 4)),
        ((), (2, 2)),
    ):
        yield Case([normal(*before)], {"shape": after}, {}, [np.array(after, np.int64)])


def paddings() -> Iterator[Case]:
    for pads, value in (
        ((0, 1, 2, 0), 0.0),
        ((1, 1, 1, 1), -3.5),
        ((-1, 0, 0, -1), 0.0),
        ((2, -1, -1, 2), 1.0),
    ):
        extra: list[Array | None] = [np.array(pads, np.int64), np.array(value, np.float32)]
        yield Case([normal(3, 4)], {"pads": pads, "value": value}, {}, extra)


def gathers() -> Iterator[Case]:
    for axis, indices in itertools.product(
        range(3), (np.array(1), np.array([0, 2]), np.array([[0, -1], [1, 1]]))
    ):
        yield Case([normal(3, 4, 3), indices], {"axis": axis}, {"axis": axis})


# Pointwise ---------------------------------------------------------------------------------------


def unary(op: str) -> Iterator[Case]:
    attrs = {key: _UNARY_ATTRS[op][key] for key in OPS[op].attrs}
    onnx_attrs = attrs if op != "Clip" else {}
    extra: list[Array | None] = (
        [np.array(v, np.float32) for v in attrs.values()] if op == "Clip" else []
    )
    for shape in ((2, 3, 4), (64,), ()):
        x = normal(*shape) * 3
        yield Case([np.abs(x) + 0.01 if op in ("Log", "Sqrt") else x], attrs, onnx_attrs, extra)


_UNARY_ATTRS: dict[str, dict[str, Any]] = {
    "Gelu": {"approximate": "tanh"}, "HardSigmoid": {"alpha": 0.3, "beta": 0.4},
    "Elu": {"alpha": 0.7}, "Celu": {"alpha": 1.3}, "LeakyRelu": {"alpha": 0.1},
    "Selu": {"alpha": 1.5, "gamma": 1.1},
    "ThresholdedRelu": {"alpha": 0.5}, "Clip": {"min": -0.5, "max": 1.5},
}  # fmt: skip
SPELLED_OUT = {
    "Scale", "Shift", "Square", "Rsqrt", "Center", "RmsN", "Repeat", "Swish", "Attention",
    "MaskedAttention",
}  # fmt: skip
"""Operators of recognition, checked through what they are exported as (test_normal_form)."""
UNARY = sorted(
    {name for name, op in OPS.items() if op.kind == "pointwise" and op.arity == (1, 1)}
    - {"Not", "IsNaN", "Cast"}
    - SPELLED_OUT
)
PAIRS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1), (1, 4)), ((), (2, 2)), ((4, 1, 3), (2, 1)),
    ((1,), ()),
]  # fmt: skip


def binary(op: str) -> Iterator[Case]:
    for left, right in PAIRS:
        a, b = normal(*left), normal(*right)
        if op in ("And", "Or", "Xor"):
            yield Case([a > 0, b > 0])
            continue
        if op in ("Equal", "GreaterOrEqual", "LessOrEqual", "Greater", "Less"):
            a, b = np.rint(a), np.rint(b)
        yield Case([np.abs(a) if op == "Pow" else a, b])
        if op in ("Add", "Sub", "Mul", "Div", "Min", "Max"):
            whole = [RNG.integers(-20, 20, left), RNG.integers(1, 9, right)]
            yield Case([np.asarray(v, np.int64) for v in whole])
            yield Case([np.asarray(v, np.int32) for v in whole])


def slopes() -> Iterator[Case]:
    for shape in ((1,), (4,), (3, 1, 1), (2, 3, 4, 4)):
        yield Case([normal(2, 3, 4, 4), normal(*shape)])


def selections() -> Iterator[Case]:
    for left, right in PAIRS:
        yield Case([RNG.random(left) < 0.5, normal(*right), normal(*left)])


def casts() -> Iterator[Case]:
    values = np.array([-2.7, -0.5, 0.0, 0.5, 1.0, 100.2], np.float32)
    for to in ("float64", "float16", "int32", "int64", "bool"):
        yield Case([values], {"to": to}, {"to": DTYPE_CODES[to]})
    for dtype in (np.int64, np.int32, np.bool_, np.float16):
        yield Case([values.astype(dtype)], {"to": "float32"}, {"to": TensorProto.FLOAT})


def booleans(op: str) -> Iterator[Case]:
    yield Case([normal(3, 4) > 0] if op == "Not" else [np.array([np.nan, 1, np.inf], np.float32)])


GRID: dict[str, Callable[[], Iterator[Case]]] = {
    "Conv": convolutions, "ConvTranspose": transposed_convolutions, "MatMul": products,
    "MaxPool": lambda: pools(average=False), "AveragePool": lambda: pools(average=True),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), global_pools),
    "LRN": response_normalisations, "Softmax": softmaxes, "LogSoftmax": softmaxes, "TopK": ordered,
    "LayerNormalization": lambda: layers(shift=True),
    "RMSNormalization": lambda: layers(shift=False),
    "BatchNormalization": batches, "InstanceNormalization": instances, "Concat": concatenations,
    "Slice": slices, "StridedSlice": strided_slices, "Transpose": transposes, "Reshape": reshapes,
    "Expand": expansions,
    "Pad": paddings, "Gather": gathers, "PRelu": slopes, "Where": selections, "Cast": casts,
    **{name: reductions for name in OPS if name.startswith("Reduce")},
    **{name: lambda name=name: unary(name) for name in UNARY},  # type: ignore[misc]
    **{name: lambda name=name: booleans(name) for name in ("Not", "IsNaN")},  # type: ignore[misc]
    **{
        name: lambda name=name: binary(name)  # type: ignore[misc]
        for name, op in OPS.items()
        if op.kind == "pointwise" and op.arity == (2, 2) and name not in ("PRelu", "Mod")
    },
}  # fmt: skip
MADE_BY_RULES = {"Scalar", "Fill", "IdentityKernel"}
"""Operators without an ONNX counterpart; an export turns them into constants."""


READ_ONLY = {
    "ArgMax", "ArgMin", "Clamp", "Continued", "CumSum", "GRU", "GatherElements", "GatherND", "LSTM",
    "Mod", "RNN", "Range", "Resize", "ReverseSequence", "ScatterElements", "ScatterND",
}  # fmt: skip
"""Operators that no rule makes, compared as models spell them (test_operator_grid)."""


def test_every_operator_is_on_the_grid() -> None:
    assert set(GRID) | MADE_BY_RULES | SPELLED_OUT | READ_ONLY == set(OPS)
    assert sum(len(list(cases())) for cases in GRID.values()) >= 500


@pytest.mark.parametrize("op", GRID)
def test_operator_agrees_with_onnx(op: str) -> None:
    for case in GRID[op]():
        verify(op, case)


@pytest.mark.parametrize(
    "op", ["Add", "MatMul", "Relu", "Sigmoid", "Softmax", "LayerNormalization"]
)
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_element_types(op: str, dtype: Any) -> None:
    for case in GRID[op]():
        if case.operands[0].dtype == np.float32:
            operands = [operand.astype(dtype) for operand in case.operands]
            other = Case(operands, case.attrs, case.onnx_attrs, case.extra)
            verify(op, other, rtol=4e-3 if dtype is np.float16 else 1e-6)


def test_bfloat16_computes_in_single_precision() -> None:
    x = normal(8, 16).astype(ml_dtypes.bfloat16)
    w = normal(16, 4).astype(ml_dtypes.bfloat16)
    product = get_op("MatMul").eval_fn(FLOAT, [x, w], {})
    wide = x.astype(np.float32) @ w.astype(np.float32)
    assert product.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(product, wide.astype(ml_dtypes.bfloat16))


def test_even_response_normalisation_reaches_further_ahead() -> None:
    """The region of the specification: floor((size - 1) / 2) before, ceil((size - 1) / 2) after."""
    x = normal(1, 6, 2, 2)
    attrs = {"size": 4, "alpha": 0.3, "beta": 0.75, "bias": 1.5}
    sums = np.stack([(x[:, max(0, c - 1) : c + 3] ** 2).sum(axis=1) for c in range(6)], axis=1)
    theirs = x / (1.5 + 0.3 / 4 * sums) ** 0.75
    np.testing.assert_allclose(get_op("LRN").eval_fn(FLOAT, [x], attrs), theirs, rtol=1e-5)


def test_literals() -> None:
    scalar = get_op("Scalar").eval_fn(FLOAT, [], {"value": 0.1, "dtype": "float32"})
    assert scalar.dtype == np.float32
    assert scalar.shape == ()
    attrs = {"channels": 3, "height": 3, "width": 5, "dtype": "float32"}
    kernel = get_op("IdentityKernel").eval_fn(FLOAT, [], attrs)
    assert get_op("IdentityKernel").type_fn([], attrs) == TensorType("float32", kernel.shape)
    x = normal(2, 3, 6, 6)
    same = {"strides": (1, 1), "pads": (1, 2, 1, 2), "dilations": (1, 1), "group": 1}
    np.testing.assert_array_equal(get_op("Conv").eval_fn(FLOAT, [x, kernel], same), x)


def flat(values: Sequence[int]) -> int:
    return int(np.prod(values))


def test_flops_count_multiplications_and_additions() -> None:
    case = next(convolutions())
    types = [TensorType("float32", a.shape) for a in case.operands]
    op = get_op("Conv")
    result = op.type_fn(types, case.attrs)
    per_output = 2 * flat(case.operands[1].shape[1:]) + (len(case.operands) == 3)
    assert op.flops(types, result, case.attrs) == result.size * per_output
