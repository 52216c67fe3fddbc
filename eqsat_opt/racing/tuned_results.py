"""The tuned form of a result for one machine: made in several ways, compared, and raced.

The ways are kernels of our own inside onnxruntime, settings of onnxruntime, and other runtimes.
Such forms compete with the portable result, not only with the original: one that gains nothing is
not worth a file that fits a single machine. A runtime whose outputs differ from the original's
takes no part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import onnx

from eqsat_opt.common.deadline import Deadline, OutOfTime
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.errors import CheckFailed, EqsatError, RuntimeFailed
from eqsat_opt.ir.sizes.sizes import Sizes
from eqsat_opt.racing.entrants import ORIGINAL
from eqsat_opt.racing.examination import drafts_of
from eqsat_opt.racing.race_apart import Entrant, hold_race
from eqsat_opt.racing.race_result import RaceResult
from eqsat_opt.racing.session_settings import promising_settings
from eqsat_opt.runtime.backends.native import NAME as NATIVE
from eqsat_opt.runtime.backends.native.library import missing
from eqsat_opt.runtime.backends.native.tuning import NotTuned, output_error, tune
from eqsat_opt.runtime.backends.ort import NAME as ORT
from eqsat_opt.runtime.backends.ort.session import OrtOptions
from eqsat_opt.runtime.backends.sandbox import Sandbox, sandbox
from eqsat_opt.runtime.backends.tuned_file import MOST_BYTES, Execution, tuned_model, tuned_record
from eqsat_opt.runtime.given_inputs import NO_INPUTS, GivenInputs
from eqsat_opt.runtime.inputs import sizes_for, symbolic_sizes
from eqsat_opt.runtime.source import Feeds, ModelSource
from eqsat_opt.validation.compare import Reference, differences
from eqsat_opt.validation.served_sizes import served

__all__ = [
    "NO_TIME",
    "PORTABLE",
    "SUITED",
    "TUNED",
    "TunedJob",
    "TunedResult",
    "examine_tuned_form",
    "race_tuned_forms",
]

PORTABLE, TUNED, SUITED = "portable", "tuned", "tuned-suited"
"""Entrants besides the original. Our kernels run the last two; other forms have other names."""

_RACE = 0.5
"""Share of the time that the race gets; the rest is for making forms and comparing them."""

_SETTINGS = 0.2
"""Share of the time for making forms in which settings are tried."""

_KERNELS = 0.6
"""Share of the remaining time in which layers are measured, if other runtimes are tried next."""

_RUNTIME = 0.3
"""Share of all the time left in which another runtime compiles a model and is compared."""

_RACE_S = 10.0

_SESSIONS = 5
"""Sessions that the shortest tuning builds: two of the kernels as they are, one with others, one
for the errors, and one for falling back."""

NO_TIME = "there was no time to tune and to race it; allow more with --budget"

_LATE = "it was not ready in time; allow more with --budget"

_DRAFTS = 0.1
"""Share of the time left in which the original runs on further inputs."""


@dataclass(frozen=True)
class TunedJob:
    """The result to tune, and the terms of tuning.

    Attributes:
        original: the model as given.
        original_inside: makes the original with all its data inside.
        portable: the result, with its weights inside.
        suited: another graph, which may be faster than the portable one once our kernels run it.
        is_original: whether the portable result is the original, and need not race it.
        session: options of sessions in which models run.
        sizes: sets of sizes of symbolic dimensions, one at least; a win must hold on each.
        seeds: seeds of random inputs, one at least; errors are measured on all.
        numerics: class of differences that other runtimes are allowed.
        max_error: bound on the error of each output, relative to its maximum.
        runtimes: names of runtimes that may run the result.
        is_raced: whether a race decides; otherwise the times of the layers do, and only our kernels
            are tried.
        deadline: end of the whole run.
        inputs: samples and generators of the user.
    """

    original: ModelSource
    original_inside: Callable[[], onnx.ModelProto]
    portable: onnx.ModelProto
    is_original: bool
    session: OrtOptions
    sizes: tuple[Sizes, ...]
    seeds: tuple[int, ...]
    numerics: Numerics
    max_error: float
    suited: onnx.ModelProto | None = None
    runtimes: tuple[str, ...] = (ORT,)
    is_raced: bool = True
    deadline: Deadline = field(default_factory=Deadline.never)
    inputs: GivenInputs = NO_INPUTS

    def execution(self, runtime: str, setting: Mapping[str, object] | None = None) -> Execution:
        """Return the execution by a runtime, with the threads of the job."""
        return Execution(runtime, self.session.threads, setting or {})


@dataclass(frozen=True)
class TunedResult:
    """The outcome of tuning.

    Attributes:
        model: the content of the tuned file; ``None`` where no form is faster than the portable
            one.
        why: why no form is faster, as a sentence without a period; empty if one is.
        entrant: its name in the race, or that of the fastest form where none is faster.
        execution: how the tuned model runs.
        algorithms: name of an algorithm to the number of sites that it computes.
        n_sites: number of sites that could have been computed otherwise.
        withdrawn: number of sites that fell back because of their errors.
        error: largest difference from the original's outputs, relative to the maximum of each.
        refused: forms that took no part in the race, and why.
        races: races of the original, the portable result and the forms, one for each set of sizes.
        note: ways that could not be tried, and why, as a sentence without a period; else empty.
        base: the graph that runs, before our kernels are in it: `ORIGINAL`, `PORTABLE` or `SUITED`.
        ways: the way of each site of that graph, for :func:`tuned_by`.
        record: the record in the metadata of the tuned file.
    """

    model: onnx.ModelProto | None = None
    why: str = ""
    entrant: str = TUNED
    execution: Execution | None = None
    algorithms: Mapping[str, int] = field(default_factory=dict)
    n_sites: int = 0
    withdrawn: int = 0
    error: float = 0.0
    refused: Mapping[str, str] = field(default_factory=dict)
    races: tuple[RaceResult, ...] = ()
    note: str = ""
    base: str = PORTABLE
    ways: tuple[str, ...] = ()
    record: str = ""


@dataclass(frozen=True)
class _Form:
    """A way to run the result here.

    Attributes:
        graph: the model that is run.
        execution: how the model is run.
        error: error of its outputs, relative to the maximum of each.
        found: facts on it for the outcome.
    """

    graph: ModelSource
    execution: Execution
    error: float
    found: TunedResult = field(default_factory=TunedResult)


def race_tuned_forms(job: TunedJob) -> TunedResult:
    """Make the forms of a result whose outputs are within its bounds, and race them.

    A result that has no such form is no error: the outcome holds the reason.
    """
    others = [name for name in job.runtimes if name != ORT] if job.is_raced else []
    forms: dict[str, _Form] = {}
    refused: dict[str, str] = {}
    making = job.deadline.share(1 - _RACE) if job.is_raced else job.deadline
    with sandbox() as box:
        try:
            reference = _reference(job, box, making, bool(others))
            for name, make in _makers(job, reference, making, box, others=others):
                try:
                    forms.update(make())
                except (NotTuned, EqsatError) as error:
                    refused[name] = str(error)
                except OutOfTime:
                    refused[name] = NO_TIME if name in (TUNED, SUITED) else _LATE
            if not forms:
                return TunedResult(why=_told(refused), refused=refused)
            if not job.is_raced:
                return _won(job, TUNED, forms[TUNED], refused)
            return _raced(job, forms, reference, refused, box=box)
        except RuntimeFailed as error:
            return TunedResult(why=str(error), refused=refused)
        except OutOfTime:
            return TunedResult(why=NO_TIME, refused=refused)


def examine_tuned_form(
    job: TunedJob, name: str, graph: ModelSource, execution: Execution
) -> TunedResult:
    """Compare a form that was made before with the original, and race it if the job says so.

    Raises:
        CheckFailed: its outputs differ by more than is allowed.
        RuntimeFailed: it does not run here.
        OutOfTime: the deadline passed.
    """
    with sandbox() as box:
        reference = _reference(job, box, job.deadline, at_edges=False)
        error = _error(graph, execution, job, reference)
        if not error <= job.max_error:
            raise CheckFailed(
                f"the tuned form is wrong: outputs differ by {error:.1e} of their maximum, and "
                f"{job.max_error:.1e} is allowed"
            )
        form = _Form(graph, execution, error)
        if not job.is_raced:
            return replace(form.found, entrant=name, execution=execution, error=error)
        return _raced(job, {name: form}, reference, {}, box=box)


def _error(graph: ModelSource, execution: Execution, job: TunedJob, reference: Reference) -> float:
    """Return the largest error of a form on all inputs of a reference."""
    session = execution.open(graph, job.session.custom_ops)
    return max(
        output_error(session.run(feeds), outputs)
        for feeds, outputs in zip(reference.feeds, reference.outputs, strict=True)
    )


_Makers = Iterator[tuple[str, Callable[[], Mapping[str, _Form]]]]


def _makers(
    job: TunedJob,
    reference: Reference,
    deadline: Deadline,
    box: Sandbox,
    others: Sequence[str],
) -> _Makers:
    """Yield functions that make forms, with the names under which they are refused.

    The share of time of a function begins when it is yielded.
    """
    if job.is_raced:
        share = deadline.share(_SETTINGS)
        yield "settings", partial(_by_settings, job, reference, share)
    share = deadline.share(_KERNELS) if others else deadline
    bases = {TUNED: job.portable}
    if job.suited is not None and job.is_raced:
        bases[SUITED] = job.suited
    for left, (name, base) in zip(range(len(bases), 0, -1), bases.items(), strict=True):
        yield name, partial(_by_kernels, job, reference, share.share(1 / left), name, base)
    models: dict[str, ModelSource] = {"": job.portable}
    if not job.is_original:
        models = {"": job.portable, " on the original": job.original}
    for name in others:
        for where, model in models.items():
            share = job.deadline.share(_RUNTIME)
            make = partial(_by_runtime, job, reference, box, deadline=share)
            yield name + where, partial(make, name + where, model)


def _by_kernels(
    job: TunedJob, reference: Reference, deadline: Deadline, name: str, base: onnx.ModelProto
) -> dict[str, _Form]:
    """Make the form with our kernels inside onnxruntime."""
    if why := missing():
        raise NotTuned(why)
    if max(job.portable.ByteSize(), base.ByteSize()) > MOST_BYTES:
        raise NotTuned("the model is too large for a file that holds it in two forms")
    if deadline.left_s < _SESSIONS * (reference.build_s + reference.run_s):
        raise OutOfTime
    trials = tuple(zip(reference.feeds, reference.outputs, strict=True))
    tuning = tune(base, job.session, trials, max_error=job.max_error, deadline=deadline)
    found = TunedResult(
        algorithms=dict(sorted(tuning.algorithms.items())),
        n_sites=tuning.n_sites,
        withdrawn=tuning.withdrawn,
        note=tuning.note,
        base=SUITED if name == SUITED else PORTABLE,
        ways=tuning.ways,
    )
    return {name: _Form(tuning.model, job.execution(NATIVE), tuning.error, found)}


def _by_settings(job: TunedJob, reference: Reference, deadline: Deadline) -> dict[str, _Form]:
    """Make forms with settings of onnxruntime that seem to gain."""
    settings = promising_settings(
        job.portable,
        job.session.threads,
        job.session.custom_ops,
        reference.feeds[0],
        build_s=reference.build_s,
        deadline=deadline,
    )
    forms = {}
    for setting in settings:
        execution = job.execution(ORT, setting)
        error = _error(job.portable, execution, job, reference)
        if error <= job.max_error:
            forms[execution.text] = _Form(job.portable, execution, error)
    return forms


def _by_runtime(
    job: TunedJob,
    reference: Reference,
    box: Sandbox,
    name: str,
    model: ModelSource,
    *,
    deadline: Deadline,
) -> dict[str, _Form]:
    """Make the form that another runtime runs.

    It is compared with the original as a result of ours is, and by its error.

    Raises:
        NotTuned: the runtime computes something else.
        RuntimeFailed: the runtime does not run the model.
        OutOfTime: the deadline passed.
    """
    execution = job.execution(name.split()[0])
    session = box.open_by(
        execution.runtime, execution.setting, model, job.session, deadline=deadline
    )
    compared, note = served(reference, session, execution.runtime)
    found = differences(
        compared,
        model,
        job.session,
        job.numerics,
        open_session=partial(box.open, deadline=deadline),
        open_candidate=lambda *_: session,
    )
    for one in found:
        if one.why:
            raise NotTuned(f"output {one.name!r} is another: {one.why}")
    error = max(
        output_error(session.run(feeds), outputs)
        for feeds, outputs in zip(reference.feeds, reference.outputs, strict=True)
    )
    if error > job.max_error:
        raise NotTuned(f"outputs differ by {error:.1e}, and {job.max_error:.1e} is allowed")
    return {name: _Form(model, execution, error, TunedResult(note=note))}


def _reference(job: TunedJob, box: Sandbox, deadline: Deadline, at_edges: bool) -> Reference:
    """Run the original, and also at edges if another runtime will be tried."""
    sizes = [one.inputs for one in job.sizes]
    of = partial(
        Reference.of,
        job.original,
        job.session,
        job.seeds,
        sizes[0],
        inputs=job.inputs,
        open_session=partial(box.open, deadline=deadline),
        deadline=deadline,
    )
    if not at_edges:
        return of()
    specs = job.inputs.specs(job.original, job.sizes[0].derived)
    sets = [symbolic_sizes(specs, sizes_for(specs, one)) for one in sizes]
    return of(
        drafts=drafts_of(job.original, specs, sets, job.numerics),
        drafts_s=_DRAFTS * job.deadline.left_s,
    )


def _raced(
    job: TunedJob,
    forms: Mapping[str, _Form],
    reference: Reference,
    refused: dict[str, str],
    box: Sandbox,
) -> TunedResult:
    def entrant(model: ModelSource, execution: Execution) -> Entrant:
        return Entrant(model, execution, job.session.custom_ops)

    entrants = {ORIGINAL: entrant(job.original, job.execution(ORT))}
    if not job.is_original:
        entrants[PORTABLE] = entrant(job.portable, job.execution(ORT))
    entrants |= {name: entrant(form.graph, form.execution) for name, form in forms.items()}
    races: list[RaceResult] = []
    winner = ""
    for feeds in _all_feeds(job, reference):
        if job.deadline.left_s < (len(entrants) + 1) * reference.entrant_s:
            raise OutOfTime
        left_s = job.deadline.left_s / (len(job.sizes) - len(races))
        held, why = hold_race(
            entrants,
            ORIGINAL,
            feeds,
            box,
            deadline=job.deadline,
            threads=job.session.threads,
            seed=job.seeds[0],
            time_limit_s=min(_RACE_S, 0.7 * left_s),
            extension_s=min(_RACE_S, 0.2 * left_s),
        )
        races.append(held)
        lost = [name for name in entrants if name not in held.entries]
        for name in lost:
            refused[name] = why
            del entrants[name]
        winner = _winner(races, [name for name in forms if name in entrants])
        if not winner:
            break
    if winner:
        return replace(_won(job, winner, forms[winner], refused), races=tuple(races))
    fastest = min(
        (name for name in forms if name in entrants),
        key=lambda name: max(held.entries[name].ratio for held in races),
        default=TUNED,
    )
    told = forms.get(fastest)
    return replace(
        TunedResult() if told is None else told.found,
        why=f"nothing is faster than the portable model beyond noise{_also(refused)}",
        entrant=fastest,
        error=0.0 if told is None else told.error,
        refused=refused,
        races=tuple(races),
    )


def _all_feeds(job: TunedJob, reference: Reference) -> Iterator[Feeds]:
    """Yield the inputs of a race at each set of sizes."""
    yield reference.feeds[0]
    specs = job.inputs.specs(job.original)
    for sizes in job.sizes[1:]:
        yield from job.inputs.feeds(specs, job.seeds[:1], sizes.inputs)


def _winner(races: Sequence[RaceResult], names: Sequence[str]) -> str:
    """Return the fastest form that beats the original and the portable result in all races."""

    def beats_all(name: str) -> bool:
        rivals = {ORIGINAL, PORTABLE}
        return all(
            held.beats(name, rival) for held in races for rival in rivals & set(held.entries)
        )

    def slowest(name: str) -> float:
        return max(held.entries[name].ratio for held in races)

    return min(filter(beats_all, names), key=slowest, default="")


def _won(job: TunedJob, name: str, form: _Form, refused: Mapping[str, str]) -> TunedResult:
    graph, base = form.graph, form.found.base
    if graph is job.original:
        graph, base = job.original_inside(), ORIGINAL
        if graph.ByteSize() + job.portable.ByteSize() > 2 * MOST_BYTES:
            raise RuntimeFailed("the model is too large for a file that holds it in two forms")
    assert isinstance(graph, onnx.ModelProto)
    facts = {
        "max_error": job.max_error,
        "error": form.error if math.isfinite(form.error) else None,
        "sizes": [one.inputs for one in job.sizes],
    }
    record = tuned_record(form.execution, facts)
    return replace(
        form.found,
        model=tuned_model(graph, job.portable, form.execution, record),
        base=base,
        record=record,
        entrant=name,
        execution=form.execution,
        error=form.error,
        refused=refused,
    )


def _told(refused: Mapping[str, str]) -> str:
    """Explain why there is no form: first for our kernels, then for other forms."""
    own = refused.get(TUNED, "")
    return own + _also(refused) if own else "; ".join(f"{k}: {v}" for k, v in refused.items())


def _also(refused: Mapping[str, str]) -> str:
    return "".join(
        f"; {name} took no part: {why}"
        for name, why in refused.items()
        if name not in (TUNED, SUITED)
    )
