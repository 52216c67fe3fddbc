"""The timing protocol, on a clock that only moves when told to."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import numpy as np
import pytest

from eqsat_opt.errors import StageError
from eqsat_opt.runtime.measure import (
    LEAST_US,
    SYSTEM_CLOCK,
    Measurement,
    clock_kind,
    measure,
    rest,
    runs_per_sample,
)


class FakeClock:
    """A machine whose calls take what the test says; reading its clocks is free."""

    def __init__(self, cpu_step_ns: int = 1) -> None:
        self.now_ns = 0
        self.used_ns = 0
        self.switches = 0
        self.step_ns = cpu_step_ns

    def wall_ns(self) -> int:
        return self.now_ns

    def cpu_ns(self) -> int:
        return self.used_ns

    def preemptions(self) -> int:
        return self.switches

    def cpu_step_ns(self) -> int:
        return self.step_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)

    def work(self, cpu_us: float, stolen_us: float = 0.0) -> None:
        self.used_ns += round(cpu_us * 1e3)
        self.now_ns += round((cpu_us + stolen_us) * 1e3)
        self.switches += stolen_us > 0


def constant(clock: FakeClock, cpu_us: float) -> Callable[[], None]:
    return lambda: clock.work(cpu_us)


def test_steady_call_stops_early() -> None:
    clock = FakeClock()
    result = measure(constant(clock, 1000), threads=1, clock=clock)
    assert result.time_us == result.median_us == result.p20_us == result.wall_us == 1000
    assert result.clock == "cpu"
    assert result.n == 21
    assert clock.now_ns < 0.05e9


def test_a_clock_that_stands_still_gives_times_that_others_can_be_divided_by() -> None:
    """It claims nanoseconds and advances by whole ticks, and no tick falls into a sample."""
    clock = FakeClock()
    result = measure(lambda: clock.work(0, stolen_us=1000), threads=1, clock=clock)
    assert result.clock == "cpu"
    assert min(result.time_us, result.p20_us, result.median_us) > 0


def test_one_thread_does_not_count_stolen_time() -> None:
    generator = np.random.default_rng(0)
    clock = FakeClock()

    def call() -> None:
        clock.work(500, stolen_us=4000 if generator.random() < 0.9 else 0)

    result = measure(call, threads=1, clock=clock)
    assert result.time_us == 500
    assert result.n_preempted > result.n / 2


def test_several_threads_take_wall_time() -> None:
    clock = FakeClock()

    def call() -> None:
        clock.used_ns += 2_000_000
        clock.now_ns += 1_000_000

    result = measure(call, threads=2, clock=clock)
    assert (result.clock, result.time_us) == ("wall", 1000)
    assert (result.wall_us, result.cpu_us) == (1000, 2000)


def test_coarse_processor_clock_is_not_trusted() -> None:
    clock = FakeClock(cpu_step_ns=4_000_000)
    assert measure(constant(clock, 1000), threads=1, clock=clock).clock == "wall"
    assert clock_kind(1, 1e6, clock) == "cpu"


def test_short_calls_are_grouped() -> None:
    clock = FakeClock()
    assert 100 / 0.2 <= runs_per_sample(constant(clock, 0.2), clock) <= 100 / 0.2 * 1.5
    assert runs_per_sample(constant(clock, 5000), clock) == 1
    assert measure(constant(clock, 0.2), threads=1, clock=clock).time_us == pytest.approx(0.2)


def test_call_that_takes_no_time_ends() -> None:
    clock = FakeClock()
    assert measure(constant(clock, 0), threads=2, budget_s=0.01, clock=clock).time_us == LEAST_US


def test_slow_call_is_sampled_once() -> None:
    clock = FakeClock()
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        clock.work(5e6)

    result = measure(call, threads=1, clock=clock)
    assert result.n == 1
    assert calls <= 4


def test_noise_is_sampled_until_the_budget_ends() -> None:
    generator = np.random.default_rng(0)
    clock = FakeClock()
    result = measure(
        lambda: clock.work(1000 * (1 + generator.exponential(5))), threads=1, clock=clock
    )
    assert result.n > 21
    assert 0.3e9 <= clock.now_ns < 0.4e9
    assert result.time_us <= result.p20_us <= result.median_us


def test_median_ignores_preempted_samples() -> None:
    clock = FakeClock()
    turn = 0

    def call() -> None:
        nonlocal turn
        turn += 1
        clock.work(1000, stolen_us=9000 if turn % 3 == 0 else 0)

    result = measure(call, threads=2, clock=clock)
    assert result.n_preempted > 0
    assert result.median_us == 1000


def test_system_clock_moves() -> None:
    wall, cpu = SYSTEM_CLOCK.wall_ns(), SYSTEM_CLOCK.cpu_ns()
    sum(range(10_000))
    assert SYSTEM_CLOCK.wall_ns() > wall
    assert SYSTEM_CLOCK.cpu_ns() >= cpu
    assert SYSTEM_CLOCK.cpu_step_ns() > 0
    assert SYSTEM_CLOCK.preemptions() >= 0


RESULT = Measurement(1.0, 2.0, 3.0, 21, 1, "cpu", 1.5, 1.0, 0.5, "blocked")


def test_json_round_trip() -> None:
    assert Measurement.from_json(json.loads(json.dumps(RESULT.to_json()))) == RESULT
    whole = dataclasses.replace(RESULT, time_us=1)
    assert Measurement.from_json(whole.to_json()) == RESULT


@pytest.mark.parametrize(
    "change",
    [{"time_us": "1"}, {"n": 1.5}, {"layout": 3}, {"extra": 1}, {"n": True}],
    ids=["text", "fraction", "number", "unknown", "bool"],
)
def test_malformed_json_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(StageError, match="the measurement "):
        Measurement.from_json({**RESULT.to_json(), **change})


@pytest.mark.parametrize(("spins_s", "waits_s"), [(0.0, 0.01), (0.045, 0.06), (9.0, 0.1)])
def test_rest_outlasts_threads_that_wait_actively(spins_s: float, waits_s: float) -> None:
    class Spinning(FakeClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            self.used_ns = min(self.now_ns, round(spins_s * 1e9))

    clock = Spinning()
    rest(2, clock)
    assert clock.now_ns == round(waits_s * 1e9)
    rest(1, clock)
    assert clock.now_ns == round(waits_s * 1e9), "one thread has no further ones"
