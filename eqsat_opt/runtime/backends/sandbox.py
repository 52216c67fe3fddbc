"""Child processes for models, where a model that crashes, hangs or uses up the memory does no harm.

Some kernels of onnxruntime divide by a size and end the process if a tensor is empty, and other
runtimes may not survive a model at all. So checks of the behaviour of a model at the edges, and all
work with other runtimes, happen here.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from importlib import import_module
from itertools import count
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from eqsat_opt.common.child_processes import (
    Child,
    Message,
    answer_requests,
    ending_text,
    resident_memory_bytes,
)
from eqsat_opt.common.deadline import Deadline, OutOfTime
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.backends.ort import NAME as ORT
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.backends.registry import load_runtime, record_of
from eqsat_opt.runtime.source import Feeds, ModelSource, Runner, Setting

__all__ = [
    "Sandbox",
    "SandboxDied",
    "SandboxSession",
    "close_idle_children",
    "packed",
    "prestart",
    "sandbox",
    "serve",
    "unpacked",
]

_START_UP_S = 120.0
"""Time to start Python and load onnxruntime on a busy machine."""

_FIRST_LIMIT_S = 600.0
"""Time limit of the first model, whose speed is unknown."""

_CRASH_S = 0.2
"""Time to wait for the exit code: a crash may be incomplete when the reply breaks off."""

_LEAST_LIMIT_S = 20.0
_LIMIT_FACTOR = 20.0
"""A request is considered hung if it takes this many times longer than the longest before it."""

_MOST_SESSIONS, _MOST_BYTES = 10, 512 << 20
"""Sessions that the process holds at most, and memory that it may have grown by when it opens
another one; those used least recently are closed first."""

_NEVER = Deadline.never()


class SandboxDied(RuntimeFailed):
    """Error for a model that ended its process, or whose process had to be ended."""


class Sandbox:
    """A child process that holds a few sessions.

    The process starts at once, in the background, and is started again after a crash. A sandbox is
    not for use by several threads at once.

    Attributes:
        held: numbers of the sessions that the process holds.
    """

    def __init__(self) -> None:
        self._child = _start()
        self._longest_s = 0.0
        self._numbers = count()
        self.held: frozenset[int] = frozenset()

    def next_number(self) -> int:
        """Return a number that no session of this sandbox has had."""
        return next(self._numbers)

    def open(
        self, model: ModelSource, options: OrtOptions, deadline: Deadline = _NEVER
    ) -> SandboxSession:
        """Load a model; a drop-in for :class:`~eqsat_opt.runtime.backends.ort.session.OrtSession`.

        Args:
            model: the model to load.
            options: the options that run it.
            deadline: the deadline of loading and of every run; at the deadline the process is
                ended.

        Raises:
            RuntimeFailed: onnxruntime refuses the model, or the process does not survive it.
            OutOfTime: the deadline has passed.
        """
        return SandboxSession(self, model, options, deadline)

    def open_by(
        self,
        runtime: str,
        setting: Setting,
        model: ModelSource,
        options: OrtOptions,
        deadline: Deadline = _NEVER,
    ) -> SandboxSession:
        """Load a model with a named runtime, which gets the threads and operators of the options.

        Raises:
            RuntimeFailed: the runtime refuses the model, or the process does not survive it.
            OutOfTime: the deadline has passed.
        """
        return SandboxSession(self, model, options, deadline, runtime=runtime, setting=setting)

    def call(
        self,
        what: str,
        function: str,
        value: Mapping[str, Any],
        blobs: Sequence[Any],
        deadline: Deadline = _NEVER,
    ) -> dict[str, Any]:
        """Call a function in the process, which holds no session meanwhile; return its result.

        Args:
            what: the subject of the error message if the process dies.
            function: ``module:name`` of a function from JSON values and bytes to JSON values.
            value: the JSON values.
            blobs: the bytes.
            deadline: the time by which the function has to return.

        Raises:
            RuntimeFailed: the function raises an error, or the process does not survive it.
            OutOfTime: the deadline has passed.
        """
        self.reset()
        header = {"do": "call", "function": function, "value": value}
        reply, _ = self.request(what, header, blobs, deadline)
        found: dict[str, Any] = reply["value"]
        return found

    def wait(self, deadline: Deadline = _NEVER) -> None:
        """Wait until the process has started, so that its start does not count as slowness.

        Raises:
            RuntimeFailed: the process does not start.
            OutOfTime: the deadline has passed.
        """
        if not self._child.is_alive:
            self.close()
            self._child = _start()
        if not self._child.is_ready(min(_START_UP_S, deadline.left_s)):
            self.close()
            if deadline.expired:
                raise OutOfTime
            raise self._child.not_ready()

    def request(
        self,
        what: str,
        header: Mapping[str, Any],
        blobs: Sequence[Any],
        deadline: Deadline = _NEVER,
    ) -> Message:
        """Send a request and wait for its reply.

        Raises:
            RuntimeFailed: the reply is an error, or there is no reply.
            OutOfTime: the deadline has passed.
        """
        self.wait(deadline)
        start, known = time.monotonic(), self._longest_s
        limit_s = max(_LEAST_LIMIT_S, _LIMIT_FACTOR * known) if known else _FIRST_LIMIT_S
        reply = self._child.ask(header, blobs, min(limit_s, deadline.left_s))
        elapsed_s = time.monotonic() - start
        if reply is None:
            code = self.close()
            if deadline.expired:
                raise OutOfTime
            raise SandboxDied(f"{what} {ending_text(code, elapsed_s, limit_s)}")
        if "held" in reply[0]:
            self.held = frozenset(reply[0]["held"])
        if "error" in reply[0]:
            raise RuntimeFailed(reply[0]["error"])
        self._longest_s = max(self._longest_s, elapsed_s)
        return reply

    def reset(self) -> None:
        """Close all sessions and forget their speed; the process keeps running."""
        self._longest_s = 0.0
        if self.held:
            self.held = frozenset()
            with suppress(RuntimeFailed, OutOfTime):
                self.request("closing", {"do": "close"}, (), Deadline.after(_LEAST_LIMIT_S))

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._child.is_alive

    def close(self) -> int:
        """End the process, and return its exit code if it had already ended by itself.

        A later request starts another process.
        """
        self.held = frozenset()
        return self._child.end(_CRASH_S)

    def kill(self) -> None:
        """End the process at once."""
        self.held = frozenset()
        self._child.end()

    def abandon(self) -> None:
        """Release a child that belongs to the parent of this process, without ending it."""
        self._child.abandon()


class SandboxSession:
    """A model in a sandbox; it is loaded again if the process died or has closed its session."""

    def __init__(
        self,
        box: Sandbox,
        model: ModelSource,
        options: OrtOptions,
        deadline: Deadline,
        runtime: str = ORT,
        setting: Setting | None = None,
    ) -> None:
        self._box, self._model, self._options, self._deadline = box, model, options, deadline
        self._runtime, self._setting = runtime, dict(setting or {})
        self._who = record_of(runtime).title or runtime
        self._number = box.next_number()
        self._open()

    @property
    def input_names(self) -> Sequence[str]:
        """Inputs that have to be fed, in the model's order."""
        return self._names[0]

    @property
    def output_names(self) -> Sequence[str]:
        """Outputs, in the model's order."""
        return self._names[1]

    def run(self, feeds: Feeds) -> list[Any]:
        """Compute all outputs, in order.

        Raises:
            RuntimeFailed: an input does not fit, a kernel failed, or the process did not survive.
            OutOfTime: the deadline has passed.
        """
        if self._number not in self._box.held or not self._box.is_alive:
            self._open()
        blobs: list[Any] = []
        values = {name: packed(value, blobs) for name, value in feeds.items()}
        header, received = self._box.request(
            f"{self._who}, running the model,",
            {"do": "run", "session": self._number, "feeds": values},
            blobs,
            deadline=self._deadline,
        )
        rest = iter(received)
        return [unpacked(value, rest) for value in header["outputs"]]

    def _open(self) -> None:
        model = self._model
        if isinstance(model, onnx.ModelProto):
            model = model.SerializeToString()
        is_path = not isinstance(model, bytes)
        header = {
            "do": "open",
            "session": self._number,
            # The process may be older than the caller's latest change of directory.
            "folder": os.getcwd(),
            "path": os.fspath(model) if not isinstance(model, bytes) else "",
            "options": asdict(self._options),
            "runtime": self._runtime,
            "setting": self._setting,
        }
        blobs = () if is_path else (model,)
        what = f"{self._who}, loading the model,"
        reply, _ = self._box.request(what, header, blobs, deadline=self._deadline)
        self._names = tuple(reply["inputs"]), tuple(reply["outputs"])


