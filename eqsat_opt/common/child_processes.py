"""Child processes that answer requests in turn, so that crashes and hangs do no harm.

A message is a JSON text and the bytes of its blobs. A child does not outlive its parent, even if
that is killed.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, TypeAlias

from eqsat_opt.errors import RuntimeFailed, reason

__all__ = [
    "Child",
    "Message",
    "answer_requests",
    "end_with_parent",
    "ending_text",
    "peak_memory_bytes",
    "resident_memory_bytes",
]

Message: TypeAlias = tuple[dict[str, Any], list[bytes]]

_LOOK_S = 0.5

_LENGTH = struct.Struct("<I")
# A plain interpreter rather than multiprocessing, which would import the caller's script again.
_PROGRAM = (
    "import importlib, json, sys\n"
    "sys.path[:] = json.loads(sys.argv[1])\n"
    "importlib.import_module(sys.argv[2]).serve()\n"
)


class Child:
    """A process, started at once in the background. Not for use by several threads at once.

    Args:
        module: name of a module; the process runs its function ``serve``.
        purpose: words for messages, which follow "a process".

    Raises:
        RuntimeFailed: it cannot be started.
    """

    def __init__(self, module: str, purpose: str) -> None:
        self._purpose = purpose
        self._has_greeted = False
        path = [entry or os.getcwd() for entry in sys.path]
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, json.dumps(path), module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            raise RuntimeFailed(
                f"cannot start a process {purpose} ({reason(error)}); "
                "free some memory or processes and try again"
            ) from error

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def is_ready(self, limit_s: float) -> bool:
        """Wait until its libraries are loaded; return false if the limit passed or it has ended.

        A process that exceeds the limit is killed.
        """
        if not self._has_greeted:
            self._has_greeted = self._exchange(None, limit_s) is not None
        return self._has_greeted

    def not_ready(self) -> RuntimeFailed:
        """Return the error for a process that is not ready in time."""
        return RuntimeFailed(
            f"cannot start a process {self._purpose} with {sys.executable!r}; "
            "check that this interpreter can import eqsat_opt"
        )

    def ask(
        self, header: Mapping[str, Any], blobs: Sequence[Any], limit_s: float
    ) -> Message | None:
        """Return the reply to a request; ``None`` if the process died or exceeded the limit."""
        return self._exchange((header, blobs), limit_s)

    def end(self, wait_s: float = 0.0) -> int:
        """End the process; return its exit code if it ended itself within ``wait_s``, else 0."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=wait_s)
        code = self.process.poll()
        self.process.kill()
        self.process.communicate()
        return code or 0

    def abandon(self) -> None:
        """Close the pipes of a child that belongs to another process, without ending it."""
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        self.process.returncode = 0  # its parent waits for it

    def _exchange(
        self, message: tuple[Mapping[str, Any], Sequence[Any]] | None, limit_s: float
    ) -> Message | None:
        process = self.process
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
            self.end()
            raise
        finally:
            timer.cancel()


def ending_text(code: int, elapsed_s: float, limit_s: float) -> str:
    """Describe the end of a process that gave no reply, as the verb phrase of a message.

    Args:
        code: the code that `Child.end` returned.
        elapsed_s: time since the request.
        limit_s: time limit of the reply.
    """
    if elapsed_s >= limit_s:
        return f"did not end within {limit_s:.0f} s"
    if code >= 0:
        return "ended the process"
    with suppress(ValueError):
        return f"ended the process ({signal.Signals(-code).name})"
    return f"ended the process (signal {-code})"


def resident_memory_bytes() -> int:
    """Return the memory that this process occupies, or its peak where only that is known."""
    with suppress(OSError, ValueError), open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return peak_memory_bytes()


def peak_memory_bytes() -> int:
    """Return the peak memory of this process, libraries included; 0 if unknown."""
    with suppress(OSError, ValueError), open("/proc/self/status", encoding="ascii") as file:
        # On Linux, getrusage includes the peak of the process that started this one.
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    if sys.platform != "darwin":
        return 0
    from resource import RUSAGE_SELF, getrusage

    return getrusage(RUSAGE_SELF).ru_maxrss  # bytes on macOS


def answer_requests(
    answer: Callable[[dict[str, Any], list[bytes]], tuple[Mapping[str, Any], Sequence[Any]]],
) -> None:
    """Answer requests on standard input until it closes; for the child process."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    requests = sys.stdin.buffer
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Output that a library prints must not mix with the replies.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    _write(replies, {}, ())
    while (request := _read(requests)) is not None:
        _write(replies, *answer(*request))


def end_with_parent() -> None:
    """End this process soon after its parent has ended, whatever this process is doing.

    Only a process that reads a pipe would notice that the parent no longer holds the other end.
    """
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os._exit(1)


def _write(stream: IO[bytes], header: Mapping[str, Any], blobs: Sequence[Any]) -> None:
    text = json.dumps([header, [len(blob) for blob in blobs]]).encode()
    stream.write(_LENGTH.pack(len(text)))
    stream.write(text)
    for blob in blobs:
        stream.write(blob)
    stream.flush()


def _read(stream: IO[bytes]) -> Message | None:
    """Read the next message; ``None`` at the end of the stream."""
    start = stream.read(_LENGTH.size)
    if len(start) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(start)
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
