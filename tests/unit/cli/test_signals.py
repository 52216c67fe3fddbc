"""SIGTERM and SIGHUP: everything is undone, a child does not outlive its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from eqsat_opt.cli import main
from eqsat_opt.cli.session import Session
from eqsat_opt.cli.signals import ending_signals
from eqsat_opt.cost.store import ProfileStore
from eqsat_opt.lab import zoo
from eqsat_opt.pipeline import optimise as optimising

pytestmark = pytest.mark.usefixtures("heeded_signals")

ENDING = [signal.SIGTERM, signal.SIGHUP]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EQSAT_OPT_CACHE", str(tmp_path / "cache"))
    work = tmp_path / "work"
    work.mkdir()
    onnx.save_model(zoo.build("weight_chain", scale="tiny"), work / "model.onnx")
    monkeypatch.chdir(work)
    return work


@pytest.mark.parametrize("number", ENDING)
@pytest.mark.parametrize("stage", ["load_model", "find_candidates", "conclude"])
def test_a_signal_ends_a_command_like_ctrl_c(
    number: signal.Signals,
    stage: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    handlers = [signal.getsignal(n) for n in ENDING]
    monkeypatch.setattr(optimising, stage, _killing(number))
    arguments = ["optimize", "model.onnx", "-o", "out.onnx", "--no-measure", "--threads", "1"]
    assert main(arguments) == 128 + number
    error = capsys.readouterr().err
    assert error == f"error: ended by {number.name}; nothing was written\n"
    assert os.listdir(folder) == ["model.onnx"]
    assert [signal.getsignal(n) for n in ENDING] == handlers
    with ProfileStore() as store:
        store.rows()


def _killing(number: signal.Signals) -> Callable[..., None]:
    def stop(*_: object, **__: object) -> None:
        os.kill(os.getpid(), number)
        raise AssertionError("the signal came to nothing")

    return stop


def test_a_signal_in_the_middle_of_writing_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "out.onnx").write_text("old")
    monkeypatch.setattr(os, "fsync", _killing(signal.SIGTERM))
    arguments = ["optimize", "model.onnx", "-o", "out.onnx", "--effort", "quick", "--quiet"]
    assert main(arguments) == 143
    assert sorted(os.listdir(folder)) == ["model.onnx", "out.onnx"]
    assert (folder / "out.onnx").read_text() == "old"


def test_later_signals_do_not_disturb_the_way_out() -> None:
    session, steps = Session(), []

    def work() -> None:
        with ending_signals(session, owns_process=False):
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)
                os.kill(os.getpid(), signal.SIGHUP)
                steps.append("undone")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert steps == ["undone"]
    assert session.signal == signal.SIGTERM


def test_where_ctrl_c_is_ignored_signals_still_end(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as shells do in the background
    try:
        with (
            pytest.raises(KeyboardInterrupt),
            ending_signals(Session(), owns_process=False),
        ):
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with ending_signals(Session(), owns_process=False):
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_leave_signals_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def work() -> None:
        with ending_signals(Session(), owns_process=False):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


_LOST = """
import os, signal, sys
from eqsat_opt.common import files, paths
from eqsat_opt.cli import signals
from eqsat_opt.cli.session import Session

signals._GRACE_S = 0.1

class Swallows:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)

sys.unraisablehook = lambda _: None
with signals.ending_signals(Session(), owns_process=True):
    with files.part_of(paths.real_path(sys.argv[1])):
        Swallows()
        while True:
            signal.pause()
"""


def test_an_interruption_that_is_lost_ends_the_process_all_the_same(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LOST, str(tmp_path / "out")], capture_output=True, text=True
    )
    assert done.returncode == 143
    assert done.stderr == "error: ended by SIGTERM\n"
    assert os.listdir(tmp_path) == []


_BETWEEN = """
import os, signal
from eqsat_opt.common import files, paths
from eqsat_opt.cli import signals
from eqsat_opt.cli.session import Session

make = files._new_scratch

def made_and_interrupted(base):
    made = make(base)
    print(made[0], flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    return made

files._new_scratch = made_and_interrupted
try:
    with signals.ending_signals(Session(), owns_process=True):
        files.Scratch()
except KeyboardInterrupt:
    os._exit(143)
"""


def test_what_nobody_owns_yet_is_removed_too() -> None:
    done = subprocess.run([sys.executable, "-c", _BETWEEN], capture_output=True, text=True)
    assert done.returncode == 143, done.stderr
    assert done.stdout.strip()
    assert not os.path.exists(done.stdout.strip())


_AFTER = """
import os, signal, sys
from eqsat_opt.common import files, paths
from eqsat_opt.cli import signals
from eqsat_opt.cli.session import Session

with signals.ending_signals(Session(), owns_process=True):
    scratch = files.Scratch()
print(scratch.path, flush=True)
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_a_signal_after_the_work_leaves_nothing_either() -> None:
    done = subprocess.run([sys.executable, "-c", _AFTER], capture_output=True, text=True)
    assert done.returncode == 143
    assert not os.path.exists(done.stdout.strip())


_PARENT = """
import os, signal, subprocess, sys
code = "from eqsat_opt.common import child_processes; child_processes.end_with_parent()"
code += "; print(1, flush=True); import time; time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_child_does_not_outlive_a_killed_parent() -> None:
    # The child holds the error stream, whose end is waited for.
    done = subprocess.run([sys.executable, "-c", _PARENT], capture_output=True, timeout=120)
    assert done.returncode == -signal.SIGKILL
