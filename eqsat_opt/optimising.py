"""The main job, stage by stage: load, search, check, race, and what is to be written.

Each stage is a function of a lower room; this module puts them in order under one deadline.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING

import onnx
import onnx_ir

from eqsat_opt.containment import Faults
from eqsat_opt.contest.entrants import ORIGINAL
from eqsat_opt.contest.examination import Contest, Terms, hold_contest
from eqsat_opt.contest.finding import Found, Job, find_candidates
from eqsat_opt.contest.passing import time_share
from eqsat_opt.contest.previous import RECORD, Joined, join_previous, origin_of, record_of
from eqsat_opt.contest.sizing import find_sizes, has_doubt
from eqsat_opt.contest.verdict import Verdict, unraced
from eqsat_opt.cost.analytic import ProfilePricer
from eqsat_opt.cost.energy import MeteredEnergy, energy_text, metered_energy
from eqsat_opt.cost.metrics import (
    ENERGY,
    METRICS,
    TIME,
    WEIGHT_BYTES,
    metric_name,
    peaks_capped,
    require_priced,
    with_ties_broken,
)
from eqsat_opt.cost.pricing import PRECISION, Pricer
from eqsat_opt.cost.quotes import AnyPricer
from eqsat_opt.cost.recorded import RecordedPricer, load_recorded
from eqsat_opt.cost.store import ProfileStore
from eqsat_opt.deadline import Deadline
from eqsat_opt.destination import Destination
from eqsat_opt.egraph import Budget
from eqsat_opt.errors import EqsatError, OptionError, StoreError
from eqsat_opt.extract import AnyObjective, Objective, Ratio, parse_objective
from eqsat_opt.inner_models import Bodies, with_better_bodies
from eqsat_opt.ir.body_flops import body_flops
from eqsat_opt.ir.content import constant_bytes
from eqsat_opt.ir.coverage import Coverage, coverage_of
from eqsat_opt.ir.graph import Graph
from eqsat_opt.ir.half import in_half
from eqsat_opt.ir.import_bodies import folded_conditions
from eqsat_opt.ir.normalise import normalise
from eqsat_opt.ir.onnx_import import import_model
from eqsat_opt.ir.onnx_load import load_model
from eqsat_opt.ir.plain_names import axis_name
from eqsat_opt.ir.sizes import Sizes, size_sets
from eqsat_opt.ir.stored import unfolded
from eqsat_opt.numerics import Numerics
from eqsat_opt.options import Options
from eqsat_opt.precision import Precision
from eqsat_opt.proving.selection import load_rules
from eqsat_opt.report import Report
from eqsat_opt.reporting import report_of, store_warning, unsearched_report
from eqsat_opt.runtime.backends.ort.acceptance import require_valid
from eqsat_opt.runtime.backends.ort.config import ORT_CONFIG, with_level
from eqsat_opt.runtime.backends.ort.session import OrtOptions
from eqsat_opt.runtime.backends.sandbox import sandbox
from eqsat_opt.runtime.backends.tuned_file import require_portable
from eqsat_opt.runtime.devices.energy import EnergyModel, load_energy_model
from eqsat_opt.runtime.devices.meters import found_meter
from eqsat_opt.runtime.devices.profile import load_profile
from eqsat_opt.runtime.staging import Staging
from eqsat_opt.select.proposal import Proposal, SearchOptions

if TYPE_CHECKING:
    from eqsat_opt.cost.in_plans import PlanPricer
    from eqsat_opt.rules import Rule

__all__ = [
    "CALIBRATION",
    "PLANNING",
    "TUNING",
    "AnyModel",
    "Outcome",
    "Progress",
    "Stages",
    "energy_source",
    "is_time_alone",
    "normalised",
    "objective_of",
    "open_plan_pricer",
    "open_pricer",
    "optimise",
    "pricer_elsewhere",
    "search_options",
    "session_options",
]

AnyModel = str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model

Progress = Callable[[str, str], None]
"""Called with a stage and a detail."""


class Stages:
    """Times the stages and tells the caller which one runs."""

    def __init__(self, progress: Progress) -> None:
        self.seconds: dict[str, float] = {}
        self.current = ""
        self._told = progress

    def progress(self, name: str, detail: str) -> None:
        """Tell the caller what a stage does."""
        self.current = name
        self._told(name, detail)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self.progress(name, "")
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


@contextmanager
def open_pricer(options: Options, *further: str) -> Iterator[Pricer]:
    """Prices with the user's store; without one where it cannot be used.

    Args:
        options: what the user chose.
        further: names of backends beside the user's.
    """
    store, trouble = None, ""
    try:
        store = None if options.store == "" else ProfileStore(options.store)
    except StoreError as error:
        trouble = str(error)
    names = tuple(dict.fromkeys((*options.portable_backends, *further)))
    pricer = Pricer(store, options.threads, names, energy=_energy(options))
    pricer.trouble = trouble
    try:
        yield pricer
    finally:
        pricer.close()
        if store is not None:
            store.close()


def _energy(options: Options) -> EnergyModel | MeteredEnergy | None:
    """What tells the energy of kernels: the user's model, or a meter where the objective asks.

    Raises:
        OptionError: the model cannot be used, or nothing counts energy here.
    """
    if options.energy_model is not None:
        model = load_energy_model(options.energy_model)
        model.require_precision(PRECISION)  # prices would find out late
        return model
    objective = parse_objective(options.objective, options.limits, metric=metric_name)
    return metered_energy() if options.is_here and objective.uses(ENERGY) else None


def energy_source(options: Options) -> str:
    """How energies are known under these options, in words; empty where none is told.

    Raises:
        OptionError: the model cannot be used, nothing counts energy here, or there is no such
            target.
    """
    if options.is_here:
        return energy_text(_energy(options))
    return pricer_elsewhere(options).energy_text


@contextmanager
def _target_pricer(options: Options) -> Iterator[AnyPricer]:
    """Who knows prices of the target.

    Raises:
        OptionError: there is no such target.
    """
    if not options.is_here:
        yield pricer_elsewhere(options)
        return
    with open_pricer(options) as pricer:
        yield pricer


def pricer_elsewhere(options: Options) -> ProfilePricer | RecordedPricer:
    """Prices of a device that need not be here.

    Raises:
        OptionError: there is no such target, or its model of energy does not fit.
    """
    # These load what knows the kernels of other devices.
    from eqsat_opt.cost.on_device import MeasuredPricer, is_measured_gpu
    from eqsat_opt.runtime.backends.gpu import device_backend

    energy = _energy(options)
    assert not isinstance(energy, MeteredEnergy)
    precision = Precision(options.precision)
    recorded = load_recorded(options.target)
    if recorded is not None and is_measured_gpu(recorded) and precision is Precision.STRICT:
        return MeasuredPricer(recorded, energy)
    if recorded is not None and precision is Precision.STRICT:
        return RecordedPricer(recorded, energy)
    profile = load_profile(options.target)
    backend = device_backend(profile, precision)
    energy = energy or profile.energy
    if energy is not None:
        energy.require_precision(precision.peak)
    return ProfilePricer(profile, energy=energy, backend=backend)


def _require_possible(objective: AnyObjective, options: Options) -> None:
    """Refuse an objective of which nothing is known on the target, or that it cannot tell apart.

    Raises:
        OptionError: there is no such target, no price for a metric, or a single stream.
    """
    if options.is_here:
        require_priced(objective, (TIME,) if _energy(options) is None else (TIME, ENERGY))
        return
    pricer = pricer_elsewhere(options)
    profile = pricer.profile
    require_priced(objective, pricer.metrics)
    streams = int(profile.streams.value)
    if options.streams > streams:
        raise OptionError(
            f"{profile.name} has streams up to {streams}, not {options.streams}; give fewer"
        )
    if objective.needs_path and streams == 1:
        raise OptionError(
            f"{profile.name} runs one kernel after another, so what takes time is the sum; leave "
            "the critical path out, or choose a target of several streams"
        )


def objective_of(options: Options) -> AnyObjective:
    """What a model is optimised for, under which limits; metrics as the columns are called.

    Raises:
        OptionError: the objective or a limit is not in the grammar, or names a metric that is not
            known, or has no prices for the target; or there is no such target, or it has a single
            stream where several are asked for.
    """
    parsed = parse_objective(options.objective, options.limits, metric=metric_name)
    capped = peaks_capped(parsed)
    _require_possible(capped, options)
    return capped


def _ties_broken(objective: AnyObjective) -> AnyObjective:
    """The same; a sum without time prefers, among graphs that cost the same, fewer launches."""
    if not isinstance(objective, Objective) or objective.weighs(TIME):
        return objective
    return replace(objective, weights=with_ties_broken(objective.weights))


def _is_measured(objective: AnyObjective) -> bool:
    """Whether measuring kernels tells something that it is about."""
    return objective.uses(TIME) or objective.uses(ENERGY)


def _is_by_clock(objective: AnyObjective) -> bool:
    """Whether a race can judge: only a sum with time in it has the clock for a measure."""
    return isinstance(objective, Objective) and objective.weights.get(TIME, 0.0) > 0


def is_time_alone(objective: AnyObjective) -> bool:
    """Whether time alone is minimised, without limits."""
    return (
        isinstance(objective, Objective)
        and not objective.is_limited
        and {name for name, weight in objective.weights.items() if weight} == {TIME}
    )


@contextmanager
def open_plan_pricer(
    options: Options, inside: Sequence[str], beside: Sequence[str], deadline: Deadline
) -> Iterator[PlanPricer]:
    """Prices of what may stand in a plan, with the user's store.

    Args:
        options: what the user chose.
        inside: names of backends that run inside sessions, beside the user's.
        beside: names of those that run outside of them.
        deadline: of the search for which prices are wanted.
    """
    from eqsat_opt.cost.in_plans import PlanPricer  # only plans need it

    with open_pricer(options, *inside, *beside) as pricer:
        pricer.calibrate(deadline.share(CALIBRATION))
        yield PlanPricer(pricer, (*options.portable_backends, *inside))


TUNING, PLANNING = "tune", "plan"
"""The stages of further forms; what was to be written beside them is written before."""

_SEARCH = 0.7
"""Share of the time left after loading that the search gets; the rest is for check and race."""

CALIBRATION = 0.4
"""Share of the search that measuring the device itself gets, where the store does not know it."""

_NODE_S = 5e-4
"""Seconds that a search takes for each operator at least, whatever it finds."""

_TRYING = 0.3
"""Share of the time after loading in which sizes may be looked for at which the original runs."""

_RACE_S = 10.0
"""A race that lasts longer than this learns little more."""


def search_options(
    options: Options, objective: AnyObjective, sizes: Mapping[str, int], deadline: Deadline
) -> SearchOptions:
    """How to search in the time until a deadline, of which check and race get a share."""
    return SearchOptions(
        _ties_broken(objective),
        Budget(nodes=options.nodes),
        sizes,
        measure=options.measure and options.is_here,
        alternatives=options.alternatives if options.race else 0,
        deadline=deadline.share(_SEARCH),
        saturation_limit_s=options.deadline_s,
        gap=options.gap,
        seed=options.seed,
        exact=options.numerics == "bitexact",
        streams=options.streams,
    )


def normalised(imported: Graph, options: Options) -> Graph:
    """What is searched: the graph in the normal form, and in float16 where that is asked for."""
    clean = normalise(imported, numerics=Numerics.parse(options.numerics))
    return in_half(clean) if options.precision == Precision.FP16 else clean


def _imported(model: onnx_ir.Model, options: Options, faults: Faults) -> tuple[Graph, Graph]:
    """The graph of a model, and its normal form, in which no If has a constant condition."""
    conditions: dict[str, bool] = {}
    while True:
        imported = import_model(model, exact=options.numerics == "bitexact", conditions=conditions)
        clean = faults.contain(
            "normalise", partial(normalised, imported, options), "the model is searched as it is"
        )
        if clean is None:
            return imported, imported
        folded = folded_conditions(clean)
        if folded.keys() <= conditions.keys():
            return imported, clean
        conditions.update(folded)


def session_options(options: Options) -> OrtOptions:
    """How sessions are opened for the user."""
    return OrtOptions(options.threads, custom_ops=options.custom_ops)


def _terms(
    options: Options, search: SearchOptions, sizes: tuple[Sizes, ...], deadline: Deadline
) -> Terms:
    is_raced = options.race and options.is_here
    return Terms(
        threads=options.threads,
        numerics=options.numerics,
        seeds=tuple(options.seed + i for i in range(options.check)),
        sizes=sizes,
        race_s=_RACE_S if is_raced else 0.0,
        # Whoever minimises something else than time wants the minimum, whatever the clock says.
        by_cost=not (options.is_here and _is_by_clock(search.objective)),
        seed=options.seed,
        deadline=deadline,
        custom_ops=options.custom_ops,
        meter=found_meter().meter if is_raced else None,
        precision=Precision(options.precision),
    )


_LEAST_BYTES_PER_S, _MOST_BYTES_PER_S = 3e7, 1.5e8
"""At which a slow machine reads, copies and writes weights; no machine is taken to be faster."""

_OF_LOADING = 1.5
"""Writing a model, or loading it to be run, takes so many times longer than reading it in."""


def _bulk_s(weight_bytes: int, load_s: float) -> float:
    """Seconds that going through all weights once more takes, told by what loading them took.

    Weights of other files are mapped and not read, and the first model of a process waits for
    libraries to load: hence the bounds.
    """
    least_s, most_s = weight_bytes / _MOST_BYTES_PER_S, weight_bytes / _LEAST_BYTES_PER_S
    return max(least_s, min(_OF_LOADING * load_s, most_s))


@dataclass(frozen=True)
class Outcome:
    """What became of a model.

    Attributes:
        loaded: the model as it was given.
        model: the new one; ``None`` where the original stays.
        report: all numbers.
        proposal: what the search found; ``None`` where there was no time for one.
        is_written: whether the output holds the result already.
        job: the search; ``None`` where there was no time for one.
        graph: of the new model, or the normalised original.
        bulk_s: seconds that going through all weights takes.
        sound: all graphs that may stand for the original, the cheapest first.
    """

    loaded: onnx_ir.Model
    model: onnx_ir.Model | None
    report: Report
    proposal: Proposal | None
    is_written: bool = False
    job: Job | None = None
    graph: Graph | None = None
    bulk_s: float = 0.0
    sound: tuple[Graph, ...] = ()


def optimise(
    given: AnyModel,
    name: str,
    options: Options,
    progress: Progress,
    deadline: Deadline,
    destination: Destination | None = None,
    tuned: Destination | None = None,
    *,
    faults: Faults,
) -> Outcome:
    """Search for a better model, check it and race it; nothing is written.

    What fails for a reason of ours costs its stage: the original is the result where nothing else
    is known to be right.

    Args:
        given: the model; it is never changed.
        name: of the model, for the report.
        options: what the user chose.
        progress: called with a stage and a detail.
        deadline: of everything but writing.
        destination: where the result will be written, and where an earlier one may lie.
        tuned: where the tuned form will be written.
        faults: collects internal errors; its warnings go into the report.

    Raises:
        ModelError, OptionError, CheckFailed: see :func:`eqsat_opt.api.run`.
        InternalError: a stage failed for a reason of ours, and the user is strict.
    """
    stages = Stages(progress)
    objective = objective_of(options)
    with stages("rules"):
        rules = load_rules(options.rules, Numerics.parse(options.numerics))
    with stages("load"):
        model = load_model(given)
        require_portable(model.metadata_props, name)
        for place in filter(None, (destination, tuned)):
            place.check_for(model)
    untouched = partial(_untouched, model, name, options, objective, stages=stages, faults=faults)
    outcome = faults.contain(
        lambda: stages.current,
        partial(
            _optimised,
            model,
            given,
            name,
            options,
            stages=stages,
            deadline=deadline,
            destination=destination,
            objective=objective,
            rules=rules,
            faults=faults,
            untouched=untouched,
        ),
        _STAYS,
    )
    return outcome or untouched()


_STAYS = "the original stays"


def _untouched(
    model: onnx_ir.Model,
    name: str,
    options: Options,
    objective: AnyObjective,
    *,
    stages: Stages,
    faults: Faults,
) -> Outcome:
    """The original, where a stage failed without which there is no result."""
    report = unsearched_report(
        name, model, stages.seconds, options, objective=objective, why="nothing was found"
    )
    return Outcome(model, None, replace(report, warnings=faults.warnings), None)


def _optimised(
    model: onnx_ir.Model,
    given: AnyModel,
    name: str,
    options: Options,
    *,
    stages: Stages,
    deadline: Deadline,
    destination: Destination | None,
    objective: AnyObjective,
    rules: Sequence[Rule],
    faults: Faults,
    untouched: Callable[[], Outcome],
) -> Outcome:
    """What :func:`optimise` does once the model is read."""
    with ExitStack() as stack:
        with stages("load"):
            staging = stack.enter_context(Staging(model, given))
            lacking = require_valid(staging.original, session_options(options), deadline)
            imported, clean = _imported(model, options, faults)
        sizes = size_sets(imported, options.shape_sets)
        _require_sizes(options, sizes[0])
        box = None
        if options.check or (options.race and options.is_here):
            box = stack.enter_context(sandbox())  # starts in the background while the search runs
        if box is not None and has_doubt(sizes) and not lacking:
            with stages("sizes"):
                tried = find_sizes(
                    staging.original,
                    sizes,
                    replace(session_options(options), level="disabled"),
                    box=box,
                    deadline=deadline.share(_TRYING),
                )
            sizes = tried.sets
            if tried.failure:
                report = unsearched_report(
                    name, model, stages.seconds, options, objective=objective, why=tried.failure
                )
                return Outcome(model, None, report, None)
        bulk_s = _bulk_s(constant_bytes(model), stages.seconds["load"])
        deadline = deadline.before(bulk_s)  # by then the result has to be ready for writing
        plain = clean
        with stages("bodies"):
            bodies = faults.contain(
                "bodies",
                partial(_with_bodies, plain, options, objective, sizes[0], deadline, faults),
                _BODIES_STAY,
                also=(EqsatError,),
            ) or Bodies(plain)
            clean = bodies.graph
        search = search_options(options, objective, sizes[0].all, deadline)
        if search.counts_weights:  # of the file as it came, where much is not folded yet
            clean, plain = (unfolded(one, least=True) for one in (clean, plain))
            search = replace(search, told={WEIGHT_BYTES: float(constant_bytes(model))})
        if search.deadline.left_s < _NODE_S * len(clean.nodes):
            report = unsearched_report(name, model, stages.seconds, options, objective=objective)
            return Outcome(model, None, report, None, bulk_s=bulk_s)
        terms = replace(_terms(options, search, sizes, deadline), bulk_s=bulk_s)
        clear = _nothing
        if box is not None:
            terms, clear = replace(terms, box=box), box.reset
        pricer = stack.enter_context(_target_pricer(options))
        if isinstance(pricer, Pricer) and search.measure and _is_measured(objective):
            with stages("calibrate"):
                faults.contain(
                    "calibrate",
                    partial(pricer.calibrate, search.deadline.share(CALIBRATION)),
                    "prices of kernels rest on usual figures",
                )
        job = Job(
            clean=clean,
            imported=imported,
            search=search,
            terms=terms,
            pricer=pricer,
            staging=staging,
            strict=options.strict,
            selection=options.rules,
            stage=stages,
            progress=stages.progress,
            faults=faults,
            current=lambda: stages.current,
        )
        found, warnings = find_candidates(job, rules, deadline)
        if found is None:
            return untouched()
        if bodies.better and not any(True for _ in found.sound):
            job = replace(job, clean=plain)  # who knows whether it is a body that is wrong
            again, further = find_candidates(job, rules, deadline)
            found, warnings = again or found, (*warnings, *further)
        breaks = found.proposal.choice.original_breaks
        if breaks:  # the clock cannot speak for an original that may not stay
            terms = replace(terms, by_cost=True)
            job = replace(job, terms=terms)
        stages.seconds.update(found.stages_s)
        origin = cache(lambda: origin_of(model, rules, _class_of(options)))
        joined = faults.contain(
            "previous",
            partial(_joined, job, found, destination, model, origin=origin, stages=stages),
            "the earlier result does not take part",
        ) or Joined(found)
        clear()  # what the sandbox holds would only lie in the way of those that race
        contest = faults.contain(
            "race", partial(_contest, job, joined, stages, bodies), _STAYS
        ) or Contest(unraced(ORIGINAL))
        coverage = coverage_of(clean)
        share = faults.contain(
            "report",
            partial(_passing_share, coverage, job, joined, options=options),
            "what share of the time passes through is not known",
        )
    verdict = contest.verdict
    chosen = _with_settings(model, joined.found, verdict)
    is_written = joined.is_written(verdict)
    if destination is not None and verdict.winner != ORIGINAL and not is_written:
        assert chosen is not None
        with stages("record"):
            status = "unmeasured" if terms.by_cost else verdict.status
            record = faults.contain(
                "record", lambda: record_of(origin(), status), "the result carries no record of it"
            )
            if record is not None:
                chosen.metadata_props[RECORD] = record
    report = report_of(
        name,
        joined.found,
        (model, model if chosen is None else chosen),
        imported,
        contest=contest,
        stages_s=stages.seconds,
        pricer=pricer,
        options=options,
        objective=objective,
        coverage=coverage,
        passing_share=share,
    )
    report = _with_body_flops(
        report,
        imported,
        found.entrants.get(verdict.winner, imported),
        sizes=sizes[0],
        faults=faults,
    )
    report = replace(
        report,
        warnings=(
            *warnings,
            *faults.warnings,
            *store_warning(pricer),
            *_unlimited(verdict, breaks),
        ),
        sizes=tuple(one.to_json() for one in sizes),
        notes=(
            *report.notes,
            *_notes(joined, contest, lacking),
            *_caveats(objective, found),
            *_unrecorded(pricer, found),
            *_in_less(options),
            *_kept_open(imported),
            *_late(bodies),
        ),
    )
    return Outcome(
        loaded=model,
        model=chosen,
        report=report,
        proposal=joined.found.proposal,
        is_written=is_written,
        job=job,
        graph=found.entrants.get(verdict.winner.partition("@")[0], clean),
        bulk_s=bulk_s,
        sound=tuple(found.entrants[name] for name in found.sound),
    )


def _with_bodies(
    graph: Graph,
    options: Options,
    objective: AnyObjective,
    sizes: Sizes,
    deadline: Deadline,
    faults: Faults,
) -> Bodies:
    """The graph with the bodies of its operators optimised as models of their own.

    Limits speak of a whole model, and a quotient of a whole model is none of its parts: there
    bodies stay.
    """
    if not isinstance(objective, Objective) or objective.is_limited:
        return Bodies(graph)

    def improve(
        model: onnx_ir.Model, name: str, shapes: Mapping[str, tuple[int, ...]], deadline: Deadline
    ) -> onnx_ir.Model | None:
        inner = replace(options, shapes=shapes, tuned=None, runtimes=None, plan=None, strict=False)
        outcome = faults.contain(
            "bodies",
            partial(optimise, model, name, inner, _silent, deadline, faults=faults),
            _BODIES_STAY,
            also=(EqsatError,),
        )
        return None if outcome is None else outcome.model

    exact = options.numerics == "bitexact"
    return with_better_bodies(graph, improve, sizes.given, deadline, exact=exact)


def _with_body_flops(
    report: Report, before: Graph, after: Graph, sizes: Sizes, faults: Faults
) -> Report:
    """The report with what bodies compute beside what the graph around them does."""

    def with_bodies(metrics: Mapping[str, float], graph: Graph) -> dict[str, float]:
        if _FLOPS not in metrics:
            return dict(metrics)
        return {**metrics, _FLOPS: metrics[_FLOPS] + body_flops(graph, sizes.all)}

    counted = faults.contain(
        "report",
        lambda: replace(
            report,
            metrics_before=with_bodies(report.metrics_before, before),
            metrics_after=with_bodies(report.metrics_after, after),
        ),
        "what bodies compute is not counted",
        also=(EqsatError,),
    )
    return counted or report


_FLOPS = "flops"
"""The metric of operations, which bodies have too."""

_BODIES_STAY = "bodies of operators stay as they came"


def _silent(_stage: str, _detail: str) -> None:
    pass


def _late(bodies: Bodies) -> Iterator[str]:
    if bodies.late:
        names = ", ".join(bodies.late)
        yield f"there was no time to optimise the {names}; allow more with --budget"


def _require_sizes(options: Options, sizes: Sizes) -> None:
    """Check that a plan has all its sizes."""
    if options.plan is not None and sizes.assumed:
        name = axis_name(min(sizes.assumed))
        raise OptionError(
            f"a plan is for fixed sizes; give {name!r} one with --input-shape {name}:SIZE"
        )


def _nothing() -> None:
    pass


def _joined(
    job: Job,
    found: Found,
    destination: Destination | None,
    model: onnx_ir.Model,
    origin: Callable[[], str],
    stages: Stages,
) -> Joined:
    """What was found, and the earlier result at its place, if there will be a race."""
    place = None if destination is None else destination.earlier
    # Nothing tells whether the earlier result keeps the limits.
    is_limited = job.search.objective.is_limited
    if place is None or not job.terms.race_s or job.terms.by_cost or is_limited:
        return Joined(found)
    with stages("previous"):
        return join_previous(
            found, place, model, origin, original=job.staging.original, terms=job.terms
        )


def _notes(joined: Joined, contest: Contest, lacking: str) -> Iterator[str]:
    if joined.note:
        yield joined.note
    if joined.found.late:
        names = ", ".join(map(repr, joined.found.late))
        yield f"there was no time to compute the constants of {names}; allow more with --budget"
    if lacking and not contest.obstacle:
        yield f"the original does not run in onnxruntime, so nothing was checked: {lacking}"


def _unlimited(verdict: Verdict, breaks: str) -> Iterator[str]:
    if breaks and verdict.winner == ORIGINAL:
        yield f"the original stays although it breaks a limit: {breaks}"


def _caveats(objective: AnyObjective, found: Found) -> Iterator[str]:
    """What the objective leaves unproven or unkept."""
    unmeasured = found.proposal.choice.unmeasured
    below = objective.denominator if isinstance(objective, Ratio) else {}
    for metric in {TIME, ENERGY} & below.keys():
        yield (
            f"the objective divides by {METRICS[metric].alias}, so prices that are lower bounds do "
            "not bound it; what is said of the cheapest graph holds for the prices used here only"
        )
    for metric, more in ((TIME, "take longer"), (ENERGY, "need more")):
        if objective.bounds(metric) and unmeasured:
            yield (
                f"the limits on {METRICS[metric].alias} are kept by prices of which some are lower "
                f"bounds; the graph may {more}"
            )


def _unrecorded(pricer: AnyPricer, found: Found) -> Iterator[str]:
    """How many kernels of the answer have no recorded price, and how to record them."""
    choice = found.proposal.choice
    if isinstance(pricer, RecordedPricer) and choice.unmeasured:
        device = pricer.device
        yield (
            f"{choice.unmeasured} of {sum(choice.sources.values())} kernels have no price of "
            f"{device.machine}, only bounds; record them there with eqsat-opt optimize MODEL "
            f"--threads {device.threads} and eqsat-opt profile export FILE, and here with "
            f"eqsat-opt devices import FILE --name {device.profile.name}"
        )


_IN_LESS = {
    Precision.TF32: "libraries may round factors on {target}, to tf32",
    Precision.FP16: "the result computes in float16 what it can",
}


def _in_less(options: Options) -> Iterator[str]:
    """That results of another precision are no rivals."""
    text = _IN_LESS.get(Precision(options.precision))
    if text is not None:
        yield (
            f"{text.format(target=options.target)}: its times stand beside those of other "
            f"{options.precision} results, and of no strict-fp32 ones"
        )


def _class_of(options: Options) -> str:
    """What an earlier result had to keep to be one of these options."""
    if options.precision == Precision.STRICT:
        return options.numerics
    return f"{options.numerics} {options.precision}"


def _kept_open(graph: Graph) -> Iterator[str]:
    """That weights which are inputs too cannot be folded."""
    if graph.parameters:
        yield (
            f"initializers that are inputs too, such as {min(graph.parameters)!r}, are not folded, "
            "as a caller may replace them; if none does, take them out of the inputs"
        )


def _contest(job: Job, joined: Joined, stages: Stages, bodies: Bodies) -> Contest:
    """Race what may be returned, if anything was to be run."""
    found = joined.found
    if found.examined is None:
        return Contest(unraced(next(found.sound, ORIGINAL)))
    with stages("race") if job.terms.race_s else nullcontext():
        return hold_contest(
            found.models,
            job.staging.original,
            job.clean,
            found.examined,
            terms=job.terms,
            # A race of the whole model runs one branch of several; others have won their own.
            incumbent=joined.incumbent or (next(found.sound, "") if bodies.better else ""),
        )


def _passing_share(coverage: Coverage, job: Job, joined: Joined, options: Options) -> float | None:
    """The share of the time of what passes through, where kernels are measured and models run."""
    examined = joined.found.examined
    if not coverage.n_passing:
        return 0.0
    if not options.measure or examined is None or examined.reference is None:
        return None
    return time_share(
        coverage,
        job.imported.model,
        job.staging.original,
        reference=examined.reference,
        options=session_options(options),
        deadline=job.terms.deadline,
    )


def _with_settings(original: onnx_ir.Model, found: Found, verdict: Verdict) -> onnx_ir.Model | None:
    """The model of the verdict, which tells the level that it asks for; ``None`` if it stays."""
    chosen = None if verdict.winner == ORIGINAL else found.exported[verdict.winner]
    if verdict.level:
        chosen = original.clone() if chosen is None else chosen
        properties = chosen.metadata_props
        properties[ORT_CONFIG] = with_level(verdict.level, properties.get(ORT_CONFIG, ""))
    return chosen
