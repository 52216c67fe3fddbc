"""What a report says of forms of the result: that for this machine, and the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eqsat_opt.common.text import (
    counted,
    time_text,
)

if TYPE_CHECKING:
    pass


__all__ = [
    "Planned",
    "Tuned",
]


@dataclass(frozen=True)
class Tuned:
    """The form of the result for this machine.

    Attributes:
        output: the file that was written.
        won: whether it holds the tuned form; otherwise it holds the portable result.
        why: why it does not, as a sentence without a period.
        winner: the entrant that it is; empty if there is none.
        runtime, setting: how it is run: ``native`` is onnxruntime with our kernels.
        threads: it is for; with others the portable model in it is run.
        speedup: time of the original over that of the tuned form, the least over all sizes; 1 where
            it was not raced.
        portable_speedup: time of the original over that of the portable result in the same race.
        algorithms: name of an algorithm to how many sites it computes: nodes replaced together.
        n_sites: how many could have been computed otherwise.
        is_suited: whether the graph is another than the portable one, cheaper with these kernels.
        withdrawn: how many fell back because of their errors.
        error: largest difference from the original's outputs, relative to the maximum of each.
        max_error: what was allowed.
        refused: forms that took no part in the race, and why.
        race: of original, portable result and forms, where ``tuned`` is what our kernels run; empty
            if there was none.
        further_races: the same on further sets of sizes.
        note: what could not be tried, and why, as a sentence without a period; empty otherwise.
    """

    output: str
    won: bool
    why: str
    winner: str
    runtime: str
    setting: Mapping[str, Any]
    threads: int
    speedup: float
    portable_speedup: float
    algorithms: Mapping[str, int]
    n_sites: int
    is_suited: bool
    withdrawn: int
    error: float
    max_error: float
    refused: Mapping[str, str]
    race: Mapping[str, Any]
    further_races: tuple[Mapping[str, Any], ...] = ()
    note: str = ""

    @property
    def text(self) -> str:
        """What was written, what it gains, and how far its outputs are from the original's."""
        if not self.won:
            return f"{self.why}; {self.output} holds the portable result"
        gain = (
            f"{self.speedup:.2f}x the original's speed (the portable result "
            f"{self.portable_speedup:.2f}x), "
            if self.race
            else ""
        )
        also = "".join(
            f"; {name} took no part: {why}"
            for name, why in self.refused.items()
            if not name.startswith("tuned")
        )
        if self.note:
            also += f"; {self.note}"
        return (
            f"{gain}{self._how_text}; outputs differ by at most {self.error:.1e} of their maximum, "
            f"{self.max_error:.0e} is allowed{also}; written to {self.output}, which "
            f"eqsat_opt.session opens on this machine with {counted(self.threads, 'thread')}"
        )

    @property
    def _how_text(self) -> str:
        """What runs it, or computes it otherwise."""
        if self.runtime != "native":
            return f"run by {self.winner}"
        kinds = ", ".join(f"{name} ×{count}" for name, count in self.algorithms.items())
        back = f"; {self.withdrawn} fell back to keep the error" if self.withdrawn else ""
        of_all = f"{sum(self.algorithms.values())} of {counted(self.n_sites, 'site')}"
        suited = " of a graph chosen for these kernels" if self.is_suited else ""
        return f"{of_all}{suited} computed otherwise ({kinds}){back}"


@dataclass(frozen=True)
class Planned:
    """The plan of the result.

    Attributes:
        output: the file that was written.
        target: the device that it is for.
        graph: what it computes: the result, or the cheapest graph found.
        placement: who runs it, in words.
        launches: backend to how many it runs.
        predicted_us: its simulated time, µs, of the times of its launches.
        measured_us: of one run in the race, µs; ``None`` where it was not raced.
        won: whether it beats the original and the portable result.
        speedup: time of the original over that of the plan; 1 where it was not raced.
        portable_speedup: time of the original over that of the portable result in the same race.
        bounds: how many prices are lower bounds, for want of measurements on the device.
        prices: how many there are, for a device that is not here.
        considered: further plans, and their simulated times, µs.
        refused: plans that do not run here or compute something else, and why.
        race: of original, portable result and plans; empty if there was none.
    """

    output: str
    target: str
    graph: str
    placement: str
    launches: Mapping[str, int]
    predicted_us: float
    measured_us: float | None = None
    won: bool = False
    speedup: float = 1.0
    portable_speedup: float = 1.0
    bounds: int = 0
    prices: int = 0
    considered: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    race: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """What was written, and how it compares with the portable result."""
        total = sum(self.launches.values())
        if self.prices:
            least = " at least" if self.bounds else ""
            return (
                f"planned for {self.target}, not run: {counted(total, 'kernel')} of {self.graph}, "
                f"{time_text(self.predicted_us)}{least}; {self.bounds} of {self.prices} prices are "
                f"bounds; written to {self.output}"
            )
        by = ", ".join(f"{name} ×{count}" for name, count in self.launches.items())
        what = f"{self.graph}, {counted(total, 'kernel')} ({by})"
        if not self.race:
            return f"{what}, {time_text(self.predicted_us)} simulated; written to {self.output}"
        gain = (
            f"{self.speedup:.2f}x the original's speed (the portable result "
            f"{self.portable_speedup:.2f}x)"
        )
        verdict = "the plan is faster" if self.won else "no plan is faster beyond noise"
        return f"{verdict}: {gain}, {what}; written to {self.output}"
