"""The zoo's graphs are the published ones, and their random weights hide nothing."""

from __future__ import annotations

import math
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from onnx import ModelProto, TensorProto, helper

from eqsat_opt.errors import ModelError, OptionError
from eqsat_opt.lab import zoo
from tests.sampling import sampled

Arrays = dict[str, npt.NDArray[Any]]

# Single-input operators whose loss must show; each maps a tensor to one of the same shape.
GATES = {"Relu", "Sigmoid", "Tanh", "Erf", "Softmax", "LRN", "LayerNormalization"}
GATES |= {"BatchNormalization"}

OPERATOR_COUNTS: dict[str, dict[str, int]] = {
    "squeezenet": {"Conv": 30, "Concat": 8, "Add": 8, "MaxPool": 3, "GlobalAveragePool": 1},
    "inception_v3": {"Conv": 94, "Relu": 94, "Concat": 11, "MaxPool": 4, "AveragePool": 10},
    "resnet50": {"Conv": 53, "Add": 16, "Gemm": 1, "BatchNormalization": 0},
    "resnet50_bn": {"Conv": 53, "Add": 16, "Gemm": 1, "BatchNormalization": 53},
    "resnext50": {"Conv": 53, "Add": 16},
    "nasnet_a": {"Conv": 217, "Concat": 18, "Add": 90},
    "vgg19": {"Conv": 16, "MaxPool": 5, "Gemm": 3},
    "alexnet": {"Conv": 5, "LRN": 2, "MaxPool": 3, "Gemm": 3},
    "bert": {"MatMul": 6 * 8, "Softmax": 6, "Erf": 6, "LayerNormalization": 13},
    "bert_taso": {"MatMul": 8 * 6, "Add": 8, "Tanh": 8, "Relu": 1, "Softmax": 0},
    "bert_deep": {"Softmax": 200, "LayerNormalization": 400},
    "sru": {"MatMul": 20 * 3, "Sigmoid": 20 * 2, "Mul": 20 * 4, "Add": 20 * 2},
    "nasrnn": {"MatMul": 5 * 16},
    "lora": {"MatMul": 6 * 3 + 2},
    "linear_attention": {"MatMul": 2, "Softmax": 0},
    "weight_chain": {"MatMul": 2},
    "inception_e": {"Conv": 9, "Relu": 9, "Concat": 3, "MaxPool": 1},
    "ocggs_resnet": {"Conv": 8 * 3, "Relu": 8 * 3, "Add": 8},
    "resnet18": {"Conv": 20, "Add": 8, "Gemm": 1},
    "vgg16": {"Conv": 13, "MaxPool": 5, "Gemm": 3},
    "nasnet_cell": {"Conv": 12, "Relu": 2, "AveragePool": 3, "Add": 5, "Concat": 1},
    "bert_full": {"MatMul": 8 * 8, "Softmax": 8, "Sqrt": 17, "Relu": 8},
    "sru_step": {"MatMul": 3, "Sigmoid": 2, "Mul": 4, "Add": 2},
    "rnntc": {"MatMul": 20 * 3 + 1, "Sub": 20 * 2, "Softmax": 1},
    "dcgan": {"Resize": 2, "Conv": 7, "Tanh": 1, "Sigmoid": 1},
    "mlp_training": {"MatMul": 3 + 5, "Relu": 2, "Greater": 2},
    "cnn_training": {"Conv": 3 + 3, "ConvTranspose": 2, "Greater": 3},
}
OUTPUT_SHAPES: dict[str, tuple[int, ...] | set[tuple[int, ...]]] = {
    "squeezenet": (1, 1000, 1, 1),
    "inception_v3": (1, 2048, 1, 1),
    "resnet50": (1, 1000),
    "resnet50_bn": (1, 1000),
    "resnext50": (1, 2048, 7, 7),
    "nasnet_a": (1, 5120, 7, 7),
    "vgg19": (1, 1000),
    "alexnet": (1, 1000),
    "bert": (1, 128, 768),
    "bert_taso": (64, 1024),
    "bert_deep": (1, 16, 64),
    "sru": (1, 512),
    "nasrnn": (1, 512),
    "lora": (1, 128, 768),
    "linear_attention": (1, 8, 512, 64),
    "weight_chain": (128, 1024),
    "inception_e": (1, 2048, 8, 8),
    "ocggs_resnet": (1, 256, 14, 14),
    "resnet18": (1, 1000),
    "vgg16": (1, 1000),
    "nasnet_cell": (1, 640, 28, 28),
    "bert_full": (1, 64, 256),
    "sru_step": (1, 1024),
    "rnntc": (1, 16),
    "dcgan": {(1, 3, 256, 256), (1, 1)},
    "mlp_training": {(), (784, 1024), (1024, 1024), (1024, 10)},
    "cnn_training": {(), (16, 3, 3, 3), (32, 16, 3, 3), (32, 32, 3, 3), (2048, 10)},
}
WITHOUT_WEIGHTS = {"linear_attention", "mlp_training", "cnn_training"}
"""Their only weights are published constants, so nothing is drawn."""


