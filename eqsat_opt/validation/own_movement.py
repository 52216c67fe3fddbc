"""The movement of an original: how far its outputs vary by themselves, element by element.

The same numbers are computed again: without the runtime's own fusions, on inputs one unit in the
last place away, and with a random error in every sum, as another order gives. No candidate has
to determine an output more precisely than the original does. Where the original is infinite in one
run and not in the other, or chooses another index, an element shows nothing at all and is not
compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.backends.ort.session import OpenSession, OrtOptions
from eqsat_opt.runtime.source import Feeds, ModelSource, Runner, read_structure
from eqsat_opt.validation.narrow_outputs import coarse_outputs, narrow_outputs
from eqsat_opt.validation.noise import noisy, with_other_zeros
from eqsat_opt.validation.partitions import quantises
from eqsat_opt.validation.tolerances import is_float

__all__ = ["Movement", "OwnMovement", "neighbouring"]

Array: TypeAlias = npt.NDArray[Any]

_MEASURED, _DRAWN = 16.0, 2.0
"""Factors on moves in a run that any user may see, and in one whose sums err by many roundings."""

_MOST = 0.9

_NEIGHBOURS, _DRAWS = 2, 3
"""Number of runs on inputs other than the given ones, and of runs with errors in the sums."""

_CLASS: Mapping[Numerics, float] = {
    Numerics.BITEXACT: 1.0,
    Numerics.REASSOCIATE: 1.0,
    Numerics.FINITE: 1.0,
    Numerics.REFACTOR: 8.0,
    Numerics.RELAXED: 64.0,
}
"""Multiple of its own movement by which a numerics class may move an output. In `bitexact` only the
movement by libraries counts, and the bound of the class holds as well."""

_EXACT = 2.0**10
"""Whole numbers up to this are flags, gates and counts, which are not rounded."""


@dataclass(frozen=True)
class Movement:
    """The movement of the outputs of an original on one input.

    Attributes:
        plain: outputs without the runtime's own fusions, which hide some infinities.
        allowed: per output, how far each element may be off. NaN where an element is not
            determined at all; infinite, in an output that is no float, where the element changes by
            itself; ``None`` where the whole output has another shape every time.
        allowed_plain: the same where both sides run without these fusions, so that an element which
            is infinite with or without them is determined.
    """

    plain: tuple[Any, ...]
    allowed: tuple[Array | None, ...]
    allowed_plain: tuple[Array | None, ...]


class OwnMovement:
    """Runs of one original from which its movement follows; models are loaded when needed.

    Args:
        model: the original.
        options: options of the session in which it is compared.
        open_session: the function that loads models.
    """

    def __init__(self, model: ModelSource, options: OrtOptions, open_session: OpenSession) -> None:
        self._model, self._options, self._open = model, options, open_session
        self._known: dict[tuple[int, Numerics], tuple[Feeds, Movement]] = {}

    @cached_property
    def _structure(self) -> onnx.ModelProto:
        return read_structure(self._model)

    @cached_property
    def rounds(self) -> bool:
        """Whether it rounds floats to the steps of a quantisation."""
        return quantises(self._structure)

    @cached_property
    def plain_options(self) -> OrtOptions:
        """Options without the runtime's own fusions."""
        return replace(self._options, level="disabled")

    @cached_property
    def _whole(self) -> Runner:
        return self._open(self._model, self._options)

    @cached_property
    def plain(self) -> Runner:
        """The original without the runtime's own fusions."""
        return self._open(self._model, self.plain_options)

    def knows_sums(self, numerics: Numerics) -> bool:
        """Return whether it can be measured how far other orders of its sums move the original."""
        return self._drawing(numerics) is not None

    def _drawing(self, numerics: Numerics) -> Runner | None:
        return self._by_libraries if numerics is Numerics.BITEXACT else self._noisy

    @cached_property
    def narrow(self) -> Mapping[str, str]:
        """The type in which outputs are computed that are returned in a wider one."""
        return narrow_outputs(self._structure)

    @cached_property
    def coarse(self) -> Mapping[str, float]:
        """The absolute difference of outputs whose small elements have few digits."""
        return coarse_outputs(self._structure)

    @cached_property
    def _noisy(self) -> Runner | None:
        return self._changed(noisy(self._structure, partly=True))

    @cached_property
    def _by_libraries(self) -> Runner | None:
        return self._changed(noisy(self._structure, partly=True, by_libraries=True))

    @cached_property
    def _other_zeros(self) -> Runner | None:
        return self._changed(with_other_zeros(self._structure))

    def _changed(self, model: onnx.ModelProto | None) -> Runner | None:
        if model is None:
            return None
        try:
            return self._open(model, self.plain_options.beside(self._model))
        except RuntimeFailed:
            return None

    def of(
        self, feeds: Feeds, outputs: Sequence[Any], numerics: Numerics, *, is_drawn: bool = True
    ) -> Movement:
        """Return the movement on one input.

        Args:
            feeds: the input.
            outputs: outputs of the original on the input.
            numerics: numerics class, which decides by which factor the movement is multiplied.
            is_drawn: whether to run with errors in sums, which takes most of the time.

        Raises:
            RuntimeFailed: the original does not run without the runtime's own fusions.
        """
        key = (id(feeds), numerics)
        if key not in self._known:
            measured = self._measured(feeds, outputs, numerics, draws=_DRAWS * is_drawn)
            self._known[key] = (feeds, measured)
        return self._known[key][1]

    def release(self) -> None:
        """Release the loaded models; measured movements stay."""
        for name in ("_whole", "plain", "_noisy", "_by_libraries", "_other_zeros"):
            self.__dict__.pop(name, None)

    def _measured(
        self, feeds: Feeds, outputs: Sequence[Any], numerics: Numerics, draws: int
    ) -> Movement:
        times = _CLASS[numerics]
        plain = tuple(self.plain.run(feeds))
        beside: list[Sequence[Any]] = [plain]
        generator = np.random.default_rng(0)
        is_exact = numerics is Numerics.BITEXACT  # other inputs are no matter of what libraries do
        for _ in range(_NEIGHBOURS if draws and not is_exact else 0):
            moved = neighbouring(feeds, generator)
            beside.extend(_runs(self._whole, moved, 1))
        zeros = [(plain, run) for run in _runs(self._other_zeros, feeds, 1)]
        drawn = [
            (plain, run) for run in _runs(self._drawing(numerics) if draws else None, feeds, draws)
        ]
        allowed: list[Array | None] = []
        without: list[Array | None] = []
        for i, own in enumerate(outputs):
            seen = [(own, run[i]) for run in beside]
            other = [(left[i], right[i]) for left, right in drawn]
            unknown = [(left[i], right[i]) for left, right in zeros]
            if is_float(own):
                moves = _float_movement(seen, other, unknown, times)
                allowed.append(_where_known(moves, [*seen, *other], unknown))
                without.append(_where_known(moves, other, unknown))
            else:
                allowed.append(_other_movement([*seen, *other, *unknown]))
                without.append(allowed[-1])
        return Movement(plain, tuple(allowed), tuple(without))


