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
from eqsat_opt.deadline import Deadline
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.sizes import Sizes
from eqsat_opt.runtime.backends.native.library import missing
from eqsat_opt.runtime.backends.native.tuned_file import MOST_BYTES, open_as_raced, tuned_model
from eqsat_opt.runtime.backends.native.tuning import NotTuned, tune
from eqsat_opt.runtime.backends.ort.session import OrtOptions
from eqsat_opt.runtime.source import ModelSource

__all__ = ["PORTABLE", "TUNED", "TunedContest", "hold_tuned_contest"]

PORTABLE, TUNED = "portable", "tuned"
"""Entrants beside the original."""

_RACE = 0.5
"""Share of the time that the race gets; the rest is for measuring layers."""

_RACE_S = 10.0


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
        note: what could not be tried, and why, as a sentence without a period; empty otherwise.
    """

    model: onnx.ModelProto | None = None
    why: str = ""
    algorithms: Mapping[str, int] = field(default_factory=dict)
    n_sites: int = 0
    withdrawn: int = 0
    error: float = 0.0
    race: RaceResult | None = None
    note: str = ""


def hold_tuned_contest(
    original: ModelSource,
    portable: onnx.ModelProto,
    session: OrtOptions,
    *,
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
    try:
        reference = Reference.of(original, session, seeds, sizes.inputs)
        found = tune(
            portable,
            session,
            tuple(zip(reference.feeds, reference.outputs, strict=True)),
            max_error=max_error,
            deadline=deadline.share(1 - _RACE) if is_raced else deadline,
        )
        facts = {"threads": session.threads, "max_error": max_error, "error": found.error}
        model = tuned_model(found.model, portable, facts)
        result = TunedContest(
            model,
            algorithms=dict(sorted(found.algorithms.items())),
            n_sites=found.n_sites,
            withdrawn=found.withdrawn,
            error=found.error,
            note=found.note,
        )
        if not is_raced:
            return result
        return _raced(
            result,
            original,
            portable,
            session,
            reference=reference,
            deadline=deadline,
            is_original=is_original,
        )
    except NotTuned as error:
        return TunedContest(why=str(error))
    except RuntimeFailed as error:
        return TunedContest(why=str(error))


def _raced(
    result: TunedContest,
    original: ModelSource,
    portable: onnx.ModelProto,
    session: OrtOptions,
    *,
    reference: Reference,
    deadline: Deadline,
    is_original: bool,
) -> TunedContest:
    assert result.model is not None
    models: dict[str, ModelSource] = {ORIGINAL: original}
    if not is_original:
        models[PORTABLE] = portable
    models[TUNED] = result.model
    held = race(
        {name: partial(open_as_raced, model, session) for name, model in models.items()},
        ORIGINAL,
        reference.feeds[0],
        threads=session.threads,
        time_limit_s=min(_RACE_S, deadline.left_s),
        extension_s=min(_RACE_S, deadline.left_s / 2),
    )
    if all(held.beats(TUNED, rival) for rival in models if rival != TUNED):
        return replace(result, race=held)
    why = "it is no faster than the portable model beyond noise"
    return replace(result, model=None, why=why, race=held)
