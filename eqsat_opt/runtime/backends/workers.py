"""Measurement of kernels in a child process, where one that hangs or crashes does no harm."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import Any

from eqsat_opt.common.child_processes import Child, answer_requests
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.devices.meters import open_meter
from eqsat_opt.runtime.measure import Measurement, metered

__all__ = ["KernelWorker", "MeasurementRequest", "measure_kernels", "serve"]

_DEADLINE_S = 20.0
_START_UP_S = 60.0
"""Time to start Python and load onnxruntime on a busy machine."""


@dataclass(frozen=True)
class MeasurementRequest:
    """A kernel to be measured: the name of a backend, and the request that the backend made."""

    backend: str
    content: bytes


class KernelWorker:
    """A child process that measures one kernel after another.

    The process starts at once, in the background, and is started again after a crash or a hang.
    Use it as a context manager, or call `close`. It is not for use by several threads at once.

    Args:
        deadline_s: time allowed for one kernel.
        meter: the place of a meter that measures the power while kernels run; empty for none.
    """

    def __init__(self, deadline_s: float = _DEADLINE_S, *, meter: str = "") -> None:
        self._deadline_s = deadline_s
        self._meter = meter
        self._child = _start()

    def measure(
        self,
        request: MeasurementRequest,
        threads: int,
        budget_s: float = 0.3,
        *,
        deadline: Deadline | None = None,
    ) -> Measurement | None:
        """Measure a kernel.

        Args:
            request: the kernel.
            threads: threads for its backend.
            budget_s: time for sampling.
            deadline: the time at which the caller goes on, measured or not.

        Returns:
            The measurement; None if the backend cannot run the kernel, crashes, or is not done in
            time.

        Raises:
            RuntimeFailed: the worker cannot be started.
        """
        if not self._child.is_alive:
            self.close()
            self._child = _start()
        start_s = _START_UP_S if deadline is None else min(_START_UP_S, deadline.left_s)
        if not self._child.is_ready(start_s):
            self.close()
            if deadline is not None and deadline.expired:
                return None
            raise self._child.not_ready()
        limit_s = self._deadline_s if deadline is None else min(self._deadline_s, deadline.left_s)
        message = {
            "backend": request.backend,
            "threads": threads,
            "budget_s": budget_s,
            "meter": self._meter,
        }
        reply = self._child.ask(message, (request.content,), limit_s)
        if reply is None:
            self.close()
            return None
        data = reply[0]["measurement"]
        return None if data is None else Measurement.from_json(data)

    def close(self) -> None:
        """End the process; a later `measure` starts a new one."""
        self._child.end()

    def __enter__(self) -> KernelWorker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _start() -> Child:
    return Child(__name__, "to measure kernels in")


def measure_kernels(
    requests: Sequence[MeasurementRequest],
    threads: int,
    progress: Callable[[int, int], None] | None = None,
    executor: Executor | None = None,
    *,
    worker: KernelWorker | None = None,
    deadline: Deadline | None = None,
) -> list[Measurement | None]:
    """Measure many kernels, one at a time so that they do not disturb each other.

    Args:
        requests: the kernels.
        threads: threads for their backends.
        progress: called with the number done and the total after each.
        executor: an executor that runs the measurements instead of a worker process, for instance
            on another machine. Its processes have to be alone on their cores.
        worker: a running worker to use, and to leave running; otherwise one is made for this call.
        deadline: the time at which to stop; it needs a `worker`.

    Returns:
        One entry per kernel, None if it failed; fewer if the deadline passed.

    Raises:
        RuntimeFailed: a measuring process cannot be started.
    """
    if executor is not None:
        futures = [executor.submit(_measured, request, threads) for request in requests]
        return _collect((_outcome(f) for f in futures), len(requests), progress)
    if worker is not None:
        outcomes = _until(deadline, worker, requests, threads)
        return _collect(outcomes, len(requests), progress)
    if not requests:
        return []
    with KernelWorker() as own:
        return measure_kernels(requests, threads, progress, worker=own)


def serve() -> None:
    """Answer requests for measurements in the child process."""
    from eqsat_opt.runtime.backends.ort import measuring  # loads onnxruntime before the greeting

    del measuring

    def answer(
        message: dict[str, Any], blobs: list[bytes]
    ) -> tuple[dict[str, Any], tuple[bytes, ...]]:
        request = MeasurementRequest(message["backend"], blobs[0])
        with _metered(message["meter"]):
            result = _measured(request, message["threads"], message["budget_s"])
        return {"measurement": None if result is None else result.to_json()}, ()

    answer_requests(answer)


def _metered(place: str) -> AbstractContextManager[None]:
    """Return a context in which measurements include the power, if a meter can be read here."""
    try:
        return metered(_opened_meter(place).read) if place else nullcontext()
    except RuntimeFailed:
        return nullcontext()


_opened_meter = cache(open_meter)


def _measured(
    request: MeasurementRequest, threads: int, budget_s: float = 0.3
) -> Measurement | None:
    from eqsat_opt.runtime.backends.registry import load_backend

    try:
        return load_backend(request.backend).measure(request.content, threads, budget_s)
    except Exception:  # a kernel that cannot be measured has no price
        return None


def _until(
    deadline: Deadline | None,
    worker: KernelWorker,
    requests: Iterable[MeasurementRequest],
    threads: int,
) -> Iterator[Measurement | None]:
    """Yield measurements until the deadline; one that it cut off is left out."""
    for request in requests:
        if deadline is not None and deadline.expired:
            return
        found = worker.measure(request, threads, deadline=deadline)
        if found is None and deadline is not None and deadline.expired:
            return
        yield found


def _outcome(future: Future[Measurement | None]) -> Measurement | None:
    try:
        return future.result(timeout=_DEADLINE_S)
    except Exception:  # after any error, the kernel has no price
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
