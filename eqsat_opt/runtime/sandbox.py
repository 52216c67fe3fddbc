"""Run models in a child process, where one that crashes, hangs or eats the memory does no harm.

Some kernels of onnxruntime divide by a size and end the process where a tensor is empty. So a check
that wants to know what a model does at the edges runs it here.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import IO, Any

import ml_dtypes
import numpy as np
import onnx

from eqsat_opt.children import end_with_parent
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.ort import OrtOptions, OrtSession
from eqsat_opt.runtime.source import Feeds, ModelSource

__all__ = ["Sandbox", "SandboxDied", "SandboxSession", "sandbox", "serve"]

_START_UP_S = 120.0
"""Starting Python and loading onnxruntime, on a busy machine."""

_FIRST_LIMIT_S = 600.0
"""For the first model, of whose speed nothing is known."""

_LEAST_LIMIT_S = 20.0
_LIMIT_FACTOR = 20.0
"""A request that takes so many times longer than the longest before hangs."""

_JSON_LENGTH = struct.Struct("<I")
_PROGRAM = (
    "import json, sys\n"
    "sys.path[:] = json.loads(sys.argv[1])\n"
    "from eqsat_opt.runtime.sandbox import serve\n"
    "serve()\n"
)


class SandboxDied(RuntimeFailed):
    """A model ended the process that it ran in, or had to be ended."""


class Sandbox:
    """A child process that holds one session at a time.

    The process starts at once, in the background, and is started again after a crash. Not for use
    by several threads at once.
    """

    def __init__(self) -> None:
        self._process = _spawn()
        self._is_warm = False
        self._longest_s = 0.0
        self.current: SandboxSession | None = None

    def open(self, model: ModelSource, options: OrtOptions) -> SandboxSession:
        """Load a model; a drop-in for :class:`~eqsat_opt.runtime.ort.OrtSession`.

        Raises:
            RuntimeFailed: onnxruntime refuses the model, or the process does not survive it.
        """
        return SandboxSession(self, model, options)

    def request(self, what: str, header: Mapping[str, Any], blobs: Sequence[Any]) -> _Message:
        """Send a request and wait for its reply.

        Raises:
            RuntimeFailed: the reply is an error, or there is none.
        """
        if self._process.poll() is not None:
            self.close()
            self._process = _spawn()
        start = time.monotonic()
        limit_s = _START_UP_S
        if not self._is_warm:
            if self._exchange(None, limit_s) is None:
                self.close()
                raise RuntimeFailed(
                    f"cannot start a process with {sys.executable!r} to try the models in; check "
                    "that this interpreter can import eqsat_opt"
                )
            self._is_warm = True
            start = time.monotonic()
        known = self._longest_s
        limit_s = max(_LEAST_LIMIT_S, _LIMIT_FACTOR * known) if known else _FIRST_LIMIT_S
        reply = self._exchange((header, blobs), limit_s)
        elapsed_s = time.monotonic() - start
        if reply is None:
            code = self.close()
            raise SandboxDied(f"{what} {_ending(code, elapsed_s, limit_s)}")
        if "error" in reply[0]:
            raise RuntimeFailed(reply[0]["error"])
        self._longest_s = max(self._longest_s, elapsed_s)
        return reply

    def reset(self) -> None:
        """Forget the session and what is known of its speed; the process stays."""
        self._longest_s = 0.0
        if self.current is not None:
            self.current = None
            with suppress(RuntimeFailed):
                self.request("closing", {"do": "close"}, ())

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def close(self) -> int:
        """End the process; its exit code if it had ended before. A later request starts another."""
        self.current, self._is_warm = None, False
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=0.2)  # a crash may still be on its way
        code = self._process.poll()
        self._process.kill()
        self._process.communicate()
        return 0 if code is None else code

    def abandon(self) -> None:
        """Let go of a process that belongs to another one."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.returncode = 0  # not ours to wait for

    def _exchange(
        self, message: tuple[Mapping[str, Any], Sequence[Any]] | None, limit_s: float
    ) -> _Message | None:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(limit_s, process.kill)
        timer.daemon = True
        timer.start()
        try:
            if message is not None:
                _write(process.stdin, *message)
            return _read(process.stdout)
        except OSError:  # a broken pipe: it died before it had read everything
            return None
        except BaseException:  # Ctrl-C: a late reply must not answer the next request
            self.close()
            raise
        finally:
            timer.cancel()


class SandboxSession:
    """A model in a sandbox; it is loaded anew where the process died or holds another model."""

    def __init__(self, box: Sandbox, model: ModelSource, options: OrtOptions) -> None:
        self._box, self._model, self._options = box, model, options
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
        """All outputs, in order.

        Raises:
            RuntimeFailed: an input does not fit, a kernel failed, or the process did not survive.
        """
        if self._box.current is not self or not self._box.is_alive:
            self._open()
        blobs: list[Any] = []
        values = {name: _packed(value, blobs) for name, value in feeds.items()}
        header, received = self._box.request(
            "onnxruntime, running the model,", {"do": "run", "feeds": values}, blobs
        )
        rest = iter(received)
        return [_unpacked(value, rest) for value in header["outputs"]]

    def _open(self) -> None:
        model = self._model
        if isinstance(model, onnx.ModelProto):
            model = model.SerializeToString()
        is_path = not isinstance(model, bytes)
        header = {
            "do": "open",
            # The process may be older than the caller's latest change of directory.
            "folder": os.getcwd(),
            "path": os.fspath(model) if not isinstance(model, bytes) else "",
            "options": asdict(self._options),
        }
        blobs = () if is_path else (model,)
        reply, _ = self._box.request("onnxruntime, loading the model,", header, blobs)
        self._names = tuple(reply["inputs"]), tuple(reply["outputs"])
        self._box.current = self


