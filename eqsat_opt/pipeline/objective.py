"""The objective of a search, and whether anything is known of it on the target."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eqsat_opt.cost.metrics import (
    ENERGY,
    TIME,
    metric_name,
    peaks_capped,
    require_priced,
    with_ties_broken,
)
from eqsat_opt.errors import OptionError
from eqsat_opt.extract import AnyObjective, Objective, parse_objective
from eqsat_opt.pipeline.options import Options

if TYPE_CHECKING:
    pass
from eqsat_opt.pipeline.prices import known_energy, pricer_elsewhere

__all__ = [
    "is_by_clock",
    "is_measured",
    "is_time_alone",
    "objective_of",
    "ties_broken",
]


def _require_possible(objective: AnyObjective, options: Options) -> None:
    """Refuse an objective of which nothing is known on the target, or that it cannot tell apart.

    Raises:
        OptionError: there is no such target, no price for a metric, or a single stream.
    """
    if options.is_here:
        require_priced(objective, (TIME,) if known_energy(options) is None else (TIME, ENERGY))
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
    """Parse the objective and its limits, with metrics as the columns are called.

    Raises:
        OptionError: the objective or a limit is not in the grammar, or names a metric that is not
            known, or has no prices for the target; or there is no such target, or it has a single
            stream where several are asked for.
    """
    parsed = parse_objective(options.objective, options.limits, metric=metric_name)
    capped = peaks_capped(parsed)
    _require_possible(capped, options)
    return capped


def ties_broken(objective: AnyObjective) -> AnyObjective:
    """The same; a sum without time prefers, among graphs that cost the same, fewer launches."""
    if not isinstance(objective, Objective) or objective.weighs(TIME):
        return objective
    return replace(objective, weights=with_ties_broken(objective.weights))


def is_measured(objective: AnyObjective) -> bool:
    """Whether measuring kernels tells something that it is about."""
    return objective.uses(TIME) or objective.uses(ENERGY)


def is_by_clock(objective: AnyObjective) -> bool:
    """Whether a race can judge: only a sum with time in it has the clock for a measure."""
    return isinstance(objective, Objective) and objective.weights.get(TIME, 0.0) > 0


def is_time_alone(objective: AnyObjective) -> bool:
    """Whether time alone is minimised, without limits."""
    return (
        isinstance(objective, Objective)
        and not objective.is_limited
        and {name for name, weight in objective.weights.items() if weight} == {TIME}
    )
