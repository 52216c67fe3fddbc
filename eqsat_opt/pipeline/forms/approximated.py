"""The result in low precision: it is made of the result in floats, and has to beat it in a race.

Extraction has chosen the graph by then. Which of its products are computed in integers is one more
exact choice, see `eqsat_opt.approximation`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import onnx_ir

from eqsat_opt.approximation.choice import floats_us
from eqsat_opt.approximation.dequantising import in_floats
from eqsat_opt.approximation.drafts import CONTRIB
from eqsat_opt.approximation.search import (
    Approximation,
    Expected,
    SearchTask,
    expected_of,
    fastest_of_quality,
    fastest_within,
)
from eqsat_opt.approximation.sites import LEAST_OPSET
from eqsat_opt.approximation.survey import Survey, survey_of
from eqsat_opt.common.deadline import Deadline, OutOfTime
from eqsat_opt.common.faults import Faults
from eqsat_opt.common.text import counted
from eqsat_opt.errors import EqsatError, ExtractionError, OptionError
from eqsat_opt.ir.sizes.sizes import Sizes
from eqsat_opt.pipeline.forms.tuned import sizes_of
from eqsat_opt.pipeline.optimise import AnyModel
from eqsat_opt.pipeline.report.form_reports import Approximated
from eqsat_opt.pipeline.report.numbers import contents_of, latencies_of
from eqsat_opt.pipeline.request import Request
from eqsat_opt.pipeline.stages import Outcome, Stages
from eqsat_opt.racing.earlier_result import RECORD
from eqsat_opt.racing.entrants import ORIGINAL
from eqsat_opt.racing.race_apart import Entrant, hold_race
from eqsat_opt.racing.race_result import RaceResult
from eqsat_opt.racing.tuned_results import PORTABLE
from eqsat_opt.runtime.backends.ort import NAME as ORT
from eqsat_opt.runtime.backends.ort.config import ORT_CONFIG
from eqsat_opt.runtime.backends.tuned_file import Execution
from eqsat_opt.runtime.processor import device_fingerprint
from eqsat_opt.runtime.source import Feeds, ModelSource
from eqsat_opt.runtime.staging import Staging

__all__ = ["FLOAT_SHARE", "LOW_PRECISION", "with_low_precision"]

FLOAT_SHARE = 0.4
"""Share of the budget that the result in floats gets."""

LOW_PRECISION = "low-precision"
"""Name of the entrant, and of the stage."""

_MAKING, _SURVEY = 0.75, 0.7
"""Share of the time left before the race, and of that the share of prices and errors."""

_RACE_S = 10.0

_USUAL_ERROR = 0.01
"""Error that many models in 8 bits keep."""

_LATE = "there was no time to measure prices and errors; allow more with --budget"

_ARRIVED = "the model came quantised, and what is not listed computes in floats"

_INT8_ISA = ("avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm")
"""Extensions of processors that multiply and add 8-bit integers in one instruction."""


@dataclass(frozen=True)
class _Made:
    """The facts for the report, and the model if it won."""

    facts: Approximated
    model: onnx_ir.Model | None = None
    races: tuple[RaceResult, ...] = ()


def with_low_precision(
    outcome: Outcome,
    given: AnyModel,
    request: Request,
    stages: Stages,
    deadline: Deadline,
    faults: Faults,
) -> Outcome:
    """Return the outcome in low precision where that wins; in any case the report describes it.

    Raises:
        OptionError: the calibration data do not fit the model.
        InternalError: an internal error occurred, and the user is strict.
    """
    with stages(LOW_PRECISION):
        made = faults.contain(
            LOW_PRECISION,
            partial(_made, outcome, given, request, stages, deadline=deadline),
            "the result stays in floats",
        ) or _Made(_nothing(request, "it could not be measured"))
    report = replace(
        outcome.report,
        approximated=made.facts,
        stages_s={
            **outcome.report.stages_s,
            LOW_PRECISION: round(stages.seconds[LOW_PRECISION], 4),
        },
    )
    if made.model is None:
        return replace(outcome, report=report)
    counts, held = contents_of(made.model)
    report = replace(
        report,
        status="improved" if made.races else "unmeasured",
        winner=LOW_PRECISION,
        speedup=made.facts.speedup,
        session_speedup=1.0,
        session_options={},
        operators_after=counts,
        metrics_after=held,
        result_cost=None,
        errors=(),
    )
    if made.races:
        first, *others = made.races
        report = replace(
            report,
            latency=latencies_of(first, LOW_PRECISION, ""),
            race=first.to_json(),
            further_races=tuple(one.to_json() for one in others),
            noise=first.noise,
        )
    return replace(outcome, model=made.model, report=report, is_written=False)


def _nothing(request: Request, why: str, n_sites: int = 0) -> Approximated:
    assert request.calibration is not None
    return Approximated(False, why, request.max_error, request.calibration.text, n_sites=n_sites)


def _made(
    outcome: Outcome, given: AnyModel, request: Request, stages: Stages, deadline: Deadline
) -> _Made:
    if not request.max_error and request.quality is None:
        return _Made(_nothing(request, "an error of 0 is allowed, which only floats keep"))
    if deadline.expired:
        return _Made(_nothing(request, _LATE))
    base = outcome.loaded if outcome.model is None else outcome.model
    opset = base.opset_imports.get("", 0)
    if opset < LEAST_OPSET:
        why = f"operator set {opset} has no 8-bit operators; convert the model to {LEAST_OPSET}"
        return _Made(_nothing(request, why))
    with Staging(outcome.loaded, given) as staging:
        try:
            return _within(base, outcome, request, staging, stages=stages, deadline=deadline)
        except OptionError:
            raise
        except (EqsatError, OutOfTime) as error:
            why = _LATE if isinstance(error, OutOfTime | ExtractionError) else str(error)
            return _Made(_nothing(request, why))


def _within(
    base: onnx_ir.Model,
    outcome: Outcome,
    request: Request,
    staging: Staging,
    stages: Stages,
    deadline: Deadline,
) -> _Made:
    assert request.calibration is not None
    arrived = in_floats(base)
    if arrived is not None:
        base = arrived.model
    calibration = request.calibration.for_model(staging.original)
    sizes = sizes_of(outcome, request)
    sets = calibration.sets(
        staging.original,
        request.inputs,
        sizes[0].inputs,
        request.seed,
        derived=sizes[0].derived,
    )
    progress = partial(stages.progress, LOW_PRECISION)
    making = deadline.share(_MAKING) if request.race else deadline
    correcting = expected_of(staging.original, sets.correcting, request.session)
    if why := _unusable(correcting, base):
        return _Made(_nothing(request, why))
    survey = survey_of(
        base, sets.fitting, staging, request.session,
        deadline=making.share(_SURVEY), progress=progress, ranging=sets.correcting,
        own_ranges={} if arrived is None else arrived.ranges,
    )  # fmt: skip
    if not survey.kernels and arrived is None:
        return _Made(_nothing(request, _no_offer(survey), n_sites=survey.n_sites))
    held_back = expected_of(staging.original, sets.held_back, request.session)
    quality = request.quality
    task = SearchTask(
        base,
        survey,
        correcting,
        held_back=held_back,
        staging=staging,
        options=request.session,
        deadline=making,
        progress=progress,
        seed=request.seed,
        is_exact=arrived is None,
    )
    found = (
        fastest_within(request.max_error, task)
        if quality is None
        else fastest_of_quality(quality, task)
    )
    if found is None:
        why = (
            f"no choice keeps an error of {request.max_error:.1e} on {calibration.text}; allow "
            f"more with --max-error, such as {max(_USUAL_ERROR, 2 * request.max_error):.2g}"
            if quality is None
            else f"no choice keeps {quality.text} on {calibration.text}; ask for less"
        )
        return _Made(_nothing(request, why, n_sites=survey.n_sites))
    facts = _facts(base, request, survey, found, n_held_back=len(held_back.feeds))
    if arrived is not None:
        facts = replace(facts, note="; ".join(one for one in (facts.note, _ARRIVED) if one))
    found.model.metadata_props.pop(RECORD, None)
    if outcome.verdict is not None and outcome.verdict.level:
        found.model.metadata_props.pop(ORT_CONFIG, None)
    if not request.race:
        return _Made(replace(facts, won=True), found.model)
    progress("race")
    entrants = {ORIGINAL: staging.original}
    if outcome.model is not None:
        entrants[PORTABLE] = staging.of(outcome.model)
    entrants[LOW_PRECISION] = staging.of(found.model)
    feeds = [held_back.feeds[0], *_at_other_sizes(request, staging.original, sizes)]
    races = tuple(_races(entrants, feeds, request, deadline))
    return _judged(facts, found, races)


def _unusable(expected: Expected, base: onnx_ir.Model) -> str:
    """Return why errors cannot be measured on the original's outputs; empty if they can."""
    for outputs in expected.outputs:
        for value, array in zip(base.graph.outputs, outputs, strict=True):
            is_floats = isinstance(array, np.ndarray) and array.dtype.kind == "f"
            if is_floats and bool(np.isnan(array).any()):
                return (
                    f"the original's output {value.name!r} is NaN on calibration data, so that no "
                    "error can be measured; give other data"
                )
    return ""


