"""Models on integers keep their interface, and come near to the original."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.approximation.static.ranges import QuantisedRange, range_of
from eqsat_opt.approximation.static.rewriting import Static, with_static
from eqsat_opt.approximation.static.units import Unit, find_units
from eqsat_opt.approximation.static.ways import ways_of
from eqsat_opt.ir.onnx.exporter import model_proto
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from tests.unit.approximation.static.conftest import SHAPE, image_model

_FED = {"x": np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)}


def _values(model: onnx_ir.Model) -> dict[str, np.ndarray]:
    shown = model.clone()
    for node in list(shown.graph):
        for value in node.outputs:
            if not value.is_graph_output():
                value.type = onnx_ir.TensorType(onnx_ir.DataType.FLOAT)
                shown.graph.outputs.append(value)
    session = OrtSession(model_proto(shown), OrtOptions(1))
    return {**_FED, **dict(zip(session.output_names, session.run(_FED), strict=True))}


def _ranges(model: onnx_ir.Model) -> dict[str, QuantisedRange]:
    found = {name: range_of([array]) for name, array in _values(model).items()}
    ranges = {name: held for name, held in found.items() if held is not None}
    for unit in find_units(model):
        if unit.keeps_range:
            ranges[unit.name] = ranges[unit.reads[0]]
    return ranges


_MODEL = image_model()
_RANGES = _ranges(_MODEL)
_UNITS = find_units(_MODEL)
_EXACT = OrtSession(model_proto(_MODEL), OrtOptions(1)).run(_FED)


def _operators(model: onnx_ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def _unsaturated(unit: Unit) -> tuple[Static, ...]:
    """Return the ways whose sums do not saturate on any processor."""
    return tuple(way for way in ways_of(unit) if way.bits < 8)


def _all(units: Iterable[Unit]) -> dict[str, Static]:
    return {unit.name: _unsaturated(unit)[0] for unit in units}


def test_units() -> None:
    found = {unit.name: "+".join(node.op_type for node in unit.nodes) for unit in _UNITS}
    assert found == {
        "r0": "Conv+Relu", "r1": "Conv+Clip", "c2": "Conv", "r2": "Add+Relu", "s": "Sigmoid",
        "m": "Mul", "p": "MaxPool", "q": "AveragePool", "k": "Concat", "g": "GlobalAveragePool",
        "e": "Add", "f": "Flatten", "ft": "Transpose", "rows": "Reshape", "hr": "Gemm+Relu",
        "y": "MatMul",
    }  # fmt: skip
    assert find_units(image_model(opset=9)) == ()


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_any_choice_keeps_the_interface_and_is_near(data: st.DataObject) -> None:
    ways = {unit.name: data.draw(st.sampled_from([None, *_unsaturated(unit)])) for unit in _UNITS}
    chosen = {name: way for name, way in ways.items() if way is not None}
    made = with_static(_MODEL, chosen, _RANGES)
    assert [value.name for value in made.graph.outputs] == ["r2", "y"]
    assert len(find_units(_MODEL)) == len(_UNITS), "the model that was given changed"
    found = OrtSession(model_proto(made), OrtOptions(1)).run(_FED)
    for one, right in zip(found, _EXACT, strict=True):
        assert one.shape == right.shape
        # onnxruntime rounds the weights of a Gemm between integers, which saturates without VNNI.
        assert np.abs(one - right).max() <= 0.2 * np.abs(right).max()


@pytest.mark.parametrize("opset", [11, 13, 17, 21])
def test_all_units_on_integers(opset: int) -> None:
    model = image_model(opset)
    made = with_static(model, _all(find_units(model)), _RANGES)
    operators = _operators(made)
    assert (operators.count("QLinearConv"), operators.count("Conv")) == (3, 0)
    assert {"QGemm", "QLinearMatMul"} <= set(operators)
    assert not {"Relu", "Clip"} & set(operators), "limits of ranges compute activations"
    assert made.graph.initializers.keys() & {"w0", "w1", "w2", "b0"} == set()
    y = OrtSession(model_proto(made), OrtOptions(1)).run(_FED)[1]
    assert 0 < np.abs(y - _EXACT[1]).max() <= 0.1 * np.abs(_EXACT[1]).max()


def test_readers_share_a_conversion_and_none_is_left_over() -> None:
    made = with_static(_MODEL, _all(unit for unit in _UNITS if unit.name in ("r0", "r1")), _RANGES)
    operators = _operators(made)
    # The data of the first convolution, and the results in floats for Add and the last Conv.
    assert (operators.count("QuantizeLinear"), operators.count("DequantizeLinear")) == (1, 2)


def test_a_product_to_floats_reads_integers_and_adds_its_bias_in_floats() -> None:
    (unit,) = (one for one in _UNITS if one.name == "hr")
    made = with_static(_MODEL, {"hr": _unsaturated(unit)[1]}, _RANGES)
    operators = _operators(made)
    assert operators.count("MatMulInteger") == 1
    assert "DequantizeLinear" not in operators
    assert operators.count("Relu") == 3


def test_products_to_floats_share_their_rows() -> None:
    rng = np.random.default_rng(2)
    weights = {name: rng.standard_normal((64, 24)).astype(np.float32) for name in ("v", "w")}
    nodes = [helper.make_node("MatMul", ["x", name], [f"y{name}"]) for name in weights]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 64])
    outputs = [
        helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, [4, 24]) for node in nodes
    ]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "shared", [x], outputs, tensors)
    opsets = [helper.make_opsetid("", 17)]
    model = onnx_ir.serde.deserialize_model(
        helper.make_model(graph, opset_imports=opsets, ir_version=8)
    )
    fed = {"x": rng.standard_normal((4, 64)).astype(np.float32)}
    found = range_of([fed["x"]])
    assert found is not None
    made = with_static(
        model,
        dict.fromkeys(("yv", "yw"), Static("static int7", 7, gives_floats=True)),
        {"x": found},
    )
    assert _operators(made).count("QuantizeLinear") == 1
    results = OrtSession(model_proto(made), OrtOptions(1)).run(fed)
    for result, weight in zip(results, weights.values(), strict=True):
        exact = fed["x"] @ weight
        assert np.abs(result - exact).max() <= 0.05 * np.abs(exact).max()


def test_no_choice_changes_nothing() -> None:
    assert _operators(with_static(_MODEL, {}, {})) == _operators(_MODEL)
