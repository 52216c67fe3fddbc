"""The final race: original and candidates head to head, so that a claimed gain is measured.

Each precaution answers a measured trap: a fixed running order favours some entrants by 3–6 % (the
order is drawn anew in each round); two sessions of one model differ by up to 15 % (sessions are
rebuilt, and the original runs twice, so that its difference to itself shows the noise); the machine
drifts (times are compared within a build, not across). Where noise would decide, more builds are
run.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from eqsat_opt.errors import OptionError, RuntimeFailed
from eqsat_opt.racing.evidence import HeadToHead, log_noise
from eqsat_opt.racing.race_result import RaceEntry, RaceResult
from eqsat_opt.runtime.devices.meters import EnergyMeter
from eqsat_opt.runtime.measure import (
    LEAST_US,
    SYSTEM_CLOCK,
    Clock,
    ClockKind,
    clock_kind,
    rest,
    runs_per_sample,
    settle,
    take_sample,
)
from eqsat_opt.runtime.source import Feeds, OpenRunner

__all__ = ["RaceEntry", "RaceResult", "race"]

_Prepare: TypeAlias = Callable[[], Callable[[], object]]
"""Builds a fresh executable and returns a call that runs it once."""

_SLOT_S = 0.02
_MAX_SLOT_SAMPLES = 40
_CALIBRATION_NS = 50_000_000
# Longer runs bring their own data into the caches; warming up would only double their cost.
_WARM_UP_BELOW_US = 50_000.0
# A candidate that is this many times slower in its first runs cannot win, and would take up time.
_HOPELESS = 3.0
# Two builds measure noise poorly; less than this ends nobody's race early.
_EARLY_NOISE = 0.02
# Where noise would decide, there may be this many times as many builds.
_EXTENSION = 4


def race(
    entrants: Mapping[str, OpenRunner],
    original: str,
    feeds: Feeds,
    *,
    threads: int,
    rounds: int = 5,
    builds: int = 3,
    seed: int = 0,
    time_limit_s: float = 30.0,
    extension_s: float = 0.0,
    tie: float = 0.03,
    clock: Clock = SYSTEM_CLOCK,
    meter: EnergyMeter | None = None,
) -> RaceResult:
    """Race runners on the same inputs, whatever they are made of.

    Args:
        entrants: how to make each runner, with the original among them.
        original: name of the original.
        feeds: inputs, the same for all.
        threads: most threads that any of them uses.
        rounds: rounds per build.
        builds: how often the runners are built; at least 2.
        seed: seed of the running order.
        time_limit_s: rounds and then builds are given up to stay within it; one round is always
            run, so a model slower than this takes longer.
        extension_s: seconds beyond it for further builds while noise decides.
        tie: gain up to which the original keeps its place.
        clock: source of times.
        meter: meter of the energy of runs; where it fails, no energy is reported.

    Raises:
        OptionError: the original is not among the entrants, or there are too few rounds or builds.
        RuntimeFailed: the original does not run. A candidate that fails only loses.
    """
    if original not in entrants:
        raise OptionError(f"the original {original!r} is not among the entrants")
    if rounds < 1 or builds < 2:
        raise OptionError("a race needs at least 1 round and 2 builds")
    prepared = {name: partial(_bound, runner, feeds) for name, runner in entrants.items()}
    track = _Track(
        entrants=prepared,
        original=original,
        threads=threads,
        order=random.Random(seed),
        clock=clock,
        meter=meter,
    )
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
        if done_builds > 1:  # one build gives no measure of noise
            track.settle(tie, _EARLY_NOISE)
            if track.is_lost:
                break
    longest_s = time_limit_s + extension_s
    while done_builds < _EXTENSION * builds and track.settle(tie):
        elapsed_s = (clock.wall_ns() - start) / 1e9
        if elapsed_s * (1 + 1 / done_builds) > longest_s:
            break
        done_rounds += track.run_build(rounds, longest_s - elapsed_s)
        done_builds += 1
    return track.result(tie, done_rounds, (clock.wall_ns() - start) / 1e9)


def _bound(open_runner: OpenRunner, feeds: Feeds) -> Callable[[], object]:
    return open_runner().bind(feeds)


@dataclass
class _Lane:
    """One session sequence: an entrant, or the original's twin."""

    name: str
    prepare: _Prepare
    runs: int = 1
    samples: int = 1
    run_us: float = math.inf
    work_us: float = math.inf
    session_us: list[float] = field(default_factory=list)
    n_samples: int = 0
    energy_uj: float = 0.0
    note: str = ""
    rests: bool = False


