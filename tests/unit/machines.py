"""A simulated machine with the traps of real ones, so that no test depends on a real clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from eqsat_opt.racing.race import race
from eqsat_opt.racing.race_result import RaceResult

__all__ = ["Machine", "race_prepared"]


def race_prepared(
    entrants: Mapping[str, Callable[[], Callable[[], object]]], original: str, **settings: Any
) -> RaceResult:
    """Race whatever can be built and then called, as runners without inputs."""

    def bind(prepare: Callable[[], Callable[[], object]], _feeds: object) -> Callable[[], object]:
        return prepare()

    runners: dict[str, Any] = {
        name: partial(SimpleNamespace, bind=partial(bind, prepare))
        for name, prepare in entrants.items()
    }
    return race(runners, original, {}, **settings)


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

    def race(
        self,
        time_limit_s: float = 30.0,
        seed: int = 0,
        *,
        extension_s: float = 0.0,
        rounds: int = 5,
        **times_us: float,
    ) -> RaceResult:
        return race_prepared(
            {name: self.session(name, time_us) for name, time_us in times_us.items()},
            "original",
            threads=1,
            rounds=rounds,
            seed=seed,
            time_limit_s=time_limit_s,
            extension_s=extension_s,
            clock=self,
        )
