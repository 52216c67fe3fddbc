"""A deadline that is passed through every stage.

Stages that get seconds of their own add up to more than the user gave; a moment cannot.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Deadline", "OutOfTime"]

Clock = Callable[[], float]


class OutOfTime(Exception):
    """A deadline struck, or would have, before there was an answer; it says nothing of any."""


@dataclass(frozen=True)
class Deadline:
    """A deadline on a monotonic clock.

    Attributes:
        at_s: the moment; infinite if there is no limit.
        clock: seconds since some fixed moment.
    """

    at_s: float
    clock: Clock = field(default=time.monotonic, repr=False)

    @classmethod
    def after(cls, seconds: float, clock: Clock = time.monotonic) -> Deadline:
        """The moment ``seconds`` from now."""
        return cls(clock() + seconds, clock)

    @classmethod
    def never(cls) -> Deadline:
        """No limit."""
        return cls(math.inf)

    @property
    def left_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.at_s - self.clock())

    @property
    def expired(self) -> bool:
        """Whether the deadline has passed."""
        return self.clock() >= self.at_s

    def before(self, seconds: float) -> Deadline:
        """The deadline of what is followed by something that takes so many seconds."""
        return Deadline(self.at_s - seconds, self.clock)

    def share(self, fraction: float, least_s: float = 0.0) -> Deadline:
        """The deadline of a stage that gets ``fraction`` of the time left.

        Args:
            fraction: of :attr:`left_s`.
            least_s: seconds that the stage gets in any case, even beyond this deadline, because
                without it there is no useful answer.
        """
        return Deadline(self.clock() + max(least_s, fraction * self.left_s), self.clock)
