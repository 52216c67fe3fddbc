"""The public functions: optimise a model, explain a search, race two models, compare methods.

They check options, set the deadline and read the model; the work is in the other packages.

It is long because each public function explains all of its arguments.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import onnx
import onnx_ir

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.errors import InternalError, ModelError, OptionError
from eqsat_opt.ir.onnx.files.external import files_read_by
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.sizes.sizes import Sizes, size_sets
from eqsat_opt.pipeline import prices
from eqsat_opt.pipeline.destination import Output
from eqsat_opt.pipeline.inventory import inventory
from eqsat_opt.pipeline.optimise import PLANNING, TUNING, AnyModel
from eqsat_opt.pipeline.options import Options, chosen_options
from eqsat_opt.pipeline.report import rule_notes
from eqsat_opt.pipeline.report.explanation import Explanation
from eqsat_opt.pipeline.request import Request, request_of
from eqsat_opt.pipeline.run import Result, run_request
from eqsat_opt.pipeline.stages import Progress, Stages
from eqsat_opt.pipeline.viewing.operator_times import OperatorTime
from eqsat_opt.pipeline.viewing.operator_times import operator_times as profiled
from eqsat_opt.racing.entrants import ORIGINAL
from eqsat_opt.racing.race import race
from eqsat_opt.racing.race_result import RaceResult
from eqsat_opt.rules.near_misses import near_misses
from eqsat_opt.runtime.backends.ort.config import default_level, level_in
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession, require_custom_ops
from eqsat_opt.runtime.backends.sandbox import sandbox
from eqsat_opt.runtime.backends.tuned_file import (
    is_tuned,
    open_as_raced,
)
from eqsat_opt.runtime.devices.meters import found_meter
from eqsat_opt.runtime.source import ModelSource, OpenRunner, RaceRunner
from eqsat_opt.runtime.staging import Staging
from eqsat_opt.select.proposal import Proposal
from eqsat_opt.select.stages import (
    STAGES,
    StageValue,
    read_stage,
    require_stage,
    stage_document,
    stage_of,
    write_stage,
)
from eqsat_opt.select.why import kernel_uses, rewrites, rule_fates
from eqsat_opt.validation.compare import Difference, Reference, differences
from eqsat_opt.validation.found_sizes import find_sizes, has_doubt

if TYPE_CHECKING:
    from eqsat_opt.lab.comparison import CompareSettings, Comparison
    from eqsat_opt.lab.experiments import (
        BatchModel,
        BatchResult,
        Cell,
        Reply,
        Sweep,
        Verification,
    )

__all__ = [
    "PLANNING", "STAGES", "TUNING", "Difference", "OperatorTime", "RaceResult", "Result",
    "StageValue", "bench", "compare", "default_output", "energy_source", "explain", "files_of",
    "inventory", "models_in", "operator_times", "optimize", "read_stage", "read_sweep",
    "require_stage", "rule_notes", "run", "run_batch", "run_sweep", "stage", "stage_document",
    "verify_saved", "write_stage",
]  # fmt: skip


def _silent(_stage: str, _detail: str) -> None:
    pass


def resolve(model: AnyModel) -> AnyModel:
    """Build the benchmark model that ``zoo:NAME`` names, and return any other model unchanged.

    ``zoo:NAME@tiny`` and ``zoo:NAME@n=4`` choose its sizes.

    Raises:
        ModelError: the value is neither a model nor a path.
        OptionError: the zoo has no such model.
    """
    if isinstance(model, str) and model.startswith("zoo:"):
        from eqsat_opt.lab import zoo

        return zoo.build_named(model.removeprefix("zoo:"))
    if not isinstance(model, str | os.PathLike | onnx.ModelProto | onnx_ir.Model):
        raise ModelError(
            f"a value of type {type(model).__name__} is not a model; give a path, zoo:NAME, an "
            "onnx.ModelProto or an onnx_ir.Model"
        )
    return model


def run(
    model: AnyModel,
    options: Options | None = None,
    *,
    output: Output | None = None,
    progress: Progress = _silent,
    started_s: float | None = None,
) -> Result:
    """Optimise ``model`` and return the result, with a report and the search.

    Args:
        model: a path, ``zoo:NAME``, an ``onnx.ModelProto`` or an ``onnx_ir.Model``; it is never
            changed.
        options: all options; ``None`` for the defaults.
        output: path or binary stream of the result, which is written whole or not at all;
            ``None`` writes none. The original is written where no candidate beats it.
        progress: called with a stage and a detail.
        started_s: when the budget began, on the monotonic clock; ``None`` means now. At least half
            of it is left for the work, however long imports took.

    Raises:
        ModelError: the model cannot be read, or the result cannot be written.
        OptionError: an option has no meaning, or the output is the model itself.
        CheckFailed: a candidate computes something else, and ``strict`` is set; nothing is written.
        InternalError: a stage failed by an internal error, and ``strict`` is set; nothing is
            written.
    """
    options = chosen_options(options, {})
    spent_s = 0.0 if started_s is None else time.monotonic() - started_s
    given = resolve(model)  # a model of the zoo is built while the clock stands still
    deadline = Deadline.after(options.budget_s - min(spent_s, options.budget_s / 2))
    stages = Stages(progress)
    with stages("rules"):
        request = request_of(options)
    return run_request(request, model, given, output, stages=stages, deadline=deadline)


def energy_source(options: Options) -> str:
    """Describe the source of energies under these options in words; empty where there is none.

    Raises:
        OptionError: the model of energy cannot be used, no meter of energy works here, or there is
            no such target.
    """
    return prices.energy_source(request_of(options, searches=False))


def files_of(*models: str | os.PathLike[str]) -> Iterator[str]:
    """Yield the files from which models are read, data files included; ``zoo:NAME`` has none.

    A model is opened only when its data files are demanded.
    """
    for model in models:
        text = os.fspath(model)
        if not text.startswith("zoo:"):
            yield text
            yield from files_read_by(text)


def default_output(model: str | os.PathLike[str]) -> str:
    """Return ``NAME.opt.onnx`` beside the model; in the working directory for ``zoo:NAME``."""
    text = os.fspath(model)
    zoo_name = text.removeprefix("zoo:")
    stem = os.path.splitext(text)[0] if zoo_name == text else zoo_name.replace("@", "-")
    return f"{stem}.opt.onnx"


@overload
def optimize(model: onnx.ModelProto, **options: Any) -> onnx.ModelProto: ...
@overload
def optimize(model: onnx_ir.Model, **options: Any) -> onnx_ir.Model: ...
@overload
def optimize(model: str | os.PathLike[str], **options: Any) -> Any: ...
def optimize(
    model: AnyModel,
    *,
    report: bool = False,
    output: str | os.PathLike[str] | None = None,
    progress: Progress = _silent,
    **options: Any,
) -> Any:
    """Return a faster model that computes the same, or the original where none is found.

    Args:
        model: a path, ``zoo:NAME``, an ``onnx.ModelProto`` or an ``onnx_ir.Model``; it is never
            changed.
        report: return a :class:`Result` with the report instead of the bare model.
        output: path of the result; by default ``NAME.opt.onnx`` beside a model that is given by its
            path, and no file for a model in memory.
        progress: called with a stage and a detail.
        options: fields of :class:`~eqsat_opt.pipeline.options.Options`; ``budget`` is short for
            ``budget_s``.

    Returns:
        A model of the type that was given; if the result was written, its path.

    Raises:
        ModelError, OptionError, CheckFailed: see :func:`run`.
    """
    chosen = chosen_options(None, options)
    if output is None and isinstance(model, (str, os.PathLike)):
        beside = default_output(model)
        output = beside if isinstance(model, str) else Path(beside)
    result = run(model, chosen, output=output, progress=progress)
    return result if report else result.model


def bench(
    first: AnyModel, second: AnyModel, options: Options | None = None, **keywords: Any
) -> tuple[RaceResult, tuple[Difference, ...]]:
    """Race two models against each other and compare their outputs.

    Args:
        first: a model, as for :func:`optimize`.
        second: another model, with the same inputs and outputs.
        options: options, of which ``budget_s`` is the length of the race.
        keywords: fields of :class:`~eqsat_opt.pipeline.options.Options` that differ from
            ``options``.

    Raises:
        ModelError: a model cannot be read.
        OptionError: an option has no meaning, or the models have different inputs.
        RuntimeFailed: a model does not run.
    """
    request = request_of(chosen_options(options, keywords), searches=False)
    session = request.session
    with _staged(first, second, request) as (staged, reference):
        found = differences(reference, staged[1], session, request.numerics, open_session=_opened)
        entrants: dict[str, OpenRunner] = {
            name: partial(_opened, source, session)
            for name, source in zip((ORIGINAL, "other"), staged, strict=True)
        }
        asked = level_in(staged[1])
        if asked != default_level(staged[1]):
            at_level = replace(session, level=asked)
            entrants[f"other@{asked}"] = partial(OrtSession, staged[1], at_level)
        result = race(
            entrants,
            ORIGINAL,
            reference.feeds[0],
            threads=request.threads,
            seed=request.seed,
            time_limit_s=request.budget_s / 2,
            extension_s=request.budget_s / 2,
            meter=found_meter().meter,
        )
    return result, found


def operator_times(
    first: AnyModel, second: AnyModel, options: Options | None = None, **keywords: Any
) -> tuple[tuple[OperatorTime, ...], tuple[OperatorTime, ...]]:
    """Return the times of the operators of two models on the same inputs, by a profile.

    Arguments and errors are those of :func:`bench`; the budget limits the profiles.

    Raises:
        OptionError: a model is a tuned form, which another runtime may run.
    """
    request = request_of(chosen_options(options, keywords), searches=False)
    with _staged(first, second, request) as (staged, reference):
        if any(map(is_tuned, staged)):
            raise OptionError(
                "only sessions of onnxruntime are profiled, and a model is a tuned form; give the "
                "portable one, or leave out --per-operator"
            )
        until = Deadline.after(request.budget_s / 2)
        one, other = (
            profiled(
                model,
                replace(request.session, level=default_level(model)),
                reference.feeds[0],
                deadline=until,
            )
            for model in staged
        )
    return one, other


@contextmanager
def _staged(
    first: AnyModel, second: AnyModel, request: Request
) -> Iterator[tuple[list[ModelSource], Reference]]:
    """Yield runnable forms of two models of the same interface, and inputs with their results."""
    require_custom_ops(request.custom_ops)
    sources = resolve(first), resolve(second)
    models = [load_model(source) for source in sources]
    _require_same_inputs(*models)
    sizes = size_sets(import_model(models[0]), request.shape_sets)[0]
    with ExitStack() as stack:
        staged = [
            stack.enter_context(Staging(model, source)).original
            for model, source in zip(models, sources, strict=True)
        ]
        seeds = [request.seed + i for i in range(max(1, request.check))]
        request.inputs.require_fit(staged[0])
        if has_doubt((sizes,)):
            sizes = _running_sizes(staged[0], sizes, request)
        yield (
            staged,
            Reference.of(
                staged[0],
                request.session,
                seeds,
                sizes.inputs,
                inputs=request.inputs,
                open_session=_opened,
            ),
        )


_SIZES_S = 20.0
"""Seconds for finding sizes at which a model runs, in addition to the budget of the race."""


def _running_sizes(model: ModelSource, sizes: Sizes, request: Request) -> Sizes:
    """Return sizes at which a model runs, where those that were assumed may not.

    Raises:
        OptionError: it runs at none that was tried.
    """
    with sandbox() as box:
        found = find_sizes(
            model,
            (sizes,),
            replace(request.session, level="disabled"),
            box=box,
            deadline=Deadline.after(_SIZES_S),
            inputs=request.inputs,
        )
    if found.failure:
        raise OptionError(found.failure)
    return found.sets[0]


def _opened(model: ModelSource, options: OrtOptions) -> RaceRunner:
    """Open a model as a default session does, or a tuned model as it was raced."""
    if is_tuned(model):
        return open_as_raced(model, options)
    return OrtSession(model, replace(options, level=default_level(model)))


def _require_same_inputs(first: onnx_ir.Model, second: onnx_ir.Model) -> None:
    one, other = ({str(value.name) for value in model.graph.inputs} for model in (first, second))
    if one != other:
        raise OptionError(
            f"the models have different inputs ({', '.join(sorted(one))}; "
            f"{', '.join(sorted(other))}), so they cannot run on the same data; rename them"
        )


_MISSES_S = 2.0
"""Seconds for finding near misses of rules."""


def explain(
    model: AnyModel,
    options: Options | None = None,
    *,
    progress: Progress = _silent,
    **keywords: Any,
) -> Explanation:
    """Search without racing or writing, and explain rules, choices and prices.

    Args:
        model: a model, as for :func:`optimize`.
        options: all options; ``race`` and ``check`` have no effect.
        progress: called with a stage and a detail.
        keywords: fields of :class:`~eqsat_opt.pipeline.options.Options` that differ from
            ``options``.

    Raises:
        ModelError, OptionError: see :func:`run`.
    """
    given = resolve(model)
    request, deadline, stages = _searching(chosen_options(options, keywords), progress)
    result, proposal = _searched(model, given, request, stages, deadline=deadline)
    progress("explain", "")
    fates = rule_fates(proposal, request.objective, time_limit_s=deadline.left_s, seed=request.seed)
    graphs = (proposal.saturation.lowered.graph, proposal.best)
    misses = near_misses(graphs, proposal.rules, time_limit_s=min(_MISSES_S, deadline.left_s))
    return Explanation(
        report=result.report,
        proposal=proposal,
        rules=fates,
        misses=misses,
        rewrites=rewrites(proposal.best),
        kernels=kernel_uses(proposal),
    )


def _searching(options: Options, progress: Progress) -> tuple[Request, Deadline, Stages]:
    """Return the request, deadline and stages of a search whose result is not run."""
    options = replace(options, race=False, check=0, tuned=None, runtimes=None, plan=None)
    deadline, stages = Deadline.after(options.budget_s), Stages(progress)
    with stages("rules"):
        request = request_of(options)
    return request, deadline, stages


def _searched(
    model: AnyModel, given: AnyModel, request: Request, stages: Stages, deadline: Deadline
) -> tuple[Result, Proposal]:
    """Search without writing, and return the result with its proposal.

    Raises:
        InternalError: the search failed.
        OptionError: there was no time for a search.
    """
    result = run_request(request, model, given, None, stages=stages, deadline=deadline)
    if result.proposal is None:
        failures = result.report.warnings
        raise InternalError(failures[0]) if failures else OptionError(result.report.notes[0])
    return result, result.proposal


def stage(
    model: AnyModel,
    name: str,
    options: Options | None = None,
    *,
    progress: Progress = _silent,
    **keywords: Any,
) -> StageValue:
    """Return one stage of the search for ``model``, to be viewed or stored.

    Args:
        model: a model, as for :func:`optimize`.
        name: ``graph``, the normalised model; ``eclasses``, the saturated e-graph;
            ``candidates``, every kernel that could compute a class, with its price; ``problem``,
            the candidates in the form that the extractor reads, with all metrics; ``selection``,
            the kernels that were chosen.
        options: all options; ``race`` and ``check`` have no effect, and no kernel is measured for
            ``graph`` and ``eclasses``.
        progress: called with a stage and a detail.
        keywords: fields of :class:`~eqsat_opt.pipeline.options.Options` that differ from
            ``options``.

    Returns:
        A value that prints itself; :func:`write_stage` stores it, :func:`read_stage` reads it.

    Raises:
        ModelError, OptionError: see :func:`run`; or there is no stage of this name.
    """
    require_stage(name)
    chosen = chosen_options(options, keywords)
    if name in ("graph", "eclasses"):  # prices come later
        chosen = replace(chosen, measure=False)
    given = resolve(model)
    request, deadline, stages = _searching(chosen, progress)
    _, proposal = _searched(model, given, request, stages, deadline=deadline)
    return stage_of(proposal, name)


def compare(
    model: AnyModel,
    options: Options | None = None,
    settings: CompareSettings | None = None,
    *,
    save: str | None = None,
    is_raced: bool = False,
    progress: Progress = _silent,
) -> Comparison:
    """Compare equality saturation with published searches, on the same rules and prices.

    Every run of a method has a process of its own; the result lists the runs that failed.

    Args:
        model: a model, as for :func:`run`.
        options: options, of which rules, numerics, shapes, threads, number of checks and store are
            used.
        settings: methods and their budgets.
        save: folder for the models that are found, and the comparison as JSON.
        is_raced: whether the best models of the methods race against the original at the end.
        progress: called with a method and a seed.

    Raises:
        ModelError, OptionError, RuleError: see :func:`run`.
        RuntimeFailed: no process can be started.
    """
    from eqsat_opt.lab.comparison import CompareSettings
    from eqsat_opt.lab.experiments import compare_apart

    options = chosen_options(options, {})
    require_custom_ops(options.custom_ops)
    return compare_apart(
        model,
        options,
        settings or CompareSettings(),
        progress=progress,
        save=save,
        is_raced=is_raced,
    )


def read_sweep(path: str) -> Sweep:
    """Read the cells and settings of a sweep from a TOML file.

    Raises:
        OptionError: the file cannot be read, or has an entry without a meaning.
        ModelError: a model is missing.
    """
    from eqsat_opt.lab import experiments

    return experiments.read_sweep(path)


def run_sweep(
    sweep: Sweep,
    folder: str,
    executor: Executor,
    *,
    resume: bool = False,
    told: Callable[[Cell, Reply, int, int], None] | None = None,
) -> tuple[Comparison, ...]:
    """Compute the missing cells of a sweep, and return a comparison for each model and device.

    Args:
        sweep: the cells and settings.
        folder: folder in which cells are stored.
        executor: computes cells; an executor of `concurrent.futures`, or of a cluster.
        resume: whether the folder may already hold cells of this sweep.
        told: called with each new cell, its reply, the number of finished cells and of all cells.

    Raises:
        OptionError: the folder holds other cells, or another sweep is using it.
        StageError: a file of the folder is damaged, or cannot be written.
        RuntimeFailed: some cells have no result; the others are stored.
    """
    from eqsat_opt.lab import experiments

    return experiments.run_sweep(sweep, folder, executor, resume=resume, told=told)


def models_in(given: Sequence[str]) -> tuple[BatchModel, ...]:
    """Return the models that files, folders and patterns name, by order of their names.

    Raises:
        OptionError: there is no such file, none in a folder, or two of the same name.
    """
    from eqsat_opt.lab import experiments

    return experiments.models_in(given)


def run_batch(
    models: Sequence[BatchModel],
    folder: str,
    options: Options,
    executor: Executor,
    *,
    resume: bool = False,
    told: Callable[[BatchResult, int, int], None] | None = None,
) -> tuple[BatchResult, ...]:
    """Optimise many models, each in a process of its own, and store every result once.

    Args:
        models: the models, as `models_in` finds them.
        folder: folder of results; each has the name of its model, and its report beside it.
        options: options of all runs.
        executor: runs them; an executor of `concurrent.futures`, or of a cluster with the same
            files. Several models at a time on one machine disturb each other's races.
        resume: whether to skip models that the folder has results of.
        told: called with each result, its number and the number of all.

    Raises:
        OptionError: the folder holds other results, or another batch works in it.
        StageError: a file of the folder is damaged, or cannot be written.
        RuntimeFailed: some models did not come back; the others are done.
    """
    from eqsat_opt.lab import experiments

    return experiments.run_batch(models, folder, options, executor, resume=resume, told=told)


def verify_saved(path: str) -> Verification:
    """Price a model again that `compare` saved, from its file alone.

    Raises:
        ModelError: the file is no model.
        OptionError: the file was not saved by a comparison, or its prices were measured.
    """
    from eqsat_opt.lab import experiments

    return experiments.verify_saved(path)