_idle: list[Sandbox] = []
_lock = threading.Lock()


@contextmanager
def sandbox() -> Iterator[Sandbox]:
    """A sandbox of one's own for a while; its process is kept for the next one."""
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
    box.close()


@atexit.register
def _close_idle() -> None:
    while _idle:
        _idle.pop().close()


def _forget_idle() -> None:
    """A forked process leaves its parent's child alone."""
    while _idle:
        _idle.pop().abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_idle)


def _spawn() -> subprocess.Popen[bytes]:
    path = [entry or os.getcwd() for entry in sys.path]
    try:
        return subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, json.dumps(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError as error:
        raise RuntimeFailed(
            f"cannot start a process to try the models in ({error.strerror or error}); "
            "free some memory or processes and try again"
        ) from error


def _ending(code: int, elapsed_s: float, limit_s: float) -> str:
    if elapsed_s >= limit_s:
        return f"did not end within {limit_s:.0f} s"
    if code >= 0:
        return "ended the process"
    with suppress(ValueError):
        return f"ended the process ({signal.Signals(-code).name})"
    return f"ended the process (signal {-code})"


def serve() -> None:
    """Answer requests on standard input until it closes: the life of the child process."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    requests = sys.stdin.buffer
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Whatever a library prints must not mix with the replies.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    session: OrtSession | None = None
    _write(replies, {}, ())
    while (request := _read(requests)) is not None:
        header, blobs = request
        result: dict[str, Any] = {}
        produced: list[Any] = []
        try:
            if header["do"] == "run" and session is not None:
                rest = iter(blobs)
                feeds = {name: _unpacked(value, rest) for name, value in header["feeds"].items()}
                result["outputs"] = [_packed(value, produced) for value in session.run(feeds)]
            else:
                session = None
            if header["do"] == "open":
                os.chdir(header["folder"])
                chosen: Any = {
                    k: tuple(v) if isinstance(v, list) else v for k, v in header["options"].items()
                }
                session = OrtSession(blobs[0] if blobs else header["path"], OrtOptions(**chosen))
                result = {
                    "inputs": list(session.input_names),
                    "outputs": list(session.output_names),
                }
        except MemoryError:
            result, produced = {"error": "there is not enough memory to run the model"}, []
        except Exception as error:
            result, produced = {"error": str(error) or type(error).__name__}, []
        _write(replies, result, produced)


# Values on the wire: one JSON text, then the bytes of the arrays that it names -------------------

_Message = tuple[dict[str, Any], list[bytes]]


def _packed(value: Any, blobs: list[Any]) -> Any:
    """A JSON value that stands for ``value``; arrays go to ``blobs``."""
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if isinstance(value, np.ndarray):
        shape = list(value.shape)
        if value.dtype.kind in "OUS":
            return {"strings": [str(one) for one in value.ravel().tolist()], "shape": shape}
        blobs.append(np.ascontiguousarray(value).reshape(-1).view(np.uint8))
        return {"dtype": str(value.dtype), "shape": shape}
    if isinstance(value, Mapping):
        pairs = [[_packed(k, blobs), _packed(v, blobs)] for k, v in value.items()]
        return {"mapping": pairs}
    if isinstance(value, list | tuple):
        return {"list": [_packed(one, blobs) for one in value]}
    return {"plain": value}


def _unpacked(value: Any, blobs: Iterator[Any]) -> Any:
    if "plain" in value:
        return value["plain"]
    if "list" in value:
        return [_unpacked(one, blobs) for one in value["list"]]
    if "mapping" in value:
        return {_unpacked(k, blobs): _unpacked(v, blobs) for k, v in value["mapping"]}
    if "strings" in value:
        return np.array(value["strings"], dtype=object).reshape(value["shape"])
    name = value["dtype"]
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    return np.frombuffer(next(blobs), dtype).reshape(value["shape"])


def _write(stream: IO[bytes], header: Mapping[str, Any], blobs: Sequence[Any]) -> None:
    lengths = [len(blob) for blob in blobs]
    text = json.dumps([header, lengths]).encode()
    stream.write(_JSON_LENGTH.pack(len(text)))
    stream.write(text)
    for blob in blobs:
        stream.write(blob)
    stream.flush()


def _read(stream: IO[bytes]) -> _Message | None:
    """The next message; ``None`` at the end of the stream."""
    start = stream.read(_JSON_LENGTH.size)
    if len(start) < _JSON_LENGTH.size:
        return None
    (length,) = _JSON_LENGTH.unpack(start)
    text = stream.read(length)
    if len(text) < length:
        return None
    header, lengths = json.loads(text)
    blobs = []
    for size in lengths:
        blob = stream.read(size)
        if len(blob) < size:
            return None
        blobs.append(blob)
    return header, blobs
