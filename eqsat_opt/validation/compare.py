"""Comparison of two models by their outputs on random inputs, and on those where errors show.

The allowed difference depends on :mod:`eqsat_opt.validation.tolerances`, and on how far the
original moves by itself (:mod:`eqsat_opt.validation.own_movement`).
"""

from __future__ import annotations

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.common.precision import Precision
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.backends.ort.session import OpenSession, OrtOptions, OrtSession
from eqsat_opt.runtime.source import ModelSource
from eqsat_opt.validation.judge import Judge
from eqsat_opt.validation.reference import Reference, Trial
from eqsat_opt.validation.tolerances import TOLERANCES, Difference

__all__ = ["TOLERANCES", "Difference", "OpenSession", "Reference", "Trial", "differences"]


def differences(
    reference: Reference,
    model: ModelSource,
    options: OrtOptions,
    numerics: Numerics,
    *,
    open_session: OpenSession = OrtSession,
    open_candidate: OpenSession | None = None,
    precision: Precision = Precision.STRICT,
) -> tuple[Difference, ...]:
    """Compare ``model`` with the reference, output by output, and then on its trials.

    ``open_candidate`` loads ``model`` where another runtime runs it than the original. Under the
    precision ``fp16`` outputs are judged as those of a model in float16.

    Where outputs differ and both models quantise, they are compared once more between their
    quantisations (:mod:`eqsat_opt.validation.partitions`), with the same tolerances. If all agrees
    there, the outputs differ by floats that were rounded to the neighbouring step, which is no
    error; the relative difference is then the largest between quantisations.

    Raises:
        RuntimeFailed: ``model`` does not run on random inputs, or has other outputs.
    """
    open_candidate = open_candidate or open_session
    session = open_candidate(model, options)
    if tuple(session.output_names) != reference.names:
        raise RuntimeFailed(
            f"outputs are {', '.join(session.output_names)} instead of {', '.join(reference.names)}"
        )
    judge = Judge(
        reference=reference,
        model=model,
        options=options,
        numerics=numerics,
        open_session=open_session,
        open_candidate=open_candidate,
        precision=precision,
    )
    results = [session.run(feeds) for feeds in reference.feeds]
    found = judge.compare(results)
    if any(difference.why for difference in found):
        found = judge.between_quantisations(found, reference.feeds)
    found = judge.against_movement(found, results)
    if any(difference.why for difference in found):
        return found
    wrong = next((one for trial in reference.trials if (one := judge.on(trial, session))), None)
    if wrong is None:
        return found
    return tuple(wrong if one.name == wrong.name else one for one in found)
