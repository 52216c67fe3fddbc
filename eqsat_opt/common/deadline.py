"""A deadline that is passed through every stage.

Stages with time limits of their own may add up to more than the user's limit; one common deadline
cannot be exceeded that way.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Deadline", "OutOfTime"]

Clock = Callable[[], float]


class OutOfTime(Exception):
    """The deadline passed, or would have, before there was an answer; the answer is unknown."""


@dataclass(frozen=True)
class Deadline:
    """A deadline on a monotonic clock.

    Attributes:
        at_s: the moment of the deadline; infinite if there is no limit.
        clock: returns the seconds since some fixed moment.
    """

    at_s: float
    clock: Clock = field(default=time.monotonic, repr=False)

    @classmethod
    def after(cls, seconds: float, clock: Clock = time.monotonic) -> Deadline:
        """Return a deadline ``seconds`` from now."""
        return cls(clock() + seconds, clock)

    @classmethod
    def never(cls) -> Deadline:
        """Return a deadline that never passes."""
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
        """Return the deadline of work that is followed by a step of this many seconds."""
        return Deadline(self.at_s - seconds, self.clock)

    def earlier(self, other: Deadline) -> Deadline:
        """Return the earlier of two deadlines of one clock."""
        return self if self.at_s <= other.at_s else other

    def share(self, fraction: float, least_s: float = 0.0) -> Deadline:
        """Return the deadline of a stage that gets ``fraction`` of the time left.

        Args:
            fraction: the share of :attr:`left_s`.
            least_s: seconds that the stage gets in any case, even beyond this deadline, because
                without it there is no useful answer.
        """
        return Deadline(self.clock() + max(least_s, fraction * self.left_s), self.clock)
