"""The processor that Python runs on: memory of NumPy, launches that run when they are queued.

Streams are names only: a launch runs as soon as it is queued, which is one of the orders that a
checked plan allows. The interpreter of plans tries other orders, and
`eqsat_opt.runtime.devices.threaded` has a thread for each stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.devices import HOST
from eqsat_opt.runtime.devices.calls import joined
from eqsat_opt.runtime.devices.protocol import Captured, Event, Launched, Memory, Stream
from eqsat_opt.runtime.plan.places import Array, aligned_memory, array_of
from eqsat_opt.runtime.plan.plan import Plan

__all__ = ["HostDevice", "processor_us"]


def processor_us() -> float:
    """Return the processor time of this process, µs, which measures work even on a busy machine.

    The time of all threads counts, since a runtime of one thread may run on a thread of its own
    (OpenVINO).
    """
    return time.process_time_ns() / 1e3


class HostDevice:
    """NumPy memory; one launch at a time."""

    name = HOST

    def __init__(self) -> None:
        self._events = 0
        self._recorded: set[Event] = set()
        self._capturing: list[Launched] | None = None

    def alloc(self, size_bytes: int) -> Memory:
        """Allocate memory of unknown contents.

        Raises:
            RuntimeFailed: memory does not suffice.
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
        """Return the buffers of a plan as arrays that share memory with the arena and constants."""
        return {b.name: array_of(plan, b.name, arena, constants) for b in plan.buffers}

    def upload(self, target: Array, value: Array) -> None:
        """Copy a value at once."""
        np.copyto(target, value)

    def download(self, source: Array) -> Array:
        """Return a dense copy."""
        return np.array(source, order="C")

    def stream(self, number: Stream) -> Stream:
        """Return the number; there is nothing to open."""
        return number

    def event(self) -> Event:
        """Create an event and return its number."""
        self._events += 1
        return self._events - 1

    def record(self, event: Event, stream: Stream) -> None:
        """Mark an event as recorded: all queued work has run already."""
        self._recorded.add(event)

    def wait(self, event: Event, stream: Stream) -> None:
        """Check that an event was recorded; there is nothing to wait for.

        Raises:
            RuntimeFailed: the event was not recorded yet.
        """
        if event not in self._recorded:
            raise RuntimeFailed(f"event {event} is waited for on stream {stream}, not yet recorded")

    def launch(self, work: Launched, stream: Stream) -> None:
        """Run a launch, or add it to a capture in progress."""
        if self._capturing is None:
            work()
        else:
            self._capturing.append(work)

    def capture(self, queue: Callable[[], None]) -> Captured:
        """Return the launches that ``queue`` queues, with consecutive native calls merged."""
        self._capturing = []
        try:
            queue()
            return tuple(joined(self._capturing))
        finally:
            self._capturing = None

    def replay(self, captured: Captured) -> None:
        """Run captured launches."""
        for work in captured:
            work()

    def synchronize(self) -> None:
        """Do nothing: all queued work has run already."""

    def clock(self) -> float:
        """Return the time of a monotonic clock, µs."""
        return time.perf_counter_ns() / 1e3
