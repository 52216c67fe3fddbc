"""Signal handlers: SIGTERM and SIGHUP end a command as Ctrl-C does, with all clean-up."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from eqsat_opt.cli.session import Session
from eqsat_opt.common.files import remove_unfinished

__all__ = ["ended_by", "ending_signals"]

_GRACE_S = 5.0
"""Seconds for clean-up, after which the process ends: a library may block, or swallow an error."""

_DONE = b"\0"


@contextmanager
def ending_signals(session: Session, *, owns_process: bool) -> Iterator[None]:
    """Turn signals that end a process into an interruption, and record them in the session.

    Args:
        session: session of this run; its ``signal`` is set.
        owns_process: whether the process ends after the block. Signals that come later then end it
            at once; otherwise their default handlers are restored.
    """
    numbers = [n for n in _ending() if signal.getsignal(n) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread() or not numbers:
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        if session.signal:
            return  # the command is ending already
        session.signal = number
        handler: Any = signal.getsignal(signal.SIGINT)
        if not callable(handler):  # shells ignore Ctrl-C for background jobs
            raise KeyboardInterrupt
        handler(signal.SIGINT, frame)

    with _watched(numbers):
        for number in numbers:
            signal.signal(number, interrupt)
        try:
            yield
        finally:
            if owns_process:
                remove_unfinished()  # an interruption may come before a new file is registered
            for number in numbers:
                signal.signal(number, _leave if owns_process else signal.SIG_DFL)


def _ending() -> list[int]:
    names = ("SIGTERM", "SIGHUP")
    return [getattr(signal, name) for name in names if hasattr(signal, name)]


@contextmanager
def _watched(numbers: list[int]) -> Iterator[None]:
    """End the process some time after a signal, in case the main thread is blocked."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    previous = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    watcher = threading.Thread(target=_watch, args=(reader, numbers), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous)
        os.write(writer, _DONE)
        watcher.join()
        os.close(reader)
        os.close(writer)


def _watch(reader: int, numbers: list[int]) -> None:
    while (received := os.read(reader, 1)) != _DONE:
        if received[0] in numbers:
            while select.select([reader], [], [], _GRACE_S)[0]:
                if os.read(reader, 1) == _DONE:
                    return
            _leave(received[0], None)


def _leave(number: int, _frame: FrameType | None) -> None:
    remove_unfinished()
    with suppress(OSError):
        os.write(2, f"error: {ended_by(number)}\n".encode())
    os._exit(128 + number)


def ended_by(number: int) -> str:
    """Return the message for a run that a signal ended."""
    return f"ended by {signal.Signals(number).name}"
