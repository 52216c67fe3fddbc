"""The processor that Python runs on, with a thread for each stream.

Each kernel of a plan runs on one thread, so a plan uses several cores only through streams
(inter-op parallelism). Streams and events of the plan determine which launches may run at the same
time; a plan that passes the check computes the same in every such order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.devices.calls import joined
from eqsat_opt.runtime.devices.host import HostDevice
from eqsat_opt.runtime.devices.protocol import Event, Launched, Stream
from eqsat_opt.runtime.devices.team import LaunchStretch, Team

__all__ = ["ThreadedHost"]


@dataclass
class _Queue:
    """Captured launches of one stream; the last stretch is open until an event is recorded."""

    stretches: list[LaunchStretch] = field(default_factory=list)
    works: list[Launched] = field(default_factory=list)
    is_open: bool = False

    def close(self) -> None:
        """Close the last stretch, so that later launches belong to a new one."""
        if self.works:
            self.stretches[-1].works = tuple(joined(self.works))
            self.works = []
        self.is_open = False

    def opened(self) -> LaunchStretch:
        """Return the open stretch at the end; a new one if the last is closed."""
        if not self.is_open:
            self.stretches.append(LaunchStretch())
            self.is_open = True
        return self.stretches[-1]


class ThreadedHost(HostDevice):
    """Memory of the host, and streams that run when they are replayed.

    Outside of a capture one launch runs at a time, as on a `HostDevice`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._queues: dict[Stream, _Queue] | None = None
        self._after: dict[Event, LaunchStretch | None] = {}

    def record(self, event: Event, stream: Stream) -> None:
        """Record an event after all launches before it on the stream."""
        super().record(event, stream)
        if self._queues is not None:
            queue = self._queue(stream)
            queue.close()
            # An event without launches before it counts as recorded from the beginning.
            self._after[event] = queue.stretches[-1] if queue.stretches else None

    def wait(self, event: Event, stream: Stream) -> None:
        """Make all work that is queued on the stream from now on wait for an event.

        Raises:
            RuntimeFailed: the event was not recorded yet, or was recorded outside of this capture.
        """
        super().wait(event, stream)
        if self._queues is None:
            return
        if event not in self._after:
            raise RuntimeFailed(f"event {event} was recorded before what is captured")
        recorded = self._after[event]
        if recorded is None:
            return
        queue = self._queue(stream)
        if queue.works:
            queue.close()
        lock = threading.Lock()
        queue.opened().waits.append(lock)
        recorded.signals.append(lock)

    def launch(self, work: Launched, stream: Stream) -> None:
        """Add a launch to the capture in progress, or run it if there is none."""
        if self._queues is None:
            work()
            return
        queue = self._queue(stream)
        queue.opened()
        queue.works.append(work)

    def capture(self, queue: Callable[[], None]) -> Team:
        """Capture the launches that ``queue`` queues, by stream, with native calls merged."""
        self._queues, self._after = {0: _Queue()}, {}
        try:
            queue()
            for one in self._queues.values():
                one.close()
            return Team([one.stretches for _, one in sorted(self._queues.items())])
        finally:
            self._queues, self._after = None, {}

    def replay(self, captured: Team) -> None:
        """Run captured launches on their threads; return when all have ended."""
        captured.run()

    def _queue(self, stream: Stream) -> _Queue:
        assert self._queues is not None
        return self._queues.setdefault(stream, _Queue())