def session(model: ModelProto | Path) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def dims(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    return tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)


def random_inputs(model: ModelProto, seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    return {
        value.name: rng.standard_normal(dims(value), dtype=np.float32)
        for value in model.graph.input
    }


def relative_change(before: list[Any], after: list[Any]) -> float:
    """Largest change of any output, relative to that output's largest value."""
    return max(
        float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(after, before, strict=True)
    )


def assert_alive(model: ModelProto) -> None:
    run = session(model)
    first, second = (run.run(None, random_inputs(model, seed)) for seed in (1, 2))
    for a, b in zip(first, second, strict=True):
        assert np.isfinite(a).all()
        if a.size == 1:
            assert abs(a - b) > 1e-3 * abs(a)
            continue
        assert a.std() > 1e-2 * np.abs(a).max()
        assert np.corrcoef(a.ravel(), b.ravel())[0, 1] < 0.98


def with_weights_as_inputs(model: ModelProto) -> tuple[ModelProto, Arrays]:
    """Make every float initializer an input, so that one session serves all weight changes."""
    changed = ModelProto()
    changed.CopyFrom(model)
    weights = {
        tensor.name: onnx.numpy_helper.to_array(tensor)
        for tensor in model.graph.initializer
        if tensor.data_type == TensorProto.FLOAT
    }
    kept = [t for t in model.graph.initializer if t.name not in weights]
    del changed.graph.initializer[:]
    changed.graph.initializer.extend(kept)
    changed.graph.input.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)
        for name, array in weights.items()
    )
    return changed, weights


def with_switchable_gates(model: ModelProto) -> tuple[ModelProto, Arrays]:
    """Replace each gate g(x) by x + switch · (g(x) - x), with one scalar input per gate."""
    changed = ModelProto()
    changed.CopyFrom(model)
    del changed.graph.node[:]
    switches: Arrays = {}
    for node in model.graph.node:
        copy = changed.graph.node.add()
        copy.CopyFrom(node)
        if node.op_type not in GATES:
            continue
        name, x, y = node.name, node.input[0], node.output[0]
        copy.output[0] = f"{name}.on"
        changed.graph.node.extend(
            [
                helper.make_node("Sub", [f"{name}.on", x], [f"{name}.effect"]),
                helper.make_node("Mul", [f"{name}.effect", f"{name}.switch"], [f"{name}.switched"]),
                helper.make_node("Add", [x, f"{name}.switched"], [y]),
            ]
        )
        switches[f"{name}.switch"] = np.array(1, np.float32)
    changed.graph.input.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ()) for name in switches
    )
    return changed, switches


def assert_each_matters(model: ModelProto, fixed: Arrays, varied: Arrays) -> None:
    """Zero each of the varied inputs in turn and look for a change of some output."""
    run = session(model)
    before = run.run(None, {**fixed, **varied})
    unnoticed = [
        name
        for name, array in varied.items()
        if relative_change(before, run.run(None, {**fixed, **varied, name: np.zeros_like(array)}))
        < 1e-4
    ]
    assert not unnoticed


def test_the_tables_of_this_file_cover_the_zoo() -> None:
    assert set(zoo.names()) == set(OPERATOR_COUNTS) == set(OUTPUT_SHAPES)
    assert [zoo.describe(name).name for name in zoo.names()] == list(zoo.names())


@pytest.mark.parametrize(
    "name",
    sampled(zoo.names(), 9),
)
class TestFullSize:
    def test_is_the_described_graph_and_alive(self, name: str) -> None:
        model = zoo.build(name)
        description = zoo.describe(name)
        counts = Counter(node.op_type for node in model.graph.node)
        n_params = sum(
            math.prod(tensor.dims)
            for tensor in model.graph.initializer
            if tensor.data_type == TensorProto.FLOAT
        )
        assert len(model.graph.node) == description.n_operators
        assert n_params == description.n_params
        assert {op: counts[op] for op in OPERATOR_COUNTS[name]} == OPERATOR_COUNTS[name]
        shapes = OUTPUT_SHAPES[name]
        found = {dims(value) for value in model.graph.output}
        assert found == (shapes if isinstance(shapes, set) else {shapes})
        assert model.graph.name == name
        assert_alive(model)


