"""The race: who may win, on a simulated machine with the traps of real ones."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from onnx import TensorProto, helper

from eqsat_opt.errors import OptionError, RuntimeFailed
from eqsat_opt.runtime.ort import OrtOptions
from eqsat_opt.runtime.race import RaceResult, race, race_prepared


class Machine:
    """A clock, and sessions whose speed is drawn when they are built."""

    def __init__(self, luck: float = 0.0, seed: int = 0) -> None:
        self.now_ns = 0
        self.log: list[str] = []
        self.built: list[str] = []
        self._luck = luck
        self._random = np.random.default_rng(seed)

    def wall_ns(self) -> int:
        return self.now_ns

    cpu_ns = wall_ns

    def preemptions(self) -> int:
        return 0

    def cpu_step_ns(self) -> int:
        return 1

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)

    def session(self, name: str, time_us: float) -> Callable[[], Callable[[], object]]:
        def prepare() -> Callable[[], object]:
            self.built.append(name)
            factor = 1 + self._luck * self._random.random()

            def call() -> None:
                if not self.log or self.log[-1] != name:
                    self.log.append(name)
                self.now_ns += round(time_us * factor * 1e3)

            return call

        return prepare

    def race(self, time_limit_s: float = 30.0, seed: int = 0, **times_us: float) -> RaceResult:
        return race_prepared(
            {name: self.session(name, time_us) for name, time_us in times_us.items()},
            "original",
            threads=1,
            seed=seed,
            time_limit_s=time_limit_s,
            clock=self,
        )


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


def test_sessions_are_rebuilt_and_the_original_has_a_twin() -> None:
    machine = Machine()
    result = machine.race(original=1000, other=1000)
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
    with pytest.raises(OptionError, match="no options"):
        race({"a": b""}, "a", {}, options={})


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
    options = dict.fromkeys(models, OrtOptions(threads=1))
    feeds = {"v0": np.ones((64, 64), np.float32)}
    result = race(models, "original", feeds, options=options, rounds=2, builds=2)
    assert result.winner == "short"
    assert "refuses" in result.entries["invalid"].note
    assert len(result.entries["short"].session_us) == 2
