"""Comparison of methods on one model: every method with every seed, one after the other."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeGuard
from urllib.parse import quote

import onnx_ir

from eqsat_opt.common.codecs import report_text
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.files import Scratch, write_whole
from eqsat_opt.errors import ModelError, OptionError, PlanError, RuntimeFailed, reason
from eqsat_opt.ir.onnx.exporter import model_proto
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.files.stored_tensors import ModelLike, stored_tensors
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.sizes.sizes import size_sets
from eqsat_opt.lab import zoo
from eqsat_opt.lab.comparison import CompareSettings, Comparison, MethodResult, gathered
from eqsat_opt.lab.experiments.worker import MethodTask, Reply, Run, run_apart
from eqsat_opt.pipeline.optimise import AnyModel
from eqsat_opt.pipeline.options import Options
from eqsat_opt.pipeline.request import Request, request_of
from eqsat_opt.pipeline.stages import Progress
from eqsat_opt.proving.selection import costs_only
from eqsat_opt.racing.entrants import ORIGINAL
from eqsat_opt.racing.evidence import log_noise
from eqsat_opt.racing.race import race
from eqsat_opt.racing.race_result import RaceResult
from eqsat_opt.runtime.backends.ort.acceptance import require_valid
from eqsat_opt.runtime.backends.ort.session import OrtSession
from eqsat_opt.runtime.executor import Executable
from eqsat_opt.runtime.hosted import hosted
from eqsat_opt.runtime.inputs import input_specs, random_inputs, sizes_for
from eqsat_opt.runtime.plan.files import plan_text, read_plan
from eqsat_opt.runtime.source import Feeds, OpenRunner
from eqsat_opt.runtime.staging import Staging

__all__ = ["compare_apart"]

_RACE_S = 10.0
"""Seconds of each entrant in a race; as many again where noise decides."""


def compare_apart(
    model: AnyModel,
    options: Options,
    settings: CompareSettings,
    *,
    progress: Progress,
    save: str | None = None,
    is_raced: bool = False,
    run: Run | None = None,
) -> Comparison:
    """Run every method with every seed.

    Args:
        model: a path, ``zoo:NAME`` or a model in memory.
        options: rules, numerics, shapes, threads, number of checks and store are used.
        settings: methods and what they may spend.
        progress: called with a method and a seed.
        save: folder for the models that are found, and the comparison as JSON.
        is_raced: whether the best models of the methods race against the original at the end.
        run: runs a task, by default in a process of its own.

    Raises:
        ModelError, OptionError, RuleError: no method could be run on the model or with the options;
            or the folder cannot be made.
        RuntimeFailed: the original does not run in the race.
    """
    run = run or run_apart
    if (save is not None or is_raced) and costs_only(options.rules):
        raise OptionError(
            f"{options.rules} has rules that are wrong, so its graphs have costs and no meaning; "
            "leave out --save and --run"
        )
    path, blobs = _source(model)
    request = request_of(options, searches=False)
    _require_valid(model, request)
    name = os.fspath(model) if isinstance(model, str | os.PathLike) else "model"
    replies: list[Reply] = []
    with ExitStack() as stack:
        folder = "" if save is None else _made(save)
        if is_raced and not folder:
            folder = stack.enter_context(Scratch())
        if settings.measure and options.store == "":
            # Kernels are measured once, so that all methods see the same prices.
            shared = stack.enter_context(Scratch())
            options = replace(options, store=os.path.join(shared, "prices.sqlite"))
        for seed in range(settings.seed, settings.seed + settings.seeds):
            for method in settings.methods:
                progress(method, f"seed {seed}" if settings.seeds > 1 else "")
                file = _file_name(method, seed if settings.seeds > 1 else None)
                task = MethodTask.of(
                    settings,
                    options,
                    model=path,
                    name=name,
                    method=method,
                    seed=seed,
                    save=os.path.join(folder, file) if folder else "",
                )
                replies.append(run(task, blobs))
        notes = [note for reply in replies for note in reply.notes]
        pairs = [(one.original, one.found) for one in replies]
        found = gathered(name, settings, pairs, notes)
        if is_raced and found.results:
            progress("race", "")
            found = replace(found, race=_raced(found, model, request))
    if save is None:  # the files are gone
        return replace(found, results=tuple(replace(one, model="") for one in found.results))
    text = report_text(found.to_json())
    write_whole(os.path.join(save, "comparison.json"), text, OptionError)
    return found


def _source(model: AnyModel) -> tuple[str, list[bytes]]:
    """Return the path of a model, or its bytes."""
    if isinstance(model, str | os.PathLike):
        return os.fspath(model), []
    proto = model_proto(model) if isinstance(model, onnx_ir.Model) else model
    try:
        return "", [proto.SerializeToString()]
    except Exception as error:  # protobuf has no public class for a model above 2 GB
        raise ModelError(
            f"the model cannot be sent to another process ({error}); save it, and give its path"
        ) from error


def _require_valid(model: AnyModel, request: Request) -> None:
    """Refuse at once a model that every method would refuse.

    Raises:
        ModelError: the model is not valid.
    """
    if not _is_zoo(model):
        loaded = load_model(model)
        with Staging(loaded, model) as staging:
            require_valid(staging.original, request.session)


def _made(folder: str) -> str:
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise OptionError(
            f"cannot make the folder {folder}: {reason(error)}; choose another place"
        ) from error
    return folder


def _file_name(method: str, seed: int | None) -> str:
    return f"{quote(method, safe='')}{'' if seed is None else f'-{seed}'}.onnx"


def _raced(found: Comparison, model: AnyModel, request: Request) -> RaceResult:
    """Race the best result of each method against the original; equal results run once.

    On streams of this processor the entrants are plans, and else graphs.
    """
    given = zoo.build_named(model.removeprefix("zoo:")) if _is_zoo(model) else model
    loaded = load_model(given)
    sizes = size_sets(import_model(loaded), request.shape_sets)[0].inputs
    session = request.session
    best = {one.method: one.best for one in found.runs if one.best is not None}
    keys = {name: _what_runs(one, found.settings) for name, one in best.items()}
    first: dict[str, str] = {}
    for name, key in keys.items():
        first.setdefault(key, name)
    with Staging(loaded, given) as staging:
        specs = input_specs(staging.original)
        entrants: dict[str, OpenRunner] = {ORIGINAL: partial(OrtSession, staging.original, session)}
        for name in first.values():
            if found.settings.runs_streams:
                entrants[name] = partial(_on_streams, best[name], given)
            else:
                entrants[name] = partial(OrtSession, best[name].model, session)
        plans = [name for name in entrants if name != ORIGINAL]
        if found.settings.runs_streams and plans:
            entrants[_TWIN] = entrants[plans[0]]
        race_s = _RACE_S * len(entrants)
        held = race(
            entrants,
            ORIGINAL,
            random_inputs(specs, request.seed, sizes_for(specs, sizes)),
            threads=request.threads,
            seed=request.seed,
            time_limit_s=race_s,
            extension_s=race_s,
        )
    if _TWIN in held.entries:
        held = _with_noise_of(held, plans[0])
    shared = {name: held.entries[first[key]] for name, key in keys.items()}
    entries = {name: replace(entry, name=name) for name, entry in shared.items()}
    # The twin of a plan may have been ahead of all, so the winner is chosen among the others.
    ratios = {name: entry.ratio for name, entry in entries.items() if entry.wins}
    winner = min(ratios, key=ratios.__getitem__, default=ORIGINAL)
    return replace(held, winner=winner, entries={ORIGINAL: held.entries[ORIGINAL], **entries})


def _what_runs(result: MethodResult, settings: CompareSettings) -> str:
    """Return a key that is equal for results of which only one has to run."""
    if not settings.runs_streams or not result.plan:
        return result.structure
    return plan_text(read_plan(result.plan))


_TWIN = "the first plan again"


def _with_noise_of(held: RaceResult, name: str) -> RaceResult:
    """Raise the noise of a race to that between a plan and its twin, if that is more.

    Other load slows threads that wait for each other far more than a session.
    """
    one, twin = held.entries[name], held.entries[_TWIN]
    if one.note or twin.note:  # an entrant left the race, and its note gives the reason
        return held
    noise = math.expm1(log_noise([*zip(one.session_us, twin.session_us, strict=False)]))
    threshold = max(held.threshold, noise)
    return replace(held, noise=max(held.noise, noise), threshold=threshold)


@dataclass(frozen=True)
class _Settled:
    """A plan whose threads have cores of their own when its first run is timed."""

    runner: Executable

    @property
    def input_names(self) -> Sequence[str]:
        return self.runner.input_names

    @property
    def output_names(self) -> Sequence[str]:
        return self.runner.output_names

    def run(self, feeds: Feeds) -> list[Any]:
        return self.runner.run(feeds)

    def bind(self, feeds: Feeds) -> Callable[[], object]:
        call, deadline = self.runner.bind(feeds), Deadline.after(_SETTLING_S)
        while not deadline.expired:
            call()
        return call


_SETTLING_S = 0.2
"""Seconds of runs before the first timed one.

New threads stay on the core of the one that started them for some tenths of a second where the
other cores are not idle.
"""


def _on_streams(result: MethodResult, given: ModelLike) -> _Settled:
    """Open the plan of a result, with a thread for each of its streams.

    Raises:
        RuntimeFailed: there is no plan, or it does not run here.
    """
    if not result.plan:
        raise RuntimeFailed("it has no plan")
    try:
        return _Settled(hosted(read_plan(result.plan), stored_tensors(given)))
    except PlanError as error:
        raise RuntimeFailed(str(error)) from error


def _is_zoo(model: AnyModel) -> TypeGuard[str]:
    return isinstance(model, str) and model.startswith("zoo:")
