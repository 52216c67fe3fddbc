"""Times on a device: contestants by turns in an order that is drawn anew, median and deviation."""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu.unit import Sampler
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.runtime.measure import Measurement

__all__ = ["MOST_ROUNDS", "Timed", "by_turns", "runs_for"]

LEAST_ROUNDS, MOST_ROUNDS = 5, 31
_SAMPLE_US = 1000.0
"""Of a sample: what two events around it cost is lost in it."""

_MOST_RUNS = 1000


@dataclass(frozen=True)
class Timed:
    """Samples of a contestant, µs each, in the order in which they were taken."""

    samples_us: tuple[float, ...]

    @property
    def median_us(self) -> float:
        """The estimate: clocks of a device change, so the least is of its fastest moment."""
        return statistics.median(self.samples_us)

    @property
    def mad_us(self) -> float:
        """Median absolute deviation from the median."""
        return statistics.median(abs(one - self.median_us) for one in self.samples_us)

    @property
    def measurement(self) -> Measurement:
        """By the contract of all measurements."""
        ordered = sorted(self.samples_us)
        return Measurement(
            time_us=self.median_us,
            p20_us=ordered[int(0.2 * (len(ordered) - 1))],
            median_us=self.median_us,
            n=len(ordered),
            n_preempted=0,
            clock="device",
            wall_us=ordered[0],
            cpu_us=0.0,
        )

    def to_json(self) -> dict[str, Any]:
        """As results have it."""
        return {
            "measurement": self.measurement.to_json(),
            "mad_us": self.mad_us,
            "samples_us": [round(one, 4) for one in self.samples_us],
        }


def by_turns(
    contestants: Mapping[str, Sampler],
    budget_s: float,
    *,
    deadline: Deadline | None = None,
    seed: int = 0,
) -> dict[str, Timed]:
    """Take a sample of each contestant in turn, in another order each time.

    Args:
        contestants: by name; what they need was made before, and each ran once.
        budget_s: after which no further round begins, but for the first few.
        deadline: the moment, in place of `budget_s`.
        seed: of the orders.
    """
    deadline = deadline or Deadline.after(budget_s)
    draw, names = random.Random(seed), list(contestants)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for number in range(MOST_ROUNDS if names else 0):
        if number >= LEAST_ROUNDS and deadline.expired:
            break
        draw.shuffle(names)
        for name in names:
            samples[name].append(contestants[name]())
    return {name: Timed(tuple(found)) for name, found in samples.items()}


def runs_for(samples_us: Sequence[float]) -> int:
    """How many runs make a sample long enough, by the time of some."""
    least_us = max(min(samples_us), 1e-3)
    return max(1, min(_MOST_RUNS, round(_SAMPLE_US / least_us)))
