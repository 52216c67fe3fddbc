"""Drawn inputs fit their models, mean different things, and models agree with themselves alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

from benchmarks.meaningful import KINDS, app, decoded_text, has_voice, label
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession

_SHAPES = {
    "lines": {"x": (TensorProto.FLOAT, [1, 3, 48, 320])},
    "files": {"bytes": (TensorProto.INT32, [1, 2048])},
    "sounds": {
        "input": (TensorProto.FLOAT, [1, 576]),
        "state": (TensorProto.FLOAT, [2, 1, 128]),
        "sr": (TensorProto.INT64, []),
    },
}


def _model(kind: str, sign: float = 1.0) -> onnx.ModelProto:
    """Return a model of the interface that a kind is drawn for; its first output is `[1, 1, 9]`."""
    nodes = [
        helper.make_node("Cast", [next(iter(_SHAPES[kind]))], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Reshape", ["f", "row"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["y"]),
    ]
    outputs = ["y"]
    if kind == "sounds":
        nodes.append(helper.make_node("Add", ["state", "one"], ["next"]))
        outputs.append("next")
    (_, shape), *_ = _SHAPES[kind].values()
    matrix = np.random.default_rng(0).standard_normal((int(np.prod(shape)), 9))
    weights = {
        "w": (sign * matrix).astype(np.float32),
        "row": np.array([1, 1, -1]),
        "one": np.array(1, np.float32),
    }
    graph = helper.make_graph(
        nodes,
        kind,
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in _SHAPES[kind].items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_fit_and_differ(kind: str) -> None:
    session = OrtSession(_model(kind), OrtOptions(1))
    drawn = KINDS[kind].draw(session, np.random.default_rng(0))
    first, second = next(drawn), next(drawn)
    assert any(not np.array_equal(first[name], second[name]) for name in first)
    KINDS[kind].decode(session.run(second))


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_agrees_with_itself_alone(kind: str, tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{name}.onnx") for name in ("a", "b")]
    for path, sign in zip(paths, (1.0, -1.0), strict=True):
        onnx.save(_model(kind, sign), path)
    samples = tmp_path / "s.npz"
    runner = CliRunner()
    made = runner.invoke(app, ["draw", kind, paths[0], str(samples), "--count", "4"])
    assert made.exit_code == 0
    assert {len(array) for array in np.load(samples).values()} == {4}
    terms = ["--count", "5", "--timed", "1"]
    same = runner.invoke(app, ["agree", kind, paths[0], paths[0], *terms])
    other = runner.invoke(app, ["agree", kind, *paths, *terms])
    assert "agree on 5 of 5 inputs" in same.output
    assert "agree on 5 of 5 inputs" not in other.output


def test_outputs_are_decoded() -> None:
    steps = np.eye(4)[[0, 1, 1, 0, 1, 2, 2, 0]]
    assert decoded_text([steps[None]]) == (1, 1, 2)
    assert has_voice([np.array([[0.7]])])
    assert not has_voice([np.array([[0.3]])])
    assert label([np.array([[0, 3, 1]])]) == 1


def test_other_kinds_are_refused() -> None:
    found = CliRunner().invoke(app, ["agree", "songs", "a.onnx", "b.onnx"])
    assert found.exit_code == 2
    assert "songs is no kind; there are lines, sounds, files" in " ".join(found.output.split())
