"""Counters of the Linux kernel (``perf_event_open``), as functions that read them."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import weakref
from collections.abc import Callable
from typing import TypeAlias

from eqsat_opt.errors import RuntimeFailed

__all__ = ["OpenCounter", "open_counter"]

OpenCounter: TypeAlias = Callable[[int, int, int], Callable[[], int]]
"""Function that opens a counter by kind, event and processor, and returns its reader."""

_SYSTEM_CALL = {"x86_64": 298, "aarch64": 241}
_ATTRIBUTE_BYTES = 64  # size of ``struct perf_event_attr`` in its first version
_ANY_PROCESS, _NO_GROUP, _CLOSE_ON_EXEC = -1, -1, 8
_COUNT_BYTES = 8


class _Counter:
    """An open counter, closed when the object is collected."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)

    def __call__(self) -> int:
        try:
            return int.from_bytes(os.read(self._descriptor, _COUNT_BYTES), "little")
        except OSError as error:
            raise RuntimeFailed(f"a counter of perf cannot be read: {error.strerror}") from error


def open_counter(kind: int, event: int, cpu: int) -> Callable[[], int]:
    """Open a counter of everything that runs on a processor.

    Args:
        kind: ``type`` of the group of events.
        event: ``config`` of the event.
        cpu: number of the processor.

    Raises:
        RuntimeFailed: this system has no such counter, or the user may not open it.
    """
    number = _SYSTEM_CALL.get(platform.machine())
    if platform.system() != "Linux" or number is None:
        raise RuntimeFailed("perf counts nothing on this system")
    fields = struct.pack("=IIQ", kind, _ATTRIBUTE_BYTES, event)
    attribute = ctypes.create_string_buffer(fields, _ATTRIBUTE_BYTES)
    system_call = ctypes.CDLL(None, use_errno=True).syscall
    system_call.restype = ctypes.c_long
    rest = (_ANY_PROCESS, cpu, _NO_GROUP, _CLOSE_ON_EXEC)
    descriptor = system_call(ctypes.c_long(number), attribute, *map(ctypes.c_long, rest))
    if descriptor < 0:
        raise RuntimeFailed(
            f"perf does not open its event {event:#x} of type {kind}: "
            f"{os.strerror(ctypes.get_errno())}"
        )
    return _Counter(int(descriptor))
