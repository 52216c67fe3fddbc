"""Bounds on the rounding error of one side, for any order of its sums.

This is a running error analysis (Higham, Accuracy and Stability of Numerical Algorithms, §3.3) over
the operators' own definitions. A sum is kept open while it is only added to other sums. A sum of
two terms has one order, so it is rounded once; a longer one may be taken in any order, so its
rounding is bounded by the magnitudes of all its terms. A term so large that all others round away
absorbs them in every order; masks rely on this.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_opt.ir.ops import OPS, Array, AttrMap, get_op
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.ir.values.types import numpy_dtype
from eqsat_opt.proving.numbers.evaluation import Program, Step, Values
from eqsat_opt.proving.numbers.records import Bounded, Records, Rows

__all__ = ["bounded_results"]

_FUNCTION_ULPS = 4.0
"""Rounding error of a library function, in units of the roundoff."""
_NEARLY = 32.0
"""Distance from the greatest number, in epsilons, at which a partial sum may overflow."""


class _BoundedDomain(Records):
    """Arithmetic on codes of records."""

    name = "float"

    def __init__(self, dtype: str, roundoff: Rows, sensitive: bool = True) -> None:
        """Assume a roundoff per column; functions pass errors on only if ``sensitive``."""
        self._sensitive = sensitive
        super().__init__(dtype, len(roundoff))
        info = np.finfo(dtype)
        self._roundoff = roundoff
        self._most = float(info.max)
        self._nearly_most = self._most * (1.0 - _NEARLY * float(info.eps))
        self._least = float(info.tiny)
        self._grain = float(info.smallest_subnormal)
        self._highest, self._lowest = math.log2(self._most), -math.log2(self._least)

    def closed(self, rows: Bounded) -> Rows:
        """Return the bound of the whole error, once an operator other than a sum reads them."""
        if self._sensitive:
            return rows.closed(self._roundoff)
        # Constants among the terms are as inexact as the sum, which two terms may cancel in.
        return rows.error + self._roundoff * np.maximum(rows.terms - 1.0, 0.0) * rows.total

    def _made(
        self,
        value: Array,
        error: Array,
        operands: Sequence[Array],
        left: Array,
        spread: Array,
        *,
        strained: Array,
        powers: tuple[Array, Array] | None = None,
    ) -> Array:
        """Return codes of results other than sums; the last flags are those of the operands.

        The powers are those of a product or of what is moved (:class:`Bounded`).
        """
        value = self.rounded(value)
        finite = np.isfinite(value)
        over = np.isinf(value) & _all(np.isfinite(o) for o in operands)
        error = np.where(finite, np.where(np.isnan(error), np.inf, error), 0.0)
        rows = self.exactly(value)
        rows.error, rows.terms, rows.left = error, np.ones_like(value), left | over
        rows.spread = spread
        if powers is not None:
            rows.high, rows.low = powers
            strained = strained | (rows.high > self._highest) | (rows.low > self._lowest)
        rows.strained = strained
        return self.stored(rows, value.shape[:-1])

    def _overflows(self, value: Array, error: Array, exact: Array) -> npt.NDArray[np.bool_]:
        """Return where an operand's error may move a finite result out of the range, or into it."""
        reach = np.abs(value) + error
        return np.asarray(~exact & np.isfinite(reach) & (reach > self._most))

    def _vanishing(self, value: Array) -> Rows:
        """Return the error of a product below the normal numbers."""
        size = np.abs(value)
        return np.where((size > 0) & (size < self._least), self._grain, 0.0)

    # Sums ---------------------------------------------------------------------------------------

    def _opened(self, rows: Bounded) -> Array:
        """Return codes of open sums, marked where a partial sum may be too large in some order."""
        rows.value = self.rounded(rows.value)
        rows.left = rows.left | (np.isfinite(rows.total) & (rows.total > self._nearly_most))
        return self.stored(rows, rows.value.shape[:-1])

    def _pair(self, a: Array, b: Array, sign: float) -> Array:
        x, y = self.rows(a), self.rows(b)
        return self._opened(
            Bounded(
                value=x.value + sign * y.value, error=x.error + y.error, terms=x.terms + y.terms,
                total=x.total + y.total,
                largest=np.maximum(x.largest, y.largest), left=x.left | y.left,
                spread=x.spread | y.spread,
                high=np.maximum(x.high, y.high), low=np.maximum(x.low, y.low),
                strained=x.strained | y.strained,
            )
        )  # fmt: skip

    def add(self, a: Array, b: Array) -> Array:
        """Add elementwise; leave the sum open."""
        return self._pair(a, b, 1.0)

    def sub(self, a: Array, b: Array) -> Array:
        """Subtract elementwise; leave the difference open."""
        return self._pair(a, b, -1.0)

    def sum(self, a: Array, axes: tuple[int, ...]) -> Array:
        """Sum over ``axes``, which are kept; leave the sum open."""
        axes = tuple(axis % a.ndim for axis in axes)
        x = self.rows(a)

        def over(part: Array) -> Array:
            return np.asarray(np.sum(part, axis=axes, keepdims=True))

        def most(part: Array) -> Array:
            return np.asarray(np.max(part, axis=axes, keepdims=True, initial=0.0))

        def ever(part: Array) -> npt.NDArray[np.bool_]:
            return np.asarray(np.any(part, axis=axes, keepdims=True))

        return self._opened(
            Bounded(
                value=over(x.value), error=over(x.error), terms=over(x.terms), total=over(x.total),
                largest=most(x.largest), left=ever(x.left), spread=ever(x.spread),
                high=most(x.high), low=most(x.low), strained=ever(x.strained),
            )
        )  # fmt: skip

    def matmul(self, a: Array, b: Array) -> Array:
        """Return the matrix product, as open sums of products."""
        if b.ndim == 1:
            return np.asarray(self.sum(self.mul(a, b), (-1,))[..., 0])
        left = a[..., :, :, None] if a.ndim > 1 else a[:, None]
        right = b[..., None, :, :] if a.ndim > 1 else b
        return np.asarray(self.sum(self.mul(left, right), (-2,)).squeeze(-2))

    # Other operations ---------------------------------------------------------------------------

    def mul(self, a: Array, b: Array) -> Array:
        """Multiply elementwise; relative errors add up."""
        x, y = self.rows(a), self.rows(b)
        dx, dy = self.closed(x), self.closed(y)
        value = x.value * y.value
        error = _times(x.value, dy) + _times(y.value, dx) + _times(dx, dy)
        error = error + self._roundoff * np.abs(value) + self._vanishing(value)
        infinite = np.isinf(x.value) | np.isinf(y.value)
        spread = x.spread | y.spread | infinite
        left = x.left | y.left | self._overflows(value, error, (dx == 0) & (dy == 0))
        return self._made(
            value, error, operands=(x.value, y.value), left=left, spread=spread,
            strained=x.strained | y.strained, powers=(x.high + y.high, x.low + y.low),
        )  # fmt: skip

    def div(self, a: Array, b: Array) -> Array:
        """Divide elementwise; relative errors add up.

        A divisor of 0 that carries an error is no true pole.
        """
        x, y = self.rows(a), self.rows(b)
        dx, dy = self.closed(x), self.closed(y)
        value = x.value / y.value
        slack = np.abs(y.value) - dy
        error = np.where(slack > 0, (dx + _times(np.abs(value), dy)) / slack, np.inf)
        still = (dx == 0) & (dy == 0)
        error = np.where(still, 0.0, error)
        error = error + self._roundoff * np.abs(value) + self._vanishing(value)
        pole = (y.value == 0) & (dy > 0)
        left = x.left | y.left | pole | self._overflows(value, error, still)
        exact = x.value, np.where(y.value == 0, np.nan, y.value)
        spread = x.spread | y.spread | np.isinf(x.value)
        return self._made(
            value, error, operands=exact, left=left, spread=spread,
            strained=x.strained | y.strained, powers=(x.high + y.low, x.low + y.high),
        )  # fmt: skip

    def maximum(self, a: Array, axes: tuple[int, ...]) -> Array:
        """Return the greatest element over ``axes``, which are kept."""
        axes = tuple(axis % a.ndim for axis in axes)
        return self._extremum(self.rows(a), axes, np.max)

    def _extremum(self, x: Bounded, axes: tuple[int, ...], choose: Any) -> Array:
        value = np.asarray(choose(x.value, axis=axes, keepdims=True))
        error = np.max(self.closed(x), axis=axes, keepdims=True)
        left = np.any(x.left, axis=axes, keepdims=True)
        spread = np.any(x.spread, axis=axes, keepdims=True)
        strained = np.any(x.strained, axis=axes, keepdims=True)
        return self._made(
            value, error, operands=(value,), left=left, spread=spread, strained=strained
        )

    def where(self, condition: Array, a: Array, b: Array) -> Array:
        """Choose between two numbers by a condition; close a sum that is chosen."""
        c, x, y = (self.rows(operand) for operand in (condition, a, b))
        chosen = c.value != 0
        value = np.where(chosen, x.value, y.value)
        error = np.where(chosen, self.closed(x), self.closed(y))
        left = c.left | np.where(chosen, x.left, y.left)
        spread = np.where(chosen, x.spread, y.spread)
        powers = np.where(chosen, x.high, y.high), np.where(chosen, x.low, y.low)
        strained = c.strained | np.where(chosen, x.strained, y.strained)
        return self._made(
            value, error, operands=(value,), left=left, spread=spread, strained=strained,
            powers=powers,
        )  # fmt: skip

    def apply(self, function: str, attrs: AttrMap, *operands: Array) -> Array:
        """Apply a scalar function, and bound how far the errors of its operands move it."""
        rows = [self.rows(operand) for operand in operands]
        errors = [self.closed(one) for one in rows]
        values = [one.value for one in rows]
        value = self._of(function, attrs, *values)
        error = np.zeros_like(value)
        if self._sensitive and any(one.any() for one in errors):
            for signs in ((1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)):
                moved = [v + s * e for v, s, e in zip(values, signs, errors, strict=False)]
                away = np.abs(self._of(function, attrs, *moved) - value)
                error = np.maximum(error, np.where(np.isnan(away), np.inf, away))
            still = _all(one == 0 for one in errors)
            error = np.where(still, 0.0, error)
        traits = OPS[function].traits
        if "exact" not in traits:
            error = error + _FUNCTION_ULPS * self._roundoff * np.abs(value)
            error = error + self._vanishing(value)
        left, spread = ~_all(~one.left for one in rows), ~_all(~one.spread for one in rows)
        strained = ~_all(~one.strained for one in rows)
        if "nonnegative" in traits:
            # Below the normal numbers the sign may be lost, so that a number without a root gets
            # one.
            unsigned = (
                (errors[0] > 0) & (np.abs(values[0]) <= errors[0]) & (errors[0] < self._least)
            )
            left = left | np.isneginf(values[0]) | unsigned
        if "vanishing" in traits:
            finite = _all(np.isfinite(one) for one in values)
            error = error + np.where((value == 0) & finite, self._grain, 0.0)
            left = left | np.isinf(value)
        if "pole" in traits:
            left = left | (np.isinf(value) & (errors[0] > 0))
            values = [np.full_like(value, np.nan)]
        return self._made(
            value, error, operands=tuple(values), left=left, spread=spread, strained=strained
        )

    @staticmethod
    def _of(function: str, attrs: AttrMap, *values: Rows) -> Rows:
        truths = "bool" in OPS[function].element_types.values()
        operands = [v != 0 for v in values] if truths else list(values)
        return np.asarray(FLOAT.apply(function, attrs, *operands), np.float64)

    def constant(self, value: float, like: Array) -> Array:
        """Return a scalar, rounded to the element type."""
        del like
        rounded = self.rounded(np.asarray([float(value)]))
        rows = self.exactly(rounded)
        rows.left = np.isinf(rounded) & np.isfinite(value)
        rows.error = np.where(np.abs(rounded) < self._least, abs(value - rounded), 0.0)
        return self.stored(rows, ())

    # Operators that evaluate themselves without a domain ----------------------------------------

    def step(self, step: Step, operands: Sequence[Array]) -> Array:
        """Evaluate one operator of a program."""
        evaluate = _OWN.get(step.op)
        if evaluate is None:
            return get_op(step.op).eval_fn(self, operands, step.attrs)
        return np.asarray(evaluate(self, operands, step.attrs))

    def cast(self, operands: Sequence[Array], attrs: AttrMap) -> Array:
        """Cast the numbers; a cast to floating point may round, any other truncates."""
        x = self.rows(operands[0])
        to = numpy_dtype(attrs["to"])
        with np.errstate(all="ignore"):
            value = x.value.astype(to).astype(np.float64)
        error = self.closed(x) + (np.abs(value - x.value) if to.kind == "f" else 0.0)
        return self._made(
            value, error, operands=(x.value,), left=x.left, spread=x.spread, strained=x.strained
        )

    def gather(self, operands: Sequence[Array], attrs: AttrMap) -> Array:
        """Gather numbers; read the indices as plain integers, not as codes of records."""
        x, indices = operands
        return get_op("Gather").eval_fn(self, (x, self.rows(indices).value[..., 0]), attrs)

    def minimum(self, operands: Sequence[Array], attrs: AttrMap) -> Array:
        """Return the least element over axes."""
        made = self._extremum(self.rows(operands[0]), tuple(attrs["axes"]), np.min)
        return _finished(made, attrs)

    def product(self, operands: Sequence[Array], attrs: AttrMap) -> Array:
        """Multiply over axes; relative errors add up."""
        x = self.rows(operands[0])
        axes = tuple(attrs["axes"])
        value = np.prod(x.value, axis=axes, keepdims=True)
        relative = (self.closed(x) / np.abs(x.value)).sum(axis=axes, keepdims=True)
        factors = math.prod(x.value.shape[axis] for axis in axes)
        error = np.abs(value) * (relative + self._roundoff * factors)
        left = np.any(x.left, axis=axes, keepdims=True)
        finite = np.where(np.all(np.isfinite(x.value), axis=axes, keepdims=True), 0.0, np.nan)
        spread = ~np.all(np.isfinite(x.value), axis=axes, keepdims=True)
        powers = (
            np.sum(x.high, axis=axes, keepdims=True),
            np.sum(x.low, axis=axes, keepdims=True),
        )
        made = self._made(
            value, error, operands=(finite,), left=left, spread=spread,
            strained=np.any(x.strained, axis=axes, keepdims=True), powers=powers,
        )  # fmt: skip
        return _finished(made, attrs)