_idle: list[Sandbox] = []
_lock = threading.Lock()


@contextmanager
def sandbox() -> Iterator[Sandbox]:
    """Yield a sandbox for exclusive use; its process is kept for the next user."""
    with _lock:
        box = _idle.pop() if _idle else None
    box = box if box is not None and box.is_alive else Sandbox()
    try:
        yield box
    except BaseException:
        box.close()
        raise
    box.reset()
    with _lock:
        if not _idle and box.is_alive:
            _idle.append(box)
            return
    box.kill()


def prestart() -> None:
    """Start the process of the next sandbox in the background, if none waits for its next user."""
    with _lock:
        if not _idle:
            _idle.append(Sandbox())


@atexit.register
def close_idle_children() -> None:
    while _idle:
        _idle.pop().kill()  # it waits for a request, and will not end by itself


def _forget_idle() -> None:
    """Abandon the idle sandbox in a forked process, since the child belongs to the parent."""
    while _idle:
        _idle.pop().abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_idle)


def _start() -> Child:
    return Child(__name__, "to try the models in")


def serve() -> None:
    """Answer requests in the child process, which loads and runs models."""
    sessions: OrderedDict[int, Runner] = OrderedDict()
    own_bytes = 0

    def answer(header: dict[str, Any], blobs: list[bytes]) -> tuple[dict[str, Any], list[Any]]:
        nonlocal own_bytes
        if header["do"] == "run":
            sessions.move_to_end(header["session"])
            return _run(sessions[header["session"]], header["feeds"], blobs)
        if header["do"] != "open":
            sessions.clear()
        if header["do"] == "call":
            module, _, name = header["function"].partition(":")
            function = getattr(import_module(module), name)
            return {"value": function(header["value"], blobs)}, []
        if header["do"] != "open":
            return {}, []
        own_bytes = own_bytes if sessions else resident_memory_bytes()
        while sessions and (
            len(sessions) >= _MOST_SESSIONS or resident_memory_bytes() - own_bytes > _MOST_BYTES
        ):
            sessions.popitem(last=False)
        session = sessions[header["session"]] = _opened(header, blobs)
        names = {"inputs": list(session.input_names), "outputs": list(session.output_names)}
        return {**names, "held": list(sessions)}, []

    def safely(header: dict[str, Any], blobs: list[bytes]) -> tuple[dict[str, Any], list[Any]]:
        try:
            return answer(header, blobs)
        except MemoryError:
            why = "there is not enough memory to run the model"
        except Exception as error:
            why = str(error) or type(error).__name__
        return {"error": why, "held": list(sessions)}, []

    answer_requests(safely)


