"""A device that logs all calls, so that tests can compare them with a schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from eqsat_opt.runtime.devices import HOST
from eqsat_opt.runtime.devices.host import HostDevice
from eqsat_opt.runtime.devices.protocol import Captured, Event, Launched, Memory, Stream
from eqsat_opt.runtime.plan.places import Array
from eqsat_opt.runtime.plan.plan import Plan

__all__ = ["RecordingDevice"]


class RecordingDevice:
    """A device that runs everything on a `HostDevice`, and keeps a log.

    Attributes:
        log: calls as tuples: ``("launch", name, stream)``, ``("record", event, stream)``,
            ``("wait", event, stream)``, ``("alloc", bytes)``, ``("upload", bytes)`` and so on.
            A launch has the ``name`` of its work, if it has one.
    """

    name = HOST

    def __init__(self) -> None:
        self.log: list[tuple[object, ...]] = []
        self._host = HostDevice()

    def alloc(self, size_bytes: int) -> Memory:
        """Allocate memory; the log has its bytes."""
        self.log.append(("alloc", size_bytes))
        return self._host.alloc(size_bytes)

    def views(
        self, plan: Plan, arena: Memory, constants: Mapping[str, Array]
    ) -> Mapping[str, Array]:
        """Return the buffers of a plan; not logged, because no data move."""
        return self._host.views(plan, arena, constants)

    def upload(self, target: Array, value: Array) -> None:
        """Copy a value to a view; the log has its bytes."""
        self.log.append(("upload", value.nbytes))
        self._host.upload(target, value)

    def download(self, source: Array) -> Array:
        """Return a dense copy of a view; the log has its bytes."""
        self.log.append(("download", source.nbytes))
        return self._host.download(source)

    def stream(self, number: Stream) -> Stream:
        """Open a stream; the log has its number."""
        self.log.append(("stream", number))
        return self._host.stream(number)

    def event(self) -> Event:
        """Create an event; the log has its number."""
        event = self._host.event()
        self.log.append(("event", event))
        return event

    def record(self, event: Event, stream: Stream) -> None:
        """Record an event; the log has event and stream."""
        self.log.append(("record", event, stream))
        self._host.record(event, stream)

    def wait(self, event: Event, stream: Stream) -> None:
        """Wait for an event; the log has event and stream."""
        self.log.append(("wait", event, stream))
        self._host.wait(event, stream)

    def launch(self, work: Launched, stream: Stream) -> None:
        """Run a launch; the log has the name of its work and the stream."""
        self.log.append(("launch", getattr(work, "name", ""), stream))
        self._host.launch(work, stream)

    def capture(self, queue: Callable[[], None]) -> Captured:
        """Capture work; the log marks begin and end, with the number of captured calls."""
        self.log.append(("capture",))
        captured = self._host.capture(queue)
        self.log.append(("captured", len(captured)))
        return captured

    def replay(self, captured: Captured) -> None:
        """Run captured work; the log has the number of captured calls."""
        self.log.append(("replay", len(captured)))
        self._host.replay(captured)

    def synchronize(self) -> None:
        """Wait until all work is done, and log it."""
        self.log.append(("synchronize",))
        self._host.synchronize()

    def clock(self) -> float:
        """Return the time, µs; not logged, because it changes nothing."""
        return self._host.clock()
