"""What a device offers to an executor: memory, streams, events, launches and a clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from eqsat_opt.runtime.plan.places import Array
from eqsat_opt.runtime.plan.plan import Plan

__all__ = ["Captured", "Device", "Event", "Launched", "Memory", "Stream"]

Memory: TypeAlias = Any
"""A block of device memory: what views with offsets and strides are made of."""

Stream: TypeAlias = int
"""Launches of one stream run in the order in which they were queued."""

Event: TypeAlias = int
"""A point in a stream that other streams wait for."""

Launched: TypeAlias = Callable[[], object]
"""A kernel with its memory: what a backend builds once, and a device runs again and again."""

Captured: TypeAlias = Any
"""Work that was recorded instead of run."""


class Device(Protocol):
    """Executes what it is told; it decides nothing."""

    @property
    def name(self) -> str:
        """What plans call it: ``cpu``."""

    def alloc(self, size_bytes: int) -> Memory:
        """Memory, aligned to 256 bytes, of unknown contents."""

    def views(
        self, plan: Plan, arena: Memory, constants: Mapping[str, Array]
    ) -> Mapping[str, Array]:
        """The buffers of a plan by name: parts of its arena, and constants.

        Raises:
            RuntimeFailed: there is no room, or the device does not have an element type.
        """

    def upload(self, target: Array, value: Array) -> None:
        """Copy a value into a view of device memory, in order with stream 0."""

    def download(self, source: Array) -> Array:
        """A dense copy of a view of device memory, when all work before it is done."""

    def stream(self, number: Stream) -> Stream:
        """Open a stream; 0 is there from the beginning."""

    def event(self) -> Event:
        """A new event."""

    def record(self, event: Event, stream: Stream) -> None:
        """The event stands for all that was queued on the stream before."""

    def wait(self, event: Event, stream: Stream) -> None:
        """What is queued on the stream from now on begins after the event.

        Raises:
            RuntimeFailed: the event was not recorded yet, so it would order nothing.
        """

    def launch(self, work: Launched, stream: Stream) -> None:
        """Queue a kernel."""

    def capture(self, queue: Callable[[], None]) -> Captured:
        """Record what ``queue`` queues instead of running it."""

    def replay(self, captured: Captured) -> None:
        """Queue what was captured."""

    def synchronize(self) -> None:
        """Return when all work is done."""

    def clock(self) -> float:
        """Time on the device, in µs, from an arbitrary moment."""