@pytest.mark.parametrize("name", zoo.names())
class TestTiny:
    def test_is_valid_and_small(self, name: str) -> None:
        model = zoo.build(name, scale="tiny")
        onnx.checker.check_model(model, full_check=True)
        assert (model.ir_version, model.opset_import[0].version) == (8, 17)
        assert model.ByteSize() < 4_000_000

    def test_uses_the_operators_of_the_full_size(self, name: str) -> None:
        counts = Counter(node.op_type for node in zoo.build(name, scale="tiny").graph.node)
        assert all(bool(counts[op]) == bool(n) for op, n in OPERATOR_COUNTS[name].items())

    def test_outputs_vary(self, name: str) -> None:
        assert_alive(zoo.build(name, scale="tiny"))

    def test_every_weight_matters(self, name: str) -> None:
        model, weights = with_weights_as_inputs(zoo.build(name, scale="tiny"))
        # A constant 0, and what guards a division against one, make no difference to 0.
        idle = {k: v for k, v in weights.items() if np.abs(v).max() < 1e-5}
        varied = {k: v for k, v in weights.items() if k not in idle}
        data = {k: v for k, v in random_inputs(model, 3).items() if k not in weights}
        assert_each_matters(model, {**data, **idle}, varied)

    def test_every_input_matters(self, name: str) -> None:
        model = zoo.build(name, scale="tiny")
        assert_each_matters(model, {}, random_inputs(model, 4))

    def test_every_gate_matters(self, name: str) -> None:
        model, switches = with_switchable_gates(zoo.build(name, scale="tiny"))
        data = {k: v for k, v in random_inputs(model, 5).items() if k not in switches}
        assert_each_matters(model, data, switches)

    def test_bytes_follow_the_seed(self, name: str) -> None:
        first, again, other = (
            zoo.build(name, scale="tiny", seed=seed).SerializeToString() for seed in (1, 1, 2)
        )
        assert first == again
        assert (first == other) == (name in WITHOUT_WEIGHTS)


def test_operators_per_step() -> None:
    for steps in (1, 3):
        assert len(zoo.build("sru", scale="tiny", steps=steps).graph.node) == 11 * steps
        assert len(zoo.build("nasrnn", scale="tiny", steps=steps).graph.node) == 46 * steps
    assert len(zoo.build("bert_deep", scale="tiny", layers=3).graph.node) == 28 * 3


def test_folded_and_explicit_batch_normalization_compute_the_same() -> None:
    folded, explicit = (zoo.build(name, scale="tiny") for name in ("resnet50", "resnet50_bn"))
    data = random_inputs(folded, 6)
    np.testing.assert_allclose(
        session(folded).run(None, data)[0], session(explicit).run(None, data)[0], atol=1e-4
    )


@pytest.mark.parametrize(("strided", "siblings"), [(3, 0), (1, 3)])
def test_bottlenecks_stride_where_they_are_told_to(strided: int, siblings: int) -> None:
    """The projecting shortcut strides, and so may the convolution beside it."""
    model = zoo.build("resnet50", scale="tiny", strided=strided, blocks=(1, 1, 1, 1))
    readers = Counter(
        (node.input[0], helper.get_node_attr_value(node, "strides")[0])
        for node in model.graph.node
        if node.op_type == "Conv"
    )
    assert sum(stride == 2 and n == 2 for (_, stride), n in readers.items()) == siblings


def test_kernels_of_no_bottleneck_are_refused() -> None:
    with pytest.raises(OptionError, match="give 1 or 3"):
        zoo.build("resnet50", scale="tiny", strided=2)


def test_attention_of_bert_taso_reaches_the_output() -> None:
    """The published script leaves it dead."""
    model = zoo.build("bert_taso", scale="tiny", layers=1)
    produced_by = {node.output[0]: node for node in model.graph.node}
    reached: list[str] = [model.graph.output[0].name]
    for name in reached:
        if name in produced_by:
            reached += [i for i in produced_by[name].input if i not in reached]
    assert {node.output[0] for node in model.graph.node} <= set(reached)


