"""Training graphs of small models, run by onnxruntime."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper

from eqsat_opt.errors import ModelError, OptionError
from eqsat_opt.ir.onnx.exporter import model_proto
from eqsat_opt.ir.values.dims import literal
from eqsat_opt.training.joint import UPDATES_KEY, TrainingGraph, TrainingOptions, training_graph
from eqsat_opt.training.optimisers import OPTIMISERS, OptimiserSettings

Arrays = dict[str, np.ndarray]
RNG = np.random.default_rng(0)


def model(body: str, inputs: str, outputs: str, **weights: tuple[int, ...]) -> onnx.ModelProto:
    text = f'<ir_version: 9, opset_import: ["" : 20]> g ({inputs}) => ({outputs}) {{ {body} }}'
    made = onnx.parser.parse_model(text)
    rng = np.random.default_rng(1)
    for name, shape in weights.items():
        array = rng.uniform(0.2, 1.0, shape).astype(np.float32)
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    return made


def perceptron(**options: Any) -> TrainingGraph:
    body = "h = MatMul(x, a)  r = Relu(h)  z = MatMul(r, b)  y = Add(z, c)"
    made = model(body, "float[N,6] x", "float[N,3] y", a=(6, 8), b=(8, 3), c=(3,))
    return training_graph(made, TrainingOptions(**options))


def run(graph: TrainingGraph, feeds: Mapping[str, Any]) -> Arrays:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    proto = model_proto(graph.model)
    onnx.checker.check_model(proto, full_check=True)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    zeros = {n: np.zeros(tuple(map(literal, t.shape)), t.dtype) for n, t in graph.zeros.items()}
    given = {n: np.asarray(v) for n, v in {**zeros, **feeds}.items()}
    return dict(
        zip([one.name for one in session.get_outputs()], session.run(None, given), strict=True)
    )


def batch(samples: int) -> dict[str, np.ndarray]:
    return {
        "x": RNG.standard_normal((samples, 6)).astype(np.float32),
        "target": RNG.integers(0, 3, samples),
    }


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_steps_lower_the_loss_at_any_batch_size(optimiser: str) -> None:
    graph = perceptron(optimiser=optimiser, settings=OptimiserSettings(weight_decay=1e-3))
    assert set(graph.parameters) == {"a", "b", "c"}
    assert json.loads(graph.model.metadata_props[UPDATES_KEY]) == graph.updates
    for samples in (1, 5):
        data, losses = batch(samples), []
        state: Arrays = {}
        for number in range(8):
            numbers = {"learning_rate": np.float32(0.05)}
            if OPTIMISERS[optimiser].counts:
                numbers["step"] = np.float32(number + 1)
            found = run(graph, {**data, **state, **numbers})
            losses.append(float(found["loss"]))
            state = {old: found[new] for old, new in graph.updates.items()}
        assert losses[-1] < losses[0]


def test_gradients_of_micro_batches_add_up_to_that_of_the_batch() -> None:
    whole, part = perceptron(optimiser="none"), perceptron(optimiser="none", accumulate=3)
    data = batch(6)
    expected = run(whole, data)
    state: Arrays = {}
    for lo in (0, 2, 4):
        found = run(part, {**{n: one[lo : lo + 2] for n, one in data.items()}, **state})
        state = {old: found[new] for old, new in part.updates.items()}
    for name in whole.parameters:
        gradient = f"{name}.gradient"
        np.testing.assert_allclose(found[gradient], expected[gradient], rtol=1e-4, atol=1e-6)


def test_frozen_parameters_are_constants() -> None:
    graph = perceptron(optimiser="sgd", freeze=("a",))
    assert graph.parameters == ("b", "c")
    assert "a" not in [value.name for value in graph.model.graph.inputs]
    assert perceptron(optimiser="sgd", train=("b",)).parameters == ("b",)


def test_a_shared_parameter_gets_the_sum_of_its_gradients() -> None:
    made = model("h = MatMul(x, a)  y = MatMul(h, a)", "float[2,4] x", "float[2,4] y", a=(4, 4))
    graph = training_graph(made, TrainingOptions(loss="mse", optimiser="none"))
    x, target = (RNG.standard_normal((2, 4)).astype(np.float32) for _ in range(2))
    a = numpy_helper.to_array(made.graph.initializer[0])
    found = run(graph, {"x": x, "target": target})
    seed = (x @ a @ a - target) * 2 / 8
    expected = x.T @ (seed @ a.T) + (x @ a).T @ seed
    np.testing.assert_allclose(found["a.gradient"], expected, rtol=1e-4, atol=1e-5)


def test_a_softmax_before_cross_entropy_is_read_as_logits() -> None:
    made = model(
        "h = MatMul(x, a)  y = Softmax<axis = -1>(h)", "float[N,6] x", "float[N,3] y", a=(6, 3)
    )
    graph = training_graph(made, TrainingOptions(optimiser="none", class_axis=-1))
    data = batch(4)
    a = numpy_helper.to_array(made.graph.initializer[0])
    logits = data["x"] @ a
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    wanted = -np.log(shares[np.arange(4), data["target"]]).mean()
    found = run(graph, data)
    np.testing.assert_allclose(found["loss"], wanted, rtol=1e-5)
    gradient = data["x"].T @ (shares - np.eye(3, dtype=np.float32)[data["target"]]) / 4
    np.testing.assert_allclose(found["a.gradient"], gradient, rtol=1e-4, atol=1e-5)
    assert "Softmax" not in [node.op_type for node in graph.model.graph]


def test_dropout_multiplies_by_a_given_mask() -> None:
    body = "h = MatMul(x, a)  d = Dropout(h, ratio)  y = MatMul(d, b)"
    made = model(body, "float[N,4] x", "float[N,2] y", a=(4, 4), b=(4, 2))
    made.graph.initializer.append(numpy_helper.from_array(np.asarray(0.75, np.float32), "ratio"))
    graph = training_graph(made, TrainingOptions(loss="mse", optimiser="none"))
    (mask,) = graph.masks
    assert mask.ratio == 0.75
    weights = {one.name: numpy_helper.to_array(one) for one in made.graph.initializer}
    x, target = np.ones((3, 4), np.float32), np.zeros((3, 2), np.float32)
    kept = np.asarray(RNG.integers(0, 2, (3, 4)), np.float32)
    found = run(graph, {"x": x, "target": target, mask.input: kept})
    dropped = x @ weights["a"] * kept * 4
    np.testing.assert_allclose(found["loss"], ((dropped @ weights["b"]) ** 2).mean(), rtol=1e-5)
    seed = dropped @ weights["b"] * 2 / 6
    np.testing.assert_allclose(found["b.gradient"], dropped.T @ seed, rtol=1e-4, atol=1e-5)


def test_batch_normalisation_updates_its_statistics() -> None:
    body = "y = BatchNormalization<momentum = 0.75>(x, s, b, m, v)"
    made = model(body, "float[N,3,4] x", "float[N,3,4] y", s=(3,), b=(3,), m=(3,), v=(3,))
    graph = training_graph(made, TrainingOptions(loss="mse", optimiser="none"))
    assert graph.parameters == ("s", "b")
    assert graph.updates == {"m": "m.next", "v": "v.next"}
    weights = {one.name: numpy_helper.to_array(one) for one in made.graph.initializer}
    x = RNG.standard_normal((5, 3, 4)).astype(np.float32)
    found = run(graph, {"x": x, "target": np.zeros_like(x)})
    for name, new in (("m", x.mean((0, 2))), ("v", x.var((0, 2)))):
        expected = 0.75 * weights[name] + 0.25 * new
        np.testing.assert_allclose(found[f"{name}.next"], expected, rtol=1e-4, atol=1e-6)
    centred = x - x.mean((0, 2), keepdims=True)
    normal = centred / np.sqrt(x.var((0, 2), keepdims=True) + 1e-5)
    y = normal * weights["s"][:, None] + weights["b"][:, None]
    np.testing.assert_allclose(found["b.gradient"], (2 * y / y.size).sum((0, 2)), rtol=1e-3)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("h = MatMul(x, a)  y = Det(h)", "Det"),
        ("h = MatMul(x, a)  k = Cast<to = 7>(h)  y = Cast<to = 1>(k)", "nothing to train"),
        ("h = MatMul(x, a)  y = Not(k)  k = Cast<to = 9>(h)", "no loss is defined"),
    ],
)
def test_what_cannot_be_trained_is_said(body: str, message: str) -> None:
    kind = "bool" if "Not" in body else "float"
    shape = "[]" if "Det" in body else "[4,4]"
    made = model(body, "float[4,4] x", f"{kind}{shape} y", a=(4, 4))
    with pytest.raises(ModelError, match=message):
        training_graph(made, TrainingOptions(loss="mse"))


def test_names_that_are_taken_are_errors() -> None:
    made = model("y = MatMul(target, a)", "float[2,4] target", "float[2,4] y", a=(4, 4))
    with pytest.raises(ModelError, match="'target' already"):
        training_graph(made, TrainingOptions(loss="mse"))


@pytest.mark.parametrize("wrong", [{"momentum": 1.0}, {"epsilon": 0.0}, {"weight_decay": -1.0}])
def test_numbers_out_of_range(wrong: dict[str, float]) -> None:
    with pytest.raises(OptionError):
        OptimiserSettings(**wrong)
