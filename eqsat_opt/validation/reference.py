"""The outputs of an original on random inputs and on those where errors show, computed once."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.errors import ModelError, RuntimeFailed
from eqsat_opt.runtime.backends.ort.session import OpenSession, OrtOptions, OrtSession
from eqsat_opt.runtime.backends.sandbox import SandboxDied
from eqsat_opt.runtime.given_inputs import NO_INPUTS, GivenInputs
from eqsat_opt.runtime.source import Feeds, ModelSource, Runner
from eqsat_opt.validation.own_movement import OwnMovement
from eqsat_opt.validation.trials import InputDraft

__all__ = ["Reference", "Trial"]

_BUILDS, _RUNS = 2, 7
"""How often the shortest race builds each entrant and the original's twin, and how often it runs
them in all."""

_RUNS_LEFT = 10
"""Runs of a model that have to fit before the deadline for one more to be of use."""

_MOVING_BUILDS, _MOVING_RUNS = 4, 24
"""Cost of measuring how far the original moves by itself, in sessions and in runs."""

_MAX_DEATHS = 3
"""Deaths of a sandbox on drafts after which no further ones are tried, as each takes seconds."""


@dataclass(frozen=True)
class Trial:
    """A draft on which the original runs."""

    draft: InputDraft
    feeds: Feeds
    outputs: tuple[Any, ...]


@dataclass(frozen=True)
class Reference:
    """Inputs and the outputs of the original, computed once.

    Attributes:
        names: names of the outputs.
        feeds, outputs: random inputs of one size, and the outputs for them.
        trials: further inputs and the outputs for them.
        model: the original, to compare between its quantisations; ``None`` for outputs alone.
        build_s: seconds to load the original and run it for the first time.
        run_s: seconds of its quickest run.
        own: how far the original moves by itself; ``None`` where that is not needed.
        deadline: time after which only the first comparison is made.
    """

    names: tuple[str, ...]
    feeds: tuple[Feeds, ...]
    outputs: tuple[tuple[Any, ...], ...]
    trials: tuple[Trial, ...] = ()
    model: ModelSource | None = None
    build_s: float = 0.0
    run_s: float = 0.0
    own: OwnMovement | None = field(default=None, compare=False)
    deadline: Deadline | None = None

    @property
    def entrant_s(self) -> float:
        """Seconds that the shortest race needs for each session that takes part."""
        run_s = min(self.run_s, self.build_s)
        return _BUILDS * (self.build_s - run_s) + _RUNS * run_s

    @classmethod
    def of(
        cls,
        model: ModelSource,
        options: OrtOptions,
        seeds: Sequence[int],
        sizes: Mapping[str, int] | None = None,
        *,
        inputs: GivenInputs = NO_INPUTS,
        drafts: Iterable[InputDraft] = (),
        drafts_s: float = math.inf,
        open_session: OpenSession = OrtSession,
        deadline: Deadline | None = None,
    ) -> Reference:
        """Run the original on the user's samples or one random input per seed, and on drafts.

        Args:
            model: the original.
            options: options of its session.
            seeds: seeds of random inputs.
            sizes: sizes of symbolic dimensions.
            inputs: samples and generators of the user.
            drafts: further inputs; those on which the original does not run are left out.
            drafts_s: seconds after which no further draft is tried.
            open_session: the function that loads models.
            deadline: further inputs are tried only if several more runs would fit before it.

        Raises:
            RuntimeFailed: the original does not run on any random input.
            OutOfTime: ``open_session`` has a deadline, which passed.
        """
        start = time.perf_counter()
        session = open_session(model, options)
        build_s, run_s = 0.0, math.inf
        specs = inputs.specs(model)
        feeds: list[Feeds] = []
        outputs: list[tuple[Any, ...]] = []
        failure: RuntimeFailed | None = None
        for drawn in inputs.feeds(specs, seeds, sizes or {}):
            if feeds and deadline is not None and deadline.left_s < _RUNS_LEFT * run_s:
                break
            began = time.perf_counter()
            try:
                outputs.append(tuple(session.run(drawn)))
            except RuntimeFailed as error:
                failure = failure or error
            else:
                feeds.append(drawn)
                build_s = build_s or time.perf_counter() - start
                run_s = min(run_s, time.perf_counter() - began)
        if failure is not None and not feeds:
            raise failure
        names = tuple(session.output_names)
        trials = tuple(_trials(session, drafts, Deadline.after(drafts_s)))
        return cls(
            names=names,
            feeds=tuple(feeds),
            outputs=tuple(outputs),
            trials=trials,
            model=model,
            build_s=build_s,
            run_s=run_s,
            own=OwnMovement(model, options, open_session),
            deadline=deadline,
        )

    def has_time(self, share: float) -> bool:
        """Return whether a share of the time left is enough to measure the original's movement."""
        needed_s = _MOVING_BUILDS * self.build_s + _MOVING_RUNS * self.run_s
        return self.deadline is None or needed_s <= share * self.deadline.left_s


def _trials(session: Runner, drafts: Iterable[InputDraft], deadline: Deadline) -> Iterator[Trial]:
    deaths = 0
    for draft in drafts:
        if deadline.expired or deaths == _MAX_DEATHS:
            return
        try:
            feeds = draft.draw(0)
            yield Trial(draft, feeds, tuple(session.run(feeds)))
        except SandboxDied:
            deaths += 1
        except (RuntimeFailed, ModelError):
            continue
