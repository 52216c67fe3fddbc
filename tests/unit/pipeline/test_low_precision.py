"""Low precision in the main job: what is written and reported, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.api import run
from eqsat_opt.approximation import survey
from eqsat_opt.approximation.prices import Prices, Shape
from eqsat_opt.approximation.static.region import TimedRegion
from eqsat_opt.errors import OptionError
from eqsat_opt.pipeline.forms import approximated
from eqsat_opt.pipeline.options import Options
from eqsat_opt.pipeline.report.report import Report
from eqsat_opt.pipeline.report.schema import schema_text
from eqsat_opt.pipeline.report.summary import summary_rows
from eqsat_opt.racing.race_result import RaceEntry, RaceResult
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession

_K = 64
_TERMS: Mapping[str, Any] = {
    "measure": False, "race": False, "check": 1, "store": "", "threads": 1, "budget_s": 600.0,
    "numerics": "approximate", "calibration": "random", "max_error": 0.05,
}  # fmt: skip


def _proto(operator: str = "MatMul", opset: int = 17, weights: float = 1.0) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    matrix = (weights * rng.standard_normal((_K, _K))).astype(np.float32)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, _K]) for name in "xy"]
    nodes = [helper.make_node(operator, ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    tensors = [numpy_helper.from_array(matrix, "w")]
    graph = helper.make_graph(nodes, "one", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.fixture
def prices(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Invent prices of the product, which the test may change."""
    times = {"uint8": 10.0}
    shape = Shape(4, _K, _K)
    found = Prices({shape: 100.0}, {shape: times}, {(4, _K): 5.0})
    monkeypatch.setattr(survey, "measure_prices", lambda *_: found)
    monkeypatch.setattr(survey, "static_region", lambda *_, **__: TimedRegion())
    return times


def _row(report: Report) -> str:
    return dict(summary_rows(report)).get("low bits", "")


def _operators(model: onnx.ModelProto) -> set[str]:
    return {node.op_type for node in model.graph.node}


@pytest.mark.usefixtures("prices")
def test_the_result_is_in_low_precision_within_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "low.onnx"
    report = run(_proto(), Options(**_TERMS), output=str(path)).report
    low = report.approximated
    assert low is not None
    assert low.won
    assert (low.implementations, low.n_sites, low.n_held_back) == ({"uint8": 1}, 1, 8)
    assert low.error is not None
    assert 0 < low.error <= 0.05
    assert (report.winner, report.errors) == ("low-precision", ())
    assert "DynamicQuantizeLinear" in _operators(onnx.load(path))
    assert report.operators_after["MatMulInteger"] == 1
    assert "1 of 1 operator (uint8 ×1), not raced" in _row(report)
    assert "on 8 samples held back of random inputs, 5.0e-02 is allowed" in _row(report)
    jsonschema.validate(json.loads(json.dumps(report.to_json())), json.loads(schema_text("report")))
    x = {"x": np.random.default_rng(5).standard_normal((4, _K)).astype(np.float32)}
    low_y, y = (OrtSession(one, OrtOptions(1)).run(x)[0] for one in (str(path), _proto()))
    assert 0 < np.abs(low_y - y).max() <= 0.05 * np.abs(y).max()


@pytest.mark.usefixtures("prices")
def test_a_goal_takes_the_place_of_the_bound() -> None:
    terms = {**_TERMS, "max_error": 1e-6, "quality": "cosine>=0.99"}
    report = run(_proto(), Options(**terms)).report
    low = report.approximated
    assert low is not None
    assert low.won
    assert low.quality is not None
    assert low.quality >= 0.99
    assert f"and cosine is {low.quality:.4g} for cosine>=0.99" in _row(report)
    jsonschema.validate(json.loads(json.dumps(report.to_json())), json.loads(schema_text("report")))
    none = run(_proto(), Options(**{**terms, "quality": "cosine>=1"})).report
    assert "none: no choice keeps cosine>=1 on random inputs; ask for less" in _row(none)


def test_a_goal_is_for_low_precision() -> None:
    with pytest.raises(OptionError, match="quality is for low precision"):
        run(_proto(), Options(quality="top1>=0.9"))