class _Track:
    def __init__(
        self,
        entrants: Mapping[str, _Prepare],
        original: str,
        threads: int,
        order: random.Random,
        clock: Clock,
        meter: EnergyMeter | None,
    ) -> None:
        self._lanes = {name: _Lane(name, prepare) for name, prepare in entrants.items()}
        self._original = self._lanes[original]
        self._twin = _Lane(original, entrants[original])
        self._threads = threads
        self._order = order
        self._clock = clock
        self._kind: ClockKind | None = None
        self._meter = meter

    def run_build(self, rounds: int, share_s: float) -> int:
        """Build the entrants still in the race, and run up to `rounds` rounds.

        Returns:
            The number of rounds that were run.
        """
        deadline = self._clock.wall_ns() + round(share_s * 1e9)
        lanes = [
            lane for lane in (*self._lanes.values(), self._twin) if not lane.note and not lane.rests
        ]
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

    def settle(self, tie: float, least_noise: float = 0.0) -> bool:
        """Rest the entrants that can no longer win.

        Args:
            tie: gain up to which the original keeps its place.
            least_noise: noise of a build, as a logarithm, where less was measured.

        Returns:
            Whether noise still decides the place of another entrant.
        """
        open_lanes = 0
        for lane in self._lanes.values():
            if lane is self._original or lane.note or lane.rests:
                continue
            standing = self._standing(lane, tie, least_noise)
            lane.rests = standing.is_beaten
            open_lanes += standing.is_open
        return bool(open_lanes)

    @property
    def is_lost(self) -> bool:
        """Whether every entrant but the original has failed or rests."""
        rivals = (lane for lane in self._lanes.values() if lane is not self._original)
        return all(lane.note or lane.rests for lane in rivals)

    def result(self, tie: float, rounds: int, seconds: float) -> RaceResult:
        is_open = self.settle(tie)
        pairs = self._pairs()
        entries = {name: self._entry(lane, tie) for name, lane in self._lanes.items()}
        own = HeadToHead([own for own, _ in pairs], pairs, log_noise(pairs), tie)
        faster = {name: entry.ratio for name, entry in entries.items() if entry.wins}
        return RaceResult(
            winner=min(faster, key=faster.__getitem__, default=self._original.name),
            original=self._original.name,
            entries=entries,
            noise=math.expm1(own.noise),
            tie=tie,
            threshold=own.threshold,
            needed=own.needed,
            clock=self._kind or "wall",
            builds=len(pairs),
            rounds=rounds,
            seconds=seconds,
            is_open=is_open,
            meter="" if self._meter is None else f"{self._meter.name}, {self._meter.scope}",
        )

    def _pairs(self) -> list[tuple[float, float]]:
        return list(zip(self._original.session_us, self._twin.session_us, strict=True))

    def _standing(self, lane: _Lane, tie: float, least_noise: float = 0.0) -> HeadToHead:
        pairs = self._pairs()
        noise = max(log_noise(pairs), least_noise)
        return HeadToHead(lane.session_us, pairs[: len(lane.session_us)], noise, tie)

    def _built(self, lane: _Lane) -> Callable[[], object] | None:
        """Build a warm executable; return None, with a note in the lane, if that fails."""
        try:
            call = lane.prepare()
            rest(self._threads, self._clock)
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
            # Waiting for a busy machine is no work; with one thread, CPU time leaves it out.
            work_us = min(sample.wall_us, sample.cpu_us) if self._threads == 1 else sample.wall_us
            lane.work_us = min(lane.work_us, max(work_us, LEAST_US))
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
        """Run one turn of a lane; return its best time per run, µs."""
        assert self._kind is not None
        try:
            settle(call, lane.run_us, self._threads, self._clock)
            if lane.run_us < _WARM_UP_BELOW_US:
                call()
            begin_uj = self._energy_uj()
            samples = [take_sample(call, lane.runs, self._clock) for _ in range(lane.samples)]
            lane.energy_uj += self._energy_uj() - begin_uj
        except RuntimeFailed as error:
            if lane.name == self._original.name:
                raise
            lane.note = f"failed: {error}"
            return math.inf
        lane.n_samples += len(samples)
        return min(sample.time_us(self._kind) for sample in samples)

    def _energy_uj(self) -> float:
        """Read the meter, µJ; a meter that fails is given up."""
        if self._meter is None:
            return 0.0
        try:
            return self._meter.read()
        except RuntimeFailed:
            self._meter = None
            return 0.0

    def _run_uj(self, *lanes: _Lane) -> float | None:
        """Return the mean energy of a run, µJ; ``None`` where no meter measured it."""
        runs = sum(lane.n_samples * lane.runs for lane in lanes)
        if self._meter is None or not runs:
            return None
        return sum(lane.energy_uj for lane in lanes) / runs

    def _entry(self, lane: _Lane, tie: float) -> RaceEntry:
        ratio, ahead, wins = 1.0, 0, False
        n_samples = lane.n_samples
        energy_uj = self._run_uj(lane)
        if lane is self._original:
            times = tuple(time for pair in self._pairs() for time in pair)
            n_samples += self._twin.n_samples
            energy_uj = self._run_uj(lane, self._twin)
        elif lane.session_us:
            times = tuple(lane.session_us)
            standing = self._standing(lane, tie)
            ratio, ahead, wins = standing.ratio, standing.ahead, standing.wins and not lane.note
        else:  # it never finished a build
            times = (lane.run_us,)
            ratio = lane.run_us / self._original.run_us
        best = min(times)
        return RaceEntry(
            name=lane.name,
            time_us=best,
            median_us=statistics.median(times),
            spread=(max(times) - best) / best if math.isfinite(best) else math.inf,
            ratio=ratio,
            session_us=times if math.isfinite(best) else (),
            n_samples=n_samples,
            ahead=ahead,
            wins=wins,
            note=lane.note,
            energy_uj=energy_uj,
        )
