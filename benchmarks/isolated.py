"""Tasks in processes of their own, so that a crash or a hang of one is a result and not the end."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

__all__ = ["Attempt", "attempt", "fresh"]

_EXIT_LIMIT_S = 5.0
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_MAX_REASON = 160


@dataclass(frozen=True)
class Attempt:
    """What became of a task in a process of its own: its value, or why there is none."""

    value: Any = None
    failure: str = ""


def attempt(
    task: Callable[..., Any], *args: Any, limit_s: float, preload: Sequence[str] = ()
) -> Attempt:
    """Run `task(*args)` in a fresh silent process, so that a crash or a hang is only a result.

    Modules of `preload` are imported once, in a server that such processes are forked from: a
    library that takes seconds to import then costs them once for all tasks.
    """
    context = _context(preload)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run_and_send, args=(sender, task, args))
    process.start()
    sender.close()
    grace_s = 0.0
    try:
        if not receiver.poll(limit_s):
            return Attempt(failure=f"stopped after {limit_s:.0f} s")
        grace_s = _EXIT_LIMIT_S
        outcome = receiver.recv()
    except EOFError:
        process.join(grace_s)
        outcome = Attempt(failure=f"crashed ({_exit_reason(process.exitcode)})")
    finally:
        process.join(grace_s)
        if process.is_alive():
            _kill(process)
    return outcome if isinstance(outcome, Attempt) else Attempt(failure="sent no result")


def fresh(task: Callable[..., Any], *args: Any, limit_s: float = 600.0) -> Any:
    """What `task(*args)` returns in a fresh process; the benchmark ends where there is nothing."""
    outcome = attempt(task, *args, limit_s=limit_s)
    if outcome.failure:
        raise SystemExit(f"{task.__name__.lstrip('_')} of {args} failed: {outcome.failure}")
    return outcome.value


def _context(preload: Sequence[str]) -> Any:
    if not preload or "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    return context


def _kill(process: BaseProcess) -> None:
    """End a process and those that it started."""
    try:
        if process.pid:
            os.killpg(process.pid, signal.SIGKILL)
    except (AttributeError, OSError):  # no process groups here, or its own is not made yet
        process.kill()
    process.join()


def _run_and_send(sender: Connection, task: Callable[..., Any], args: Sequence[Any]) -> None:
    if hasattr(os, "setsid"):
        os.setsid()
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    warnings.simplefilter("ignore")
    try:
        outcome = Attempt(task(*args))
    except Exception as error:
        outcome = Attempt(failure=_reason(error))
    sender.send(outcome)


def _exit_reason(code: int | None) -> str:
    if code is not None and code < 0:
        return signal.Signals(-code).name
    return f"exit code {code}"


def _reason(error: BaseException) -> str:
    """One line about the innermost cause; exporters wrap it in pages of advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = _ANSI.sub("", str(error)).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__
    return text if len(text) <= _MAX_REASON else text[: _MAX_REASON - 1] + "…"
