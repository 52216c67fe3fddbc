"""Compiled functions that run launches, and chains of them that are one call from Python.

Each such function takes one pointer, to a record of its own that holds all further addresses, and
returns 0 for success. A library with such functions also exports `eqsat_call_all`, which calls a
list of them, so that consecutive launches cost one call from Python (0.3 µs) in total.
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
"""Name of ``int64_t eqsat_call_all(const Call*, int64_t n)``.

It returns 0, or 1 more than the index of the first call that failed; it stops at that call.
"""

_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_CALL_ALL = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)


@dataclass(frozen=True, eq=False)
class NativeCall:
    """A launch that a compiled function runs.

    Attributes:
        name: name of the launch.
        function: address of the function.
        data: address of its argument.
        call_all: address of the library's `CALL_ALL`.
        keep: objects that own the memory behind the addresses.
    """

    name: str
    function: int
    data: int
    call_all: int
    keep: tuple[Any, ...] = field(repr=False)

    def __call__(self) -> None:
        """Run the launch.

        Raises:
            RuntimeFailed: the function failed.
        """
        if _FUNCTION(self.function)(self.data):
            raise RuntimeFailed(f"launch {self.name!r} failed: there is no memory for it")


class _Call(ctypes.Structure):
    _fields_ = (("function", ctypes.c_void_p), ("data", ctypes.c_void_p))


class _Chain:
    """A sequence of native calls that is made by one call from Python."""

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
    """Yield the same work in the same order, with consecutive native calls merged into one."""
    for is_native, group in groupby(works, lambda work: isinstance(work, NativeCall)):
        if is_native:
            yield _Chain([work for work in group if isinstance(work, NativeCall)])
        else:
            yield from group
