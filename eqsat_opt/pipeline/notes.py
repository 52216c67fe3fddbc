"""Notes on a result: parts that were not searched, and assumptions that it rests on."""

from __future__ import annotations

from collections.abc import Iterator

from eqsat_opt.common.precision import Precision
from eqsat_opt.cost.metrics import (
    ENERGY,
    METRICS,
    TIME,
)
from eqsat_opt.cost.quotes import AnyPricer
from eqsat_opt.cost.recorded import RecordedPricer
from eqsat_opt.extract import AnyObjective, Ratio
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.pipeline.request import Request
from eqsat_opt.racing.earlier_result import Joined
from eqsat_opt.racing.entrants import ORIGINAL
from eqsat_opt.racing.examination import Decision
from eqsat_opt.racing.finding import Findings
from eqsat_opt.racing.verdict import Verdict

__all__ = [
    "caveats",
    "class_of",
    "in_less",
    "kept_open",
    "notes_of",
    "on_samples",
    "unlimited",
    "unrecorded",
]


def notes_of(joined: Joined, decision: Decision, lacking: str) -> Iterator[str]:
    if joined.note:
        yield joined.note
    if joined.found.late:
        names = ", ".join(map(repr, joined.found.late))
        yield f"there was no time to compute the constants of {names}; allow more with --budget"
    if lacking and not decision.obstacle:
        yield f"the original does not run in onnxruntime, so nothing was checked: {lacking}"


def unlimited(verdict: Verdict, breaks: str) -> Iterator[str]:
    if breaks and verdict.winner == ORIGINAL:
        yield f"the original stays although it breaks a limit: {breaks}"


def caveats(objective: AnyObjective, found: Findings) -> Iterator[str]:
    """Yield a note for each part of the objective for which lower bounds of prices prove nothing.

    A ratio is not bounded by lower bounds of its denominator, and a limit that is kept by lower
    bounds may be broken.
    """
    if found.proposal is None:
        return
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


def unrecorded(pricer: AnyPricer, found: Findings) -> Iterator[str]:
    """Yield a note on kernels of the result without a recorded price, and how to record them."""
    if found.proposal is None:
        return
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


def in_less(request: Request) -> Iterator[str]:
    """Yield a note that times of a lower precision compare only with times of the same one."""
    text = _IN_LESS.get(request.precision)
    if text is not None:
        yield (
            f"{text.format(target=request.target)}: its times stand beside those of other "
            f"{request.precision} results, and of no strict-fp32 ones"
        )


def on_samples(request: Request) -> Iterator[str]:
    """Yield which inputs of the user the check and the race had."""
    samples = request.inputs.samples
    if samples:
        more = f" and {len(samples) - 1} more" if len(samples) > 1 else ""
        yield f"check and race ran on {samples[0].file}{more}"


def class_of(request: Request) -> str:
    """Return the class of results among which an earlier one may compete: numerics, precision."""
    name = request.numerics.name.lower()
    if request.precision is Precision.STRICT:
        return name
    return f"{name} {request.precision}"


def kept_open(graph: Graph) -> Iterator[str]:
    """Yield a note that initializers which are also inputs are not folded."""
    if graph.parameters:
        yield (
            f"initializers that are inputs too, such as {min(graph.parameters)!r}, are not folded, "
            "as a caller may replace them; if none does, take them out of the inputs"
        )
