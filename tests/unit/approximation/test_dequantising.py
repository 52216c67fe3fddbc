"""Models that came quantised compute the same in floats, but for the steps of their integers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.approximation.dequantising import in_floats
from eqsat_opt.ir.onnx.exporter import model_proto
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession

_X = np.random.default_rng(1).standard_normal((2, 4, 8, 8)).astype(np.float32)


def _operators(model: onnx_ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph)


def _moved(left: onnx_ir.Model, right: onnx_ir.Model) -> float:
    (a,), (b,) = (
        OrtSession(model_proto(one), OrtOptions(1)).run({"x": _X}) for one in (left, right)
    )
    return float(np.abs(a - b).max() / np.abs(b).max())


class _Samples:
    def __init__(self) -> None:
        rng = np.random.default_rng(2)
        self._left: Iterator[dict[str, np.ndarray]] = iter(
            {"x": rng.standard_normal(_X.shape).astype(np.float32)} for _ in range(4)
        )

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._left, None)


def _floats() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    weights = {
        "w0": rng.standard_normal((6, 4, 3, 3)) / 6,
        "b0": rng.standard_normal(6),
        "w1": rng.standard_normal((96, 40)) / 10,
        "b1": rng.standard_normal(40),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Add", ["p", "p"], ["a"]),
        helper.make_node("Flatten", ["a"], ["f"]),
        helper.make_node("Gemm", ["f", "w1", "b1"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, _X.shape),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 40]),
    ]
    tensors = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items()]
    graph = helper.make_graph(nodes, "small", ends[:1], ends[1:], tensors)
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _quantised(folder: Path, **terms: Any) -> onnx_ir.Model:
    from onnxruntime.quantization import QuantType, quantize_static

    source, target = folder / "in.onnx", folder / "out.onnx"
    onnx.save(_floats(), source)
    quantize_static(
        str(source), str(target), _Samples(), **{"weight_type": QuantType.QInt8, **terms}
    )
    return onnx_ir.load(target)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("is_per_channel", [True, False])
@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize("kind", ["QUInt8", "QInt8"])
def test_static_integers_become_floats(
    is_per_channel: bool, form: str, kind: str, tmp_path: Path
) -> None:
    from onnxruntime.quantization import QuantFormat, QuantType

    model = _quantised(
        tmp_path,
        quant_format=QuantFormat[form],
        activation_type=QuantType[kind],
        per_channel=is_per_channel,
        reduce_range=True,
    )
    before = _operators(model)
    found = in_floats(model)
    assert found is not None
    assert _operators(model) == before
    assert not any(name.startswith(("Q", "Deq")) for name in _operators(found.model))
    # The quantiser may have left it to the range.
    assert _operators(found.model)["Relu"] == 1
    assert 0 < _moved(found.model, model) < 0.06
    assert _moved(found.model, onnx_ir.from_proto(_floats())) < 0.05
    assert found.ranges
    assert {one.origin for one in found.ranges.values()} == {"the model's own"}
    names = {value.name for node in found.model.graph for value in node.outputs} | {"x"}
    assert found.ranges.keys() <= names
    assert all(0 <= one.zero <= 255 for one in found.ranges.values())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_integers_in_the_range_of_the_run_become_floats(tmp_path: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(_floats(), source)
    quantize_dynamic(str(source), str(target), weight_type=QuantType.QUInt8)
    model = onnx_ir.load(target)
    assert {"ConvInteger", "MatMulInteger"} <= _operators(model).keys()
    found = in_floats(model)
    assert found is not None
    assert not {"ConvInteger", "MatMulInteger", "DynamicQuantizeLinear"}.intersection(
        _operators(found.model)
    )
    assert not found.ranges
    assert 0 < _moved(found.model, model) < 0.03


def _old_form() -> onnx_ir.Model:
    """Return a convolution in the form of old quantisers, which round the bias in each run."""
    rng = np.random.default_rng(0)
    weights: dict[str, np.ndarray] = {
        "w": rng.integers(0, 256, (6, 4, 3, 3)).astype(np.uint8),
        "wz": np.array(120, np.uint8),
        "ws": np.array(0.01, np.float32),
        "b": rng.standard_normal(6).astype(np.float32),
        "shape": np.array([1, 6, 1, 1]),
    }
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("ConvInteger", ["q", "w", "z", "wz"], ["sums"]),
        helper.make_node("Mul", ["s", "ws"], ["step"]),
        helper.make_node("Div", ["b", "step"], ["steps"]),
        helper.make_node("Floor", ["steps"], ["whole"]),
        helper.make_node("Cast", ["whole"], ["integers"], to=TensorProto.INT32),
        helper.make_node("Reshape", ["integers", "shape"], ["bias"]),
        helper.make_node("Add", ["sums", "bias"], ["total"]),
        helper.make_node("Cast", ["total"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["s", "ws"], ["scales"]),
        helper.make_node("Mul", ["floats", "scales"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, _X.shape),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 6, 6, 6]),
    ]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "old", ends[:1], ends[1:], tensors)
    opsets = [helper.make_opsetid("", 12)]
    return onnx_ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=8))


def test_a_bias_that_is_rounded_in_each_run_is_one_of_floats() -> None:
    model = _old_form()
    found = in_floats(model)
    assert found is not None
    assert _operators(found.model) == {"Conv": 1, "Identity": 1}
    assert 0 < _moved(found.model, model) < 0.03


def test_weights_alone_become_constants() -> None:
    rng = np.random.default_rng(0)
    weights: dict[str, np.ndarray] = {
        "w": rng.integers(-127, 128, (8, 5)).astype(np.int8),
        "s": rng.random(5).astype(np.float32),
        "z": np.zeros(5, np.int8),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["f"], axis=1),
        helper.make_node("MatMul", ["x", "f"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "weights", ends[:1], ends[1:], tensors)
    opsets = [helper.make_opsetid("", 17)]
    model = onnx_ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=8))
    found = in_floats(model)
    assert found is not None
    assert _operators(found.model) == {"MatMul": 1}
    (y,) = OrtSession(model_proto(found.model), OrtOptions(1)).run({"x": _X})
    right = _X @ (weights["w"] * weights["s"]).astype(np.float32)
    np.testing.assert_allclose(y, right, rtol=1e-4, atol=1e-3)
    # onnxruntime rounds the rows as well where it finds integers beside a product.
    assert _moved(found.model, model) < 0.03


def test_models_in_floats_have_no_other_form() -> None:
    assert in_floats(onnx_ir.from_proto(_floats())) is None


def test_what_is_not_understood_stays() -> None:
    """Scales that are computed, and integers that are outputs."""
    nodes = [
        helper.make_node("Add", ["s", "s"], ["scale"]),
        helper.make_node("QuantizeLinear", ["x", "scale", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "z"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, _X.shape) for name in "xy"]
    ends.append(helper.make_tensor_value_info("s", TensorProto.FLOAT, []))
    zero = numpy_helper.from_array(np.array(3, np.uint8), "z")
    graph = helper.make_graph(nodes, "computed", [ends[0], ends[2]], ends[1:2], [zero])
    opsets = [helper.make_opsetid("", 17)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    assert in_floats(onnx_ir.from_proto(proto)) is None


# ** integers that mean something else to who reads them **

_QUANTISE = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"])
_BEHIND = [
    helper.make_node("Cast", ["sums"], ["cast"], to=TensorProto.FLOAT),
    helper.make_node("Mul", ["scale", "ws"], ["scales"]),
    helper.make_node("Mul", ["cast", "scales"], ["y"]),
]


def _on_integers(*nodes: onnx.NodeProto, **changes: Any) -> onnx_ir.Model:
    rng = np.random.default_rng(0)
    held = {
        "s": np.float32(0.03),
        "t": np.float32(0.06),
        "z": np.uint8(128),
        "zero": np.uint8(100),
        "w": rng.integers(-99, 99, (8, 3)).astype(np.int8),
        "ws": np.float32(0.02),
        "wz": np.int8(0),
        "bias": np.array([1000, -2000, 300], np.int32),
        "rows": np.array([-1, 8]),
        **changes,
    }
    graph = helper.make_graph(
        nodes,
        "integers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, _X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in held.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return onnx_ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=10))


def _restored(*bounds: str) -> onnx.NodeProto:
    return helper.make_node("DequantizeLinear", ["q", *bounds], ["y"])


def _dynamic(*operands: str, **changes: Any) -> onnx_ir.Model:
    return _on_integers(
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "point"]),
        helper.make_node("MatMulInteger", ["q", "w", *operands], ["sums"]),
        *_BEHIND,
        **changes,
    )


@pytest.mark.parametrize(
    "model",
    [
        _on_integers(_QUANTISE, _restored("t", "z")),
        _on_integers(_QUANTISE, _restored("s", "zero")),
        _on_integers(_QUANTISE, _restored("s")),
        _on_integers(
            _QUANTISE,
            helper.make_node("QuantizeLinear", ["x", "t", "z"], ["other"]),
            helper.make_node("Concat", ["q", "other"], ["both"], axis=0),
            helper.make_node("DequantizeLinear", ["both", "s", "z"], ["y"]),
        ),
        _dynamic(),
        _dynamic("point", ws=np.full((8, 1), 0.02, np.float32)),
        _dynamic("point", ws=np.full((1, 1, 1, 1, 1), 0.02, np.float32)),
    ],
    ids=["scale", "zero", "no zero", "joined", "no zero of data", "rows", "axes"],
)
def test_integers_that_are_read_in_another_unit_stay(model: onnx_ir.Model) -> None:
    assert in_floats(model) is None


@pytest.mark.parametrize(
    "model",
    [
        *(
            _on_integers(
                helper.make_node("QuantizeLinear", ["x", "s"], ["q"], output_dtype=made),
                _restored("s"),
            )
            for made in (TensorProto.INT8, TensorProto.INT16)
        ),
        _dynamic("point", ws=np.array([0.01, 0.02, 0.03], np.float32)),
        _on_integers(
            _QUANTISE,
            helper.make_node("Reshape", ["q", "rows"], ["r"]),
            helper.make_node(
                "QGemm",
                ["r", "s", "z", "w", "ws", "wz", "bias"],
                ["y"],
                domain="com.microsoft",
                alpha=2.0,
            ),
        ),
    ],
    ids=["int8", "int16", "columns", "alpha"],
)
def test_integers_become_what_they_mean(model: onnx_ir.Model) -> None:
    form = in_floats(model)
    assert form is not None
    assert _moved(form.model, model) < 0.03
