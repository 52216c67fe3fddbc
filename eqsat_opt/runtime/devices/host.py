"""The processor that Python runs on: memory of NumPy, launches that run when they are queued.

Streams are names only: what is queued runs at once, which is one of the orders that a checked plan
allows. Others are tried by the interpreter of plans, and `eqsat_opt.runtime.devices.threaded` has a
thread for each stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.devices.calls import joined
from eqsat_opt.runtime.devices.protocol import Captured, Event, Launched, Memory, Stream
from eqsat_opt.runtime.plan.places import Array, aligned_memory, array_of
from eqsat_opt.runtime.plan.plan import Plan

__all__ = ["HostDevice", "processor_us"]


def processor_us() -> float:
    """Time that this process has run, µs: on a busy machine it says what work takes.

    All its threads count, since a runtime of one thread may have that thread for itself (OpenVINO).
    """
    return time.process_time_ns() / 1e3


class HostDevice:
    """NumPy memory; one launch at a time."""

    name = "cpu"

    def __init__(self) -> None:
        self._events = 0
        self._recorded: set[Event] = set()
        self._capturing: list[Launched] | None = None

    def alloc(self, size_bytes: int) -> Memory:
        """Memory of unknown contents.

        Raises:
            RuntimeFailed: there is not so much.
        """
        try:
            return aligned_memory(size_bytes)
        except (MemoryError, ValueError) as error:
            raise RuntimeFailed(
                f"cannot allocate an arena of {size_bytes} bytes; free some memory, or plan for "
                "smaller sizes"
            ) from error

    def views(
        self, plan: Plan, arena: Memory, constants: Mapping[str, Array]
    ) -> Mapping[str, Array]:
        """Arrays that share memory with the arena and with constants."""
        return {b.name: array_of(plan, b.name, arena, constants) for b in plan.buffers}

    def upload(self, target: Array, value: Array) -> None:
        """Copy at once."""
        np.copyto(target, value)

    def download(self, source: Array) -> Array:
        """A dense copy."""
        return np.array(source, order="C")

    def stream(self, number: Stream) -> Stream:
        """Nothing to open."""
        return number

    def event(self) -> Event:
        """The next number."""
        self._events += 1
        return self._events - 1

    def record(self, event: Event, stream: Stream) -> None:
        """All that was queued has run."""
        self._recorded.add(event)

    def wait(self, event: Event, stream: Stream) -> None:
        """Nothing to wait for.

        Raises:
            RuntimeFailed: the event was not recorded yet.
        """
        if event not in self._recorded:
            raise RuntimeFailed(f"event {event} is waited for on stream {stream}, not yet recorded")

    def launch(self, work: Launched, stream: Stream) -> None:
        """Run it, or remember it while a capture is under way."""
        if self._capturing is None:
            work()
        else:
            self._capturing.append(work)

    def capture(self, queue: Callable[[], None]) -> Captured:
        """The launches that ``queue`` queues, in their order; compiled neighbours are one call."""
        self._capturing = []
        try:
            queue()
            return tuple(joined(self._capturing))
        finally:
            self._capturing = None

    def replay(self, captured: Captured) -> None:
        """Run them again."""
        for work in captured:
            work()

    def synchronize(self) -> None:
        """All has run."""

    def clock(self) -> float:
        """Time of this process's steady clock, µs."""
        return time.perf_counter_ns() / 1e3
