"""The comparison of one model with its original: on random inputs, and where errors show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.common.precision import Precision
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.backends.ort.session import OpenSession, OrtOptions
from eqsat_opt.runtime.source import Feeds, ModelSource, Runner, read_structure
from eqsat_opt.validation.noise import noisy
from eqsat_opt.validation.own_movement import Movement, OwnMovement
from eqsat_opt.validation.partitions import cut_at_quantisations
from eqsat_opt.validation.reference import Reference, Trial
from eqsat_opt.validation.tolerances import (
    TOLERANCES,
    Difference,
    Evidence,
    Scale,
    compare_elements,
    compare_moving,
    compare_values,
    is_float,
    is_within_floor,
    spread_of,
    widest,
)
from eqsat_opt.validation.trials import InputDraft

__all__ = ["TO_EXCUSE", "Judge"]

_NOISY_RUNS = 4

_TO_ACCUSE, TO_EXCUSE = 0.1, 0.4
"""Shares of the time left to measure how the original moves: to accuse or excuse a candidate."""


def _noisy_session(
    model: ModelSource, options: OrtOptions, open_session: OpenSession
) -> Runner | None:
    changed = noisy(read_structure(model))
    return None if changed is None else open_session(changed, options.beside(model))


@dataclass(frozen=True)
class _Sessions:
    """The original, the other model, and the original with random errors in its sums."""

    original: Runner
    candidate: Runner
    noisy: Runner | None


@dataclass(frozen=True)
class Judge:
    """The judge of one model, which compares it with the reference."""

    reference: Reference
    model: ModelSource
    options: OrtOptions
    numerics: Numerics
    open_session: OpenSession
    open_candidate: OpenSession
    precision: Precision
    _sessions: dict[OrtOptions, _Sessions] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def _judged_as(self, name: str) -> str:
        """Return the element type in which an output was computed; empty if it is its own."""
        if self.precision is Precision.FP16:
            return "float16"
        return "" if self.reference.own is None else self.reference.own.narrow.get(name, "")

    @property
    def _tolerance(self) -> float:
        return TOLERANCES[self.numerics]

    @cached_property
    def _scales(self) -> list[Scale]:
        reference = self.reference
        coarse = {} if reference.own is None else reference.own.coarse
        return [
            Scale.of(values, coarse.get(name, 0.0))
            for name, values in zip(
                reference.names, zip(*reference.outputs, strict=True), strict=True
            )
        ]

    def compare(self, results: Sequence[Sequence[Any]]) -> tuple[Difference, ...]:
        """Return the worst difference of every output over the random inputs."""
        reference, exact = self.reference, self.numerics is Numerics.BITEXACT
        worst: dict[str, Difference] = {}
        for actual, expected in zip(results, reference.outputs, strict=True):
            values = zip(reference.names, expected, actual, self._scales, strict=True)
            for name, left, right, scale in values:
                found = compare_values(
                    name,
                    left,
                    actual=right,
                    scale=scale,
                    tolerance=self._tolerance,
                    exact=exact,
                    judged_as=self._judged_as(name),
                )
                worst[name] = _worse(worst.get(name), found)
        return tuple(worst[name] for name in reference.names)

    # ** how the original moves by itself **

    def against_movement(
        self, found: tuple[Difference, ...], results: Sequence[Sequence[Any]]
    ) -> tuple[Difference, ...]:
        """Judge the differences once more, by how far the original moves by itself.

        A difference below that is excused. In `reassociate` and `finite` a difference above it is a
        fault, however small it is, if it shows without the runtime's fusions too; and an infinity
        that fusions hide in the original has to be in the other model. In `bitexact` no bit may
        differ, except where libraries compute in another order.
        """
        reference, own = self.reference, self.reference.own
        if own is None or (own.rounds and not self._hides_infinities):
            return found  # the comparison between quantisations shows more
        is_wrong = any(one.why for one in found)
        is_strict = (
            self._is_own
            and self.precision is not Precision.FP16
            and self.numerics in (Numerics.REASSOCIATE, Numerics.FINITE)
        )
        is_near = all(
            is_within_floor(one, left, scale)
            for one, left, scale in zip(found, reference.outputs[0], self._scales, strict=True)
        )
        is_exact = self._is_own and self.numerics is Numerics.BITEXACT
        is_needed = (
            is_exact and any(one.max_abs for one in found)
            if self.numerics is Numerics.BITEXACT
            else is_wrong or (is_strict and not is_near)
        )
        if not (is_needed or self._hides_infinities):
            return found
        if not reference.has_time(TO_EXCUSE if is_wrong else _TO_ACCUSE):
            return found
        try:
            return self._judged_by(own, found, results, is_strict=is_strict and not own.rounds)
        except RuntimeFailed:  # such as a model that no session runs without its fusions
            return found

    @property
    def _is_own(self) -> bool:
        """Whether the runtime of the original runs the other model too."""
        return self.open_candidate is self.open_session

    @cached_property
    def _hides_infinities(self) -> bool:
        """Whether fusions of the runtime may have moved infinities in the original."""
        return self._is_own and any(
            is_float(value) and not np.isfinite(value.astype(np.float64)).all()
            for outputs in self.reference.outputs
            for value in outputs
        )

    def _judged_by(
        self,
        own: OwnMovement,
        found: Sequence[Difference],
        results: Sequence[Sequence[Any]],
        *,
        is_strict: bool,
    ) -> tuple[Difference, ...]:
        reference, class_ = self.reference, self._tolerance
        granted = 0.0 if is_strict and own.knows_sums(self.numerics) else class_
        is_exact = (
            self.numerics is Numerics.BITEXACT and not own.rounds and own.knows_sums(self.numerics)
        )
        worst: dict[str, Difference] = {}
        plain: Runner | None = None
        for feeds, left, right in zip(reference.feeds, reference.outputs, results, strict=True):
            movement = own.of(feeds, left, self.numerics)
            moved = partial(self._moved, is_least=is_exact)
            judged = moved(left, right, movement.allowed, class_)
            near = moved(left, right, movement.allowed, granted)
            if self._hides_infinities or any(one.why for one in near):
                plain = plain or self.open_candidate(self.model, own.plain_options)
                values = plain.run(feeds)
                again = moved(movement.plain, values, movement.allowed_plain, granted)
                if is_exact:  # no bit may differ, either with or without fusions
                    judged = [
                        one if other.why else other
                        for one, other in zip(judged, again, strict=True)
                    ]
                judged = [
                    other
                    if other.why and not one.why and (two.why or not np.isfinite(other.max_rel))
                    else one
                    for one, two, other in zip(judged, near, again, strict=True)
                ]
            for one in judged:
                worst[one.name] = _worse(worst.get(one.name), one)
        return tuple(one if one.is_flipped else worst[one.name] for one in found)

    def _moved(
        self,
        expected: Sequence[Any],
        actual: Sequence[Any],
        movement: Sequence[Any],
        tolerance: float,
        *,
        is_least: bool = False,
    ) -> list[Difference]:
        return [
            compare_moving(
                name,
                left,
                right,
                scale=scale,
                tolerance=tolerance,
                allowed=moves,
                exact=self.numerics is Numerics.BITEXACT,
                judged_as=self._judged_as(name),
                is_least=is_least,
            )
            for name, left, right, scale, moves in zip(
                self.reference.names, expected, actual, self._scales, movement, strict=True
            )
        ]

    def on(self, trial: Trial, session: Runner) -> Difference | None:
        """Return a fault that shows on a trial; ``None`` if rounding explains all differences."""
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
        self,
        trial: Trial,
        actual: Sequence[Any],
        spread: Sequence[Any] | None = None,
        movement: Movement | None = None,
    ) -> tuple[Difference, ...]:
        reference, exact = self.reference, self.numerics is Numerics.BITEXACT
        found = []
        for i, (name, left, right, scale) in enumerate(
            zip(reference.names, trial.outputs, actual, self._scales, strict=True)
        ):
            allowed = None if movement is None else movement.allowed[i]
            if movement is not None and allowed is None and isinstance(left, np.ndarray):
                found.append(Difference(name, 0.0, 0.0, self._tolerance, uncompared=left.size))
            elif is_float(left) and is_float(right) and left.shape == right.shape:
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
                        judged_as=self._judged_as(name),
                        unknown=None if allowed is None else np.isnan(allowed),
                    )
                )
            elif trial.draft.kind == "plain" or exact:
                found.append(
                    compare_values(
                        name,
                        _where_known(left, right, allowed),
                        actual=right,
                        scale=scale,
                        tolerance=self._tolerance,
                        exact=exact,
                        judged_as=self._judged_as(name),
                    )
                )
            else:
                found.append(Difference(name, 0.0, 0.0, self._tolerance))
        return tuple(found)

    def _is_confirmed(self, draft: InputDraft, session: Runner) -> bool:
        """Return whether a difference shows again, on other inputs of the same kind.

        It has to exceed what reordered sums explain. On special values it also has to show without
        the runtime's own fusions, as some of these do not keep such values.
        """
        original = self.reference.model
        if original is None:
            return True
        settings = [self.options]
        if draft.kind != "plain":
            settings.append(replace(self.options, level="disabled"))
        try:
            for options in settings:
                sessions = self._sessions_of(original, options)
                if not all(self._differ(draft, seed, sessions) for seed in (1, 2)):
                    return False
        except RuntimeFailed:
            return draft.kind == "plain"
        return True

    def _sessions_of(self, original: ModelSource, options: OrtOptions) -> _Sessions:
        """Return sessions under some options, which serve all trials."""
        if options not in self._sessions:
            self._sessions[options] = _Sessions(
                self.open_session(original, options),
                self.open_candidate(self.model, options),
                _noisy_session(original, options, self.open_session),
            )
        return self._sessions[options]

    def _differ(self, draft: InputDraft, seed: int, sessions: _Sessions) -> bool:
        feeds, noise = draft.draw(seed), sessions.noisy
        trial = Trial(draft, feeds, tuple(sessions.original.run(feeds)))
        actual = sessions.candidate.run(feeds)
        if not any(one.why for one in self._on_values(trial, actual)):
            return False
        movement = self._movement(trial)
        shown = [one for one in self._on_values(trial, actual, movement=movement) if one.why]
        if not shown:
            return False
        if draft.kind == "special":
            if movement is None or any(np.isinf(one.max_rel) for one in shown):
                return True
            # Random errors in sums would hide faults in masks; the movement between the
            # original's own runs does not.
            own = [widest(None, allowed) for allowed in movement.allowed]
            return any(one.why for one in self._on_values(trial, actual, own, movement))
        if noise is None and movement is None:
            return draft.kind == "plain"
        runs = [noise.run(feeds) for _ in range(_NOISY_RUNS)] if noise is not None else []
        spread = [spread_of(own, others) for own, *others in zip(trial.outputs, *runs, strict=True)]
        if movement is not None:
            pairs = zip(spread, movement.allowed, strict=True)
            spread = [widest(drawn, allowed) for drawn, allowed in pairs]
        return any(one.why for one in self._on_values(trial, actual, spread, movement))

    def _movement(self, trial: Trial) -> Movement | None:
        """Return how far the original moves on a trial; ``None`` if that cannot be measured."""
        own = self.reference.own
        if own is None or not self.reference.has_time(TO_EXCUSE):
            return None
        try:
            is_drawn = trial.draft.kind != "special"
            return own.of(trial.feeds, trial.outputs, self.numerics, is_drawn=is_drawn)
        except RuntimeFailed:
            return None

    def between_quantisations(
        self, found: tuple[Difference, ...], feeds: tuple[Feeds, ...]
    ) -> tuple[Difference, ...]:
        """Return the differences that steps of a quantisation do not explain."""
        # Another runtime does not compute the parts of a model as it computes the whole.
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
            others = [segments.other.run(one) for one in feeds]
            between = replace(self, reference=parts).compare(others)
        except RuntimeFailed:
            return found
        return found if any(part.why for part in between) else _without_steps(found, between)


def _where_known(expected: Any, actual: Any, allowed: Any | None) -> Any:
    """Return the expected values, with the actual ones where values change by themselves."""
    if allowed is None or np.shape(expected) != np.shape(actual) or is_float(expected):
        return expected
    return np.where(np.isinf(allowed), actual, expected).astype(expected.dtype)


def _worse(known: Difference | None, found: Difference) -> Difference:
    """Return the worse of two differences; their counts of uncompared elements add up."""
    if known is None:
        return found

    def badness(one: Difference) -> tuple[bool, float, float, float]:
        used = one.max_rel / one.tolerance if one.tolerance else one.max_rel
        return bool(one.why), used, one.max_rel, one.max_abs

    worse = found if badness(found) > badness(known) else known
    return replace(worse, uncompared=known.uncompared + found.uncompared)


def _without_steps(
    found: Sequence[Difference], between: Sequence[Difference]
) -> tuple[Difference, ...]:
    """Excuse differences that steps of a quantisation explain: all but those of shape and type."""
    # Parts may be of other types than the output, with tolerances of their own.
    used = max((part.max_rel / part.tolerance for part in between if part.tolerance), default=0.0)
    return tuple(
        replace(one, max_rel=used * one.tolerance, why="", is_flipped=True)
        if one.why and np.isfinite(one.max_abs)
        else one
        for one in found
    )
