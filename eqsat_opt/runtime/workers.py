"""Measure kernels in a child process, where one that hangs or crashes does no harm."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from types import TracebackType
from typing import IO

import onnx

from eqsat_opt.children import end_with_parent
from eqsat_opt.deadline import Deadline
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.measure import Measurement

__all__ = ["KernelWorker", "measure_kernels", "serve"]

_DEADLINE_S = 20.0
# Starting Python and loading onnxruntime, on a busy machine.
_START_UP_S = 60.0
_HEADER = struct.Struct("<qd")  # threads, budget in seconds; the model follows
_LENGTH = struct.Struct("<Q")
# A plain interpreter and not multiprocessing, which would import the caller's script again.
_PROGRAM = (
    "import json, sys\n"
    "sys.path[:] = json.loads(sys.argv[1])\n"
    "from eqsat_opt.runtime.workers import serve\n"
    "serve()\n"
)


class KernelWorker:
    """A child process that measures one kernel after another.

    The process starts at once, in the background, and is started again after a crash or a hang.
    Use it as a context manager, or call `close`. Not for use by several threads at once.

    Args:
        deadline_s: Time allowed for one kernel.
    """

    def __init__(self, deadline_s: float = _DEADLINE_S) -> None:
        self._deadline_s = deadline_s
        self._process: subprocess.Popen[bytes] | None = None
        self._is_warm = False
        self._start()

    def measure(
        self,
        model: bytes,
        threads: int,
        budget_s: float = 0.3,
        *,
        deadline: Deadline | None = None,
    ) -> Measurement | None:
        """Measure a serialised one-kernel model.

        Args:
            model: The kernel.
            threads: Threads for onnxruntime.
            budget_s: Time for sampling.
            deadline: When the caller wants to go on, measured or not.

        Returns:
            None if onnxruntime cannot run it, crashes, or is not done in time.

        Raises:
            RuntimeFailed: the worker cannot be started.
        """
        if self._process is None:
            self._start()
        process = self._process
        assert process is not None
        left_s = _START_UP_S if deadline is None else min(_START_UP_S, deadline.left_s)
        if not self._is_warm:
            hello = self._exchange(process, None, left_s)
            if hello is None:
                self.close()
                if deadline is not None and deadline.expired:
                    return None
                raise RuntimeFailed(
                    f"cannot start a measuring process with {sys.executable!r}; "
                    "check that this interpreter can import eqsat_opt"
                )
            self._is_warm = True
        limit_s = self._deadline_s if deadline is None else min(self._deadline_s, deadline.left_s)
        reply = self._exchange(process, _HEADER.pack(threads, budget_s) + model, limit_s)
        if reply is None:
            self.close()
            return None
        data = json.loads(reply)
        return None if data is None else Measurement.from_json(data)

    def close(self) -> None:
        """End the process; a later `measure` starts a new one."""
        process, self._process, self._is_warm = self._process, None, False
        if process is not None:
            process.kill()
            process.communicate()

    def __enter__(self) -> KernelWorker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _start(self) -> None:
        path = [entry or os.getcwd() for entry in sys.path]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, json.dumps(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            raise RuntimeFailed(
                f"cannot start a measuring process ({error.strerror or error}); "
                "free some memory or processes and try again"
            ) from error

    def _exchange(
        self, process: subprocess.Popen[bytes], message: bytes | None, deadline_s: float
    ) -> bytes | None:
        """Send a message and wait for the reply; None if the process died, or had to be killed."""
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(deadline_s, process.kill)
        timer.daemon = True
        timer.start()
        try:
            if message is not None:
                _write_frame(process.stdin, message)
            return _read_frame(process.stdout)
        except OSError:  # a broken pipe: it died before it had read everything
            return None
        except BaseException:  # Ctrl-C: a late reply must not answer the next request
            self.close()
            raise
        finally:
            timer.cancel()


def measure_kernels(
    models: Sequence[bytes],
    threads: int,
    progress: Callable[[int, int], None] | None = None,
    executor: Executor | None = None,
    *,
    worker: KernelWorker | None = None,
    deadline_s: float = _DEADLINE_S,
    deadline: Deadline | None = None,
) -> list[Measurement | None]:
    """Measure many kernels, one at a time so that they do not disturb each other.

    Args:
        models: Serialised one-kernel models.
        threads: Threads for onnxruntime.
        progress: Called with the number done and the total after each.
        executor: Runs the measurements instead of a worker process, for instance on another
            machine. Its processes have to be alone on their cores.
        worker: A running worker to use, and to leave running; otherwise one is made for this call.
        deadline_s: Time allowed for one kernel, where no `worker` is given.
        deadline: When to stop, with a `worker`.

    Returns:
        One entry per model, None if it failed; fewer if the deadline struck.

    Raises:
        RuntimeFailed: a measuring process cannot be started.
    """
    if executor is not None:
        futures = [executor.submit(_measure_serialised, model, threads) for model in models]
        return _collect((_outcome(f, deadline_s) for f in futures), len(models), progress)
    if worker is not None:
        outcomes = _until(deadline, worker, models, threads)
        return _collect(outcomes, len(models), progress)
    if not models:
        return []
    with KernelWorker(deadline_s) as own:
        return measure_kernels(models, threads, progress, worker=own)


def serve() -> None:
    """Answer requests on standard input until it closes: the life of the child process."""
    import signal

    from eqsat_opt.runtime import kernels  # loads onnxruntime before the greeting

    del kernels
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    requests = sys.stdin.buffer
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Whatever a library prints must not mix with the replies.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    _write_frame(replies, b"null")
    while (request := _read_frame(requests)) is not None:
        threads, budget_s = _HEADER.unpack_from(request)
        result = _measure_serialised(request[_HEADER.size :], threads, budget_s)
        _write_frame(replies, json.dumps(None if result is None else result.to_json()).encode())


def _measure_serialised(model: bytes, threads: int, budget_s: float = 0.3) -> Measurement | None:
    from eqsat_opt.runtime.kernels import measure_kernel

    try:
        return measure_kernel(onnx.load_model_from_string(model), threads, budget_s=budget_s)
    except Exception:  # a kernel that defeats the measuring code is a kernel without a price
        return None


def _until(
    deadline: Deadline | None, worker: KernelWorker, models: Iterable[bytes], threads: int
) -> Iterator[Measurement | None]:
    """Measurements until the deadline; one that it cut off says nothing of its kernel."""
    for model in models:
        if deadline is not None and deadline.expired:
            return
        found = worker.measure(model, threads, deadline=deadline)
        if found is None and deadline is not None and deadline.expired:
            return
        yield found


def _outcome(future: Future[Measurement | None], deadline_s: float) -> Measurement | None:
    try:
        return future.result(timeout=deadline_s)
    except Exception:  # whatever went wrong there, this kernel has no price
        future.cancel()
        return None


def _collect(
    outcomes: Iterable[Measurement | None],
    total: int,
    progress: Callable[[int, int], None] | None,
) -> list[Measurement | None]:
    results: list[Measurement | None] = []
    for outcome in outcomes:
        results.append(outcome)
        if progress is not None:
            progress(len(results), total)
    return results


def _write_frame(stream: IO[bytes], data: bytes) -> None:
    stream.write(_LENGTH.pack(len(data)))
    stream.write(data)
    stream.flush()


def _read_frame(stream: IO[bytes]) -> bytes | None:
    header = stream.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(header)
    data = stream.read(length)
    return data if len(data) == length else None
