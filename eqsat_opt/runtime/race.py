"""The final race: original and candidates head to head, so that no result is slower than measured.

Each guard answers a measured trap: a fixed running order favours some entrants by 3–6 % (the order
is drawn anew in each round); two sessions of one model differ by up to 15 % (sessions are rebuilt,
and the original runs twice, so that its difference to itself shows the noise); the machine drifts
(times are compared within a build, not across).
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TypeAlias

from eqsat_opt.errors import OptionError, RuntimeFailed
from eqsat_opt.runtime.measure import (
    SYSTEM_CLOCK,
    Clock,
    ClockKind,
    clock_kind,
    runs_per_sample,
    take_sample,
)
from eqsat_opt.runtime.ort import OrtOptions, OrtSession
from eqsat_opt.runtime.source import Feeds, ModelSource

__all__ = ["Prepare", "RaceEntry", "RaceResult", "race", "race_prepared"]

Prepare: TypeAlias = Callable[[], Callable[[], object]]
"""Builds a fresh executable and returns a call that runs it once."""

_SLOT_S = 0.02
_MAX_SLOT_SAMPLES = 40
_CALIBRATION_NS = 50_000_000
# Longer runs bring their own data into the caches; warming up would only double their cost.
_WARM_UP_BELOW_US = 50_000.0
# A candidate so much slower in its first runs cannot win, and would eat the others' time.
_HOPELESS = 3.0
_LEAST_US = 0.01  # what a clock of coarse steps may show as nothing
# What two identical sessions may differ by: the noise where only one build could be afforded.
_SINGLE_BUILD_NOISE = 0.15


@dataclass(frozen=True)
class RaceEntry:
    """How one entrant ran; for the original over both of its twins.

    Attributes:
        name: Name of the entrant.
        time_us: Best time of one run.
        median_us: Median over the builds of the best time in each.
        spread: (worst − best) / best of these.
        ratio: Time relative to the original in the same build, median over the builds; below 1 is
            faster.
        session_us: Best time in each build.
        n_samples: Number of timed samples.
        note: Why it did not take part, or left early; empty if it ran to the end.
    """

    name: str
    time_us: float
    median_us: float
    spread: float
    ratio: float
    session_us: tuple[float, ...]
    n_samples: int
    note: str = ""


@dataclass(frozen=True)
class RaceResult:
    """Outcome of a race.

    Attributes:
        winner: Name of the fastest entrant that beats the original by more than `threshold`, and
            both of its twins in every build; otherwise of the original.
        original: Name of the original.
        entries: All entrants in the order given.
        noise: Root mean square of the relative difference between the original and its twin.
        threshold: Gain that a win had to exceed: the tie margin or the noise.
        clock: "cpu" where all entrants use one thread, otherwise "wall".
        builds: How often the sessions were built.
        rounds: Rounds over all builds.
        seconds: Length of the race.
    """

    winner: str
    original: str
    entries: Mapping[str, RaceEntry]
    noise: float
    threshold: float
    clock: ClockKind
    builds: int
    rounds: int
    seconds: float

    @property
    def speedup(self) -> float:
        """How many times faster the winner is than the original; 1 if the original won."""
        return 1.0 if self.winner == self.original else 1.0 / self.entries[self.winner].ratio

    def to_json(self) -> dict[str, Any]:
        """The race as JSON values; the times of a candidate that never ran are null."""
        data = asdict(self)
        for entry in data["entries"].values():
            for name, value in entry.items():
                if isinstance(value, float) and not math.isfinite(value):
                    entry[name] = None
        return {**data, "speedup": self.speedup}


def race(
    candidates: Mapping[str, ModelSource],
    original: str,
    feeds: Feeds,
    *,
    options: Mapping[str, OrtOptions],
    rounds: int = 5,
    builds: int = 3,
    seed: int = 0,
    time_limit_s: float = 30.0,
    tie: float = 0.03,
) -> RaceResult:
    """Race models in onnxruntime, each with its own options.

    Args:
        candidates: Models by name, with the original among them.
        original: Name of the original.
        feeds: Inputs, the same for all.
        options: How onnxruntime runs each, by name.
        rounds: Rounds per build.
        builds: How often the sessions are built; at least 2.
        seed: Seed of the running order.
        time_limit_s: Rounds and then builds are given up to stay within it; one round is always
            run, so a model slower than this takes longer.
        tie: Gain up to which the original keeps its place.

    Raises:
        OptionError: the original is not among the candidates, or one has no options.
        RuntimeFailed: the original does not run. A candidate that fails only loses.
    """
    without = [name for name in candidates if name not in options]
    if without:
        raise OptionError(f"no options are given for {without[0]!r}")

    def prepare(name: str) -> Callable[[], object]:
        return OrtSession(candidates[name], options[name]).bind(feeds)

    return race_prepared(
        {name: partial(prepare, name) for name in candidates},
        original,
        threads=max((options[name].threads for name in candidates), default=1),
        rounds=rounds,
        builds=builds,
        seed=seed,
        time_limit_s=time_limit_s,
        tie=tie,
    )


def race_prepared(
    entrants: Mapping[str, Prepare],
    original: str,
    *,
    threads: int,
    rounds: int = 5,
    builds: int = 3,
    seed: int = 0,
    time_limit_s: float = 30.0,
    tie: float = 0.03,
    clock: Clock = SYSTEM_CLOCK,
) -> RaceResult:
    """Race anything that can be built and run; see `race`.

    Args:
        entrants: How to build each entrant; a failure is a `RuntimeFailed`.
        original: Name of the original.
        threads: Most threads that any entrant uses.
        rounds: Rounds per build.
        builds: How often to build; at least 2.
        seed: Seed of the running order.
        time_limit_s: Length of the race, as far as one round allows.
        tie: Gain up to which the original keeps its place.
        clock: Source of times.
    """
    if original not in entrants:
        raise OptionError(f"the original {original!r} is not among the entrants")
    if rounds < 1 or builds < 2:
        raise OptionError("a race needs at least 1 round and 2 builds")
    track = _Track(entrants, original, threads, random.Random(seed), clock)
    start = clock.wall_ns()
    done_rounds = 0
    done_builds = 0
    while done_builds < builds:
        elapsed_s = (clock.wall_ns() - start) / 1e9
        # The second build is worth running late: without it there is hardly a measure of noise.
        needed_s = elapsed_s + (elapsed_s / done_builds if done_builds > 1 else 0.0)
        if done_builds and needed_s > time_limit_s:
            break
        share_s = (time_limit_s - elapsed_s) / (builds - done_builds)
        done_rounds += track.run_build(rounds, share_s)
        done_builds += 1
    return track.result(tie, done_rounds, (clock.wall_ns() - start) / 1e9)


@dataclass
class _Lane:
    """One session sequence: an entrant, or the original's twin."""

    name: str
    prepare: Prepare
    runs: int = 1
    samples: int = 1
    run_us: float = math.inf
    work_us: float = math.inf
    session_us: list[float] = field(default_factory=list)
    n_samples: int = 0
    note: str = ""