def _no_offer(survey: Survey) -> str:
    if survey.n_late:
        return _LATE
    if not survey.n_sites:
        return (
            "the model has no convolution with constant weights and no product with a large "
            "constant matrix in float32"
        )
    return f"no operator is faster in low precision on this processor{_without_vnni()}"


def _without_vnni() -> str:
    """Return a note on processors of x86 that lack instructions for 8-bit products."""
    isa = device_fingerprint().isa
    is_x86 = any(one.startswith("sse") for one in isa)
    return ", which lacks VNNI" if is_x86 and not set(_INT8_ISA).intersection(isa) else ""


def _facts(
    base: onnx_ir.Model,
    request: Request,
    survey: Survey,
    found: Approximation,
    n_held_back: int,
) -> Approximated:
    assert request.calibration is not None
    chosen = found.selection.chosen
    kinds = Counter(chosen.values())
    own = {node.op_type for node in found.model.graph if node.domain == CONTRIB}
    notes = []
    if survey.n_late:
        notes.append(f"{survey.n_late} more had no time to be measured")
    if lacking := _without_vnni():
        notes.append(f"prices are those of this processor{lacking}")
    return Approximated(
        won=False,
        why="",
        max_error=request.max_error,
        calibration=request.calibration.text,
        n_sites=survey.n_sites,
        sites=dict(sorted(chosen.items())),
        implementations=dict(kinds.most_common()),
        ranges=dict(survey.origins(base, chosen).most_common()),
        operators=tuple(sorted(own)),
        error=found.error,
        goal="" if request.quality is None else request.quality.text,
        quality=found.quality,
        n_held_back=n_held_back,
        n_measured=found.measured,
        predicted_us=found.selection.time_us,
        bound_us=found.selection.bound_us,
        floats_us=floats_us(survey.kernels),
        note="; ".join(notes),
    )