def _runs(session: Runner | None, feeds: Feeds, count: int) -> list[Sequence[Any]]:
    """Return the results of some runs; none if the model does not run."""
    try:
        return [] if session is None else [session.run(feeds) for _ in range(count)]
    except RuntimeFailed:
        return []


Pairs: TypeAlias = Sequence[tuple[Any, Any]]


def _float_movement(seen: Pairs, drawn: Pairs, zeros: Pairs, times: float) -> Array | None:
    if any(np.shape(a) != np.shape(b) for a, b in (*seen, *drawn, *zeros)):
        return None
    own = seen[0][0]
    result = np.zeros(own.shape)
    for factor, pairs in ((_MEASURED * times, seen), (_DRAWN * times, drawn)):
        if not pairs:
            continue
        moves = np.max([_distance(a, b) for a, b in pairs], axis=0)
        result = np.maximum(result, factor * np.maximum(moves, _typical(own, moves)))
    return result


def _where_known(allowed: Array | None, pairs: Pairs, zeros: Pairs) -> Array | None:
    """Replace moves by NaN where infinities differ between runs, or the sign of a zero shows."""
    if allowed is None:
        return None
    unknown = np.zeros(allowed.shape, bool)
    for a, b in (*pairs, *zeros):
        wide, other = a.astype(np.float64), b.astype(np.float64)
        both = np.isfinite(wide) & np.isfinite(other)
        unknown |= ~(both | (wide == other) | (np.isnan(wide) & np.isnan(other)))
    for a, b in zeros:  # a result of an infinity of the other sign may be finite
        unknown |= _distance(a, b) > allowed
    return np.asarray(np.where(unknown, np.nan, allowed))


def _typical(own: Array, moves: Array) -> Array:
    """Return how far elements of a size usually move, as few runs may leave an element unmoved."""
    size = np.abs(own.astype(np.float64))
    size = np.where(np.isfinite(size), size, 0.0)
    told = size > 0
    share = float(np.quantile(moves[told] / size[told], _MOST)) if told.any() else 0.0
    return np.asarray(share * size)


def _distance(a: Any, b: Any) -> Array:
    """Return absolute differences; 0 where an operand is not finite."""
    with np.errstate(all="ignore"):
        wide, other = a.astype(np.float64), b.astype(np.float64)
        both = np.isfinite(wide) & np.isfinite(other)
        result: Array = np.where(both, np.abs(wide - other), 0.0)
    return result


def _other_movement(pairs: Pairs) -> Array | None:
    """Return infinity where integers change; ``None`` for no tensor, or one that changes shape."""
    own = pairs[0][0]
    if not isinstance(own, np.ndarray):
        return None
    if any(np.shape(b) != own.shape for _, b in pairs):
        return None
    moves = np.zeros(own.shape, bool)
    for a, b in pairs:
        moves |= np.asarray(a != b, bool)
    return np.where(moves, np.inf, 0.0)


def neighbouring(feeds: Feeds, generator: np.random.Generator) -> Feeds:
    """Return inputs whose fractions are one unit in the last place away, up or down by chance."""
    return {name: _beside(value, generator) for name, value in feeds.items()}


def _beside(value: Any, generator: np.random.Generator) -> Any:
    if not is_float(value):
        return value
    with np.errstate(all="ignore"):
        wide = value.astype(np.float64)
        kept = ~np.isfinite(wide) | ((wide == np.round(wide)) & (np.abs(wide) <= _EXACT))
        step = float(ml_dtypes.finfo(value.dtype).eps)  # type: ignore[no-untyped-call]
        signs = generator.integers(0, 2, size=value.shape) * 2 - 1
        moved = (wide * (1.0 + signs * step)).astype(value.dtype)
    return np.where(kept | ~np.isfinite(moved.astype(np.float64)), value, moved)