def test_unknown_names_are_option_errors() -> None:
    with pytest.raises(OptionError, match="choose from squeezenet"):
        zoo.build("lenet")
    with pytest.raises(OptionError, match="choose from squeezenet"):
        zoo.describe("lenet")
    with pytest.raises(OptionError, match="has no size 'depth'; choose from classes"):
        zoo.build("vgg19", depth=3)
    with pytest.raises(OptionError, match="scale"):
        zoo.build("vgg19", scale="huge")  # type: ignore[arg-type]


def test_a_name_says_scale_and_sizes() -> None:
    for text, sizes in (
        ("ocggs_resnet@tiny,n=3", {"n": 3}),
        ("resnet18@blocks=1x1,tiny", {"blocks": (1, 1)}),
    ):
        expected = zoo.build(text.partition("@")[0], scale="tiny", seed=2, **sizes)
        found = zoo.build_named(text, seed=2)
        assert found.SerializeToString(True) == expected.SerializeToString(True)
    for text, why in (
        ("sru@huge", "unknown scale 'huge'"),
        ("sru@steps=0,tiny", "steps is '0'"),
        ("sru@steps=-1", "steps is '-1'"),
        ("sru@steps=2x3", "steps of sru is one number"),
        ("resnet18@blocks=2", "blocks of resnet18 is some numbers"),
        ("sru@steps=2,steps=3", "gives steps twice"),
        ("sru@depth=3", "has no size 'depth'"),
        ("sru@seed=3", "has no size 'seed'"),
        ("bert@tiny,heads=3", "cannot be built with heads=3"),
    ):
        with pytest.raises(OptionError, match=why):
            zoo.build_named(text)


def test_training_steps_give_derivatives_of_the_loss() -> None:
    """By the difference of the loss along a random direction of each weight."""
    for name in ("mlp_training", "cnn_training"):
        model = zoo.build(name, scale="tiny")
        names = [output.name for output in model.graph.output]
        session_ = session(model)
        inputs = random_inputs(model, 7)
        results = dict(zip(names, session_.run(None, inputs), strict=True))
        rng = np.random.default_rng(8)
        for weight in (one for one in inputs if f"d{one}" in results):
            way = rng.standard_normal(inputs[weight].shape, dtype=np.float32)
            step = np.float32(1e-2 / np.sqrt(way.size))
            up, down = (
                session_.run(None, {**inputs, weight: inputs[weight] + sign * step * way})[0]
                for sign in (1, -1)
            )
            slope = float((way * results[f"d{weight}"]).sum())
            assert (up - down) / (2 * step) == pytest.approx(slope, rel=0.05, abs=2e-3), weight


def test_save_external_moves_weights_and_leaves_the_model_alone(tmp_path: Path) -> None:
    model = zoo.build("weight_chain", scale="tiny")
    before = model.SerializeToString()
    path = tmp_path / "chain.onnx"
    zoo.save_external(model, path)
    assert model.SerializeToString() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["chain.onnx", "chain.onnx.data"]
    assert path.stat().st_size < 1000
    data = random_inputs(model, 7)
    np.testing.assert_array_equal(session(path).run(None, data), session(model).run(None, data))


def test_synthetic_large_streams_its_weights(tmp_path: Path) -> None:
    path = tmp_path / "large.onnx"
    size_bytes = 40 << 20
    zoo.synthetic_large(tmp_path / "warm.onnx", 1 << 10, width=16)
    tracemalloc.start()
    zoo.synthetic_large(path, size_bytes, width=1024)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < size_bytes / 4
    assert size_bytes <= path.with_name("large.onnx.data").stat().st_size < 1.2 * size_bytes
    onnx.checker.check_model(path, full_check=True)
    run = session(path)
    rng = np.random.default_rng(8)
    first, second = (
        run.run(None, {"x": rng.standard_normal((4, 1024), dtype=np.float32)})[0] for _ in range(2)
    )
    assert 0.1 < first.std() < 10
    assert np.corrcoef(first.ravel(), second.ravel())[0, 1] < 0.99


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not exist"):
        zoo.synthetic_large(tmp_path / "missing" / "large.onnx", 1 << 10, width=16)
    taken = tmp_path / "taken.onnx"
    taken.mkdir()
    with pytest.raises(ModelError, match="is a folder"):
        zoo.save_external(zoo.build("weight_chain", scale="tiny"), taken)
    assert [p.name for p in tmp_path.iterdir()] == ["taken.onnx"]
