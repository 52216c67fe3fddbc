"""Terms of a search and of a race: shares of the time, sessions, seeds."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.egraph import Budget
from eqsat_opt.ir.sizes.sizes import Sizes
from eqsat_opt.pipeline.objective import is_by_clock, ties_broken
from eqsat_opt.pipeline.request import Request
from eqsat_opt.racing.examination import RaceTerms
from eqsat_opt.runtime.devices.meters import found_meter
from eqsat_opt.select.proposal import SearchOptions

__all__ = [
    "TRYING",
    "estimate_bulk_s",
    "search_options",
    "terms_of",
]


_SEARCH = 0.7
"""Share of the time left after loading that the search gets; the rest is for check and race."""


TRYING = 0.3
"""Share of the time after loading for finding sizes at which the original runs."""


_RACE_S = 10.0
"""Most seconds of a race; a longer one finds out little more."""


def search_options(request: Request, sizes: Mapping[str, int], deadline: Deadline) -> SearchOptions:
    """Return the options of a search, which leaves a share of the time to check and race."""
    return SearchOptions(
        ties_broken(request.objective),
        Budget(nodes=request.nodes),
        sizes,
        measure=request.measure and request.is_here,
        alternatives=request.alternatives if request.race else 0,
        deadline=deadline.share(_SEARCH),
        saturation_limit_s=request.saturation_limit_s,
        gap=request.gap,
        seed=request.seed,
        exact=request.exact,
        streams=request.streams,
        in_session=request.is_here or request.is_recorded,
    )


def terms_of(
    request: Request, search: SearchOptions, sizes: tuple[Sizes, ...], deadline: Deadline
) -> RaceTerms:
    is_raced = request.race and request.is_here
    return RaceTerms(
        threads=request.threads,
        numerics=request.numerics,
        seeds=request.seeds,
        sizes=sizes,
        race_s=_RACE_S if is_raced else 0.0,
        # An objective without time is not about speed, so its minimum need not be faster.
        by_cost=not (request.is_here and is_by_clock(search.objective)),
        seed=request.seed,
        deadline=deadline,
        custom_ops=request.custom_ops,
        meter=found_meter().meter if is_raced else None,
        precision=request.precision,
        inputs=request.inputs,
    )


_LEAST_BYTES_PER_S, _MOST_BYTES_PER_S = 3e7, 1.5e8
"""Least and highest rate that is assumed for reading, copying and writing weights, in bytes per
second; the least is that of a slow machine."""


_OF_LOADING = 1.5
"""Time of writing a model, or of loading it into a session, relative to that of reading it."""


def estimate_bulk_s(weight_bytes: int, load_s: float) -> float:
    """Estimate the seconds of another pass over all weights from the time of loading them.

    The bounds are needed because weights in other files are mapped and not read, and because the
    first model of a process waits until libraries are loaded.
    """
    least_s, most_s = weight_bytes / _MOST_BYTES_PER_S, weight_bytes / _LEAST_BYTES_PER_S
    return max(least_s, min(_OF_LOADING * load_s, most_s))