@pytest.mark.usefixtures("prices")
@pytest.mark.parametrize("is_faster", [True, False])
def test_a_race_decides(is_faster: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Low precision that does not beat the original leaves it as it was."""

    def held(entrants: Mapping[str, object], original: str, *_: object, **__: object) -> Any:
        times = {name: 50.0 if is_faster and name != original else 100.0 for name in entrants}
        entries = {
            name: RaceEntry(name, t, t, 0.0, t / 100, (t,) * (6 if name == original else 3), 9)
            for name, t in times.items()
        }
        return RaceResult(original, original, entries, 0.01, 0.03, 0.03, 3, "cpu", 3, 15, 1.0), ""

    monkeypatch.setattr(approximated, "hold_race", held)
    result = run(_proto(), Options(**{**_TERMS, "race": True, "alternatives": 0}))
    low = result.report.approximated
    assert low is not None
    assert low.won is is_faster
    assert ("MatMulInteger" in _operators(result.model)) is is_faster
    assert result.report.speedup == pytest.approx(2.0 if is_faster else 1.0, rel=0.5)
    if not is_faster:
        assert "does not beat the result in floats" in _row(result.report)


@pytest.mark.parametrize(
    ("changes", "model", "text"),
    [
        ({"max_error": 0.0}, _proto(), "none: an error of 0 is allowed, which only floats keep"),
        ({"max_error": 1e-6}, _proto(), "none: no choice keeps an error of 1.0e-06"),
        ({}, _proto("Add"), "none: the model has no convolution with constant weights"),
        ({}, _proto(opset=10), "none: operator set 10 has no 8-bit operators"),
        ({}, _proto(weights=np.nan), "output 'y' is NaN on calibration data"),
        ({"budget_s": 1e-9}, _proto(), "there was no time"),
    ],
)
@pytest.mark.usefixtures("prices")
def test_the_report_says_why_the_result_is_in_floats(
    changes: dict[str, Any], model: onnx.ModelProto, text: str
) -> None:
    if model.graph.node[0].op_type == "Add":
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = _K
        model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = _K
    result = run(model, Options(**{**_TERMS, **changes}))
    assert text in _row(result.report)
    assert "MatMulInteger" not in _operators(result.model)


def test_what_is_not_faster_is_not_taken(prices: dict[str, float]) -> None:
    prices["uint8"] = 101.0
    report = run(_proto(), Options(**_TERMS)).report
    assert "none: no operator is faster in low precision on this processor" in _row(report)


def test_without_the_option_nothing_is_said() -> None:
    terms = {**_TERMS, "numerics": "reassociate", "calibration": None}
    report = run(_proto(), Options(**terms)).report
    assert report.approximated is None
    assert not _row(report)


@pytest.mark.usefixtures("prices")
def test_the_record_of_an_exact_result_is_dropped(tmp_path: Path) -> None:
    """Where a later run finds the file, it must not take it for an exact result."""
    path = tmp_path / "low.onnx"
    run(_proto(), Options(**_TERMS), output=str(path))
    assert "eqsat_opt" not in onnx_ir.load(path).metadata_props


def test_data_of_other_shapes_are_refused_before_the_search(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.ones((5, 4, 3), np.float32))
    with pytest.raises(OptionError, match="has the shape"):
        run(_proto(), Options(**{**_TERMS, "calibration": str(path)}))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"calibration": None}, "add --calibration"),
        ({"numerics": "bitexact"}, "calibration is for low precision"),
        ({"numerics": "approximate,exact"}, "unknown numerics"),
        ({"numerics": "bitexact,relaxed"}, "unknown numerics"),
        ({"tuned": "t.onnx"}, "portable result only; leave it out, or tuned"),
        ({"plan": "p.json"}, "portable result only; leave it out, or plan"),
        ({"decisions": "d.json"}, "portable result only; leave it out, or decisions"),
        ({"target": "h100"}, "measured on this machine"),
        ({"max_error": 1.0}, "share from 0 to below 1"),
    ],
)
def test_options_that_contradict_are_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        Options(**{**_TERMS, **changes})


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("approximate", "REASSOCIATE"),
        ("bitexact,approximate", "BITEXACT"),
        ("approximate, relaxed", "RELAXED"),
    ],
)
def test_the_class_stands_beside(text: str, name: str) -> None:
    options = Options(numerics=text, calibration="random")
    assert (options.numerics_class.name, options.is_approximate) == (name, True)


@pytest.mark.usefixtures("prices")
def test_sizes_are_those_of_the_calibration_data(tmp_path: Path) -> None:
    model = _proto()
    for end in (*model.graph.input, *model.graph.output):
        end.type.tensor_type.shape.dim[0].dim_param = "rows"
    rng = np.random.default_rng(0)
    for number in range(5):
        x = rng.standard_normal((4, _K)).astype(np.float32)
        np.savez(tmp_path / f"{number}.npz", x=x)
    report = run(model, Options(**{**_TERMS, "calibration": str(tmp_path)})).report
    assert report.approximated is not None
    assert report.approximated.won
    assert [one["given"] for one in report.to_json()["sizes"]] == [{"rows": 4}]


def _quantised(scale: float = 0.05) -> onnx.ModelProto:
    """Return the product between the conversions of a quantiser."""
    made = _proto()
    rng = np.random.default_rng(0)
    # Sums of two products of 8 bits may saturate, those of 7 do not.
    matrix = rng.integers(-63, 64, (_K, _K)).astype(np.int8)
    weights = {
        "q": matrix, "qs": np.float32(0.01), "qz": np.int8(0),
        "s": np.float32(scale), "z": np.uint8(128),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xf"]),
        helper.make_node("DequantizeLinear", ["q", "qs", "qz"], ["w"]),
        helper.make_node("MatMul", ["xf", "w"], ["m"]),
        helper.make_node("Relu", ["m"], ["y"]),
    ]
    tensors = [numpy_helper.from_array(np.asarray(a), name) for name, a in weights.items()]
    graph = helper.make_graph(nodes, "q", made.graph.input, made.graph.output, tensors)
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize(("time_us", "is_faster"), [(10.0, True), (101.0, False)])
def test_a_model_that_came_quantised_is_searched_in_floats(
    time_us: float, is_faster: bool, prices: dict[str, float]
) -> None:
    prices["uint8"] = time_us
    result = run(_quantised(), Options(**_TERMS))
    low = result.report.approximated
    assert low is not None
    assert low.won
    assert low.implementations == ({"uint8": 1} if is_faster else {})
    assert ("MatMulInteger" in _operators(result.model)) is is_faster
    assert "DequantizeLinear" not in _operators(result.model)
    assert "the model came quantised" in _row(result.report)
    assert low.error is not None
    assert 0 < low.error <= 0.05


@pytest.mark.usefixtures("prices")
def test_a_model_that_came_quantised_keeps_the_bound() -> None:
    report = run(_quantised(), Options(**{**_TERMS, "max_error": 1e-5})).report
    assert "none: no choice keeps an error of 1.0e-05" in _row(report)
    terms = {**_TERMS, "max_error": 1e-5, "quality": "cosine>=0.99"}
    good = run(_quantised(), Options(**terms)).report.approximated
    assert good is not None
    assert good.won
