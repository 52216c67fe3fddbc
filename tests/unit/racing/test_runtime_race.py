"""The race: who may win, on a simulated machine with the traps of real ones."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from onnx import TensorProto, helper

from eqsat_opt.errors import OptionError, RuntimeFailed
from eqsat_opt.racing.evidence import HeadToHead
from eqsat_opt.racing.race import race
from eqsat_opt.racing.race_result import RaceResult
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from tests.unit.machines import Machine, race_prepared


def failing(message: str) -> Callable[[], Callable[[], object]]:
    def prepare() -> Callable[[], object]:
        raise RuntimeFailed(message)

    return prepare


def test_faster_candidate_wins() -> None:
    result = Machine().race(original=1000, slow=1500, fast=800, also=900)
    assert result.winner == "fast"
    assert result.speedup == pytest.approx(1.25)
    assert result.noise == pytest.approx(0, abs=1e-9)
    assert result.threshold == 0.03
    assert list(result.entries) == ["original", "slow", "fast", "also"]
    assert result.entries["slow"].ratio == pytest.approx(1.5)
    assert result.entries["original"].ratio == 1
    assert result.clock == "cpu"


@pytest.mark.parametrize("time_us", [1_000.0, 30_000.0, 80_000.0])
def test_waiting_threads_of_one_session_do_not_slow_another(time_us: float) -> None:
    """Threads of a session take cores for 40 ms after a run; its own next run profits from them."""
    machine = Machine()
    idle_from: dict[object, int] = {}

    def prepare(time_us: float) -> Callable[[], object]:
        key = object()

        def call() -> None:
            is_disturbed = any(
                machine.now_ns < moment for one, moment in idle_from.items() if one is not key
            )
            machine.now_ns += round(time_us * 1e3 * (1.6 if is_disturbed else 1))
            idle_from[key] = machine.now_ns + 40_000_000

        return call

    entrants = {"original": partial(prepare, time_us), "fast": partial(prepare, time_us / 1.2)}
    result = race_prepared(entrants, "original", threads=2, clock=machine)
    assert result.winner == "fast"
    assert result.noise == pytest.approx(0, abs=1e-9)
    assert result.entries["original"].time_us == pytest.approx(time_us)
    assert result.entries["fast"].session_us == pytest.approx([time_us / 1.2] * 3)


def test_original_wins_ties() -> None:
    result = Machine().race(original=1000, other=980)
    assert result.winner == "original"
    assert result.speedup == 1
    assert Machine().race(original=1000).winner == "original"


def test_luck_of_a_session_is_no_win() -> None:
    """Identical models whose sessions differ by up to 15 % hardly ever beat the original."""
    races = [
        Machine(luck=0.15, seed=seed).race(seed=seed, original=1000, same=1000)
        for seed in range(200)
    ]
    assert sum(result.winner == "same" for result in races) <= 10
    assert all(result.noise > 0 for result in races)


def test_a_real_gain_shows_through_luck() -> None:
    races = [
        Machine(luck=0.15, seed=seed).race(seed=seed, original=1000, better=700)
        for seed in range(50)
    ]
    assert sum(result.winner == "better" for result in races) >= 48


def test_a_race_that_noise_decides_is_extended() -> None:
    """Gains that three builds cannot tell from luck show in more, and luck still hardly wins."""

    def races(ratio: float) -> list[RaceResult]:
        return [
            Machine(luck=0.15, seed=seed).race(seed=seed, original=1000, other=1000 * ratio)
            for seed in range(60)
        ]

    assert sum(result.winner == "other" for result in races(0.92)) >= 57
    assert sum(result.winner == "other" for result in races(1.0)) <= 3
    assert any(result.builds > 3 for result in races(0.92))
    assert max(result.builds for result in races(1.0)) <= 12


def test_a_clear_race_is_not_extended() -> None:
    quiet = Machine(luck=0.01).race(original=1000, fast=800, tie=995, slow=1100)
    assert quiet.builds == 3
    assert not quiet.is_open
    loud = Machine(luck=0.15).race(original=1000, fast=600, slow=1900)
    assert loud.builds == 3
    assert loud.winner == "fast"


def test_the_extension_keeps_to_its_seconds() -> None:
    """Noise decides, but each build takes seconds."""

    def extended(seconds: float) -> RaceResult:
        machine = Machine(luck=0.15, seed=4)
        return machine.race(10.0, 4, extension_s=seconds, original=5e4, other=4.8e4)

    plain, longer = extended(0.0), extended(40.0)
    assert plain.is_open
    assert plain.builds < longer.builds
    assert plain.seconds < 12
    assert longer.seconds < 55


def test_who_cannot_win_rests_in_the_extension() -> None:
    machine = Machine(luck=0.15, seed=3)
    result = machine.race(seed=3, original=1000, close=960, slow=1600)
    assert result.builds > 3
    assert machine.built.count("close") == result.builds
    assert machine.built.count("slow") == 2
    assert len(result.entries["slow"].session_us) == 2
    assert result.entries["slow"].note == ""


def test_a_race_that_all_have_lost_ends() -> None:
    """Two builds show that no candidate is near a win; at a gain of 2 % the third is run."""
    lost = Machine(luck=0.01).race(original=1000, slow=1100, same=1000)
    assert lost.builds == 2
    assert lost.winner == "original"
    assert not lost.is_open
    assert Machine().race(original=1000, other=980).builds == 3


def test_noise_never_puts_a_win_out_of_reach() -> None:
    """Sessions that differ by a factor of three still show a gain of ten."""
    result = Machine(luck=2.0, seed=1).race(seed=1, original=1000, tenth=100)
    assert result.threshold > 0.3
    assert result.winner == "tenth"


def test_a_busy_machine_is_named() -> None:
    assert Machine(luck=0.5).race(original=1000).is_busy
    quiet = Machine(luck=0.1).race(original=1000)
    assert not quiet.is_busy
    assert quiet.to_json()["is_busy"] is False
    assert quiet.to_json()["spread"] == quiet.entries["original"].spread


def test_entrants_are_compared_with_each_other() -> None:
    result = Machine(luck=0.01).race(original=1000, fast=700, faster=500, twin=505, slow=1200)
    assert result.beats("faster", "fast")
    assert not result.beats("fast", "faster")
    assert not result.beats("faster", "twin")
    assert result.beats("fast", "original") == result.entries["fast"].wins is True
    assert result.loses("slow")
    assert not result.loses("fast")
    assert not result.loses("original")
    assert not Machine(luck=0.01).race(original=1000, snail=5000).beats("original", "snail")


@pytest.mark.parametrize(
    ("rivals", "needed"), [(2, [1, 2, 3, 4, 5, 5, 6, 6, 7]), (1, [1, 2, 3, 4, 5, 6, 7, 7, 8])]
)
def test_a_winner_is_ahead_more_often_than_luck_would_have_it(
    rivals: int, needed: list[int]
) -> None:
    found = [
        HeadToHead([1.0] * builds, [(2.0,) * rivals] * builds, 0.0, 0.03).needed
        for builds in range(1, 10)
    ]
    assert found == needed


def test_the_condition_of_a_win() -> None:
    def standing(times: list[float], noise: float = 0.0) -> HeadToHead:
        return HeadToHead(times, [(1.0, 1.1)] * len(times), noise, 0.03)

    assert standing([0.9] * 3).wins
    assert not standing([0.9] * 3).is_open
    assert not standing([0.9, 0.9, 1.05]).wins  # ahead of one session of the original only
    assert standing([0.9, 0.9, 1.05]).is_open
    assert standing([0.9] * 7 + [1.05] * 2).wins
    assert not standing([1.02] * 3).wins
    assert standing([1.5] * 3).loses
    assert standing([1.5] * 3).is_beaten
    assert not standing([0.8] * 3, noise=0.5).wins
    assert standing([0.8] * 3, noise=0.5).is_open
    assert standing([0.6] * 12, noise=0.5).wins  # noise shrinks with the builds
    assert standing([0.3] * 3, noise=math.log(2.2)).wins  # though it is more than all of the time


def test_sessions_are_rebuilt_and_the_original_has_a_twin() -> None:
    machine = Machine()
    result = machine.race(original=1000, other=900)
    assert result.builds == 3
    assert machine.built.count("original") == 6
    assert machine.built.count("other") == 3
    assert len(result.entries["original"].session_us) == 6
    assert len(result.entries["other"].session_us) == 3


def test_order_changes_and_is_seeded() -> None:
    def order(seed: int) -> list[str]:
        machine = Machine()
        machine.race(seed=seed, original=1000, a=1000, b=1000, c=1000)
        return machine.log

    assert order(1) == order(1)
    assert order(1) != order(2)
    rounds = [tuple(order(1)[start : start + 4]) for start in range(0, 60, 4)]
    assert len(set(rounds)) > 5


def test_drift_of_the_machine_cancels() -> None:
    """The whole machine slows down from build to build by more than the candidate gains."""
    machine = Machine()

    def session(time_us: float) -> Callable[[], Callable[[], object]]:
        def prepare() -> Callable[[], object]:
            build = len(machine.built) // 3
            machine.built.append("any")
            return lambda: machine.sleep(time_us * (1 + build) / 1e6)

        return prepare

    result = race_prepared(
        {"original": session(1000), "fast": session(900)}, "original", threads=1, clock=machine
    )
    assert result.winner == "fast"
    assert result.entries["fast"].ratio == pytest.approx(0.9)
    assert result.entries["fast"].spread == pytest.approx(2)
    assert result.noise == pytest.approx(0, abs=1e-9)


def test_failing_candidate_only_loses() -> None:
    machine = Machine()
    result = race_prepared(
        {"original": machine.session("original", 1000), "broken": failing("no kernel")},
        "original",
        threads=1,
        clock=machine,
    )
    assert result.winner == "original"
    assert result.entries["broken"].note == "failed: no kernel"
    assert math.isinf(result.entries["broken"].ratio)
    assert json.loads(json.dumps(result.to_json(), allow_nan=False))["speedup"] == 1


def test_candidate_that_fails_later_cannot_win() -> None:
    machine = Machine()
    calls = 0

    def fragile() -> Callable[[], object]:
        def call() -> None:
            nonlocal calls
            calls += 1
            if calls > 300:
                raise RuntimeFailed("out of memory")
            machine.now_ns += 100_000

        return call

    result = race_prepared(
        {"original": machine.session("original", 1000), "fragile": fragile},
        "original",
        threads=1,
        clock=machine,
    )
    assert result.winner == "original"
    assert "out of memory" in result.entries["fragile"].note


def test_failing_original_is_an_error() -> None:
    with pytest.raises(RuntimeFailed, match="cannot load"):
        race_prepared({"original": failing("cannot load")}, "original", threads=1)


def test_hopeless_candidate_leaves_early() -> None:
    machine = Machine()
    result = machine.race(original=1000, snail=50_000)
    assert "50.0 times slower" in result.entries["snail"].note
    assert machine.built.count("snail") == 1
    assert result.entries["snail"].ratio == pytest.approx(50)


def test_slow_models_are_raced_within_the_limit() -> None:
    result = Machine().race(time_limit_s=30, original=500_000, fast=300_000)
    assert result.winner == "fast"
    assert result.builds >= 2
    assert result.seconds < 36


def test_very_slow_model_gets_one_build_and_wide_noise() -> None:
    result = Machine().race(time_limit_s=10, original=5e6, little=4.5e6)
    assert result.builds == 1
    assert result.threshold == 0.15
    assert result.winner == "original"
    assert Machine().race(time_limit_s=10, original=5e6, much=3e6).winner == "much"


def test_nonsense_is_refused() -> None:
    machine = Machine()
    with pytest.raises(OptionError, match="not among"):
        race_prepared({"a": machine.session("a", 1)}, "original", threads=1)
    with pytest.raises(OptionError, match="2 builds"):
        race_prepared({"a": machine.session("a", 1)}, "a", threads=1, builds=1)


def test_real_models() -> None:
    def chain(length: int) -> bytes:
        names = [f"v{index}" for index in range(length + 1)]
        graph = helper.make_graph(
            [helper.make_node("Tanh", [a], [b]) for a, b in pairwise(names)],
            "chain",
            [helper.make_tensor_value_info(names[0], TensorProto.FLOAT, [64, 64])],
            [helper.make_tensor_value_info(names[-1], TensorProto.FLOAT, [64, 64])],
        )
        opset = helper.make_opsetid("", 17)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
        return bytes(model.SerializeToString())

    models = {"original": chain(20), "short": chain(2), "invalid": b"garbage"}
    entrants = {
        name: partial(OrtSession, model, OrtOptions(threads=1)) for name, model in models.items()
    }
    feeds = {"v0": np.ones((64, 64), np.float32)}
    result = race(entrants, "original", feeds, threads=1, rounds=2, builds=2)
    assert result.winner == "short"
    assert "refuses" in result.entries["invalid"].note
    assert len(result.entries["short"].session_us) == 2
