"""Terms of a search and of a contest: shares of the time, sessions, seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.precision import Precision
from eqsat_opt.egraph import Budget
from eqsat_opt.extract import AnyObjective
from eqsat_opt.ir.sizes.sizes import Sizes
from eqsat_opt.pipeline.options import Options
from eqsat_opt.racing.examination import Terms
from eqsat_opt.runtime.backends.ort.session import OrtOptions
from eqsat_opt.runtime.devices.meters import found_meter
from eqsat_opt.select.proposal import SearchOptions

if TYPE_CHECKING:
    pass
from eqsat_opt.pipeline.objective import is_by_clock, ties_broken

__all__ = [
    "NODE_S",
    "TRYING",
    "estimate_bulk_s",
    "search_options",
    "session_options",
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


def search_options(
    options: Options, objective: AnyObjective, sizes: Mapping[str, int], deadline: Deadline
) -> SearchOptions:
    """How to search in the time until a deadline, of which check and race get a share."""
    return SearchOptions(
        ties_broken(objective),
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


def session_options(options: Options) -> OrtOptions:
    """How sessions are opened for the user."""
    return OrtOptions(options.threads, custom_ops=options.custom_ops)


def terms_of(
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
        by_cost=not (options.is_here and is_by_clock(search.objective)),
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


def estimate_bulk_s(weight_bytes: int, load_s: float) -> float:
    """Seconds that going through all weights once more takes, told by what loading them took.

    Weights of other files are mapped and not read, and the first model of a process waits for
    libraries to load: hence the bounds.
    """
    least_s, most_s = weight_bytes / _MOST_BYTES_PER_S, weight_bytes / _LEAST_BYTES_PER_S
    return max(least_s, min(_OF_LOADING * load_s, most_s))
