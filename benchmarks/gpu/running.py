"""Does units in children, one after another: what crashes or hangs costs its own time only."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.gpu.results import Results
from benchmarks.gpu.unit import Unit
from eqsat_opt.common.child_processes import Child, ending_text
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.files import Scratch
from eqsat_opt.errors import EqsatError, RuntimeFailed

__all__ = ["Children", "children_of", "crew_of", "run_units"]

_WORKER = "benchmarks.gpu.worker"
_STARTS_S = 60.0
_UNITS = 200
"""Of one child: libraries keep what each of them has used."""

_LEAST_S = 0.2
"""With less time left nothing is begun."""

_LOG_BYTES = 2000

_ENDS_S = 0.5
"""For a process that is dying."""


def run_units(
    units: Sequence[Unit], results: Results, crew: Sequence[Children], deadline: Deadline
) -> list[Unit]:
    """Do the units that are not done yet: first what was not tried, by value.

    Args:
        units: of a step.
        results: where what became of them is told.
        crew: who does them, all at the same time.
        deadline: after which none goes on.

    Returns:
        What was left for want of time.

    Raises:
        StageError: the results that are there are of another device.
    """
    state = {unit.name: results.state_of(unit.name) for unit in units}
    waiting = deque(
        sorted(
            (unit for unit in units if state[unit.name] != "done"),
            key=lambda one: (bool(state[one.name]), -one.value),
        )
    )
    left: list[Unit] = []
    is_over = threading.Event()

    def work(children: Children) -> None:
        while not is_over.is_set():
            try:
                unit = waiting.popleft()
            except IndexError:
                return
            has_time = deadline.left_s >= max(_LEAST_S, unit.least_s)
            entry = children.do(unit, deadline) if has_time else None
            if is_over.is_set():
                return
            if entry is None:
                left.append(unit)
            else:
                results.add(unit.name, entry)

    with results.saved_regularly(), ThreadPoolExecutor(max(1, len(crew) - 1)) as pool:
        others = [pool.submit(work, children) for children in crew[1:]]
        try:
            work(crew[0])
            for one in others:
                one.result()
        finally:  # after an interruption nobody waits for a unit
            is_over.set()
            if any(not one.done() for one in others):
                for children in crew[1:]:
                    children.stop()
    return left


@contextmanager
def crew_of(bench: str, count: int) -> Iterator[Sequence[Children]]:
    """Several that do units at the same time; none is left in the end."""
    with ExitStack() as stack:
        yield [stack.enter_context(children_of(bench)) for _ in range(count)]


@contextmanager
def children_of(bench: str) -> Iterator[Children]:
    """One child after another, on a bench; none is left in the end."""
    with ExitStack() as stack:
        log = Path(os.devnull)
        with suppress(EqsatError):  # no room for one
            log = Path(stack.enter_context(Scratch())) / "log"
        children = Children(bench, log)
        stack.callback(children.end)
        yield children


class Children:
    """One child at a time, which does units until one of them ends it.

    Args:
        bench: on which they do them.
        log: a file for what they write beside their replies.
    """

    def __init__(self, bench: str, log: Path) -> None:
        self._bench, self._log = bench, log
        self._child: Child | None = None
        self._done = 0

    def do(self, unit: Unit, deadline: Deadline) -> dict[str, Any] | None:
        """What became of a unit; nothing if there was less time for it than it may take."""
        begin = time.monotonic()
        try:
            child = self._ready(deadline)
        except RuntimeFailed as error:
            return None if deadline.expired else {"state": "failed", "why": str(error)}
        entry = self._entry(child, unit, deadline)
        return entry and {**entry, "took_s": round(time.monotonic() - begin, 3)}

    def _entry(self, child: Child, unit: Unit, deadline: Deadline) -> dict[str, Any] | None:
        begin, limit_s = time.monotonic(), min(unit.deadline_s, deadline.left_s)
        told = replace(unit, deadline_s=limit_s).to_json()
        reply = _asked(child, {"unit": told, "bench": self._bench}, limit_s)
        if reply is None:
            elapsed_s = time.monotonic() - begin
            code = _ended(child, _ENDS_S)
            self._child = None
            is_late = elapsed_s >= limit_s
            if is_late and limit_s < unit.deadline_s:
                return None
            why = ending_text(code, elapsed_s, limit_s)
            return {"state": "stopped" if is_late else "crashed", "why": why, **self._said()}
        self._done += 1
        if reply.pop("is_spent", False) or self._done >= _UNITS:
            self.end()
        return reply

    def _ready(self, deadline: Deadline) -> Child:
        """A child that waits for a unit.

        Raises:
            RuntimeFailed: none can be started.
        """
        if self._child is not None and self._child.is_alive:
            return self._child
        child = Child(_WORKER, "for a unit")
        limit_s = min(_STARTS_S, max(deadline.left_s, 1.0))
        if (
            not child.is_ready(limit_s)
            or _asked(child, {"log": os.fspath(self._log)}, limit_s) is None
        ):
            _ended(child)
            raise child.not_ready()
        self._child, self._done = child, 0
        return child

    def _said(self) -> dict[str, str]:
        """The last that a process which ended has written."""
        try:
            text = self._log.read_bytes()[-_LOG_BYTES:].decode(errors="replace").strip()
        except OSError:
            return {}
        return {"said": text} if text else {}

    def stop(self) -> None:
        """Kill the child, for another thread than the one that waits for it."""
        child = self._child
        if child is not None:
            _end_all(child)

    def end(self) -> None:
        """End the child, if there is one."""
        if self._child is not None:
            _ended(self._child)
            self._child = None


def _end_all(child: Child) -> None:
    """End a child and what it has started, which may hold the pipe to us."""
    with suppress(OSError, AttributeError):  # it has no group yet, or there are none on this system
        os.killpg(child.process.pid, signal.SIGKILL)


def _ended(child: Child, wait_s: float = 0.0) -> int:
    """How a child ended; by itself, if it did within this time."""
    with suppress(subprocess.TimeoutExpired):
        child.process.wait(timeout=wait_s)
    _end_all(child)
    return child.end()


def _asked(child: Child, request: dict[str, Any], limit_s: float) -> dict[str, Any] | None:
    """The reply, or nothing where there is none that makes sense."""
    timer = threading.Timer(limit_s, _end_all, (child,))
    timer.start()
    try:
        reply = child.ask(request, (), limit_s)
    except (ValueError, TypeError):  # what came was no message
        return None
    finally:
        timer.cancel()
    if reply is None or not isinstance(reply[0], dict):
        return None
    return reply[0] if "log" in request or "state" in reply[0] else None
