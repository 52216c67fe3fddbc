"""`eqsat_opt.session`: a model opened as it was raced, and what its metadata may hold."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest

import eqsat_opt
from eqsat_opt.errors import ModelError, OptionError, RuntimeFailed
from eqsat_opt.runtime.backends.ort.config import ORT_CONFIG, default_level, level_in, with_level
from eqsat_opt.runtime.backends.ort.session import READS_CONFIG

LEVELS = onnxruntime.GraphOptimizationLevel
X = np.array([[1, -2, 3], [-4, 5, -6]], dtype=np.float32)


def relu(config: str | None = None) -> onnx.ModelProto:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["":17]>
        g (float[2,3] x) => (float[2,3] y) { y = Relu(x) }
    """)
    if config is not None:
        onnx.helper.set_model_props(model, {ORT_CONFIG: config})
    return model


@pytest.mark.parametrize("kind", ["proto", "path", "string", "ir"])
def test_a_session_runs_at_the_level_that_the_model_asks_for(kind: str, tmp_path: Path) -> None:
    model, path = relu(with_level("basic")), tmp_path / "relu.onnx"
    onnx.save(model, path)
    given: dict[str, onnx.ModelProto | onnx_ir.Model | Path | str]
    given = {"proto": model, "path": path, "string": str(path), "ir": onnx_ir.load(path)}
    session = eqsat_opt.session(given[kind], threads=1)
    assert isinstance(session, onnxruntime.InferenceSession)
    options = session.get_session_options()
    assert options.graph_optimization_level == LEVELS.ORT_ENABLE_BASIC
    assert options.intra_op_num_threads == 1
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], np.maximum(X, 0))


def test_a_model_that_asks_for_nothing_runs_as_by_default() -> None:
    options = eqsat_opt.session(relu()).get_session_options()
    assert options.graph_optimization_level == LEVELS.ORT_ENABLE_ALL
    assert options.intra_op_num_threads >= 1


def test_the_environment_replaces_no_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """Onnxruntime would take all options from the metadata, and forget the threads."""
    monkeypatch.setenv(READS_CONFIG, "1")
    model = relu(with_level("basic"))
    options = eqsat_opt.session(model, threads=1).get_session_options()
    assert options.graph_optimization_level == LEVELS.ORT_ENABLE_BASIC
    assert options.intra_op_num_threads == 1
    assert default_level(model) == "basic"
    monkeypatch.delenv(READS_CONFIG)
    assert default_level(model) == "all"


def test_errors_are_typed(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot read"):
        eqsat_opt.session(tmp_path / "none.onnx")
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(ModelError, match="not an ONNX model"):
        eqsat_opt.session(tmp_path / "text.onnx")
    with pytest.raises(OptionError, match="threads"):
        eqsat_opt.session(relu(), threads=-1)
    with pytest.raises(OptionError, match=r"none\.so"):
        eqsat_opt.session(relu(), custom_ops=("none.so",))
    broken = relu()
    broken.graph.node[0].op_type = "NoSuchOperator"
    with pytest.raises(RuntimeFailed, match="NoSuchOperator"):
        eqsat_opt.session(broken)


@pytest.mark.parametrize(
    "config",
    ["", "no json", "[]", "3", '{"session_options": 7}', '{"session_options": {}}',
     '{"session_options": {"graph_optimization_level": 55}}', "[" * 100_000],
    ids=lambda text: text[:60],
)  # fmt: skip
def test_what_is_no_level_asks_for_none(config: str) -> None:
    assert level_in(relu(config)) == "all"
    assert level_in(relu(with_level("basic", config))) == "basic"


def test_a_level_leaves_other_settings_alone() -> None:
    before = {"session_options": {"intra_op_num_threads": 3}, "other": 1}
    after = json.loads(with_level("extended", json.dumps(before)))
    assert after == {
        "session_options": {"intra_op_num_threads": 3, "graph_optimization_level": 2},
        "other": 1,
    }


def test_a_session_needs_nothing_of_the_search(tmp_path: Path) -> None:
    relu = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["":17]> agraph (float[2] x) => (float[2] y) {y = Relu(x)}'
    )
    onnx.save(relu, tmp_path / "relu.onnx")
    code = (
        "import sys, numpy, eqsat_opt\n"
        "session = eqsat_opt.session('relu.onnx', threads=1)\n"
        "assert session.run(None, {'x': numpy.float32([-1, 1])})[0].tolist() == [0, 1]\n"
        "search = ('egglog', 'ortools', 'onnx_ir', 'eqsat_opt.egraph', 'eqsat_opt.extract')\n"
        "print([name for name in search if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.strip() == "[]"
