"""Threads that run the streams of a plan together, again and again.

The caller's thread is the first of them; each further stream has one of its own, which waits for
the next run in between. Who waits for an event has a lock for it: it is held from the beginning,
who records the event releases it, and who waits acquires it again. So after a run all locks are as
they were before, and nothing is allocated for the next one. Waiting gives the interpreter's lock
away, and so do kernels: streams compute at the same time although one at a time is in Python.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.devices.protocol import Launched

__all__ = ["Stretch", "Team"]


@dataclass
class Stretch:
    """Launches of one stream that run one after another, whatever other streams do.

    Attributes:
        waits: locks of what it waits for.
        works: its launches.
        signals: locks of those who wait for its end.
    """

    waits: list[threading.Lock] = field(default_factory=list)
    works: Sequence[Launched] = ()
    signals: list[threading.Lock] = field(default_factory=list)


class Team:
    """A thread for each program; all end with this object. Not for several callers at once.

    Args:
        programs: the stretches of each stream, of which the caller runs the first. No two wait for
            each other in a circle, and each lock is released once and waited for once.
    """

    def __init__(self, programs: Sequence[Sequence[Stretch]]) -> None:
        waits = (lock for program in programs for one in program for lock in one.waits)
        self._common = _Common(tuple(waits))
        for lock in self._common.locks:
            lock.acquire()
        self._own = tuple(programs[0])
        self._members = tuple(_Member(tuple(program)) for program in programs[1:])
        self._end = weakref.finalize(self, _end_all, self._members)

    def run(self) -> None:
        """Run all programs once, side by side; return when all have ended.

        What one of them raises is raised here, after the others have stopped: each ends the stretch
        in which it is.

        Raises:
            RuntimeFailed: the system gives no further thread.
        """
        common = self._common
        self._recover()
        self._start_threads()
        try:
            for member in self._members:
                member.told += 1
                with suppress(RuntimeError):  # it was to look after a failure, and has not yet
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
                del failure  # it knows this frame, which would keep the threads

    def _settle(self) -> None:
        for member in self._members:
            while member.served != member.told:
                member.done.acquire()

    def _recover(self) -> None:
        """After a failure, or an interrupt in the middle of a run: make all as at the beginning."""
        common = self._common
        if not common.failed:
            return
        common.wake()
        for member in self._members:
            if member.served != member.told:
                with suppress(RuntimeError):
                    member.begin.release()  # it may have been told and not been woken
        self._settle()
        for lock in common.locks:
            lock.acquire(blocking=False)
        common.failed, common.error = False, None

    def _start_threads(self) -> None:
        """Those that do not run: all at first, and in a process that was forked from this one."""
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
    """What all threads share.

    Attributes:
        locks: all that somebody waits for.
        failed: whether something has failed in this run.
        error: what came first.
    """

    locks: tuple[threading.Lock, ...]
    failed: bool = False
    error: BaseException | None = None
    _failing: threading.Lock = field(default_factory=threading.Lock)

    def run(self, program: Sequence[Stretch]) -> None:
        """Run a program; what it raises is kept, and stops the others."""
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
        """Let everybody stop.

        Who is just recording an event may find it recorded by `wake`; that is no failure of its
        own.
        """
        with self._failing:
            if not self.failed:
                self.error, self.failed = error, True
        self.wake()

    def wake(self) -> None:
        """Let nobody wait any longer."""
        for lock in self.locks:
            with suppress(RuntimeError):  # it is released already
                lock.release()


@dataclass(eq=False)
class _Member:
    """A thread, and what it does in each run.

    Attributes:
        program: its stretches.
        told: how often it was told to run.
        served: which of these it has done last.
        begin: released when it is told, or shall look.
        done: released by it when a run has ended.
        is_over: whether it shall end.
        thread: as soon as there is one.
    """

    program: tuple[Stretch, ...]
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
            with suppress(RuntimeError):  # nobody has looked since the last time
                member.done.release()


def _end_all(members: Sequence[_Member]) -> None:
    """Let the threads end; one that is still in a launch ends after it."""
    for member in members:
        member.is_over = True
        with suppress(RuntimeError):
            member.begin.release()
    for member in members:
        thread = member.thread
        is_idle = member.served == member.told and thread is not threading.current_thread()
        if is_idle and thread is not None:
            thread.join()
