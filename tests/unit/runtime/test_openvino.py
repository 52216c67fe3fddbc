"""OpenVINO as a runtime: the same interface and values, or a refusal that says why."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import eqsat_opt
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.sizes.sizes import Sizes
from eqsat_opt.lab import zoo
from eqsat_opt.pipeline.serving import RuntimeSession
from eqsat_opt.racing.tuned_results import TunedJob, race_tuned_forms
from eqsat_opt.runtime.backends.native.tuning import output_error
from eqsat_opt.runtime.backends.openvino.runtime import OpenVinoRuntime, OpenVinoSession
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.backends.tuned_file import Execution, tuned_model
from eqsat_opt.runtime.inputs import random_inputs

RUNTIME = OpenVinoRuntime()
needs_openvino = pytest.mark.skipif(
    bool(RUNTIME.missing()), reason=RUNTIME.missing() or "OpenVINO is here"
)
ONE = OrtOptions(threads=1)


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["":17]> {text}')


ABS = model("g (float[N, 3] x) => (float[N, 3] y, float s) {y = Abs(x) s=ReduceSum<keepdims=0>(y)}")


def opened(text: str | onnx.ModelProto, threads: int = 1) -> OpenVinoSession:
    given = model(text) if isinstance(text, str) else text
    return RUNTIME.open(given, threads, {})


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eqsat_opt.runtime.backends.openvino.runtime.find_spec", lambda _: None)
    assert "pip install 'eqsat-opt[openvino]'" in RUNTIME.missing()
    with pytest.raises(RuntimeFailed, match="not installed"):
        RUNTIME.open(ABS, 1, {})
    portable = zoo.build("weight_chain", scale="tiny")
    tuned = tuned_model(portable, portable, Execution("openvino", 1))
    with pytest.warns(RuntimeWarning, match="openvino is not installed"):
        session = eqsat_opt.session(tuned, threads=1)
    fed = random_inputs(portable, 0)
    expected = OrtSession(portable, ONE).run(fed)
    np.testing.assert_array_equal(session.run(None, fed)[0], expected[0])


@needs_openvino
@pytest.mark.parametrize(
    ("text", "feeds"),
    [
        ("g (float[N,3] x) => (float[N,3] y) {y = Abs(x)}", {"x": np.ones((0, 3), "f4")}),
        ("g (float x) => (float y) {y = Neg(x)}", {"x": np.float32(2)}),
        ("g (float x) => (float y) {y = Neg(x)}", {"x": np.float32(np.nan)}),
        ("g (bool[2] x) => (bool[2] y) {y = Not(x)}", {"x": np.array([True, False])}),
        ("g (int64[2] x) => (int64[2] y) {y = Add(x, x)}", {"x": np.array([7, -3])}),
        ("g (uint8[2] x) => (uint8[2] y) {y = Add(x, x)}", {"x": np.array([7, 3], "u1")}),
        ("g (float16[2] x) => (float16[2] y) {y = Add(x, x)}", {"x": np.array([0.5, -3], "f2")}),
        (
            "g (float[2] x) => (float[2] z, float[2] y) {y = Identity(x) z = Relu(y)}",
            {"x": np.array([0.5, -3], "f4")},
        ),
        (
            "g (float[2] x, float[3] unused) => (float[2] y) {y = Relu(x)}",
            {"x": np.array([0.5, -3], "f4"), "unused": np.zeros(3, "f4")},
        ),
        (
            "g (float[2,3] x) => (float[3,2] y) {y = Transpose(x)}",
            {"x": np.arange(6, dtype="f4").reshape(3, 2).T},
        ),
    ],
)
def test_values_are_those_of_onnxruntime(text: str, feeds: dict[str, Any]) -> None:
    session = opened(text)
    expected = OrtSession(model(text), ONE)
    assert session.input_names == expected.input_names
    assert session.output_names == expected.output_names
    for value in feeds.values():
        np.asarray(value).setflags(write=False)  # as what comes from another process
    for one, other in zip(session.run(feeds), expected.run(feeds), strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(one, other)
    session.bind(feeds)()


@needs_openvino
def test_sizes_may_change_from_run_to_run() -> None:
    session = opened(ABS)
    kept = []
    for size in (2, 5, 1, 0, 2):
        feeds = {"x": np.full((size, 3), -1, "f4")}
        y, s = session.run(feeds)
        assert y.shape == (size, 3)
        assert s == 3 * size
        kept.append(y)
    assert all((y == 1).all() for y in kept)  # no later run wrote there


@needs_openvino
@pytest.mark.parametrize(
    ("feeds", "why"),
    [
        ({}, "no value is given for input 'x'"),
        ({"x": np.ones((2, 3)), "z": np.ones(1)}, "no input 'z'"),
        ({"x": np.ones((2, 3))}, r"does not take float64\[2, 3\]"),
        ({"x": np.ones((2, 4), "f4")}, r"does not take float32\[2, 4\]"),
        ({"x": np.ones((2, 3, 1), "f4")}, r"does not take float32\[2, 3, 1\]"),
    ],
)
def test_inputs_that_do_not_fit_are_errors(feeds: dict[str, Any], why: str) -> None:
    session = opened(ABS)
    with pytest.raises(RuntimeFailed, match=why):
        session.run(feeds)
    assert session.run({"x": np.ones((2, 3), "f4")})[1] == 6


@needs_openvino
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("g (double[2] x) => (double[2] y) {y = Add(x, x)}", "cannot take or return 'x' as it is"),
        ("g (string[2] x) => (string[2] y) {y = Identity(x)}", "cannot take or return"),
        ("g (seq(float[N]) x) => (seq(float[N]) y) {y = Identity(x)}", "cannot take or return"),
        ("g (float[2] x) => (float[2] y) {y = own.Nothing(x)}", "OpenVINO refuses the model"),
    ],
)
def test_what_it_cannot_run_as_it_is_is_refused(text: str, why: str) -> None:
    with pytest.raises(RuntimeFailed, match=why):
        opened(text)
    with pytest.raises(RuntimeFailed, match="has no setting 'level'"):
        RUNTIME.open(ABS, 1, {"level": "basic"})


@needs_openvino
def test_a_broken_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(ABS, path)
    assert RUNTIME.open(path, 1, {}).run({"x": np.ones((1, 3), "f4")})[1] == 3
    broken = model("g (float[2] x) => (float[2] y) {y = Abs(x)}")
    broken.graph.node[0].input[0] = "nowhere"
    with pytest.raises(RuntimeFailed, match="refuses the model"):
        opened(broken)


@needs_openvino
def test_a_declared_rank_that_it_disagrees_with_is_refused() -> None:
    wrong = model("g (float[2] x) => (float[2] y) {y = Abs(x)}")
    wrong.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 1]))
    with pytest.raises(RuntimeFailed):
        opened(wrong)


@needs_openvino
def test_threads_and_precision_are_those_asked_for() -> None:
    for threads in (1, 2):
        compiled = opened(ABS, threads)._compiled
        assert compiled.get_property("INFERENCE_NUM_THREADS") == threads
        assert compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name() == "f32"
        assert compiled.get_property("NUM_STREAMS") == 1


@needs_openvino
def test_a_session_may_be_asked_by_several_threads() -> None:
    session = opened(ABS)
    inputs = [np.full((size, 3), size, "f4") for size in range(1, 33)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: session.run({"x": x})[1], inputs))
    assert found == [3 * x.shape[0] ** 2 for x in inputs]


@needs_openvino
def test_models_of_the_zoo_agree() -> None:
    for name in ("squeezenet", "bert"):
        given = zoo.build(name, scale="tiny")
        feeds = random_inputs(given, 0)
        error = output_error(opened(given).run(feeds), OrtSession(given, ONE).run(feeds))
        assert error < 1e-4


@needs_openvino
def test_integers_that_it_shortens_keep_it_out_of_the_race() -> None:
    """It computes int64 in int32."""
    text = "g (float[4] x) => (int64[4] y) {big = Constant<value_int = 1099511627776>() "
    given = model(text + "f = Cast<to = 7>(x) y = Mul(f, big)}")
    job = TunedJob(
        original=given,
        original_inside=lambda: given,
        portable=given,
        is_original=True,
        session=ONE,
        sizes=(Sizes(),),
        seeds=(0, 1, 2),
        numerics=Numerics.REASSOCIATE,
        max_error=1e-4,
        runtimes=("ort", "openvino"),
        deadline=Deadline.after(120.0),
    )
    held = race_tuned_forms(job)
    assert "output 'y' is another" in held.refused["openvino"]
    assert held.model is None


@needs_openvino
def test_a_tuned_file_is_opened_without_a_trace_on_the_disk(tmp_path: Path) -> None:
    portable = zoo.build("squeezenet", scale="tiny")
    tuned = tuned_model(portable, portable, Execution("openvino", 1))
    path, home = tmp_path / "tuned.onnx", tmp_path / "home"
    path.write_bytes(tuned.SerializeToString())
    home.mkdir()
    code = (
        "import sys, eqsat_opt, warnings\n"
        "warnings.simplefilter('error')\n"
        "session = eqsat_opt.session(sys.argv[1])\n"
        "assert session.runtime == 'openvino'\n"
        "print('openvino_telemetry' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=home,
        env={**os.environ, "HOME": str(home)},
    )
    assert done.stdout.strip() == "False"
    files = [path for path in home.rglob("*") if path.is_file()]
    # Onnxruntime keeps a store of its own there since 1.32.
    assert [path for path in files if "Microsoft" not in path.parts] == []
    session = eqsat_opt.session(path)
    assert isinstance(session, RuntimeSession)
    feeds = random_inputs(portable, 0)
    expected = OrtSession(portable, ONE).run(feeds)
    assert output_error(session.run(None, feeds), expected) < 1e-4
