"""The life of a child that does units one after another on one bench."""

from __future__ import annotations

import gc
import json
import math
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import count
from typing import Any

from benchmarks.gpu.unit import Bench, Unit
from eqsat_opt.common.child_processes import answer_requests
from eqsat_opt.errors import EqsatError, RuntimeFailed, printable

__all__ = ["MOST_BYTES", "serve"]

MOST_BYTES = 1 << 18
"""Of the result of a unit, as JSON."""

_MOST_TRACE, _MOST_REASON = 3000, 300

_COLLECTED = 8
"""After so many units memory of the device that nobody uses is given back."""


def serve() -> None:
    """Do units until there are no more of them; what they start belongs to this process."""
    if hasattr(os, "setsid"):
        os.setsid()
    benches: dict[str, Bench] = {}
    numbers = count(1)

    def bench_of(kind: str) -> Bench:
        if kind not in benches:  # imported by the first unit: a process is soon ready
            benches[kind] = import_module("benchmarks.gpu.bench").bench_of(kind)
        return benches[kind]

    def answer(
        request: dict[str, Any], _: list[bytes]
    ) -> tuple[Mapping[str, Any], Sequence[bytes]]:
        if "log" in request:  # what libraries say before they end the process
            os.dup2(os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            return {}, ()
        entry = run_unit(Unit(**request["unit"]), partial(bench_of, request["bench"]))
        if next(numbers) % _COLLECTED == 0:
            gc.collect()  # what is captured and who queues it know each other
        return entry, ()

    answer_requests(answer)


def run_unit(unit: Unit, bench_of: Callable[[], Bench]) -> dict[str, Any]:
    """What became of a unit."""
    try:
        bench = bench_of()
    except Exception as error:
        return _failure(error)
    try:
        found = import_module(unit.module).run(unit, bench)
        entry = {"state": "done", "result": _plain(found), "device": bench.device()}
    except Exception as error:
        entry = _failure(error)
    if not bench.is_sound():
        why = entry.get("why", "it ended well, but the device takes no more work after it")
        entry = {**entry, "state": "failed", "why": why, "is_spent": True}
        entry.pop("result", None)
    return entry


def _failure(error: Exception) -> dict[str, Any]:
    """What is told of an exception; after one that is no refusal the device may be unusable."""
    text = printable(str(error) or type(error).__name__)
    found: dict[str, Any] = {"state": "failed", "why": text[:_MOST_REASON]}
    if not isinstance(error, EqsatError):
        found["why"] = f"{type(error).__name__}: {text}"[:_MOST_REASON]
        found["trace"] = traceback.format_exc()[-_MOST_TRACE:]
        found["is_spent"] = True
    return found


def _plain(result: Any) -> Any:
    """A result as JSON has it; what is not finite becomes text.

    Raises:
        RuntimeFailed: it is no mapping of JSON values, or too large.
    """
    if not isinstance(result, Mapping):
        raise RuntimeFailed(f"the unit returned {type(result).__name__}, not a mapping")
    try:
        text = json.dumps(_finite(result), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise RuntimeFailed(f"the unit returned what is no JSON: {error}") from error
    if len(text) > MOST_BYTES:
        raise RuntimeFailed(f"the result of the unit has {len(text)} bytes; {MOST_BYTES} are kept")
    return json.loads(text)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
