"""The processor that Python runs on, with a thread for each stream.

A kernel runs on one thread, as everywhere in plans, so streams are what makes a plan use several
cores (inter-op parallelism). Which launches may run at the same time is what streams and events of
the plan say; what the checker of plans lets pass computes the same in whatever order they run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.devices.calls import joined
from eqsat_opt.runtime.devices.host import HostDevice
from eqsat_opt.runtime.devices.protocol import Event, Launched, Stream
from eqsat_opt.runtime.devices.team import Stretch, Team

__all__ = ["ThreadedHost"]


@dataclass
class _Queue:
    """What is captured of one stream; the last stretch is open until an event is recorded."""

    stretches: list[Stretch] = field(default_factory=list)
    works: list[Launched] = field(default_factory=list)
    is_open: bool = False

    def close(self) -> None:
        """What is queued from now on is no part of the last stretch."""
        if self.works:
            self.stretches[-1].works = tuple(joined(self.works))
            self.works = []
        self.is_open = False

    def opened(self) -> Stretch:
        """The stretch that comes last, whose launches may still be queued."""
        if not self.is_open:
            self.stretches.append(Stretch())
            self.is_open = True
        return self.stretches[-1]


class ThreadedHost(HostDevice):
    """Memory of the host, and streams that run when they are replayed.

    Outside of a capture one launch runs at a time, as on a `HostDevice`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._queues: dict[Stream, _Queue] | None = None
        self._after: dict[Event, Stretch | None] = {}

    def record(self, event: Event, stream: Stream) -> None:
        """It is recorded when all launches before it on the stream have ended."""
        super().record(event, stream)
        if self._queues is not None:
            queue = self._queue(stream)
            queue.close()
            # What stands for nothing is recorded before anything runs.
            self._after[event] = queue.stretches[-1] if queue.stretches else None

    def wait(self, event: Event, stream: Stream) -> None:
        """What is queued on the stream from now on waits for it.

        Raises:
            RuntimeFailed: the event was not recorded yet, or outside of this capture.
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
        """Queue it while a capture is under way; otherwise run it."""
        if self._queues is None:
            work()
            return
        queue = self._queue(stream)
        queue.opened()
        queue.works.append(work)

    def capture(self, queue: Callable[[], None]) -> Team:
        """The launches that ``queue`` queues, by stream; compiled neighbours are one call."""
        self._queues, self._after = {0: _Queue()}, {}
        try:
            queue()
            for one in self._queues.values():
                one.close()
            return Team([one.stretches for _, one in sorted(self._queues.items())])
        finally:
            self._queues, self._after = None, {}

    def replay(self, captured: Team) -> None:
        """Run them on their threads; all have ended when this returns."""
        captured.run()

    def _queue(self, stream: Stream) -> _Queue:
        assert self._queues is not None
        return self._queues.setdefault(stream, _Queue())
