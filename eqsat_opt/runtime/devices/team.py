"""Threads that run the streams of a plan together, many times.

The caller's thread runs the first stream; each further stream has its own thread, which sleeps
between runs. Each wait for an event has its own lock, which is held from the beginning: the thread
that records the event releases it, and the thread that waits acquires it again. After a run all
locks are therefore in their initial state, and the next run allocates nothing. Waiting releases the
interpreter's lock, and so do kernels: streams compute at the same time although only one thread at
a time executes Python.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.devices.protocol import Launched

__all__ = ["LaunchStretch", "Team"]


@dataclass
class LaunchStretch:
    """Consecutive launches of one stream that wait for other streams only before the first one.

    Attributes:
        waits: locks of the events that it waits for.
        works: its launches.
        signals: locks of the stretches that wait for its end.
    """

    waits: list[threading.Lock] = field(default_factory=list)
    works: Sequence[Launched] = ()
    signals: list[threading.Lock] = field(default_factory=list)


class Team:
    """A thread for each program; all end with this object. Not for several callers at once.

    Args:
        programs: the stretches of each stream; the caller runs the first program. The waits must
            form no cycle, and each lock is released once and acquired once in a run.
    """

    def __init__(self, programs: Sequence[Sequence[LaunchStretch]]) -> None:
        waits = (lock for program in programs for one in program for lock in one.waits)
        self._common = _Common(tuple(waits))
        for lock in self._common.locks:
            lock.acquire()
        self._own = tuple(programs[0])
        self._members = tuple(_Member(tuple(program)) for program in programs[1:])
        self._end = weakref.finalize(self, _end_all, self._members)

    def run(self) -> None:
        """Run all programs once, concurrently; return when all have ended.

        An exception of a program is raised here, after the other programs have stopped: each
        finishes its current stretch first.

        Raises:
            RuntimeFailed: the system gives no further thread.
        """
        common = self._common
        self._recover()
        self._start_threads()
        try:
            for member in self._members:
                member.told += 1
                with suppress(RuntimeError):  # released by `_recover`, and not yet acquired
                    member.begin.release()
            common.run(self._own)
            self._settle()
        except BaseException as error:  # an interrupt outside of the programs
            common.stop(error)
            raise
        failure = common.error
        if failure is not None:
            self._recover()
            try:
                raise failure
            finally:
                del failure  # its traceback refers to this frame, which would keep the threads

    def _settle(self) -> None:
        for member in self._members:
            while member.served != member.told:
                member.done.acquire()

    def _recover(self) -> None:
        """Restore the initial state after a failure or an interrupt during a run."""
        common = self._common
        if not common.failed:
            return
        common.wake()
        for member in self._members:
            if member.served != member.told:
                with suppress(RuntimeError):
                    member.begin.release()  # an interrupt may have come before the release in `run`
        self._settle()
        for lock in common.locks:
            lock.acquire(blocking=False)
        common.failed, common.error = False, None

    def _start_threads(self) -> None:
        """Start the threads that do not run: all at first, and after a fork."""
        for number, member in enumerate(self._members, start=1):
            if member.thread is not None and member.thread.is_alive():
                continue
            thread = threading.Thread(
                target=_serve, args=(member, self._common), name=f"stream {number}", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:
                raise RuntimeFailed(
                    f"no thread can be started for stream {number} ({error}); plan with fewer "
                    "streams"
                ) from error
            member.thread = thread


@dataclass(eq=False)
class _Common:
    """State that all threads share.

    Attributes:
        locks: the locks of all waits.
        failed: whether a program has failed in this run.
        error: the first exception of this run.
    """

    locks: tuple[threading.Lock, ...]
    failed: bool = False
    error: BaseException | None = None
    _failing: threading.Lock = field(default_factory=threading.Lock)

    def run(self, program: Sequence[LaunchStretch]) -> None:
        """Run a program; keep its exception, if any, and stop the other programs."""
        try:
            for stretch in program:
                for lock in stretch.waits:
                    lock.acquire()
                if self.failed:
                    return
                for work in stretch.works:
                    work()
                for lock in stretch.signals:
                    lock.release()
        except BaseException as error:
            self.stop(error)

    def stop(self, error: BaseException) -> None:
        """Make all programs stop after a failure.

        A program that is about to release a lock may find it released by `wake`; the resulting
        error is ignored, since only the first one is kept.
        """
        with self._failing:
            if not self.failed:
                self.error, self.failed = error, True
        self.wake()

    def wake(self) -> None:
        """Release all locks, so that no program waits any longer."""
        for lock in self.locks:
            with suppress(RuntimeError):  # the lock is released already
                lock.release()


@dataclass(eq=False)
class _Member:
    """A thread, and its program in each run.

    Attributes:
        program: its stretches.
        told: number of runs that were requested so far.
        served: value of ``told`` for the last run that it has done.
        begin: lock that is released to wake the thread.
        done: lock that the thread releases when a run has ended.
        is_over: whether the thread must end.
        thread: the thread; ``None`` before it is started.
    """

    program: tuple[LaunchStretch, ...]
    told: int = 0
    served: int = 0
    begin: threading.Lock = field(default_factory=threading.Lock)
    done: threading.Lock = field(default_factory=threading.Lock)
    is_over: bool = False
    thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        self.begin.acquire()
        self.done.acquire()


def _serve(member: _Member, common: _Common) -> None:
    while True:
        member.begin.acquire()
        if member.is_over:
            return
        told = member.told
        if member.served != told:
            common.run(member.program)
            member.served = told
            with suppress(RuntimeError):  # still released from an earlier run
                member.done.release()


def _end_all(members: Sequence[_Member]) -> None:
    """End the threads; a thread that still runs a launch ends after it."""
    for member in members:
        member.is_over = True
        with suppress(RuntimeError):
            member.begin.release()
    for member in members:
        thread = member.thread
        is_idle = member.served == member.told and thread is not threading.current_thread()
        if is_idle and thread is not None:
            thread.join()
