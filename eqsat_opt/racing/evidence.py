"""The evidence of a race: which entrant beats which, and whether further builds would show more.

Noise is how far two sessions of one model differ. It shrinks with the square root of the builds, so
a small gain that three builds cannot distinguish from luck may show in ten.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

__all__ = ["HeadToHead", "Trial", "log_noise"]

# Two identical sessions may differ by this much: the noise where there was time for one build.
_SINGLE_BUILD_NOISE = 0.15
# Up to this many builds the noise is not scaled down, as its estimate from so few is poor.
_FEW_BUILDS = 3
# Probability with which an entrant that equals its rival may be ahead in as many builds as a win
# needs: that with which a given one of three equal sessions comes first three times in a row.
_LUCK = 1 / 27

Trial = Sequence[float]
"""Best times of a rival's sessions in one build: two of the original, one of any other."""


def log_noise(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the root mean square difference of the original's two sessions, as a logarithm."""
    differences = [math.log(own / twin) for own, twin in pairs]
    noise = math.sqrt(statistics.fmean(d * d for d in differences))
    return max(noise, math.log1p(_SINGLE_BUILD_NOISE)) if len(pairs) < 2 else noise


@dataclass(frozen=True)
class HeadToHead:
    """The times of an entrant against those of a rival, over the builds that both ran.

    Attributes:
        times: best time of the entrant in each build.
        trials: best times of the rival's sessions in each build.
        noise: noise of one build, as a logarithm (see `log_noise`).
        tie: gain up to which the rival keeps its place.
    """

    times: Sequence[float]
    trials: Sequence[Trial]
    noise: float
    tie: float

    @cached_property
    def ratio(self) -> float:
        """Time relative to the rival's in the same build, median over the builds."""
        return statistics.median(
            time / math.exp(statistics.fmean(map(math.log, trial)))
            for time, trial in zip(self.times, self.trials, strict=True)
        )

    @cached_property
    def ahead(self) -> int:
        """Builds in which it was faster than every session of the rival."""
        pairs = zip(self.times, self.trials, strict=True)
        return sum(time < min(trial) for time, trial in pairs)

    @cached_property
    def needed(self) -> int:
        """Builds in which a winner has to be ahead: all of three, fewer in proportion of many."""
        builds = len(self.times)
        chance = 1 / (1 + len(self.trials[0]))
        luck = 0.0
        for count in range(builds, 0, -1):
            luck += math.comb(builds, count) * chance**count * (1 - chance) ** (builds - count)
            if luck > _LUCK:
                return min(count + 1, builds)
        return builds

    @property
    def _margin(self) -> float:
        """The part of the ratio's logarithm that noise explains: two of its standard errors."""
        return self.noise * math.sqrt(_FEW_BUILDS / max(_FEW_BUILDS, len(self.times)))

    @property
    def threshold(self) -> float:
        """The gain that a win has to exceed: the tie margin, or what noise explains if more."""
        return max(self.tie, math.expm1(self._margin))

    @property
    def wins(self) -> bool:
        """Whether it is faster beyond the threshold, and ahead in as many builds as needed."""
        return self.ratio * (1 + self.threshold) < 1 and self.ahead >= self.needed

    @property
    def loses(self) -> bool:
        """Whether it is slower beyond the threshold."""
        return self.ratio > 1 + self.threshold

    @property
    def is_beaten(self) -> bool:
        """Whether a gain beyond the tie margin is out of reach, whatever further builds bring."""
        return math.log(self.ratio) - self._margin > -math.log1p(self.tie)

    @property
    def is_open(self) -> bool:
        """Whether noise decides: the tie margin lies within what noise explains of the ratio."""
        clear = -math.log(self.ratio) - self._margin > math.log1p(self.tie)
        return not self.is_beaten and not (clear and self.wins)