_OWN: Mapping[str, Any] = {
    "Cast": _BoundedDomain.cast,
    "Gather": _BoundedDomain.gather,
    "ReduceMin": _BoundedDomain.minimum,
    "ReduceProd": _BoundedDomain.product,
}


def _all(truths: Iterable[Array]) -> npt.NDArray[np.bool_]:
    """Return the elementwise conjunction of arrays that broadcast."""
    return np.asarray(reduce(np.logical_and, truths))


def _finished(kept: Array, attrs: AttrMap) -> Array:
    return kept if attrs["keepdims"] else np.squeeze(kept, tuple(attrs["axes"]))


def _times(a: Array, b: Array) -> Rows:
    """Multiply magnitudes; 0 times infinity is 0, because an error of 0 has no effect."""
    with np.errstate(invalid="ignore"):
        product = np.abs(a) * np.abs(b)
    return np.where((a == 0) | (b == 0), 0.0, product)


def bounded_results(
    sides: Program,
    draws: Sequence[Values],
    dtype: str,
    *,
    roundoffs: Sequence[float],
    sensitive: bool = True,
    everywhere: bool = False,
) -> list[list[tuple[Bounded, Bounded]]]:
    """Evaluate both sides at some draws, and return the value of every root with closed bounds.

    Args:
        sides: both sides of a rule at an instance.
        draws: values of the operands, by draw.
        dtype: element type of the arithmetic.
        roundoffs: roundoffs of that type to assume; 0 counts only errors of numbers that are too
            small for the type.
        sensitive: whether a function moves with its operands; if not, its result counts as a number
            that is as exact as an operand.
        everywhere: whether all results of a draw count as strained if any result of the left side
            is, or left the range; infinities may then spread.

    Returns:
        The left and right value of each root, for each roundoff, with one column per draw.
    """
    each = np.repeat(np.asarray(roundoffs, np.float64), len(draws))
    domain = _BoundedDomain(dtype, each, sensitive)
    given: dict[str, Array] = {}
    for name in draws[0]:
        once = [np.asarray(draw[name], np.float64) for draw in draws]
        stacked = np.stack(once * len(roundoffs), axis=-1)
        given[name] = domain.stored(domain.exactly(stacked), stacked.shape[:-1])
    made: list[Array] = []

    def of(key: str | int) -> Array:
        return made[key] if isinstance(key, int) else given[key]

    def result(key: str | int) -> Bounded:
        rows = domain.rows(of(key))
        rows.error = domain.closed(rows)
        return rows

    with np.errstate(all="ignore"):
        for step in sides.steps:
            operands = [of(key) for key in step.operands]
            made.append(domain.step(step, operands))
        roots = [(result(left), result(right)) for left, right in sides.roots]
        if everywhere:
            for one in (domain.rows(codes) for codes in made[: sides.left]):
                flagged = (one.left | one.strained).reshape(-1, len(each)).any(axis=0)
                for left, _ in roots:
                    left.strained = left.strained | flagged
    columns = [slice(i, i + len(draws)) for i in range(0, len(draws) * len(roundoffs), len(draws))]
    return [
        [
            (left.map(itemgetter((..., some))), right.map(itemgetter((..., some))))
            for left, right in roots
        ]
        for some in columns
    ]
