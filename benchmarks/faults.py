"""Kill it, terminate it, fill its disk, share its store: is anything lost, is anything left?

    python -m benchmarks.faults kill        # kill -9 at random moments
    python -m benchmarks.faults terminate   # SIGTERM at random moments
    python -m benchmarks.faults disk        # a full disk at every step of writing, and at sizes
    python -m benchmarks.faults store       # 8 processes on one store, some of them killed
    python -m benchmarks.faults all [--times 100] [--seed 0] [--json FILE]

Every run is the command line `optimize` on a small model with external data, in a forked process
(so that Python and its libraries load once), over an output that an earlier run wrote from another
model. Half of the moments are drawn over the whole run, half while files are written. Afterwards
the output has to be the old or the new model, whole: it loads, runs, and computes what that one
does; the inputs are untouched. After a SIGTERM and a full disk nothing may be left; what a killed
run leaves has to be gone after the next one. Data that the output came to read stay when it reads
others (another model may read them); the benchmark removes them as the note in the report says.

Full disks are injected: a call that opens, writes through, flushes or renames a file fails, and,
without patching anything, the system refuses to let any file grow beyond a size.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import errno
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

from eqsat_opt import api  # noqa: F401  (loads the libraries once, for all forked runs)
from eqsat_opt.cli import main as command_line
from eqsat_opt.common.files import write_whole
from eqsat_opt.cost.profile import ProfileKey
from eqsat_opt.cost.store import ProfileStore
from eqsat_opt.egraph.engine.library import engine_library

__all__ = ["Outcome", "Yard"]

_WIDTH = 1024
_TOLERANCE = 1e-3
_PATIENCE_S = 300.0
_ROWS = 2000
_RUNTIME_FILE = ".ses"
"""A small file that onnxruntime itself keeps among the temporary ones, whoever uses it."""


@dataclass
class Outcome:
    """What became of many runs under one kind of fault.

    Attributes:
        fault: its kind.
        counts: how often the output was old or new, and the exit codes.
        left: names that were left behind, after the next run where the run was killed.
        broken: what went wrong, as sentences; empty if nothing did.
        slowest_s: longest time from the signal to the end.
    """

    fault: str
    counts: Counter[str] = field(default_factory=Counter)
    left: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    slowest_s: float = 0.0


def _model(seed: int) -> onnx.ModelProto:
    """Two products with a scale that can be folded: about 8 MB of weights."""
    rng = np.random.default_rng(seed)
    scale = np.float32(_WIDTH**-0.5)
    weights = [
        numpy_helper.from_array(rng.standard_normal((_WIDTH, _WIDTH), np.float32) * scale, name)
        for name in ("w0", "w1")
    ]
    node = helper.make_node
    graph = helper.make_graph(
        [
            node("MatMul", ["x", "w0"], ["a"]),
            node("Relu", ["a"], ["b"]),
            node("Relu", ["b"], ["c"]),
            node("MatMul", ["c", "w1"], ["d"]),
            node("Mul", ["d", "s"], ["y"]),
        ],
        "two",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, _WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, _WIDTH])],
        [*weights, numpy_helper.from_array(np.full(_WIDTH, 3, np.float32), "s")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _forked(task: Callable[[], int]) -> int:
    """Run ``task`` in a forked process of its own session; its process id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setsid()
        code = task()
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(code)


