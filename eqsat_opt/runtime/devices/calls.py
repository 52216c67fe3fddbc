"""Compiled functions that run launches, and how several of them are one call from Python.

Every such function takes one pointer, to data of its own that say where all else is, and returns 0
for success. A library that has some also has `eqsat_call_all`, which calls a list of them, so that
launches that follow one another cost one call from Python (0.3 µs) and not one each.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.devices.protocol import Launched

__all__ = ["CALL_ALL", "NativeCall", "joined"]

CALL_ALL = "eqsat_call_all"
"""``int64_t eqsat_call_all(const Call*, int64_t n)``: 0, or 1 more than the number of the first
call that failed, behind which none was made."""

_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_CALL_ALL = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)


@dataclass(frozen=True, eq=False)
class NativeCall:
    """A launch that a compiled function runs.

    Attributes:
        name: of the launch.
        function: its address.
        data: the address of what it is given.
        call_all: the address of `CALL_ALL`.
        keep: what the addresses point into.
    """

    name: str
    function: int
    data: int
    call_all: int
    keep: tuple[Any, ...] = field(repr=False)

    def __call__(self) -> None:
        """Run it.

        Raises:
            RuntimeFailed: it failed.
        """
        if _FUNCTION(self.function)(self.data):
            raise RuntimeFailed(f"launch {self.name!r} failed: there is no memory for it")


class _Call(ctypes.Structure):
    _fields_ = (("function", ctypes.c_void_p), ("data", ctypes.c_void_p))


class _Chain:
    """Several of them, one after another."""

    def __init__(self, calls: Sequence[NativeCall]) -> None:
        self._calls = tuple(calls)
        array = (_Call * len(calls))(*(_Call(one.function, one.data) for one in calls))
        self._keep = array
        self._run = _CALL_ALL(calls[0].call_all)
        self._arguments = (
            ctypes.c_void_p(ctypes.addressof(array)),
            ctypes.c_int64(len(calls)),
        )

    def __call__(self) -> None:
        if failed := self._run(*self._arguments):
            name = self._calls[failed - 1].name
            raise RuntimeFailed(f"launch {name!r} failed: there is no memory for it")


def joined(works: Sequence[Launched]) -> Iterator[Launched]:
    """The same work in the same order; compiled functions that follow one another are one."""
    for is_native, group in groupby(works, lambda work: isinstance(work, NativeCall)):
        if is_native:
            yield _Chain([work for work in group if isinstance(work, NativeCall)])
        else:
            yield from group
