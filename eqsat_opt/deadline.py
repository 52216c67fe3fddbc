"""One moment by which work shall have ended, handed through every stage.

Stages that get seconds of their own add up to more than the user gave; a moment cannot.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Deadline"]

Clock = Callable[[], float]


@dataclass(frozen=True)
class Deadline:
    """A moment of a clock that only goes forward.

    Attributes:
        at_s: the moment; infinite where nothing presses.
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
        """Seconds until then, never negative."""
        return max(0.0, self.at_s - self.clock())

    @property
    def expired(self) -> bool:
        """Whether nothing is left."""
        return self.clock() >= self.at_s

    def share(self, fraction: float, least_s: float = 0.0) -> Deadline:
        """The moment by which a stage that gets ``fraction`` of what is left shall have ended.

        Args:
            fraction: of :attr:`left_s`.
            least_s: seconds that the stage gets in any case, even beyond this deadline: for what a
                useful answer cannot do without.
        """
        return Deadline(self.clock() + max(least_s, fraction * self.left_s), self.clock)
