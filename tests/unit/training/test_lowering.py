"""Gradient operators of onnxruntime-training, against our own derivatives and plain formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from eqsat_opt.errors import ModelError
from eqsat_opt.ir.onnx.exporter import model_proto
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.training.reading import has_gradient_operators, lowered_model

Array = Any
RNG = np.random.default_rng(0)
CODES = {"float32": 1, "int64": 7, "bool": 9}


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def model(op: str, operands: Sequence[Array | None], outputs: int, **attrs: Any) -> onnx.ModelProto:
    names = ["" if one is None else f"x{number}" for number, one in enumerate(operands)]
    results = [f"y{number}" for number in range(outputs)]
    node = helper.make_node(op, names, results, domain="com.microsoft", **attrs)
    given = [(n, a) for n, a in zip(names, operands, strict=True) if a is not None]
    # Sizes and numbers are part of a model, data is not.
    fixed = [numpy_helper.from_array(a, n) for n, a in given if a.dtype == np.int64 and a.ndim == 1]
    held = {one.name for one in fixed}
    inputs = [
        helper.make_tensor_value_info(n, CODES[str(a.dtype)], a.shape)
        for n, a in given
        if n not in held
    ]
    graph = helper.make_graph(
        [node], "g", inputs, [onnx.ValueInfoProto(name=name) for name in results], fixed
    )
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def run(op: str, operands: Sequence[Array | None], outputs: int = 1, **attrs: Any) -> list[Array]:
    loaded = load_model(model(op, operands, outputs, **attrs))
    assert has_gradient_operators(loaded)
    proto = model_proto(lowered_model(loaded))
    assert {node.domain for node in proto.graph.node} <= {"", "ai.onnx"}
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    wanted = {one.name for one in session.get_inputs()}
    feeds = {f"x{n}": a for n, a in enumerate(operands) if f"x{n}" in wanted}
    return list(session.run(None, feeds))


def slope(function: Callable[[Array], Array], x: Array, gradient: Array) -> Array:
    """The gradient of an elementwise function by a central difference."""
    x = x.astype(np.float64)
    return gradient * (function(x + 1e-5) - function(x - 1e-5)) / 2e-5


DY, X = floats(3, 4), floats(3, 4)
FUNCTIONS: dict[str, tuple[Callable[[Array], Array], bool]] = {
    "ReluGrad": (lambda x: np.maximum(x, 0), True),
    "SigmoidGrad": (lambda x: 1 / (1 + np.exp(-x)), True),
    "TanhGrad": (np.tanh, True),
    "LeakyReluGrad": (lambda x: np.where(x < 0, 0.01 * x, x), True),
    "QuickGeluGrad": (lambda x: x / (1 + np.exp(-1.702 * x)), False),
    "EluGrad": (lambda x: np.where(x < 0, np.exp(x) - 1, x), False),
    "SinGrad": (np.sin, False),
    "CosGrad": (np.cos, False),
    "AbsGrad": (np.abs, False),
    "FastGeluGrad": (
        lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))), False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("op", FUNCTIONS)
def test_functions_of_one_element(op: str) -> None:
    function, takes_result = FUNCTIONS[op]
    second = function(X).astype(np.float32) if takes_result else X
    (found,) = run(op, [DY, second])
    np.testing.assert_allclose(found, slope(function, X, DY), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy(reduction: str, weighted: bool) -> None:
    logits, labels = floats(5, 4, 2), RNG.integers(0, 4, (5, 2))
    labels[0, 0] = -100
    weights = np.asarray([1.0, 0.5, 2.0, 1.5], np.float32)
    optional = [weights if weighted else None, np.asarray([-100], np.int64)]

    def losses(values: Array) -> Array:
        shares = np.exp(values) / np.exp(values).sum(1, keepdims=True)
        picked = np.take_along_axis(shares, np.maximum(labels, 0)[:, None], 1)[:, 0]
        factor = (weights[np.maximum(labels, 0)] if weighted else 1.0) * (labels >= 0)
        every = -np.log(picked) * factor
        if reduction == "none":
            return every
        return every.sum() / (factor.sum() if reduction == "mean" else 1.0)

    op = "SoftmaxCrossEntropyLossInternal"
    loss, logarithms = run(op, [logits, labels, *optional], 2, reduction=reduction)
    np.testing.assert_allclose(loss, losses(logits), rtol=1e-4)
    gradient = floats(*loss.shape)
    (found,) = run(f"{op}Grad", [gradient, logarithms, labels, *optional], reduction=reduction)
    direction, wide = floats(5, 4, 2), logits.astype(np.float64)
    ends = [losses(wide + sign * 1e-5 * direction) for sign in (1, -1)]
    expected = ((ends[0] - ends[1]) / 2e-5 * gradient).sum()
    np.testing.assert_allclose((found * direction).sum(), expected, rtol=1e-3, atol=1e-4)


def test_normalisations() -> None:
    x, gradient, scale, shift = floats(6, 8), floats(6, 8), floats(8) + 3, floats(8)
    mean, deviation = x.mean(-1, keepdims=True), x.std(-1, keepdims=True)
    normal = (x - mean) / deviation
    inner = gradient * scale
    expected = inner - inner.mean(-1, keepdims=True)
    expected = (expected - normal * (inner * normal).mean(-1, keepdims=True)) / deviation
    sums = [(gradient * normal).sum(0), gradient.sum(0)]
    for op, operands in (
        ("LayerNormalizationGrad", [gradient, x, scale, mean, 1 / deviation]),
        ("InvertibleLayerNormalizationGrad",
         [gradient, normal * scale + shift, scale, shift, 1 / deviation]),
    ):  # fmt: skip
        found = run(op, operands, 3, axis=-1)
        for one, other in zip(found, [expected, *sums], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
    root = np.sqrt((x**2).mean(-1, keepdims=True))
    operands = [gradient, x, scale, 1 / root]
    back, to_scale = run("SimplifiedLayerNormalizationGrad", operands, 2, axis=-1)
    common = (inner * x / root).mean(-1, keepdims=True)
    np.testing.assert_allclose(back, (inner - x / root * common) / root, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(to_scale, (gradient * x / root).sum(0), rtol=1e-3, atol=1e-4)


def test_batch_normalisation() -> None:
    x, gradient, scale, shift = floats(4, 3, 5), floats(4, 3, 5), floats(3) + 3, floats(3)
    held = [floats(3), floats(3) ** 2]
    y, mean, variance, own, reciprocal = run(
        "BatchNormInternal", [x, scale, shift, *held], 5, momentum=0.75
    )
    spread = x.var((0, 2)) + 1e-5
    np.testing.assert_allclose(own, x.mean((0, 2)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mean, held[0] * 0.75 + own * 0.25, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(variance, held[1] * 0.75 + x.var((0, 2)) * 0.25, rtol=1e-3)
    normal = (x - own[:, None]) / np.sqrt(spread)[:, None]
    np.testing.assert_allclose(y, normal * scale[:, None] + shift[:, None], rtol=1e-3, atol=1e-4)
    back, *sums = run("BatchNormalizationGrad", [gradient, x, scale, own, reciprocal], 3)
    inner = gradient * scale[:, None]
    expected = inner - inner.mean((0, 2), keepdims=True)
    expected = expected - normal * (inner * normal).mean((0, 2), keepdims=True)
    expected = expected / np.sqrt(spread)[:, None]
    np.testing.assert_allclose(back, expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(sums[0], (gradient * normal).sum((0, 2)), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(sums[1], gradient.sum((0, 2)), rtol=1e-3, atol=1e-4)


def test_convolution() -> None:
    x, weight, gradient = floats(2, 3, 6), floats(4, 3, 3), floats(2, 4, 6)
    back, to_weight, to_bias = run("ConvGrad", [gradient, x, weight], 3, pads=[1, 1])
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 3, axis=2)
    expected = np.einsum("nop,ncpk->ock", gradient, windows)
    np.testing.assert_allclose(to_weight, expected, rtol=1e-3, atol=1e-4)
    spread = np.zeros_like(padded)
    for place in range(3):
        spread[:, :, place : place + 6] += np.einsum("nop,oc->ncp", gradient, weight[:, :, place])
    np.testing.assert_allclose(back, spread[:, :, 1:-1], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(to_bias, gradient.sum((0, 2)), rtol=1e-3, atol=1e-4)


def test_movement_and_sums() -> None:
    places, gradient = np.asarray([[2, 0], [2, 1]]), floats(2, 2, 3)
    (found,) = run("GatherGrad", [np.asarray([4, 3]), places, gradient], axis=0)
    expected = np.zeros((4, 3), np.float32)
    np.add.at(expected, places, gradient)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    (found,) = run("ReduceSumTraining", [gradient, np.asarray([0, -1])], keepdims=0)
    np.testing.assert_allclose(found, gradient.sum((0, 2)), rtol=1e-5)
    mask = RNG.random((3, 4)) < 0.5
    (found,) = run("DropoutGrad", [DY, mask, np.asarray(0.25, np.float32)])
    np.testing.assert_allclose(found, DY * mask / 0.75, rtol=1e-5)
    places = RNG.integers(0, 3, (3, 4))
    (found,) = run("GatherElementsGrad", [DY, np.asarray([3, 4]), places], axis=0)
    expected = np.zeros((3, 4), np.float32)
    np.add.at(expected, (places, np.arange(4)), DY)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    shares = np.exp(X) / np.exp(X).sum(-1, keepdims=True)
    (found,) = run("SoftmaxGrad_13", [DY, shares], axis=-1)
    np.testing.assert_allclose(
        found, shares * (DY - (DY * shares).sum(-1, keepdims=True)), rtol=1e-4, atol=1e-6
    )


def test_optimisers() -> None:
    rate, count = np.asarray(0.1, np.float32), np.asarray(3)
    weight, gradient, first = floats(3, 4), floats(3, 4), floats(3, 4)
    second = floats(3, 4) ** 2
    found = run(
        "AdamOptimizer", [rate, count, weight, gradient, first, second], 4, **{"lambda": 0.01}
    )
    one, two = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
    step = one / (1 - 0.9**3) / (np.sqrt(two / (1 - 0.999**3)) + 1e-8) + 0.01 * weight
    for value, expected in zip(found, [count + 1, one, two, weight - 0.1 * step], strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-5)
    (found_weight, found_step) = run("SGDOptimizer", [rate, weight, gradient], 2)
    np.testing.assert_allclose(found_weight, weight - 0.1 * gradient, rtol=1e-5)
    np.testing.assert_allclose(found_step, -0.1 * gradient, rtol=1e-5)
    for overwrites in (False, True):
        done, total = run("InPlaceAccumulatorV2", [first, gradient, np.asarray([overwrites])], 2)
        assert done.all()
        np.testing.assert_allclose(total, gradient if overwrites else first + gradient, rtol=1e-5)


def test_what_cannot_be_lowered_is_said() -> None:
    loaded = load_model(model("ConvGrad", [floats(2, 4, 6), floats(2, 3, 6), floats(4, 3, 3)], 3,
                              auto_pad="SAME_UPPER"))  # fmt: skip
    with pytest.raises(ModelError, match="ConvGrad"):
        lowered_model(loaded)