class Yard:
    """Folders for inputs, output, temporary files and store, and the models in them."""

    def __init__(self, folder: Path) -> None:
        self.inputs, self.output = folder / "in", folder / "out"
        self.scratch, self.log = folder / "tmp", folder / "log"
        self.store = folder / "store.sqlite3"
        for path in (self.inputs, self.output, self.scratch):
            path.mkdir()
        self.x = np.random.default_rng(9).standard_normal((2, _WIDTH), np.float32)
        self.names = ("a", "b")
        for seed, name in enumerate(self.names):
            path = self.inputs / f"{name}.onnx"
            onnx.save_model(
                _model(2 * seed), path, save_as_external_data=True, location=f"{name}.data"
            )
        self.target = self.output / "m.onnx"
        self.digests = self._digests()
        self.expected = {name: self._computed(self.inputs / f"{name}.onnx") for name in self.names}

    def start(self, name: str, *options: str, before: Callable[[], None] | None = None) -> int:
        """Optimise an input to the output in a process of its own; its process id."""

        def task() -> int:
            log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            tempfile.tempdir = os.environ["TMPDIR"] = str(self.scratch)
            sys.argv = [
                "eqsat-opt", "optimize", str(self.inputs / f"{name}.onnx"), "-o", str(self.target),
                "--effort", "quick", "--threads", "1", "--store", str(self.store), *options,
            ]  # fmt: skip
            engine_library()  # a forked process copies it, which a user's need not
            if before is not None:
                before()
            return command_line()

        return _forked(task)

    def run(self, name: str, *options: str, before: Callable[[], None] | None = None) -> int:
        """The exit code of a run that is left alone."""
        return _ended(self.start(name, *options, before=before))

    def settle(self, name: str) -> None:
        """Let a run without a fault finish, and remove what its output reads no longer."""
        read = self.read() if self.target.exists() else set()
        if self.run(name):
            raise SystemExit(f"a run without a fault failed: {self.log.read_text()}")
        self.tidy(read)

    def state(self) -> str:
        """Which model the output is; ``broken`` if it is none of them."""
        found = self._computed(self.target)
        for name, values in self.expected.items():
            if found is not None and np.allclose(found, values, _TOLERANCE, _TOLERANCE):
                return name
        return "broken"

    def _computed(self, path: Path) -> Any:
        """What a model computes, in a process of its own; ``None`` if it does not run."""
        reader, writer = os.pipe()

        def task() -> int:
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            with os.fdopen(writer, "wb") as file:
                file.write(session.run(None, {"x": self.x})[0].tobytes())
            return 0

        child = _forked(task)
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            data = file.read()
        _ended(child)
        return np.frombuffer(data, np.float32) if data else None

    def _digests(self) -> dict[str, str]:
        return {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.inputs.iterdir())
        }

    def read(self) -> set[str]:
        """The names in the output's folder that belong there: the model and what it reads."""
        proto = onnx.load(self.target, load_external_data=False)
        places = [e.value for t in proto.graph.initializer for e in t.external_data
                  if e.key == "location"]  # fmt: skip
        return {self.target.name, *places}

    def left(self) -> list[str]:
        """What lies where it should not: temporary files and folders, data that nobody reads."""
        names = {path.name for path in self.output.iterdir()} - self.read()
        scratch = {path.name for path in self.scratch.iterdir()} - {_RUNTIME_FILE}
        return sorted([*names, *scratch])

    def tidy(self, before: set[str]) -> None:
        """Remove data that the output read before and reads no longer, as its report says to."""
        for name in before - self.read():
            (self.output / name).unlink()

    def is_intact(self) -> bool:
        """Whether the inputs are what they were."""
        return self._digests() == self.digests


