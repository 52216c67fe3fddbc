"""Generated kernels: every function against float64, regions against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.ops import OPS
from eqsat_opt.runtime.backends.generated.compiling import compiled, compiler_missing
from eqsat_opt.runtime.backends.generated.kernel import FUNCTIONS, FloatKernel
from eqsat_opt.runtime.backends.native.library import instructions, missing
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from tests.oracles.generated import expected_of, kernel_model, operator_kernel

if why := missing() or compiler_missing():
    pytest.skip(why, allow_module_level=True)

EPSILON = float(np.finfo(np.float32).eps)

BOUNDS = {
    **dict.fromkeys(("Exp", "Sigmoid", "Tanh", "Erf"), 2e-7),
    **dict.fromkeys(("Log", "Sin", "Cos", "Softsign", "Swish", "Scale", "Shift"), 4e-7),
    **dict.fromkeys(("Reciprocal", "Rsqrt", "HardSigmoid", "HardSwish"), 4e-7),
    **dict.fromkeys(("Softplus", "Mish", "Elu", "Celu", "Selu", "Pow", "Gelu"), 1e-6),
}
"""Of the error relative to the value; what is not named rounds once, as IEEE 754 demands."""

ABSOLUTE = {
    "Gelu": 3e-7,
    "HardSigmoid": 1e-7,
    "HardSwish": 1e-6,
    "Shift": 1e-7,
    "Swish": 1e-8,
    "Mish": 1e-12,
}
"""Of the error where a sum cancels: the tail of Gelu, the knees of the others."""

ATTRIBUTES: Mapping[str, Mapping[str, Any]] = {
    "Swish": {"alpha": 1.702},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
    "Elu": {"alpha": 1.5},
    "Celu": {"alpha": 0.7},
    "Selu": {"alpha": 1.6732632, "gamma": 1.050701},
    "LeakyRelu": {"alpha": 0.01},
    "ThresholdedRelu": {"alpha": 0.5},
    "Clip": {"max": 6.0, "min": -1.0},
    "Scale": {"factor": 0.3},
    "Shift": {"offset": 0.3},
    "Gelu": {"approximate": "none"},
}

NOT_OF_FLOATS = {"Not", "IsNaN", "Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"} | {
    "And", "Or", "Xor", "Where", "Cast",
}  # fmt: skip
"""Truths, and what may give another type: onnxruntime keeps them."""

SPECIAL = np.array(
    [
        0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -3.0, 3.0, 6.0, 1e-45, -1e-45, 1e-39, -1e-39,
        1.17549435e-38, -1.17549435e-38, 1e-20, -1e-20, 1e-7, -1e-7, 1e20, -1e20, 88.7, 88.8, 89.5,
        -87.3, -87.4, -100.0, -103.9, -104.5, 3.4028235e38, -3.4028235e38, np.inf, -np.inf, np.nan,
        0.624, 0.626, -0.626, 0.899, 0.901, 3.99, 4.01, -4.01, 10.0, -10.0, -5.5, 16777217.0,
    ],
    np.float32,
)  # fmt: skip

WIDE = np.concatenate(
    [
        SPECIAL,
        np.linspace(-12, 12, 2_001),
        np.linspace(-110, 110, 401),
        np.geomspace(1e-44, 3e38, 600),
    ]
).astype(np.float32)

UNARY = sorted(
    name
    for name, op in OPS.items()
    if op.kind == "pointwise" and op.arity == (1, 1) and name not in NOT_OF_FLOATS and op.index_fn
)
BINARY = sorted(
    name
    for name, op in OPS.items()
    if op.kind == "pointwise" and op.arity == (2, 2) and name not in NOT_OF_FLOATS and op.index_fn
)
SHAPES: Sequence[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((), ()),
    ((1,), (5,)),
    ((3, 1, 19), (2, 1)),
    ((2, 1, 3), (4, 1)),
    ((1, 1), (1, 1, 7)),
    ((33,), (2, 1, 33)),
]


def cases() -> dict[str, tuple[str, list[tuple[int, ...]], dict[str, Any]]]:
    """Operator, shapes and attributes by a name."""
    found: dict[str, tuple[str, list[tuple[int, ...]], dict[str, Any]]] = {
        name: (name, [WIDE.shape], dict(ATTRIBUTES.get(name, {}))) for name in UNARY
    }
    found["Gelu tanh"] = ("Gelu", [WIDE.shape], {"approximate": "tanh"})
    pairs = [(SPECIAL.size, 1), (1, SPECIAL.size)]
    for name in BINARY:
        found[name] = (name, [pairs[0], pairs[1] if name != "PRelu" else (1,)], {})
    for i, (left, right) in enumerate(SHAPES):
        found[f"Div {i}"] = ("Div", [left, right], {})
    return found


@pytest.fixture(scope="module")
def kernels() -> dict[str, FloatKernel]:
    return {name: operator_kernel(*case) for name, case in cases().items()}


@pytest.fixture(scope="module", params=["avx512", "avx2", "neon"])
def library(request: pytest.FixtureRequest, kernels: dict[str, FloatKernel]) -> str:
    """All kernels, for each set of instructions that this processor has."""
    wanted, here = request.param, instructions()
    if wanted != here and (wanted, here) != ("avx2", "avx512"):
        pytest.skip(f"this processor has no instructions called {wanted}")
    return compiled(tuple(kernels.values()), wanted)


def opened(kernel: FloatKernel, library: str, threads: int = 1) -> OrtSession:
    return OrtSession(kernel_model(kernel), OrtOptions(threads, custom_ops=(library,)))


def run(kernel: FloatKernel, library: str, *operands: NDArray[Any]) -> NDArray[Any]:
    feeds = {f"x{i}": x for i, x in enumerate(operands)}
    (found,) = opened(kernel, library).run(feeds)
    return np.asarray(found)


def check(op: str, found: NDArray[Any], expected: NDArray[Any]) -> None:
    """Within the bound where the result is finite, else the same."""
    assert found.shape == expected.shape
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = expected.astype(np.float32)
    odd = ~np.isfinite(rounded)
    largest = float(np.finfo(np.float32).max)
    # Next to the largest number the bound itself is infinite.
    near = odd & np.isfinite(expected) & (np.abs(found) == largest)
    np.testing.assert_array_equal(found[odd & ~near], rounded[odd & ~near])
    assert np.isfinite(found[~odd]).all() or (np.abs(expected[~odd]) > largest / 2).any()
    fine = ~odd & np.isfinite(found)
    error = np.abs(found[fine].astype(np.float64) - expected[fine])
    allowed = BOUNDS.get(op, 0.51 * EPSILON) * np.abs(expected[fine])
    allowed += max(ABSOLUTE.get(op, 0.0), 1.5e-45)
    worst = np.argmax(error - allowed)
    assert (error <= allowed).all(), (found[fine][worst], expected[fine][worst])


@pytest.mark.parametrize("name", [*UNARY, "Gelu tanh"])
def test_functions_of_one_operand(name: str, kernels: dict[str, FloatKernel], library: str) -> None:
    op, _, attrs = cases()[name]
    x = np.abs(WIDE) if op in ("Log", "Sqrt", "Rsqrt") else WIDE
    if op in ("Sin", "Cos"):
        x = np.where(np.abs(x) > 1e4, np.float32(1), x)
    check(op, run(kernels[name], library, x), expected_of(op, [x], attrs))


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_operands(
    name: str, kernels: dict[str, FloatKernel], library: str
) -> None:
    operands = [SPECIAL.reshape(s) if len(s) > 1 else SPECIAL[:1] for s in kernels[name].inputs]
    if name == "PRelu":
        operands[1] = np.array([0.25], np.float32)
    check(name, run(kernels[name], library, *operands), expected_of(name, operands, {}))


@pytest.mark.parametrize("i", range(len(SHAPES)))
def test_broadcasting(i: int, kernels: dict[str, FloatKernel], library: str) -> None:
    rng = np.random.default_rng(i)
    operands = [rng.standard_normal(s).astype(np.float32) for s in SHAPES[i]]
    found = run(kernels[f"Div {i}"], library, *operands)
    np.testing.assert_array_equal(found, operands[0] / operands[1])


def test_every_function_is_one_of_the_registry() -> None:
    computed = {"GeluNone", "GeluTanh"} | {*UNARY, *BINARY}
    assert FUNCTIONS.keys() <= computed
    assert {"Gelu", *FUNCTIONS} >= {*UNARY, *BINARY} - {
        "Reciprocal", "Scale", "Shift", "Square", "Rsqrt",
    }  # fmt: skip


def test_another_shape_is_an_error(kernels: dict[str, FloatKernel], library: str) -> None:
    kernel = kernels["Div 1"]
    model = kernel_model(kernel, [["n"], ["m"]])
    session = OrtSession(model, OrtOptions(1, custom_ops=(library,)))
    one, five = np.ones(1, np.float32), np.ones(5, np.float32)
    assert session.run({"x0": one, "x1": five})[0].shape == (5,)
    for x0, x1 in ((five, five), (one, one), (np.ones(0, np.float32), five)):
        with pytest.raises(RuntimeFailed, match="another shape than the kernel was made for"):
            session.run({"x0": x0, "x1": x1})


def test_from_eight_threads_at_once(kernels: dict[str, FloatKernel], library: str) -> None:
    session = opened(kernels["Tanh"], library, 2)
    inputs = [np.roll(WIDE, i) for i in range(8)]
    alone = [session.run({"x0": x})[0] for x in inputs]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            together = list(pool.map(lambda x: session.run({"x0": x})[0], inputs))
            for one, other in zip(alone, together, strict=True):
                np.testing.assert_array_equal(one, other)


def test_loops_are_shared_among_threads() -> None:
    kernel = operator_kernel("Softplus", [(700, 3, 5)], {})
    wide = operator_kernel("Div", [(40, 1, 2000), (3, 1)], {})
    library = compiled([kernel, wide], instructions())
    rng = np.random.default_rng(0)
    for one in (kernel, wide):
        feeds = {
            f"x{i}": rng.standard_normal(s).astype(np.float32) for i, s in enumerate(one.inputs)
        }
        results = [opened(one, library, threads).run(feeds)[0] for threads in (1, 3)]
        np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("name", [name for name, f in FUNCTIONS.items() if f.is_exact])
def test_what_is_called_exact_has_the_bits_of_onnxruntime(
    name: str, kernels: dict[str, FloatKernel], library: str
) -> None:
    if name in UNARY:
        operands = [WIDE]
    else:
        operands = [np.ascontiguousarray(x) for x in (SPECIAL[:, None], SPECIAL[None, :])]
    float32 = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(name, [f"x{i}" for i in range(len(operands))], ["y"])],
        "one",
        [
            onnx.helper.make_tensor_value_info(f"x{i}", float32, x.shape)
            for i, x in enumerate(operands)
        ],
        [onnx.helper.make_tensor_value_info("y", float32, None)],
    )
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8
    )
    (expected,) = OrtSession(model, OrtOptions(1)).run({f"x{i}": x for i, x in enumerate(operands)})
    found = run(kernels[name], library, *operands)
    np.testing.assert_array_equal(found, expected)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[number]), np.signbit(expected[number]))


def test_special_values_meet_in_all_pairs(kernels: dict[str, FloatKernel], library: str) -> None:
    x, y = SPECIAL[:, None], SPECIAL[None, :]
    for name, function in (("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply)):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(run(kernels[name], library, x, y), function(x, y))
    signs = np.signbit(run(kernels["Neg"], library, WIDE))
    np.testing.assert_array_equal(signs[~np.isnan(WIDE)], ~np.signbit(WIDE)[~np.isnan(WIDE)])
