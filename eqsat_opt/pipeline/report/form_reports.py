"""Facts about further forms of a result in a report: the tuned form and the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eqsat_opt.common.text import counted, time_text
from eqsat_opt.runtime.backends.native import NAME as NATIVE

__all__ = ["Approximated", "Planned", "Tuned"]


@dataclass(frozen=True)
class Tuned:
    """The form of the result for this machine.

    Attributes:
        output: the file that was written.
        won: whether the file holds the tuned form; otherwise it holds the portable result.
        why: why it holds the portable result, as a sentence without a period.
        winner: name of the entrant that the tuned form is; empty if there is none.
        runtime, setting: runtime of the tuned form, where ``native`` is onnxruntime with our
            kernels, and its settings.
        threads: number of threads that it is tuned for; with another number the portable model in
            the file runs.
        speedup: time of the original over that of the tuned form, the least over all sizes; 1 where
            it was not raced.
        portable_speedup: time of the original over that of the portable result in the same race.
        algorithms: name of an algorithm to the number of sites that it computes. A site is a group
            of nodes that are replaced together.
        n_sites: number of sites for which there was another algorithm.
        is_suited: whether the graph differs from the portable one, as it is cheaper with our
            kernels.
        withdrawn: number of sites that went back to onnxruntime because of their errors.
        error: largest difference from the original's outputs, relative to the maximum of each.
        max_error: bound on ``error``.
        refused: name of a form that took no part in the race to the reason.
        race: the race of original, portable result and forms, in which ``tuned`` is the form with
            our kernels; empty if there was none.
        further_races: races on further sets of sizes.
        note: the forms that could not be tried, and why, without a period; empty if there is
            nothing to say.
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
        """A description of the file: its form, its gain, and the error of its outputs."""
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
        """A description of its runtime, or of the sites that other algorithms compute."""
        if self.runtime != NATIVE:
            return f"run by {self.winner}"
        kinds = ", ".join(f"{name} ×{count}" for name, count in self.algorithms.items())
        back = f"; {self.withdrawn} fell back to keep the error" if self.withdrawn else ""
        of_all = f"{sum(self.algorithms.values())} of {counted(self.n_sites, 'site')}"
        suited = " of a graph chosen for these kernels" if self.is_suited else ""
        return f"{of_all}{suited} computed otherwise ({kinds}){back}"


@dataclass(frozen=True)
class Approximated:
    """Operators of the result that are computed in low precision.

    Attributes:
        won: whether the result is in low precision; otherwise it computes in floats.
        why: why it computes in floats, as a sentence without a period.
        n_sites: number of operators that have an implementation in low precision.
        sites: name of the result of an operator to its implementation.
        implementations: name of an implementation to the number of its operators.
        ranges: name of what fixed a range of values, such as ``min-max``, to the number of these
            values.
        operators: operators of onnxruntime's own domain in the result.
        error: largest difference from the original's outputs on data that were held back, relative
            to the maximum of each; ``None`` where no model was within the bound.
        max_error: bound on ``error``.
        goal: the demand in place of ``max_error``; empty if there was none.
        quality: the measured value of ``goal`` on data that were held back.
        calibration: the data: a file, a folder, or random inputs.
        n_held_back: number of samples that were held back.
        n_measured: number of candidates that were measured.
        predicted_us: predicted time of all operators that were priced, µs.
        bound_us: proven lower bound on ``predicted_us`` under the predicted errors.
        floats_us: time of the same operators in floats.
        speedup: time of the original over that of the result; 1 where it was not raced.
        floats_speedup: time of the original over that of the result in floats, in the same race.
        race: the race of the original, the result in floats and the one in low precision; empty if
            there was none.
        further_races: races on further sets of sizes.
        note: further information, as a sentence without a period; empty if there is none.
    """

    won: bool
    why: str
    max_error: float
    calibration: str
    n_sites: int = 0
    sites: Mapping[str, str] = field(default_factory=dict)
    implementations: Mapping[str, int] = field(default_factory=dict)
    ranges: Mapping[str, int] = field(default_factory=dict)
    operators: tuple[str, ...] = ()
    error: float | None = None
    goal: str = ""
    quality: float | None = None
    n_held_back: int = 0
    n_measured: int = 0
    predicted_us: float = 0.0
    bound_us: float = 0.0
    floats_us: float = 0.0
    speedup: float = 1.0
    floats_speedup: float = 1.0
    race: Mapping[str, Any] = field(default_factory=dict)
    further_races: tuple[Mapping[str, Any], ...] = ()
    note: str = ""

    @property
    def text(self) -> str:
        """A description of what is in low precision, and of the error of the outputs."""
        note = f"; {self.note}" if self.note else ""
        if not self.won:
            return f"none: {self.why}{note}"
        kinds = _listed(self.implementations) or "none"
        ranges = f", ranges by {_listed(self.ranges)}" if self.ranges else ""
        gain = ", not raced" if not self.race else ""
        if len(self.race.get("entries", ())) > 2:
            gain = f", {self.floats_speedup:.2f}x in floats"
        own = f", with {', '.join(self.operators)} of onnxruntime" if self.operators else ""
        allowed = f"{self.max_error:.1e} is allowed"
        if self.goal:
            allowed = f"and {self.goal.partition('>=')[0]} is {self.quality:.4g} for {self.goal}"
        return (
            f"{len(self.sites)} of {counted(self.n_sites, 'operator')} ({kinds}{ranges}){own}"
            f"{gain}; "
            f"outputs differ by at most {self.error:.1e} of their maximum on "
            f"{counted(self.n_held_back, 'sample')} held back of {self.calibration}, "
            f"{allowed}{note}"
        )


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ×{count}" for name, count in counts.items())


@dataclass(frozen=True)
class Planned:
    """The plan of the result.

    Attributes:
        output: the file that was written.
        target: the device that the plan is for.
        graph: name of the graph that it computes: the result, or the cheapest graph found.
        placement: name of the assignment of nodes to backends.
        launches: backend to the number of its launches.
        predicted_us: simulated time of the plan, µs, from the times of its launches.
        measured_us: time of one run in the race, µs; ``None`` where it was not raced.
        won: whether it beats the original and the portable result.
        speedup: time of the original over that of the plan; 1 where it was not raced.
        portable_speedup: time of the original over that of the portable result in the same race.
        bounds: number of prices that are lower bounds, for lack of measurements on the device.
        prices: number of prices, for a device that is not here.
        considered: name of a plan to its simulated time, µs.
        refused: name of a plan that does not run here or computes something else, to the reason.
        race: the race of original, portable result and plans; empty if there was none.
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
        """A description of the plan, and of its gain over the portable result."""
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
