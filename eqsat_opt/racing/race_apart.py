"""A race in a process of its own, where a runtime that crashes or hangs does no harm.

All entrants run there, so that none has a process to itself. Models are passed as files.
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

from eqsat_opt.common.codecs import value_from_json
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.files import Scratch
from eqsat_opt.errors import EqsatError, RuntimeFailed, reason
from eqsat_opt.racing.race import race
from eqsat_opt.racing.race_result import RaceResult
from eqsat_opt.runtime.backends.registry import record_of
from eqsat_opt.runtime.backends.sandbox import Sandbox, packed, unpacked
from eqsat_opt.runtime.backends.tuned_file import Execution
from eqsat_opt.runtime.devices.meters import found_meter, open_meter
from eqsat_opt.runtime.source import Feeds, ModelSource

__all__ = ["Entrant", "hold_race", "race_here"]


@dataclass(frozen=True)
class Entrant:
    """A model, and how it is run.

    Attributes:
        model: the model with its data inside, or its file.
        execution: how the model is run.
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
    """Race entrants in the sandbox if an entrant needs it, otherwise in this process.

    Args:
        entrants: models and how they are run, by name.
        original: name of the original.
        feeds: inputs of the models.
        box: sandbox for runtimes other than onnxruntime; ``None`` where there are none.
        deadline: end of the whole run.
        terms: further arguments of :func:`~eqsat_opt.racing.race.race`.

    Returns:
        The race, and why entrants that needed the sandbox took no part; empty if they did.

    Raises:
        RuntimeFailed: the original does not run.
        OutOfTime: the deadline passed.
    """
    foreign = {
        name for name, one in entrants.items() if not record_of(one.execution.runtime).is_trusted
    }
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
        files: dict[int, str] = {}  # a model of several entrants is written once
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
    return value_from_json(found, RaceResult, "the race")


def _file(model: ModelSource, folder: str, number: int) -> str:
    if not isinstance(model, onnx.ModelProto | bytes):
        return os.path.abspath(os.fspath(model))
    path = Path(folder, f"{number}.onnx")
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return str(path)


def race_here(value: Mapping[str, Any], blobs: Sequence[bytes]) -> dict[str, Any]:
    """Hold a race in this process, as the sandbox does for :func:`hold_race`."""
    rest = iter(blobs)
    feeds = {name: unpacked(one, rest) for name, one in value["feeds"].items()}
    entrants = {
        name: partial(Execution(**execution).open, path, tuple(custom_ops))
        for name, (path, execution, custom_ops) in value["entrants"].items()
    }
    meter = None
    if value["meter"]:
        with suppress(RuntimeFailed):  # energy is not measured then
            meter = open_meter(value["meter"])
    return asdict(race(entrants, value["original"], feeds, meter=meter, **value["terms"]))