def _at_other_sizes(request: Request, original: ModelSource, sizes: Sequence[Sizes]) -> list[Feeds]:
    """Return inputs at the further sets of sizes, at which a win has to hold too."""
    specs = request.inputs.specs(original)
    return [
        feeds
        for one in sizes[1:]
        for feeds in request.inputs.feeds(specs, (request.seed,), one.inputs)
    ]


def _races(
    entrants: Mapping[str, ModelSource],
    feeds: Sequence[Feeds],
    request: Request,
    deadline: Deadline,
) -> list[RaceResult]:
    """Hold a race for each set of sizes, as long as low precision wins them."""
    execution = Execution(ORT, request.session.threads)
    racing = {
        name: Entrant(model, execution, request.session.custom_ops)
        for name, model in entrants.items()
    }
    races: list[RaceResult] = []
    for fed in feeds:
        left_s = deadline.left_s / (len(feeds) - len(races))
        held, _ = hold_race(
            racing,
            ORIGINAL,
            fed,
            None,
            deadline=deadline,
            threads=request.session.threads,
            seed=request.seed,
            time_limit_s=min(_RACE_S, 0.7 * left_s),
            extension_s=min(_RACE_S, 0.2 * left_s),
        )
        races.append(held)
        if not _wins(held):
            break
    return races


def _wins(held: RaceResult) -> bool:
    rivals = {ORIGINAL, PORTABLE}.intersection(held.entries)
    return all(held.beats(LOW_PRECISION, rival) for rival in rivals)


def _judged(facts: Approximated, found: Approximation, races: Sequence[RaceResult]) -> _Made:
    def speedup(name: str) -> float:
        ratios = [one.entries[name].ratio for one in races if name in one.entries]
        return 1 / max(ratios) if ratios else 1.0

    first, *others = races
    facts = replace(
        facts,
        speedup=speedup(LOW_PRECISION),
        floats_speedup=speedup(PORTABLE),
        race=first.to_json(),
        further_races=tuple(one.to_json() for one in others),
    )
    if all(map(_wins, races)):
        return _Made(replace(facts, won=True), found.model, tuple(races))
    why = (
        f"{counted(len(facts.sites), 'operator')} within the bound took "
        f"{1 / facts.speedup:.3f} of the original's time, which does not beat the result in floats "
        f"({1 / facts.floats_speedup:.3f}) beyond noise"
    )
    return _Made(replace(facts, why=why))
