"""The check in double precision: where a left side is a number, the right side is the same.

Exact domains have no order, or draw few values, and cannot show where a side is undefined. Real
numbers can, so a rule that an exact method accepts is evaluated here as well, at values that are
not integers and at several scales. It is refuted if the sides differ by more than rounding
explains. Rounding is bounded by the greatest intermediate magnitude, because sums cancel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_opt.ir.ops import OPS, Array, AttrMap, get_op
from eqsat_opt.ir.ops.domains import FloatDomain
from eqsat_opt.proving.numbers.draws import beside, drawn, mingled
from eqsat_opt.proving.numbers.evaluation import FloatNumbers, Values
from eqsat_opt.rules.bindings import Bindings
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import MAP, Expr, applied

__all__ = ["DRAWS", "MeasuredDomain", "RealNumbers", "literals"]

_RELATIVE = 2e-7
"""Difference of two results, relative to the greatest of them, that rounding may explain."""
_CANCELLED = 1e-10
"""Difference that rounding may explain, relative to the greatest intermediate magnitude."""
_LARGEST_LITERAL = 1e37
"""Largest literal whose neighbours are in the range of single precision."""
_BESIDE = 0.75
"""Share of the values that are beside literals, in draws with such values."""
_POLES = frozenset({"Pow", "Log"})
"""Functions that are infinite at a finite argument."""
_LEAST_NORMAL = float(np.finfo(np.float64).tiny)


class MeasuredDomain(FloatDomain):
    """IEEE arithmetic that records how large numbers became.

    Attributes:
        greatest: magnitude of all finite results so far.
        left_range: whether a result was infinite other than at a pole, or an exponential was so
            small that few or none of its digits were left.
    """

    def __init__(self, seed: int = 0) -> None:
        """Accept a seed, which has no effect, because other number domains need one."""
        self.restart(())

    def restart(self, operands: Sequence[Array]) -> None:
        """Forget all results, and record ``operands`` as the first ones."""
        self.greatest = 1e-300
        self.left_range = False
        for operand in operands:
            self._measured(operand)

    def _measured(self, result: Array, *operands: Array) -> Array:
        """Record ``result``, and return it; without operands it may be infinite."""
        if result.dtype.kind == "f" and result.size:
            greatest = float(np.abs(result).max())
            if not math.isfinite(greatest):
                finite = np.isfinite(result)
                greatest = float(np.abs(result).max(initial=0.0, where=finite))
                from_finite = operands and all(np.isfinite(o).all() for o in operands)
                self.left_range = self.left_range or bool(from_finite and np.isinf(result).any())
            self.greatest = max(self.greatest, greatest)
        return result

    def add(self, a: Array, b: Array) -> Array:
        """Return the elementwise sum."""
        return self._measured(super().add(a, b), a, b)

    def sub(self, a: Array, b: Array) -> Array:
        """Return the elementwise difference."""
        return self._measured(super().sub(a, b), a, b)

    def mul(self, a: Array, b: Array) -> Array:
        """Return the elementwise product."""
        return self._measured(super().mul(a, b), a, b)

    def div(self, a: Array, b: Array) -> Array:
        """Return the elementwise quotient."""
        return self._measured(super().div(a, b))

    def matmul(self, a: Array, b: Array) -> Array:
        """Return the matrix product over the last two axes."""
        return self._measured(super().matmul(a, b), a, b)

    def sum(self, a: Array, axes: tuple[int, ...]) -> Array:
        """Sum over ``axes``, which are kept."""
        return self._measured(super().sum(a, axes), a)

    def apply(self, function: str, attrs: AttrMap, *operands: Array) -> Array:
        """Apply a scalar function, given by its operator name."""
        result = super().apply(function, attrs, *operands)
        if "vanishing" in OPS[function].traits:
            self.left_range = self.left_range or bool((np.abs(result) < _LEAST_NORMAL).any())
        return self._measured(result, *(() if function in _POLES else operands))


_HALVES = (-2.0, -1.5, -1.0, -0.5, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
"""Exponents that keep, lose or require a sign."""


def _mixed(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    values = rng.standard_normal(shape) * 10.0 ** rng.uniform(-3.0, 1.5, shape)
    return np.where(rng.random(shape) < 0.5, rng.choice(_HALVES, shape), values)


def _positive(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.asarray(np.abs(rng.standard_normal(shape)) * 3.0)


def _scaled(scale: float, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.asarray(rng.standard_normal(shape) * scale)


_FILLS: tuple[Callable[[np.random.Generator, tuple[int, ...]], Array], ...] = (
    partial(_scaled, 1.0), _positive, partial(_scaled, 30.0), _mixed, partial(_scaled, 1e-3),
    partial(_scaled, 400.0),
)  # fmt: skip
DRAWS = len(_FILLS) + 1
"""Number of kinds of values: at several scales, and beside literals."""
_LARGE = (DRAWS - 2, DRAWS - 1)
"""The kinds of values at which an exponential may overflow, whatever the rule."""


@dataclass(frozen=True)
class RealNumbers:
    """Double precision at one kind of values, which can refute but never accept.

    Attributes:
        seed: kind of values, modulo :data:`DRAWS`.
        literals: numbers that occur in the rule.
    """

    seed: int
    literals: tuple[float, ...] = ()
    name = FloatNumbers.name
    dtype = "float64"

    @cached_property
    def domain(self) -> MeasuredDomain:
        """Double precision."""
        return MeasuredDomain()

    def draw(self, bindings: Bindings, seed: int) -> Values:
        """Draw values of the kind that this domain's own seed selects, none of them 0."""
        kind = self.seed % DRAWS
        fill = _FILLS[kind % len(_FILLS)]
        if kind == len(_FILLS):
            fill = partial(mingled, fill, beside(self.literals), share=_BESIDE)
        values = drawn(bindings, seed, fill)
        for name, type_ in bindings.types.items():
            if type_.dtype == "bool":
                values[name] = values[name].astype(bool)
        self.domain.restart(list(values.values()))
        return values

    def compared(self, left: Array) -> npt.NDArray[np.bool_]:
        """Return the elements of a left side that are numbers.

        Where an intermediate result left the range at large values, no element counts.
        """
        if self.domain.left_range and self.seed % DRAWS in _LARGE:
            return np.zeros(left.shape, dtype=bool)
        return np.asarray(np.isfinite(left))

    def wrong(self, left: Array, right: Array) -> npt.NDArray[np.bool_]:
        """Return the elements that are numbers on the left, and not the same on the right."""
        compared = self.compared(left)
        left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
        scale = float(np.max(np.abs(left), initial=0.0, where=compared))
        rounding = _RELATIVE * scale + _CANCELLED * self.domain.greatest
        return np.asarray(compared & ~(np.abs(left - right) <= rounding))


def literals(rule: Rule) -> tuple[float, ...]:
    """Return the real numbers in the attributes of a rule, such as bounds and addends, except 0."""
    found: dict[float, None] = {}
    for term in applied(rule.roots):
        if term.op == MAP:
            continue
        kinds = get_op(term.op).attrs
        values = [value for key, value in term.attrs.items() if kinds[key] == "float"]
        for number in (number for value in values for number in _numbers(value)):
            if 0 < abs(number) < _LARGEST_LITERAL:
                found[float(number)] = None
    return tuple(found)


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, Expr):
        for arg in value.args:
            yield from _numbers(arg)
    elif isinstance(value, int | float):
        yield value
