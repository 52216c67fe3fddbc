"""Do two models compute the same? Outputs on random inputs, and on those where errors show.

How much outputs may differ is a matter of :mod:`eqsat_opt.contest.tolerances`; here models are run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from eqsat_opt.contest.noise import noisy
from eqsat_opt.contest.segments import cut_at_quantisations
from eqsat_opt.contest.tolerances import (
    TOLERANCES,
    Difference,
    Evidence,
    Scale,
    compare_elements,
    compare_values,
    is_float,
    spread_of,
)
from eqsat_opt.contest.trials import Draft
from eqsat_opt.deadline import Deadline
from eqsat_opt.errors import ModelError, RuntimeFailed
from eqsat_opt.precision import Precision
from eqsat_opt.runtime.backends.ort.session import OpenSession, OrtOptions, OrtSession
from eqsat_opt.runtime.backends.sandbox import SandboxDied
from eqsat_opt.runtime.inputs import input_specs, random_inputs, sizes_for
from eqsat_opt.runtime.source import Feeds, ModelSource, Runner, read_structure

__all__ = ["TOLERANCES", "Difference", "OpenSession", "Reference", "Trial", "differences"]
_NOISY_RUNS = 4

_BUILDS, _RUNS = 2, 7
"""How often the shortest race builds each entrant and the original's twin, and how often it runs
them in all."""

_RUNS_LEFT = 10
"""Runs of a model that have to fit before the deadline for one more to be of use."""

_MAX_DEATHS = 3
"""Of a sandbox; a model that dies so often on drafts is not worth the seconds of more."""


@dataclass(frozen=True)
class Trial:
    """A draft on which the original runs."""

    draft: Draft
    feeds: Feeds
    outputs: tuple[Any, ...]


@dataclass(frozen=True)
class Reference:
    """Inputs and the outputs of the original, computed once.

    Attributes:
        names: of the outputs.
        feeds, outputs: random inputs of one size, and what they give.
        trials: further inputs.
        model: the original, to look between its quantisations; ``None`` for outputs alone.
        build_s: seconds to load it and run it for the first time.
        run_s: seconds of its quickest run.
    """

    names: tuple[str, ...]
    feeds: tuple[Feeds, ...]
    outputs: tuple[tuple[Any, ...], ...]
    trials: tuple[Trial, ...] = ()
    model: ModelSource | None = None
    build_s: float = 0.0
    run_s: float = 0.0

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
        drafts: Iterable[Draft] = (),
        drafts_s: float = math.inf,
        open_session: OpenSession = OrtSession,
        deadline: Deadline | None = None,
    ) -> Reference:
        """Run the original on one random input per seed, and on drafts.

        Args:
            model: the original.
            options: how it runs.
            seeds: of random inputs.
            sizes: of symbolic dimensions.
            drafts: further inputs; those on which the original does not run are left out.
            drafts_s: seconds after which no further draft is tried.
            open_session: how models are loaded.
            deadline: further inputs are only tried where several runs more would fit.

        Raises:
            RuntimeFailed: the original does not run on any random input.
            OutOfTime: ``open_session`` has a deadline, which struck.
        """
        start = time.perf_counter()
        session = open_session(model, options)
        build_s, run_s = 0.0, math.inf
        specs = input_specs(model)
        feeds: list[Feeds] = []
        outputs: list[tuple[Any, ...]] = []
        failure: RuntimeFailed | None = None
        for seed in seeds:
            if feeds and deadline is not None and deadline.left_s < _RUNS_LEFT * run_s:
                break
            drawn = random_inputs(specs, seed, sizes_for(specs, sizes or {}))
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
        return cls(names, tuple(feeds), tuple(outputs), trials, model, build_s, run_s)


def _trials(session: Runner, drafts: Iterable[Draft], deadline: Deadline) -> Iterator[Trial]:
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


def _noisy_session(
    model: ModelSource, options: OrtOptions, open_session: OpenSession
) -> Runner | None:
    changed = noisy(read_structure(model))
    return None if changed is None else open_session(changed, options.beside(model))


def differences(
    reference: Reference,
    model: ModelSource,
    options: OrtOptions,
    numerics: str,
    *,
    open_session: OpenSession = OrtSession,
    open_candidate: OpenSession | None = None,
    precision: Precision = Precision.STRICT,
) -> tuple[Difference, ...]:
    """Compare ``model`` with the reference, output by output, and then on its trials.

    ``open_candidate`` loads ``model`` where another runtime runs it than the original. Under the
    precision ``fp16`` outputs are judged as those of a model in float16.

    Where outputs differ and both models quantise, they are compared once more between their
    quantisations (:mod:`eqsat_opt.contest.segments`), with the same tolerances. If all agrees
    there, what is left is floats that were rounded to the neighbouring step, and no error; the
    relative difference is then the largest between quantisations.

    Raises:
        RuntimeFailed: ``model`` does not run on random inputs, or has other outputs.
    """
    open_candidate = open_candidate or open_session
    session = open_candidate(model, options)
    if tuple(session.output_names) != reference.names:
        raise RuntimeFailed(
            f"outputs are {list(session.output_names)} instead of {list(reference.names)}"
        )
    judge = _Judge(
        reference=reference,
        model=model,
        options=options,
        numerics=numerics,
        open_session=open_session,
        open_candidate=open_candidate,
        precision=precision,
    )
    found = judge.compare(session)
    if any(difference.why for difference in found):
        found = judge.between_quantisations(found, reference.feeds)
    if any(difference.why for difference in found):
        return found
    wrong = next((one for trial in reference.trials if (one := judge.on(trial, session))), None)
    if wrong is None:
        return found
    return tuple(wrong if one.name == wrong.name else one for one in found)


@dataclass(frozen=True)
class _Judge:
    """What is needed to compare one model with the reference."""

    reference: Reference
    model: ModelSource
    options: OrtOptions
    numerics: str
    open_session: OpenSession
    open_candidate: OpenSession
    precision: Precision

    @property
    def _judged_as(self) -> str:
        return "float16" if self.precision is Precision.FP16 else ""

    @property
    def _tolerance(self) -> float:
        return TOLERANCES[self.numerics]

    @cached_property
    def _scales(self) -> list[Scale]:
        return [Scale.of(values) for values in zip(*self.reference.outputs, strict=True)]

    def compare(self, session: Runner) -> tuple[Difference, ...]:
        """The worst difference of every output over the random inputs."""
        reference, exact = self.reference, self.numerics == "bitexact"
        worst: dict[str, Difference] = {}
        for feeds, expected in zip(reference.feeds, reference.outputs, strict=True):
            results = zip(reference.names, expected, session.run(feeds), self._scales, strict=True)
            for name, left, right, scale in results:
                found = compare_values(
                    name,
                    left,
                    actual=right,
                    scale=scale,
                    tolerance=self._tolerance,
                    exact=exact,
                    judged_as=self._judged_as,
                )
                known = worst.get(name)
                if known is None or (found.why, found.max_rel, found.max_abs) > (
                    known.why,
                    known.max_rel,
                    known.max_abs,
                ):
                    worst[name] = found
        return tuple(worst[name] for name in reference.names)

    def on(self, trial: Trial, session: Runner) -> Difference | None:
        """What is wrong on a trial, if anything is and no rounding explains it."""
        names, what = self.reference.names, trial.draft.what
        try:
            actual = session.run(trial.feeds)
        except RuntimeFailed as error:
            why = f"it does not run {what}, where the original does: {error}"
            return Difference(
                name=names[0], max_abs=np.inf, max_rel=np.inf, tolerance=self._tolerance, why=why
            )
        found = self._on_values(trial, actual)
        if any(one.why for one in found):
            found = self.between_quantisations(found, (trial.feeds,))
        wrong = next((one for one in found if one.why), None)
        if wrong is None or not self._is_confirmed(trial.draft, session):
            return None
        return replace(wrong, why=f"{wrong.why} {what}")

    def _on_values(
        self, trial: Trial, actual: Sequence[Any], spread: Sequence[Any] | None = None
    ) -> tuple[Difference, ...]:
        reference, exact = self.reference, self.numerics == "bitexact"
        found = []
        for i, (name, left, right, scale) in enumerate(
            zip(reference.names, trial.outputs, actual, self._scales, strict=True)
        ):
            if is_float(left) and is_float(right) and left.shape == right.shape:
                noise = None if spread is None else spread[i]
                found.append(
                    compare_elements(
                        name,
                        left,
                        actual=right,
                        scale=scale,
                        tolerance=self._tolerance,
                        spread=noise,
                        evidence=Evidence.of(trial.draft.kind, exact),
                        judged_as=self._judged_as,
                    )
                )
            elif trial.draft.kind == "plain" or exact:
                found.append(
                    compare_values(
                        name,
                        left,
                        actual=right,
                        scale=scale,
                        tolerance=self._tolerance,
                        exact=exact,
                        judged_as=self._judged_as,
                    )
                )
            else:
                found.append(Difference(name, 0.0, 0.0, self._tolerance))
        return tuple(found)

    def _is_confirmed(self, draft: Draft, session: Runner) -> bool:
        """Whether a difference shows again, on other inputs of the sort.

        It has to go beyond what reordered sums explain and, where special values are concerned, it
        has to show without the runtime's own fusions, which do not all keep them.
        """
        original = self.reference.model
        if original is None:
            return True
        open_session = self.open_session
        settings = [self.options]
        if draft.kind != "plain":
            settings.append(replace(self.options, level="disabled"))
        try:
            for options in settings:
                first = open_session(original, options)
                second = self.open_candidate(self.model, options)
                noise = _noisy_session(original, options, open_session)
                if not all(
                    self._differ(draft, seed, first=first, second=second, noise=noise)
                    for seed in (1, 2)
                ):
                    return False
        except RuntimeFailed:
            return draft.kind == "plain"
        return True

    def _differ(
        self, draft: Draft, seed: int, first: Runner, second: Runner, noise: Runner | None
    ) -> bool:
        feeds = draft.draw(seed)
        trial = Trial(draft, feeds, tuple(first.run(feeds)))
        actual = second.run(feeds)
        if not any(one.why for one in self._on_values(trial, actual)):
            return False
        if draft.kind == "special":
            return True
        if noise is None:
            return draft.kind == "plain"
        runs = [noise.run(feeds) for _ in range(_NOISY_RUNS)]
        spread = [spread_of(own, others) for own, *others in zip(trial.outputs, *runs, strict=True)]
        return any(one.why for one in self._on_values(trial, actual, spread))

    def between_quantisations(
        self, found: tuple[Difference, ...], feeds: tuple[Feeds, ...]
    ) -> tuple[Difference, ...]:
        """The differences that steps of a quantisation do not explain."""
        # Parts of a model that another runtime runs are not what it runs as a whole.
        if self.reference.model is None or self.open_candidate is not self.open_session:
            return found
        try:
            segments = cut_at_quantisations(
                self.reference.model, self.model, self.options, self.open_session
            )
            if segments is None:
                return found
            outputs = tuple(tuple(segments.original.run(one)) for one in feeds)
            parts = Reference(tuple(segments.original.output_names), feeds, outputs)
            between = replace(self, reference=parts).compare(segments.other)
        except RuntimeFailed:
            return found
        return found if any(part.why for part in between) else _without_steps(found, between)


def _without_steps(
    found: Sequence[Difference], between: Sequence[Difference]
) -> tuple[Difference, ...]:
    """Differences that steps of a quantisation explain are none; other shapes and types are."""
    # Parts may be of other types than the output, with tolerances of their own.
    used = max((part.max_rel / part.tolerance for part in between if part.tolerance), default=0.0)
    return tuple(
        replace(one, max_rel=used * one.tolerance, why="", is_flipped=True)
        if one.why and np.isfinite(one.max_abs)
        else one
        for one in found
    )
