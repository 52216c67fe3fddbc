"""The timing protocol: measurement of the time of one call on a machine that is not idle.

Interference only ever adds time, so the minimum is the estimator. Samples come in bursts that are
spread in time, so that one busy moment of the machine cannot spoil them all. A call of one thread
is timed by the processor time of the process, which excludes time when other processes ran on the
core.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, Protocol, TypeAlias

from eqsat_opt.common.codecs import value_from_json
from eqsat_opt.errors import RuntimeFailed

try:
    import resource
except ImportError:  # not a POSIX system: preemptions are not counted
    resource = None  # type: ignore[assignment]

__all__ = [
    "LEAST_US",
    "PROTOCOL_VERSION",
    "SYSTEM_CLOCK",
    "AnyClock",
    "Clock",
    "ClockKind",
    "Measurement",
    "TimingSample",
    "clean_samples",
    "clock_kind",
    "measure",
    "metered",
    "rest",
    "runs_per_sample",
    "settle",
    "take_sample",
]

PROTOCOL_VERSION = 1
"""Version of the protocol, raised whenever a change here makes older figures incomparable."""

LEAST_US = 0.01
"""Lower limit of measured times, µs; a clock of coarse steps may show shorter ones as 0."""

ClockKind: TypeAlias = Literal["cpu", "wall"]

AnyClock: TypeAlias = Literal["cpu", "wall", "device"]
"""Clock of a measurement: one of this process, or that of a device between two events."""

# Reading the processor clock costs up to 1 µs: below 1 % of a sample of this length.
_MIN_SAMPLE_US = 100.0
# An empty Python call takes 20 ns.
_MAX_RUNS_PER_SAMPLE = 1 << 13
_BURST_SAMPLES = 7
# Wall time has to outlast other processes on the cores, or bursts agree on a disturbed figure.
_BURSTS: dict[ClockKind, int] = {"cpu": 3, "wall": 5}
_BURST_GAP_S: dict[ClockKind, float] = {"cpu": 0.002, "wall": 0.01}
_WARM_UPS = 2
# Processor time of threads is counted at the scheduler's ticks, up to 4 ms apart.
_REST_S = 0.01
_LONGEST_REST_S = 0.1
_AT_REST = 0.3
# Idle threads of another session wait actively for about this time.
_SETTLING_S = 0.05
_AGREEMENT = 0.02

_METERED_S = 0.1
"""Duration of a power reading: counters move every millisecond, so power is accurate to 1 %."""

_read_uj: ContextVar[Callable[[], float] | None] = ContextVar("_read_uj", default=None)


class Clock(Protocol):
    """Clocks that a measurement reads; replaced in tests."""

    def wall_ns(self) -> int:
        """Return the wall time since an arbitrary moment."""

    def cpu_ns(self) -> int:
        """Return the processor time of the whole process."""

    def preemptions(self) -> int:
        """Return the number of involuntary context switches of the process so far."""

    def cpu_step_ns(self) -> int:
        """Return the smallest step of `cpu_ns`."""

    def sleep(self, seconds: float) -> None:
        """Let time pass."""


class _SystemClock:
    def wall_ns(self) -> int:
        return time.perf_counter_ns()

    def cpu_ns(self) -> int:
        return time.process_time_ns()

    def preemptions(self) -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw if resource else 0

    def cpu_step_ns(self) -> int:
        return _observed_cpu_step_ns()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


SYSTEM_CLOCK: Clock = _SystemClock()


@lru_cache(maxsize=1)
def _observed_cpu_step_ns() -> int:
    # Some sandboxes claim nanoseconds and advance by whole scheduler ticks.
    reads = [time.process_time_ns() for _ in range(1000)]
    steps = [later - earlier for earlier, later in pairwise(reads)]
    return min((step for step in steps if step > 0), default=10_000_000)


@dataclass(frozen=True)
class TimingSample:
    """One timed group of runs; times are per run."""

    wall_us: float
    cpu_us: float
    preempted: bool

    def time_us(self, kind: ClockKind) -> float:
        """Return the time of a run, never 0, because other times are divided by it."""
        return max(self.cpu_us if kind == "cpu" else self.wall_us, LEAST_US)


@dataclass(frozen=True)
class Measurement:
    """Measured time of one call.

    Attributes:
        time_us: the estimate: minimum of all samples, less `overhead_us`; with the clock of a
            device, whose rate changes, their median.
        p20_us: 20th percentile of the samples that were not preempted, less `overhead_us`.
        median_us: median of the samples that were not preempted, less `overhead_us`.
        n: number of samples.
        n_preempted: number of samples with an involuntary context switch.
        clock: clock of the times: "cpu" for one thread, otherwise "wall"; "device" for events on a
            device.
        wall_us: minimum of wall time, nothing subtracted; with the clock of a device, minimum of
            its time.
        cpu_us: minimum of processor time of the process, nothing subtracted; 0 with the clock of a
            device.
        overhead_us: time that was subtracted for calling the executor.
        layout: layout of the data: "plain", "blocked" (onnxruntime's NCHWc), or "alias" for work
            that only renames a buffer and is never timed.
        power_w: mean power while the call was repeated, of all hardware that the meter counts,
            other processes included; ``None`` if there was no meter.
    """

    time_us: float
    p20_us: float
    median_us: float
    n: int
    n_preempted: int
    clock: AnyClock
    wall_us: float
    cpu_us: float
    overhead_us: float = 0.0
    layout: str = "plain"
    power_w: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return a flat mapping of numbers and strings; without the power, if there is none."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measurement:
        """Return the measurement that `to_json` wrote.

        Raises:
            StageError: a field is missing, unknown, or of the wrong type.
        """
        return value_from_json(data, cls, "the measurement")


@contextmanager
def metered(read_uj: Callable[[], float]) -> Iterator[None]:
    """Return a context in which `measure` reports power as well.

    Args:
        read_uj: reads a meter: returns the energy since an arbitrary moment, µJ.
    """
    token = _read_uj.set(read_uj)
    try:
        yield
    finally:
        _read_uj.reset(token)


def measure(
    call: Callable[[], object],
    *,
    threads: int,
    budget_s: float = 0.3,
    clock: Clock = SYSTEM_CLOCK,
) -> Measurement:
    """Time `call` until the two lowest burst minima agree within 2 %, or the budget is spent.

    At least one sample is taken however slow the call is, and at least 21 within the budget.

    Args:
        call: the call to time; it is also called for warming up.
        threads: number of threads that it uses; 1 selects processor time.
        budget_s: time for sampling, after warming up.
        clock: source of times.
    """
    rest(threads, clock)
    start = clock.wall_ns()
    for _ in range(_WARM_UPS):
        call()
        if _seconds_since(start, clock) > budget_s:
            break
    runs = runs_per_sample(call, clock)

    samples: list[TimingSample] = []
    minima: list[float] = []
    kind: ClockKind | None = None
    deadline = clock.wall_ns() + round(budget_s * 1e9)
    while True:
        burst: list[TimingSample] = []
        while len(burst) < _BURST_SAMPLES and (not samples or clock.wall_ns() < deadline):
            burst.append(take_sample(call, runs, clock))
            samples.append(burst[-1])
        kind = kind or clock_kind(threads, samples[0].wall_us * runs, clock)
        if burst:
            minima.append(min(sample.time_us(kind) for sample in burst))
        if clock.wall_ns() >= deadline or (len(minima) >= _BURSTS[kind] and _agree(minima)):
            return replace(_summary(samples, kind), power_w=_power_w(call, clock))
        clock.sleep(_BURST_GAP_S[kind])


def _power_w(call: Callable[[], object], clock: Clock) -> float | None:
    """Return the mean power while `call` is repeated, W; `None` without a meter."""
    read_uj = _read_uj.get()
    if read_uj is None:
        return None
    try:
        begin_uj, start, seconds = read_uj(), clock.wall_ns(), 0.0
        while seconds < _METERED_S:
            call()
            seconds = _seconds_since(start, clock)
        power_w = (read_uj() - begin_uj) / (seconds * 1e6)
    except RuntimeFailed:  # the meter or the call failed; the call's time is known already
        return None
    return power_w if power_w > 0 else None


def rest(threads: int, clock: Clock = SYSTEM_CLOCK) -> None:
    """Wait until no thread of this process computes, for a tenth of a second at most.

    For tens of milliseconds after a run, the further threads of a session wait actively for the
    next one, and take their cores from another session that runs now (two sessions of a BERT on
    two cores: 61 ms each alone, 98 ms in turns). A session of one thread has no further threads.

    Args:
        threads: largest number of threads that any session of this process uses.
        clock: source of times.
    """
    if threads == 1:
        return
    begin = clock.wall_ns()
    while _seconds_since(begin, clock) < _LONGEST_REST_S:
        wall, cpu = clock.wall_ns(), clock.cpu_ns()
        clock.sleep(max(_REST_S, 2 * clock.cpu_step_ns() / 1e9))
        if clock.cpu_ns() - cpu <= _AT_REST * (clock.wall_ns() - wall):
            return


def settle(
    call: Callable[[], object], run_us: float, threads: int, clock: Clock = SYSTEM_CLOCK
) -> None:
    """Wait before a session is timed in turn with others, until their threads rest.

    A session of short runs is run during that time, since threads that wake up from a pause may
    share a core.

    Args:
        call: runs the session once.
        run_us: time of one run.
        threads: largest number of threads that any session of this process uses.
        clock: source of times.
    """
    if threads == 1:
        return
    if run_us >= _SETTLING_S * 1e6:
        rest(threads, clock)
        return
    begin = clock.wall_ns()
    while _seconds_since(begin, clock) < _SETTLING_S:
        call()


def runs_per_sample(call: Callable[[], object], clock: Clock = SYSTEM_CLOCK) -> int:
    """Return the number of runs that make a sample long enough for the clocks (0.1 ms)."""
    runs = 1
    while runs < _MAX_RUNS_PER_SAMPLE:
        # Twice, because one interruption would make a short run look long.
        length_us = min(take_sample(call, runs, clock).wall_us for _ in range(2)) * runs
        if length_us >= _MIN_SAMPLE_US:
            break
        grow = 1.2 * _MIN_SAMPLE_US / max(length_us, 1e-3)
        runs = math.ceil(runs * min(max(grow, 1.2), 10.0))
    return runs


def take_sample(call: Callable[[], object], runs: int, clock: Clock = SYSTEM_CLOCK) -> TimingSample:
    """Time `runs` consecutive runs."""
    preemptions = clock.preemptions()
    wall = clock.wall_ns()
    cpu = clock.cpu_ns()
    for _ in range(runs):
        call()
    cpu = clock.cpu_ns() - cpu
    wall = clock.wall_ns() - wall
    return TimingSample(wall / runs / 1e3, cpu / runs / 1e3, clock.preemptions() > preemptions)


def clock_kind(threads: int, sample_us: float, clock: Clock = SYSTEM_CLOCK) -> ClockKind:
    """Choose processor time for one thread if that clock is fine enough, otherwise wall time."""
    fine = clock.cpu_step_ns() <= 0.01 * sample_us * 1e3
    return "cpu" if threads == 1 and fine else "wall"


def clean_samples(samples: Sequence[TimingSample]) -> Sequence[TimingSample]:
    """Return the samples that were not preempted, or all samples if those are fewer than half."""
    clean = [sample for sample in samples if not sample.preempted]
    return clean if 2 * len(clean) >= len(samples) else samples


def _agree(minima: Sequence[float]) -> bool:
    lowest, second = sorted(minima)[:2]
    return second <= lowest * (1 + _AGREEMENT)


def _seconds_since(start_ns: int, clock: Clock) -> float:
    return (clock.wall_ns() - start_ns) / 1e9


def _summary(samples: Sequence[TimingSample], kind: ClockKind) -> Measurement:
    times = sorted(sample.time_us(kind) for sample in clean_samples(samples))
    return Measurement(
        time_us=min(sample.time_us(kind) for sample in samples),
        p20_us=times[int(0.2 * (len(times) - 1))],
        median_us=statistics.median(times),
        n=len(samples),
        n_preempted=sum(sample.preempted for sample in samples),
        clock=kind,
        wall_us=min(sample.wall_us for sample in samples),
        cpu_us=min(sample.cpu_us for sample in samples),
    )
