"""Terms of a search and of a contest: shares of the time, sessions, seeds."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.egraph import Budget
from eqsat_opt.ir.sizes.sizes import Sizes
from eqsat_opt.pipeline.objective import is_by_clock, ties_broken
from eqsat_opt.pipeline.request import Request
from eqsat_opt.racing.examination import Terms
from eqsat_opt.runtime.devices.meters import found_meter
from eqsat_opt.select.proposal import SearchOptions

__all__ = [
    "NODE_S",
    "TRYING",
    "estimate_bulk_s",
    "search_options",
    "terms_of",
]


_SEARCH = 0.7
"""Share of the time left after loading that the search gets; the rest is for check and race."""


NODE_S = 5e-4
"""Seconds that a search takes for each operator at least, whatever it finds."""


TRYING = 0.3
"""Share of the time after loading in which sizes may be looked for at which the original runs."""


_RACE_S = 10.0
"""A race that lasts longer than this learns little more."""


def search_options(request: Request, sizes: Mapping[str, int], deadline: Deadline) -> SearchOptions:
    """How to search in the time until a deadline, of which check and race get a share."""
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
    )


def terms_of(
    request: Request, search: SearchOptions, sizes: tuple[Sizes, ...], deadline: Deadline
) -> Terms:
    is_raced = request.race and request.is_here
    return Terms(
        threads=request.threads,
        numerics=request.numerics,
        seeds=request.seeds,
        sizes=sizes,
        race_s=_RACE_S if is_raced else 0.0,
        # Whoever minimises something else than time wants the minimum, whatever the clock says.
        by_cost=not (request.is_here and is_by_clock(search.objective)),
        seed=request.seed,
        deadline=deadline,
        custom_ops=request.custom_ops,
        meter=found_meter().meter if is_raced else None,
        precision=request.precision,
    )


_LEAST_BYTES_PER_S, _MOST_BYTES_PER_S = 3e7, 1.5e8
"""At which a slow machine reads, copies and writes weights; no machine is taken to be faster."""


_OF_LOADING = 1.5
"""Writing a model, or loading it to be run, takes so many times longer than reading it in."""


def estimate_bulk_s(weight_bytes: int, load_s: float) -> float:
    """Seconds that going through all weights once more takes, told by what loading them took.

    Weights of other files are mapped and not read, and the first model of a process waits for
    libraries to load: hence the bounds.
    """
    least_s, most_s = weight_bytes / _MOST_BYTES_PER_S, weight_bytes / _LEAST_BYTES_PER_S
    return max(least_s, min(_OF_LOADING * load_s, most_s))
