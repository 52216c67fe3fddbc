"""Units that behave badly, for tests of what runs them."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.gpu.unit import Bench, Unit
from eqsat_opt.errors import RuntimeFailed

__all__ = ["run", "unit"]


def unit(kind: str, value: float = 1.0, deadline_s: float = 60.0) -> Unit:
    return Unit("measure", kind, __name__, value, deadline_s, {"kind": kind})


def run(unit: Unit, bench: Bench) -> Mapping[str, Any]:
    kind = unit.request["kind"]
    if kind == "told":
        return {"deadline_s": unit.deadline_s}
    result: Mapping[str, Any] = _KINDS[kind]()
    return result


def _crash() -> Any:
    print("the library gives up", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def _hang() -> Any:
    time.sleep(600)


def _hang_with_another() -> Any:
    """Another process has the pipe of replies as well."""
    os.fork()
    time.sleep(600)


def _slow() -> Any:
    time.sleep(0.5)
    return {"pid": os.getpid()}


def _no_memory() -> Any:
    raise MemoryError


def _refuse() -> Any:
    raise RuntimeFailed("there is no GPU\nhere")


def _break() -> Any:
    raise ZeroDivisionError("the context is lost")


def _chatter() -> Any:
    print("what a library says")
    os.write(1, b"\x00\xff and more\n")
    return {"is": "well", "infinite": float("inf")}


def _babble() -> Any:
    """Write into the pipe of replies, whichever it is."""
    for number in range(3, 20):
        try:
            os.write(number, b"\x05\x00\x00\x00nonse")
        except OSError:
            continue
    return {}


_KINDS: Mapping[str, Callable[[], Any]] = {
    "crash": _crash,
    "hang": _hang,
    "hang with another": _hang_with_another,
    "refuse": _refuse,
    "break": _break,
    "chatter": _chatter,
    "babble": _babble,
    "text": lambda: "no mapping",
    "set": lambda: {"is": {1, 2}},
    "large": lambda: {"is": "x" * (1 << 19)},
    "slow": _slow,
    "slow again": _slow,
    "no memory": _no_memory,
    "good": lambda: {"pid": os.getpid()},
    "good again": lambda: {"pid": os.getpid()},
}
