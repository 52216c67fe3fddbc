"""Calibration data are split, taken apart, and refused with one sentence where they are wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from eqsat_opt.errors import OptionError
from eqsat_opt.runtime.calibration import load_calibration
from eqsat_opt.runtime.given_inputs import NO_INPUTS


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    """Return a model of one input `[N, 3]`."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _file(path: Path, array: np.ndarray, name: str = "x") -> str:
    np.savez(path, allow_pickle=False, **{name: array})
    return str(path)


def test_random_inputs_are_split_without_overlap(model: onnx.ModelProto) -> None:
    calibration = load_calibration("random").for_model(model)
    sets = calibration.sets(model, NO_INPUTS, {"N": 2}, seed=0)
    parts = (sets.fitting, sets.correcting, sets.held_back)
    arrays = [fed["x"].tobytes() for part in parts for fed in part]
    assert len(arrays) == len(set(arrays))
    assert all(parts)
    assert sets.fitting[0]["x"].shape == (2, 3)


def test_an_array_with_one_axis_more_holds_samples(model: onnx.ModelProto, tmp_path: Path) -> None:
    stacked = np.arange(30, dtype=np.float32).reshape(5, 2, 3)
    found = load_calibration(_file(tmp_path / "a.npz", stacked)).for_model(model)
    assert [one.feeds["x"].shape for one in found.samples] == [(2, 3)] * 5
    sets = found.sets(model, NO_INPUTS, {}, seed=0)
    used = sorted(float(fed["x"][0, 0]) for part in vars(sets).values() for fed in part)
    assert used == [0.0, 6.0, 12.0, 18.0, 24.0]


def test_each_file_of_a_folder_is_a_sample(model: onnx.ModelProto, tmp_path: Path) -> None:
    for number in range(3):
        _file(tmp_path / f"{number}.npz", np.ones((number + 1, 3), np.float32))
    found = load_calibration(str(tmp_path)).for_model(model)
    assert len(found.samples) == 3


@pytest.mark.parametrize(
    ("array", "name", "text"),
    [
        (np.full((4, 2, 3), np.nan, np.float32), "x", "holds NaN"),
        (np.ones((2, 3), np.float32), "x", "holds 1 sample"),
        (np.ones((2, 2, 3), np.float32), "x", "holds 2 samples"),
        (np.ones((4, 2, 4), np.float32), "x", "has the shape"),
        (np.ones((4, 2, 3), np.float64), "x", "float64"),
        (np.ones((4, 2, 3), np.float32), "z", "lacks 'x'|has 'z'"),
        (np.ones((1, 4, 2, 3), np.float32), "x", "has the shape"),
    ],
)
def test_wrong_data_are_refused(
    array: np.ndarray, name: str, text: str, model: onnx.ModelProto, tmp_path: Path
) -> None:
    path = _file(tmp_path / "a.npz", array, name)
    with pytest.raises(OptionError, match=text):
        load_calibration(path).for_model(model)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot read"):
        load_calibration(str(tmp_path / "none.npz"))
