"""Lower bounds by linear programming with directed cuts, and the options that they rule out.

Extraction is a Steiner arborescence problem with hyper-arcs: in every set W of classes that
contains a needed class, some chosen option must have no child in W, or the derivation of that class
would never leave W. Those rows (loop formulas, taken over all classes and not only over cycles)
make a weak relaxation strong.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from eqsat_opt.extract.instance import Instance
from eqsat_opt.extract.problem import FloatArray
from eqsat_opt.extract.solve.relaxation import Mask, Relaxation
from eqsat_opt.extract.solve.separation import Separator

__all__ = ["Relaxed", "tighten"]

_STALL_ROUNDS = 8  # rounds whose progress predicts if the time left will close the gap
_TINY = 1e-9


@dataclass(frozen=True)
class Relaxed:
    """The result of the relaxation.

    Attributes:
        lower_bound: lower bound on the instance's cost, safe against the solver's rounding: it is
            computed from the dual solution, and any dual solution gives a bound.
        least: `[n_options]`; no solution with that option costs less.
        choice: `[n_classes]` options where the relaxation is integral and without a cycle, else
            None; then it is optimal.
    """

    lower_bound: float
    least: FloatArray
    choice: list[int] | None

    def possible(self, upper: float) -> Mask:
        """Return the options that solutions as good as a known one may have, `[n_options]`."""
        mask: Mask = self.least <= upper * (1 + _TINY)
        return mask


def tighten(
    instance: Instance,
    *,
    upper: float,
    rounds: int,
    gap: float = 0.0,
    seed: int = 0,
    deadline: float = math.inf,
    report: Callable[[float], None] = lambda bound: None,
) -> Relaxed:
    """Solve the relaxation, add violated cuts, repeat until it stalls.

    `upper` is the cost of a known solution, infinite without one.
    """
    separator = Separator(instance)
    relaxation = Relaxation(instance)
    rng = random.Random(seed)
    least: FloatArray = np.zeros(instance.n_options)
    choice: list[int] | None = None
    bounds, times = [0.0], [time.perf_counter()]
    for number in range(rounds + 1):
        taken = relaxation.solve(deadline - time.perf_counter())
        if taken is None:
            break
        bound, reduced = relaxation.safe_bound()
        bounds.append(max(bounds[-1], bound))
        times.append(time.perf_counter())
        report(bounds[-1])
        # A solution with an option costs at least its reduced cost beyond the bound.
        least = np.maximum(least, bound + np.maximum(reduced, 0.0))
        if bounds[-1] >= upper * (1 - gap) * (1 - _TINY) or _stalled(
            bounds, times, upper, deadline
        ):
            break
        cuts = separator.violated(taken, rng)
        if not cuts:
            choice = _whole(instance, taken)
            break
        if number == rounds or time.perf_counter() >= deadline:
            break
        for mask, target in cuts:
            relaxation.cut(mask, target)
    return Relaxed(bounds[-1], least, choice)


def _stalled(
    bounds: Sequence[float], times: Sequence[float], upper: float, deadline: float
) -> bool:
    """Return whether the pace of the last rounds would close less than half of the gap in time."""
    if len(bounds) <= _STALL_ROUNDS or math.isinf(deadline) or math.isinf(upper):
        return False
    gain = bounds[-1] - bounds[-1 - _STALL_ROUNDS]
    pace = gain / (times[-1] - times[-1 - _STALL_ROUNDS])
    return pace * (deadline - times[-1]) < (upper - bounds[-1]) / 2


def _whole(instance: Instance, taken: FloatArray) -> list[int] | None:
    """Return the choice of the relaxation if it is integral and a solution, else None."""
    if bool(((taken > 1e-6) & (taken < 1 - 1e-6)).any()):
        return None
    choice = [-1] * instance.n_classes
    for option in np.flatnonzero(taken > 0.5).tolist():
        choice[instance.option_class[option]] = option
    return choice if math.isfinite(instance.evaluate(choice)) else None