def _opened(header: Mapping[str, Any], blobs: Sequence[bytes]) -> Runner:
    os.chdir(header["folder"])
    model: ModelSource = blobs[0] if blobs else header["path"]
    chosen: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in header["options"].items()}
    options = OrtOptions(**chosen)
    if header["runtime"] == ORT:
        return OrtSession(model, options)
    runtime = load_runtime(header["runtime"])
    return runtime.open(model, options.threads, header["setting"], options.custom_ops)


def _run(
    session: Runner, values: Mapping[str, Any], blobs: Sequence[bytes]
) -> tuple[dict[str, Any], list[Any]]:
    rest = iter(blobs)
    feeds = {name: unpacked(value, rest) for name, value in values.items()}
    produced: list[Any] = []
    outputs = [packed(value, produced) for value in session.run(feeds)]
    return {"outputs": outputs}, produced


# Values as JSON, and the bytes of the arrays that they name --------------------------------------


def packed(value: Any, blobs: list[Any]) -> Any:
    """Return a JSON value that represents ``value``; the bytes of arrays are added to ``blobs``."""
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if isinstance(value, np.ndarray):
        shape = list(value.shape)
        if value.dtype.kind in "OUS":
            return {"strings": [str(one) for one in value.ravel().tolist()], "shape": shape}
        blobs.append(np.ascontiguousarray(value).reshape(-1).view(np.uint8))
        return {"dtype": str(value.dtype), "shape": shape}
    if isinstance(value, Mapping):
        pairs = [[packed(k, blobs), packed(v, blobs)] for k, v in value.items()]
        return {"mapping": pairs}
    if isinstance(value, list | tuple):
        return {"list": [packed(one, blobs) for one in value]}
    return {"plain": value}


def unpacked(value: Any, blobs: Iterator[Any]) -> Any:
    if "plain" in value:
        return value["plain"]
    if "list" in value:
        return [unpacked(one, blobs) for one in value["list"]]
    if "mapping" in value:
        return {unpacked(k, blobs): unpacked(v, blobs) for k, v in value["mapping"]}
    if "strings" in value:
        return np.array(value["strings"], dtype=object).reshape(value["shape"])
    name = value["dtype"]
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    return np.frombuffer(next(blobs), dtype).reshape(value["shape"])
