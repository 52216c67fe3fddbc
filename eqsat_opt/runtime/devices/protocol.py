"""Interface of devices to an executor: memory, streams, events, launches and a clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from eqsat_opt.runtime.plan.places import Array
from eqsat_opt.runtime.plan.plan import Plan

__all__ = ["Captured", "Device", "Event", "Launched", "Memory", "Stream"]

Memory: TypeAlias = Any
"""Block of device memory, from which views with offsets and strides are made."""

Stream: TypeAlias = int
"""Number of a stream; launches of one stream run in the order in which they were queued."""

Event: TypeAlias = int
"""Number of an event: a point in a stream that other streams can wait for."""

Launched: TypeAlias = Callable[[], object]
"""Kernel bound to its memory; a backend builds it once, and a device runs it many times."""

Captured: TypeAlias = Any
"""Captured work, recorded in order to be replayed."""


class Device(Protocol):
    """Executor of commands; all decisions are in the plan."""

    @property
    def name(self) -> str:
        """Name of the device in plans, such as ``cpu``."""

    def alloc(self, size_bytes: int) -> Memory:
        """Allocate memory of unknown contents, aligned to 256 bytes."""

    def views(
        self, plan: Plan, arena: Memory, constants: Mapping[str, Array]
    ) -> Mapping[str, Array]:
        """Return the buffers of a plan by name: parts of its arena, and constants.

        Raises:
            RuntimeFailed: memory does not suffice, or the device lacks an element type.
        """

    def upload(self, target: Array, value: Array) -> None:
        """Copy a value into a view of device memory, in order with stream 0."""

    def download(self, source: Array) -> Array:
        """Wait until all work before is done, then return a dense copy of a view of memory."""

    def stream(self, number: Stream) -> Stream:
        """Open a stream; stream 0 is open from the beginning."""

    def event(self) -> Event:
        """Create an event."""

    def record(self, event: Event, stream: Stream) -> None:
        """Record an event after all work queued on the stream so far."""

    def wait(self, event: Event, stream: Stream) -> None:
        """Make all work that is queued on the stream from now on wait for an event.

        Raises:
            RuntimeFailed: the event was not recorded yet, so it would order nothing.
        """

    def launch(self, work: Launched, stream: Stream) -> None:
        """Queue a kernel."""

    def capture(self, queue: Callable[[], None]) -> Captured:
        """Capture the work that ``queue`` queues."""

    def replay(self, captured: Captured) -> None:
        """Queue captured work."""

    def synchronize(self) -> None:
        """Wait until all work is done."""

    def clock(self) -> float:
        """Return the time on the device since an arbitrary moment, µs."""