def _ended(child: int) -> int:
    """The exit code of a process; minus the signal's number where one ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _survivors(session: int) -> list[int]:
    """Processes that a run started and that live, zombies aside."""
    found = []
    for entry in Path("/proc").iterdir() if os.path.isdir("/proc") else ():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                text = (entry / "stat").read_text()
                state, _, _, of = text.rpartition(")")[2].split()[:4]
                if int(of) == session and state != "Z":
                    found.append(int(entry.name))
    return found


def _moment(yard: Yard, chance: random.Random, child: int, length_s: float, write_s: float) -> None:
    """Wait for a random moment: of the whole command, or of the time in which it writes."""
    while not _catches_signals(child):
        time.sleep(0.0005)
    if chance.random() < 0.5:
        time.sleep(chance.random() * length_s)
        return
    end = time.monotonic() + 10 * length_s
    while time.monotonic() < end and not list(yard.output.glob(".*")):
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        time.sleep(0.0002)
    time.sleep(chance.random() * write_s)


def _catches_signals(child: int) -> bool:
    """Whether a command has begun: before, a signal ends a process that has made nothing yet."""
    try:
        text = Path(f"/proc/{child}/status").read_text()
    except OSError:
        return True
    caught = next((line for line in text.splitlines() if line.startswith("SigCgt")), "x 0")
    is_zombie = "\nState:\tZ" in text
    return is_zombie or bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def _lengths(yard: Yard) -> tuple[float, float]:
    """Seconds of a run that is left alone, and of its writing."""
    read = yard.read()
    start = time.monotonic()
    child = yard.start("b")
    first = 0.0
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if not first and list(yard.output.glob(".*")):
            first = time.monotonic()
        time.sleep(0.0005)
    end = time.monotonic()
    if _ended(child):
        raise SystemExit(f"a run without a fault failed: {yard.log.read_text()}")
    yard.tidy(read)
    return end - start, end - (first or end)


def signals(yard: Yard, number: signal.Signals, times: int, seed: int) -> Outcome:
    """End runs by a signal at random moments."""
    outcome = Outcome(f"{number.name} at a random moment")
    chance = random.Random(seed)
    yard.settle("a")
    length_s, write_s = _lengths(yard)
    hits = 0
    while hits < times:
        read, before = yard.read(), yard.state()
        name = "a" if before == "b" else "b"
        child = yard.start(name)
        _moment(yard, chance, child, length_s, write_s)
        os.kill(child, number)  # a zombie, if it has ended
        start = time.monotonic()
        code = _ended(child)
        outcome.slowest_s = max(outcome.slowest_s, time.monotonic() - start)
        hits += bool(code)
        outcome.counts["too late" if not code else f"exit {code}"] += 1
        label = f"run that ended with {code}"
        _judge(outcome, yard, label, before, name, read)
        if code not in (0, -number if number == signal.SIGKILL else 128 + number):
            outcome.broken.append(f"{label}: {yard.log.read_text()[-300:]}")
        if not _gone(child):
            outcome.broken.append(f"{label}: processes live on")
        if number != signal.SIGKILL:
            outcome.left += yard.left()
        elif yard.left():
            outcome.counts["left something until the next run"] += 1
    yard.settle("a" if yard.state() == "b" else "b")
    outcome.left += yard.left()
    return outcome


def _gone(session: int) -> bool:
    end = time.monotonic() + 30.0
    while _survivors(session):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def _judge(
    outcome: Outcome, yard: Yard, label: str, before: str, name: str, read: set[str]
) -> None:
    state = yard.state()
    if state == name:
        yard.tidy(read)
    outcome.counts["old" if state == before else "new" if state == name else "broken"] += 1
    if state not in (before, name):
        outcome.broken.append(f"{label}: the output is {state}")
    if not yard.is_intact():
        outcome.broken.append(f"{label}: an input changed")


_CALLS = ("open", "fdopen", "fsync", "replace", "mkdir")


def _failing_call(at: int, marker: Path) -> Callable[[], None]:
    """Let the ``at``-th call that changes files fail as on a full disk; the marker says it came."""

    def patch() -> None:
        count, os_open = 0, os.open

        def counted(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **keywords: Any) -> Any:
                nonlocal count
                is_reading = real is os_open and not arguments[1] & os.O_CREAT
                count += not is_reading
                if count == at and not is_reading:
                    marker.touch()
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return real(*arguments, **keywords)

            return call

        for name in _CALLS:
            setattr(os, name, counted(getattr(os, name)))

    return patch


def _bounded_files(size: int) -> Callable[[], None]:
    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    return bound


def disk(yard: Yard, times: int) -> list[Outcome]:
    """Fail at each call, and at sizes that files may not exceed."""
    calls, sizes = Outcome("a full disk at each call"), Outcome("a full disk at a size")
    yard.settle("a")
    marker = yard.log.with_name("struck")
    for at in range(1, 10_000):
        marker.unlink(missing_ok=True)
        _under_fault(calls, yard, f"call {at}", _failing_call(at, marker))
        if not marker.exists():
            break
    whole = sum(path.stat().st_size for path in yard.output.iterdir())
    for index in range(max(2, times // 4)):
        size = int(3 * whole * index / max(1, times // 4 - 1))
        _under_fault(sizes, yard, f"size {size}", _bounded_files(size))
    return [calls, sizes]


def _under_fault(outcome: Outcome, yard: Yard, label: str, fault: Callable[[], None]) -> None:
    read, before = yard.read(), yard.state()
    name = "a" if before == "b" else "b"
    code = yard.run(name, before=fault)
    outcome.counts[f"exit {code}"] += 1
    _judge(outcome, yard, label, before, name, read)
    text = yard.log.read_text(errors="replace")
    if code not in (0, 1) or "Traceback" in text or "unexpected" in text:
        outcome.broken.append(f"{label} ended with {code}: {text[-300:]}")
    outcome.left += yard.left()


def _write_rows(path: Path, writer: int) -> int:
    with ProfileStore(path, wait_s=_PATIENCE_S) as store:
        for number in range(_ROWS):
            key = ProfileKey("onnxruntime", f"{writer}.{number}", "default", "cpu", 1, 1)
            store.put_many({key: None})
    return 0


def store(yard: Yard, times: int, seed: int, processes: int = 8) -> list[Outcome]:
    """Several processes on one store: whole commands, and writers of which half are killed."""
    commands = Outcome(f"{processes} commands on one store")
    chance = random.Random(seed)
    for round_ in range(max(1, times // 20)):
        yard.store.unlink(missing_ok=True)
        children = [
            yard.start(yard.names[n % 2], "-o", str(yard.output / f"{n}.onnx"), "--json",
                       str(yard.output / f"{n}.json"), "--effort", "normal", "--budget", "60",
                       "--no-race", "--check", "0")
            for n in range(processes)
        ]  # fmt: skip
        for n, child in enumerate(children):
            commands.counts[f"exit {_ended(child)}"] += 1
            report = yard.output / f"{n}.json"
            warnings = json.loads(report.read_text())["warnings"] if report.exists() else ["none"]
            commands.broken += [f"round {round_}, process {n}: {w}" for w in warnings]
        if not _check_store(commands, yard.store):
            commands.broken.append(f"round {round_}: nothing was stored")
        for path in yard.output.iterdir():
            path.unlink()
    writers = Outcome(f"{processes} writers on one store, half of them killed")
    for _ in range(max(1, times // 10)):
        yard.store.unlink(missing_ok=True)
        children = [_forked(partial(_write_rows, yard.store, n)) for n in range(processes)]
        for child in children[: processes // 2]:
            time.sleep(chance.random() * 0.2)
            os.kill(child, signal.SIGKILL)
        for child in children:
            writers.counts[f"exit {_ended(child)}"] += 1
        rows = _check_store(writers, yard.store)
        least = (processes - processes // 2) * _ROWS
        if rows < least:
            writers.broken.append(f"{rows} rows where {least} were committed")
    return [commands, writers]


def _check_store(outcome: Outcome, path: Path) -> int:
    connection = sqlite3.connect(path)
    (verdict,) = connection.execute("PRAGMA integrity_check").fetchone()
    connection.close()
    if verdict != "ok":
        outcome.broken.append(f"the store is damaged: {verdict}")
    with ProfileStore(path) as opened:
        return len(opened.rows())


def measure(what: str, times: int, seed: int) -> list[Outcome]:
    """The outcomes of one kind of fault, or of all."""
    found: list[Outcome] = []
    kinds = ("kill", "terminate", "disk", "store") if what == "all" else (what,)
    engine_library()  # loaded once, before anything forks
    for kind in kinds:
        # Not a TemporaryDirectory, which every forked process would remove at its end.
        folder = tempfile.mkdtemp()
        try:
            yard = Yard(Path(folder))
            if kind == "kill":
                found.append(signals(yard, signal.SIGKILL, times, seed))
            elif kind == "terminate":
                found.append(signals(yard, signal.SIGTERM, times, seed))
            elif kind == "disk":
                found += disk(yard, times)
            else:
                found += store(yard, times, seed)
        finally:
            shutil.rmtree(folder)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 1 if anything was broken or left behind."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["kill", "terminate", "disk", "store", "all"])
    parser.add_argument("--times", type=int, default=100, help="signals of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    found = measure(given.what, given.times, given.seed)
    table = Table("fault", "outcomes", "left behind", "broken", "slowest end", box=None)
    for outcome in found:
        counts = ", ".join(f"{n} {what}" for what, n in sorted(outcome.counts.items()))
        slowest = f"{outcome.slowest_s:.2f} s" if outcome.slowest_s else ""
        left, broken = str(len(outcome.left)), str(len(outcome.broken))
        table.add_row(outcome.fault, counts, left, broken, slowest)
    console = Console()
    console.print(table)
    for outcome in found:
        for text in (*outcome.broken[:20], *(f"left: {name}" for name in outcome.left[:20])):
            console.print(f"{outcome.fault}: {text}", markup=False)
    if given.json:
        rows = [{**vars(outcome), "counts": dict(outcome.counts)} for outcome in found]
        write_whole(given.json, json.dumps(rows, indent=1) + "\n")
    return int(any(outcome.broken or outcome.left for outcome in found))


if __name__ == "__main__":
    sys.exit(main())
