"""The machine's own form of a result: tuned, compared with the original, and raced.

It competes with the portable result, not only with the original: what gains nothing is not worth a
file that fits one machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import onnx

from eqsat_opt.contest.compare import Reference
from eqsat_opt.contest.entrants import ORIGINAL
from eqsat_opt.contest.race import race
from eqsat_opt.contest.race_result import RaceResult
from eqsat_opt.deadline import Deadline, OutOfTime
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.sizes import Sizes
from eqsat_opt.runtime.backends.native.library import missing
from eqsat_opt.runtime.backends.native.tuned_file import MOST_BYTES, open_as_raced, tuned_model
from eqsat_opt.runtime.backends.native.tuning import NotTuned, tune
from eqsat_opt.runtime.backends.ort.sandbox import sandbox
from eqsat_opt.runtime.backends.ort.session import OrtOptions
from eqsat_opt.runtime.source import ModelSource

__all__ = ["NO_TIME", "PORTABLE", "SUITED", "TUNED", "TunedContest", "hold_tuned_contest"]

PORTABLE, TUNED, SUITED = "portable", "tuned", "tuned-suited"
"""Entrants beside the original."""

_RACE = 0.5
"""Share of the time that the race gets; the rest is for measuring layers."""

_RACE_S = 10.0


_SESSIONS = 8
"""The least tuning builds so many sessions, each of which runs twice."""

NO_TIME = "there was no time to tune and to race it; allow more with --budget"


@dataclass(frozen=True)
class TunedContest:
    """What tuning gave.

    Attributes:
        model: the content of the tuned file; ``None`` where it is no faster than the portable one.
        why: why it is not, as a sentence without a period; empty if it is.
        algorithms: name of an algorithm to how many sites it computes.
        n_sites: how many could have been computed otherwise.
        withdrawn: how many fell back because of their errors.
        error: largest difference from the original's outputs, relative to the maximum of each.
        race: original, portable and tuned; ``None`` if there was none.
        entrant: its name in the race: `SUITED` where the graph is the one that suits our kernels.
    """

    model: onnx.ModelProto | None = None
    why: str = ""
    algorithms: Mapping[str, int] = field(default_factory=dict)
    n_sites: int = 0
    withdrawn: int = 0
    error: float = 0.0
    race: RaceResult | None = None
    entrant: str = TUNED


def hold_tuned_contest(
    original: ModelSource,
    portable: onnx.ModelProto,
    session: OrtOptions,
    *,
    suited: onnx.ModelProto | None = None,
    sizes: Sizes,
    seeds: tuple[int, ...],
    max_error: float,
    deadline: Deadline,
    is_original: bool,
    is_raced: bool = True,
) -> TunedContest:
    """Tune the portable result and race it.

    Args:
        original: the model as it came.
        portable: the result, its weights in it.
        session: how models run here.
        suited: another graph, which may be faster than the portable one once it is tuned.
        sizes: of symbolic dimensions.
        seeds: of random inputs, one at least; errors are measured on all.
        max_error: bound on the error of each output, relative to its maximum.
        deadline: of everything.
        is_original: whether the portable result is the original, and need not race it.
        is_raced: whether a race decides; otherwise the times of the layers do.

    A model that cannot be tuned is no error: the reason is in the result.
    """
    if why := missing():
        return TunedContest(why=why)
    if portable.ByteSize() > MOST_BYTES:
        return TunedContest(why="the model is too large for a file that holds it in two forms")
    bases = {TUNED: portable}
    if suited is not None and is_raced and suited.ByteSize() <= MOST_BYTES:
        bases[SUITED] = suited
    made: dict[str, TunedContest] = {}
    time = deadline.share(1 - _RACE) if is_raced else deadline
    try:
        with sandbox() as box:
            reference = Reference.of(
                original,
                session,
                seeds,
                sizes.inputs,
                open_session=partial(box.open, deadline=time),
                deadline=time,
            )
        for left, (name, base) in zip(range(len(bases), 0, -1), bases.items(), strict=True):
            made[name] = replace(
                _tuned(
                    base,
                    portable,
                    session,
                    reference=reference,
                    max_error=max_error,
                    deadline=time.share(1 / left),
                ),
                entrant=name,
            )
        entrants = {name: one for name, one in made.items() if one.model is not None}
        if not entrants or not is_raced:
            return made[TUNED]
        return _raced(
            entrants,
            original,
            portable,
            session,
            reference=reference,
            deadline=deadline,
            is_original=is_original,
        )
    except RuntimeFailed as error:
        return TunedContest(why=str(error))
    except OutOfTime:
        return TunedContest(why=NO_TIME)


def _tuned(
    base: onnx.ModelProto,
    portable: onnx.ModelProto,
    session: OrtOptions,
    reference: Reference,
    max_error: float,
    deadline: Deadline,
) -> TunedContest:
    if deadline.left_s < _SESSIONS * (reference.build_s + reference.run_s):
        return TunedContest(why=NO_TIME)
    trials = tuple(zip(reference.feeds, reference.outputs, strict=True))
    try:
        found = tune(base, session, trials, max_error=max_error, deadline=deadline)
    except NotTuned as error:
        return TunedContest(why=str(error))
    facts = {"threads": session.threads, "max_error": max_error, "error": found.error}
    return TunedContest(
        tuned_model(found.model, portable, facts),
        algorithms=dict(sorted(found.algorithms.items())),
        n_sites=found.n_sites,
        withdrawn=found.withdrawn,
        error=found.error,
    )


def _raced(
    tuned: Mapping[str, TunedContest],
    original: ModelSource,
    portable: onnx.ModelProto,
    session: OrtOptions,
    *,
    reference: Reference,
    deadline: Deadline,
    is_original: bool,
) -> TunedContest:
    """The fastest of the tuned forms, if it beats the others."""
    models: dict[str, ModelSource] = {ORIGINAL: original}
    if not is_original:
        models[PORTABLE] = portable
    rivals = tuple(models)
    models |= {name: one.model for name, one in tuned.items() if one.model is not None}
    if deadline.left_s < (len(models) + 1) * reference.entrant_s:
        raise OutOfTime
    held = race(
        {name: partial(open_as_raced, model, session) for name, model in models.items()},
        ORIGINAL,
        reference.feeds[0],
        threads=session.threads,
        time_limit_s=min(_RACE_S, deadline.left_s),
        extension_s=min(_RACE_S, max(0.0, deadline.left_s - _RACE_S)),
    )
    winner = min(tuned, key=lambda name: held.entries[name].ratio)
    result = replace(tuned[winner], race=held)
    if all(held.beats(winner, rival) for rival in rivals):
        return result
    why = "it is no faster than the portable model beyond noise"
    return replace(result, model=None, why=why)
