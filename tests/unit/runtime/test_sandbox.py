"""Models in a child process: the same values come back, and a death of the process is an error."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.backends import sandbox as module
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.backends.sandbox import SandboxDied, sandbox

OPTIONS = OrtOptions(threads=1)


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["":17]> {text}')


ABS = model("g (float[N] x) => (float[N] y) {y = Abs(x)}")


@pytest.mark.parametrize(
    ("text", "feeds"),
    [
        ("g (float[2,0,3] x) => (float[2,0,3] y) {y = Abs(x)}", {"x": np.ones((2, 0, 3), "f4")}),
        ("g (float x) => (float y) {y = Neg(x)}", {"x": np.float32(np.nan)}),
        ("g (bool[2] x) => (bool[2] y) {y = Not(x)}", {"x": np.array([True, False])}),
        ("g (string[2] x) => (string[2] y) {y = Identity(x)}", {"x": np.array(["a", "é"], object)}),
        (
            "g (bfloat16[2] x) => (bfloat16[2] y) {y = Identity(x)}",
            {"x": np.array([1.5, -np.inf], ml_dtypes.bfloat16)},
        ),
        (
            "g (seq(float[N]) x) => (seq(float[N]) y) {y = Identity(x)}",
            {"x": [np.ones(2, "f4"), np.zeros(1, "f4")]},
        ),
    ],
)
def test_values_come_back_as_they_are(text: str, feeds: dict[str, Any]) -> None:
    given = model(text)
    with sandbox() as box:
        (found,) = box.open(given, OPTIONS).run(feeds)
    (expected,) = OrtSession(given, OPTIONS).run(feeds)
    for one, other in zip(
        found if isinstance(found, list) else [found],
        expected if isinstance(expected, list) else [expected],
        strict=True,
    ):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_two_sessions_take_turns() -> None:
    x = {"x": np.array([-1.0], "f4")}
    with sandbox() as box:
        first = box.open(ABS, OPTIONS)
        second = box.open(model("g (float[N] x) => (float[N] z) {z = Neg(x)}"), OPTIONS)
        assert (first.output_names, second.output_names) == (("y",), ("z",))
        assert [s.run(x)[0][0] for s in (second, first, first, second)] == [1, 1, 1, 1]
        assert first.input_names == ("x",)


def test_a_few_sessions_are_held_and_the_others_are_loaded_again() -> None:
    names = [f"y{number}" for number in range(2 * module._MOST_SESSIONS)]
    texts = {name: f"g (float[N] x) => (float[N] {name}) {{{name} = Neg(x)}}" for name in names}
    with sandbox() as box:
        sessions = [box.open(model(text), OPTIONS) for text in texts.values()]
        assert len(box.held) == module._MOST_SESSIONS
        with pytest.raises(RuntimeFailed, match="refuses the model"):
            box.open(b"garbage", OPTIONS)
        for session in (sessions[0], sessions[-1], sessions[0]):
            assert session.run({"x": np.array([-1.0], "f4")})[0] == 1
        assert len(box.held) == module._MOST_SESSIONS
        box.reset()
        assert not box.held
        assert sessions[1].run({"x": np.array([-3.0], "f4")})[0] == 3
        assert len(box.held) == 1


def test_an_error_is_the_runtimes_own_and_the_session_goes_on() -> None:
    with sandbox() as box:
        with pytest.raises(RuntimeFailed, match="refuses the model"):
            box.open(b"garbage", OPTIONS)
        session = box.open(ABS, OPTIONS)
        with pytest.raises(RuntimeFailed, match="failed while running"):
            session.run({"x": np.ones((2, 2), "f4")})
        assert session.run({"x": np.array([-2.0], "f4")})[0] == 2


FOREVER = model(
    "g (int64 n, bool c, float[1] x) => (float[1] y) "
    "{y = Loop<body = b (int64 i, bool d, float[1] v) => (bool e, float[1] w) "
    "{e = Identity(d) w = Identity(v)}>(n, c, x)}"
)
FEEDS = {"n": np.int64(2**62), "c": np.bool_(True), "x": np.ones(1, "f4")}


def test_a_process_that_dies_is_started_again() -> None:
    with sandbox() as box:
        session = box.open(FOREVER, OPTIONS)
        threading.Timer(0.1, os.kill, (box._child.process.pid, signal.SIGSEGV)).start()
        with pytest.raises(SandboxDied, match=r"ended the process \(SIGSEGV\)"):
            session.run(FEEDS)
        assert session.run({**FEEDS, "n": np.int64(2)})[0] == 1
        box._child.process.kill()
        box._child.process.wait()
        assert session.run({**FEEDS, "n": np.int64(2)})[0] == 1


def test_a_model_that_hangs_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    with sandbox() as box:
        session = box.open(FOREVER, OPTIONS)
        monkeypatch.setattr(module, "_LEAST_LIMIT_S", 0.0)
        box._longest_s = 0.005
        with pytest.raises(SandboxDied, match="did not end within"):
            session.run(FEEDS)


def test_relative_paths_are_those_of_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        onnx.save(ABS, "m.onnx")
        with sandbox() as box:
            assert box.open("m.onnx", OPTIONS).output_names == ("y",)


def test_the_process_is_used_again_and_gone_after_an_error() -> None:
    with sandbox() as first:
        first.open(ABS, OPTIONS)
    with sandbox() as second:
        assert second is first
    with pytest.raises(ZeroDivisionError), sandbox() as third:
        raise ZeroDivisionError
    assert not third.is_alive
