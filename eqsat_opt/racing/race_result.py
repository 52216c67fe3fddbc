"""The outcome of a race: times of all entrants, the winner and its margin, and how quiet it was."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from eqsat_opt.racing.evidence import HeadToHead
from eqsat_opt.runtime.measure import ClockKind

__all__ = ["BUSY_SPREAD", "RaceEntry", "RaceResult"]

BUSY_SPREAD = 0.15
"""Two sessions of one model differ by this much on a quiet machine, and by more on a busy one."""


@dataclass(frozen=True)
class RaceEntry:
    """The times of one entrant; those of the original are of both its sessions.

    Attributes:
        name: name of the entrant.
        time_us: best time of one run.
        median_us: median over the builds of the best time in each.
        spread: (worst − best) / best of these.
        ratio: time relative to the original in the same build, median over the builds; below 1 is
            faster.
        session_us: best time in each build; for the original of both its sessions in turn.
        n_samples: number of timed samples.
        ahead: builds in which it was faster than both sessions of the original.
        wins: whether it beats the original (see `RaceResult`).
        note: why it did not take part, or left early; empty if it ran to the end.
        energy_uj: mean energy of a run, of all that the meter counts, other processes included;
            ``None`` where there was no meter.
    """

    name: str
    time_us: float
    median_us: float
    spread: float
    ratio: float
    session_us: tuple[float, ...]
    n_samples: int
    ahead: int = 0
    wins: bool = False
    note: str = ""
    energy_uj: float | None = None


@dataclass(frozen=True)
class RaceResult:
    """Outcome of a race.

    Attributes:
        winner: name of the fastest entrant that beats the original, or of the original where none
            does. The time of such an entrant, times `1 + threshold`, is below the original's, and
            it is faster than both sessions of the original in at least `needed` builds.
        original: name of the original.
        entries: all entrants in the order given.
        noise: root mean square of the relative difference between the original and its twin.
        tie: gain up to which the original keeps its place however little noise there is.
        threshold: gain that a win had to exceed: `tie`, or what noise explains after all builds.
        needed: builds in which a winner had to be ahead of both sessions of the original.
        clock: "cpu" where all entrants use one thread, otherwise "wall".
        builds: how often the sessions were built.
        rounds: rounds over all builds.
        seconds: length of the race.
        is_open: whether noise still decides some entrant's place.
        meter: name and scope of the meter that measured the energies; empty if there was none.
    """

    winner: str
    original: str
    entries: Mapping[str, RaceEntry]
    noise: float
    tie: float
    threshold: float
    needed: int
    clock: ClockKind
    builds: int
    rounds: int
    seconds: float
    is_open: bool = False
    meter: str = ""

    @property
    def speedup(self) -> float:
        """The factor by which the winner is faster than the original; 1 if the original won."""
        return 1.0 if self.winner == self.original else 1.0 / self.entries[self.winner].ratio

    @property
    def spread(self) -> float:
        """The relative difference of the original's sessions: (worst − best) / best."""
        return self.entries[self.original].spread

    @property
    def is_busy(self) -> bool:
        """Whether something else kept the machine busy."""
        return self.spread > BUSY_SPREAD

    @property
    def busy_text(self) -> str:
        """A sentence where the machine was busy; empty where it was quiet."""
        if not self.is_busy:
            return ""
        return (
            f"the machine was busy: sessions of the original spread by {self.spread:.0%}; "
            "measure again on a quiet machine"
        )

    def beats(self, name: str, rival: str) -> bool:
        """Return whether `name` is faster than `rival`, by the condition that holds for a win."""
        standing = self._standing(name, rival)
        return standing is not None and standing.wins

    def loses(self, name: str) -> bool:
        """Return whether `name` is slower than the original beyond the threshold.

        An entrant that did not run to the end loses as well.
        """
        standing = self._standing(name, self.original)
        return standing is None or standing.loses

    def _standing(self, name: str, rival: str) -> HeadToHead | None:
        """Compare two entrants; return ``None`` if either did not run to the end."""
        one, other = self.entries[name], self.entries[rival]
        if one.note or other.note:
            return None
        step = 2 if rival == self.original else 1
        trials = [other.session_us[i : i + step] for i in range(0, len(other.session_us), step)]
        times = one.session_us[::2] if name == self.original else one.session_us
        builds = min(len(times), len(trials))
        return HeadToHead(times[:builds], trials[:builds], math.log1p(self.noise), self.tie)

    def to_json(self) -> dict[str, Any]:
        """Return the race as JSON values; the times of a candidate that never ran are null."""
        data = {**asdict(self), "spread": self.spread, "is_busy": self.is_busy}
        for entry in data["entries"].values():
            for name, value in entry.items():
                if isinstance(value, float) and not math.isfinite(value):
                    entry[name] = None
        return {**data, "speedup": self.speedup}