class _Track:
    def __init__(
        self,
        entrants: Mapping[str, Prepare],
        original: str,
        threads: int,
        order: random.Random,
        clock: Clock,
    ) -> None:
        self._lanes = {name: _Lane(name, prepare) for name, prepare in entrants.items()}
        self._original = self._lanes[original]
        self._twin = _Lane(original, entrants[original])
        self._threads = threads
        self._order = order
        self._clock = clock
        self._kind: ClockKind | None = None

    def run_build(self, rounds: int, share_s: float) -> int:
        """Build all that are still in the race, run up to `rounds` rounds; how many were run."""
        deadline = self._clock.wall_ns() + round(share_s * 1e9)
        lanes = [lane for lane in (*self._lanes.values(), self._twin) if not lane.note]
        self._order.shuffle(lanes)
        calls: list[tuple[_Lane, Callable[[], object]]] = []
        for lane in lanes:
            call = self._built(lane)
            if call is not None:
                calls.append((lane, call))
        self._drop_hopeless()
        best: dict[int, float] = {}
        done = 0
        while done < rounds:
            round_start = self._clock.wall_ns()
            self._order.shuffle(calls)
            for lane, call in calls:
                if not lane.note:
                    time_us = self._slot(lane, call)
                    best[id(lane)] = min(time_us, best.get(id(lane), math.inf))
            done += 1
            now = self._clock.wall_ns()
            if now + (now - round_start) > deadline:
                break
        for lane, _ in calls:
            if not lane.note:
                lane.session_us.append(best[id(lane)])
        return done

    def result(self, tie: float, rounds: int, seconds: float) -> RaceResult:
        pairs = list(zip(self._original.session_us, self._twin.session_us, strict=True))
        differences = [math.log(own / twin) for own, twin in pairs]
        noise = math.expm1(math.sqrt(statistics.fmean(d * d for d in differences)))
        if len(pairs) < 2:
            noise = max(noise, _SINGLE_BUILD_NOISE)
        threshold = max(tie, noise)
        entries = {name: self._entry(lane, pairs) for name, lane in self._lanes.items()}
        name = self._original.name
        # Luck of sessions passes the threshold alone 4 times as often (simulated, 3 builds).
        faster = {
            entry.name: entry.ratio
            for entry in entries.values()
            if not entry.note
            and entry.name != name
            and entry.ratio < 1 - threshold
            and all(time < min(pair) for time, pair in zip(entry.session_us, pairs, strict=True))
        }
        return RaceResult(
            winner=min(faster, key=faster.__getitem__, default=name),
            original=name,
            entries=entries,
            noise=noise,
            threshold=threshold,
            clock=self._kind or "wall",
            builds=len(pairs),
            rounds=rounds,
            seconds=seconds,
        )

    def _built(self, lane: _Lane) -> Callable[[], object] | None:
        """A fresh warm executable; None, with a note in its lane, if it fails."""
        try:
            call = lane.prepare()
            call()
            if math.isinf(lane.run_us):
                self._calibrate(lane, call)
        except RuntimeFailed as error:
            if lane.name == self._original.name:
                raise
            lane.note = f"failed: {error}"
            return None
        return call

    def _calibrate(self, lane: _Lane, call: Callable[[], object]) -> None:
        lane.runs = runs_per_sample(call, self._clock)
        deadline = self._clock.wall_ns() + _CALIBRATION_NS
        for _ in range(3):  # one interruption must not make a candidate look hopeless
            sample = take_sample(call, lane.runs, self._clock)
            lane.run_us = min(lane.run_us, sample.wall_us)
            # Waiting for a busy machine is no work; with one thread the processor's clock tells.
            work_us = min(sample.wall_us, sample.cpu_us) if self._threads == 1 else sample.wall_us
            lane.work_us = min(lane.work_us, max(work_us, _LEAST_US))
            if self._clock.wall_ns() > deadline:
                break
        length_us = max(lane.run_us * lane.runs, 1.0)
        lane.samples = max(1, min(_MAX_SLOT_SAMPLES, int(_SLOT_S * 1e6 / length_us)))
        self._kind = self._kind or clock_kind(self._threads, length_us, self._clock)

    def _drop_hopeless(self) -> None:
        for lane in self._lanes.values():
            slower = lane.work_us / self._original.work_us
            if not lane.note and slower > _HOPELESS:
                lane.note = f"left early: {slower:.1f} times slower in its first runs"

    def _slot(self, lane: _Lane, call: Callable[[], object]) -> float:
        """Best time per run in one turn, µs."""
        assert self._kind is not None
        try:
            if lane.run_us < _WARM_UP_BELOW_US:
                call()
            samples = [take_sample(call, lane.runs, self._clock) for _ in range(lane.samples)]
        except RuntimeFailed as error:
            if lane.name == self._original.name:
                raise
            lane.note = f"failed: {error}"
            return math.inf
        lane.n_samples += len(samples)
        return min(sample.time_us(self._kind) for sample in samples)

    def _entry(self, lane: _Lane, pairs: list[tuple[float, float]]) -> RaceEntry:
        if lane is self._original:
            ratios = [1.0]
            times = tuple(time for pair in pairs for time in pair)
            n_samples = lane.n_samples + self._twin.n_samples
        elif lane.session_us:
            ratios = [
                time / math.sqrt(own * twin)
                for time, (own, twin) in zip(lane.session_us, pairs, strict=False)
            ]
            times = tuple(lane.session_us)
            n_samples = lane.n_samples
        else:  # it never finished a build
            ratios = [lane.run_us / self._original.run_us]
            times = (lane.run_us,)
            n_samples = lane.n_samples
        best = min(times)
        return RaceEntry(
            name=lane.name,
            time_us=best,
            median_us=statistics.median(times),
            spread=(max(times) - best) / best if math.isfinite(best) else math.inf,
            ratio=statistics.median(ratios),
            session_us=times if math.isfinite(best) else (),
            n_samples=n_samples,
            note=lane.note,
        )
