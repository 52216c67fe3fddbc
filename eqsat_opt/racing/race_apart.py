"""A race in a process of its own, where a runtime that crashes or hangs does no harm.

All entrants run there, so that none has a process to itself. The models go there as files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import onnx

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.files import Scratch
from eqsat_opt.errors import EqsatError, RuntimeFailed, reason
from eqsat_opt.racing.race import race
from eqsat_opt.racing.race_result import RaceResult
from eqsat_opt.runtime.backends.runtimes import NATIVE, ORT
from eqsat_opt.runtime.backends.sandbox import Sandbox, packed, unpacked
from eqsat_opt.runtime.backends.tuned_file import Execution
from eqsat_opt.runtime.devices.meters import found_meter, open_meter
from eqsat_opt.runtime.source import Feeds, ModelSource

__all__ = ["Entrant", "hold_race", "race_here"]

_TRUSTED = frozenset((ORT, NATIVE))
"""Runtimes that this process loads anyway."""


@dataclass(frozen=True)
class Entrant:
    """A model, and how it is run.

    Attributes:
        model: with its data inside, or a file.
        execution: how.
        custom_ops: libraries of operators for it.
    """

    model: ModelSource
    execution: Execution
    custom_ops: tuple[str, ...] = ()


def hold_race(
    entrants: Mapping[str, Entrant],
    original: str,
    feeds: Feeds,
    box: Sandbox | None,
    deadline: Deadline,
    **terms: Any,
) -> tuple[RaceResult, str]:
    """Race entrants: in the sandbox where one of them needs it, otherwise here.

    Args:
        entrants: by name.
        original: name of the original.
        feeds: inputs.
        box: where others than onnxruntime run; ``None`` where there are none.
        deadline: of all.
        terms: of :func:`~eqsat_opt.racing.race.race`.

    Returns:
        The race, and why those that needed the sandbox took no part; empty if they did.

    Raises:
        RuntimeFailed: the original does not run.
        OutOfTime: the deadline struck.
    """
    foreign = {name for name, one in entrants.items() if one.execution.runtime not in _TRUSTED}
    why = ""
    if foreign and box is not None:
        try:
            return _apart(entrants, original, feeds, box, deadline=deadline, terms=terms), ""
        except EqsatError as error:
            why = str(error)
    runners = {
        name: partial(one.execution.open, one.model, one.custom_ops)
        for name, one in entrants.items()
        if name not in foreign
    }
    terms["time_limit_s"] = min(terms["time_limit_s"], deadline.left_s)
    return race(runners, original, feeds, meter=found_meter().meter, **terms), why


def _apart(
    entrants: Mapping[str, Entrant],
    original: str,
    feeds: Feeds,
    box: Sandbox,
    deadline: Deadline,
    terms: Mapping[str, Any],
) -> RaceResult:
    meter = found_meter().meter
    with Scratch() as folder:
        files: dict[int, str] = {}  # a model that several run is written once
        try:
            for one in entrants.values():
                if id(one.model) not in files:
                    files[id(one.model)] = _file(one.model, folder, len(files))
        except OSError as error:
            raise RuntimeFailed(f"cannot write temporary files: {reason(error)}") from error
        blobs: list[Any] = []
        value = {
            "entrants": {
                name: [files[id(one.model)], asdict(one.execution), one.custom_ops]
                for name, one in entrants.items()
            },
            "original": original,
            "feeds": {name: packed(fed, blobs) for name, fed in feeds.items()},
            "terms": dict(terms),
            "meter": "" if meter is None else meter.place,
        }
        found = box.call("the race", f"{__name__}:race_here", value, blobs, deadline=deadline)
    return RaceResult.from_fields(found)


def _file(model: ModelSource, folder: str, number: int) -> str:
    if not isinstance(model, onnx.ModelProto | bytes):
        return os.path.abspath(os.fspath(model))
    path = Path(folder, f"{number}.onnx")
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return str(path)


def race_here(value: Mapping[str, Any], blobs: Sequence[bytes]) -> dict[str, Any]:
    """The other end: hold the race in this process."""
    rest = iter(blobs)
    feeds = {name: unpacked(one, rest) for name, one in value["feeds"].items()}
    entrants = {
        name: partial(Execution(**execution).open, path, tuple(custom_ops))
        for name, (path, execution, custom_ops) in value["entrants"].items()
    }
    meter = None
    if value["meter"]:
        with suppress(RuntimeFailed):  # then nothing is told of energy
            meter = open_meter(value["meter"])
    return asdict(race(entrants, value["original"], feeds, meter=meter, **value["terms"]))
