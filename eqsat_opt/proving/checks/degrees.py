"""A bound on the probability that a wrong rule passes, from the degrees of its polynomials.

An element is a quotient of polynomials in the operands' elements. This domain computes, by the
operators' own definitions, bounds on the two degrees. The value of a nonlinear function counts as
one more variable. Its arguments are counted, because two that agree by chance give equal values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eqsat_opt.ir.ops import Array, AttrMap

__all__ = ["PRIME", "Degrees", "FalseAcceptance", "degree_of", "false_acceptance"]

PRIME = 2**31 - 1
_BITS = 24
_MASK = (1 << _BITS) - 1


@dataclass(frozen=True)
class FalseAcceptance:
    """Bound on the probability that a wrong identity passes at one instance.

    It is ((degree + degree * argument_pairs) / prime) ** trials by Schwartz and Zippel, for values
    drawn independently per trial and nonlinear functions that are taken to be random.

    Attributes:
        degree: of the difference of both sides, denominators cleared.
        argument_pairs: pairs of arguments of one nonlinear function.
        trials: independent draws.
        prime: size of the field.
    """

    degree: int
    argument_pairs: int
    trials: int
    prime: int = PRIME

    @property
    def log2(self) -> float:
        """Logarithm of the bound to base 2; 0 if it says nothing."""
        once = self.degree * (1 + self.argument_pairs) / self.prime
        return min(0.0, self.trials * float(np.log2(once))) if once else -31.0 * self.trials


def false_acceptance(
    degree: int, argument_pairs: int, target_log2: float, least: int
) -> FalseAcceptance:
    """The bound with as many trials as push it below ``target_log2``."""
    once = FalseAcceptance(degree, argument_pairs, 1).log2
    trials = max(least, int(np.ceil(target_log2 / once))) if once < -1 else least
    return FalseAcceptance(degree, argument_pairs, trials)


def _pack(numerator: Array, denominator: Array) -> Array:
    return np.asarray(
        np.minimum(numerator, _MASK) + (np.minimum(denominator, _MASK) << _BITS), dtype=np.int64
    )


def _parts(a: Array) -> tuple[Array, Array]:
    a = a.astype(np.int64)
    return a & _MASK, a >> _BITS


class Degrees:
    """Degrees of numerator and denominator, packed; padding with 0 is a constant, as it should."""

    name = "degrees"

    def __init__(self) -> None:
        self.arguments: dict[str, int] = {}
        self.greatest_argument = 0
        self.is_polynomial = True

    @property
    def pairs(self) -> int:
        """Pairs of arguments of one function."""
        return sum(count * (count - 1) // 2 for count in self.arguments.values())

    def variable(self, shape: tuple[int, ...]) -> Array:
        """Elements of an operand."""
        return np.ones(shape, dtype=np.int64)

    def add(self, a: Array, b: Array) -> Array:
        """Brought over one denominator."""
        (n, d), (m, e) = _parts(a), _parts(b)
        return _pack(np.maximum(n + e, m + d), d + e)

    sub = add

    def mul(self, a: Array, b: Array) -> Array:
        """Degrees add up."""
        (n, d), (m, e) = _parts(a), _parts(b)
        return _pack(n + m, d + e)

    def div(self, a: Array, b: Array) -> Array:
        """Crosswise."""
        (n, d), (m, e) = _parts(a), _parts(b)
        self.is_polynomial = self.is_polynomial and not m.any()
        return _pack(n + e, d + m)

    def sum(self, a: Array, axes: tuple[int, ...]) -> Array:
        """All addends over the product of their denominators."""
        n, d = _parts(a)
        total = np.sum(d, axis=axes, keepdims=True)
        return _pack(np.max(n - d, axis=axes, keepdims=True) + total, total)

    def matmul(self, a: Array, b: Array) -> Array:
        """The sum of products."""
        if b.ndim == 1:
            return np.asarray(self.sum(self.mul(a, b), (-1,))[..., 0])
        left = a[..., :, :, None] if a.ndim > 1 else a[:, None]
        right = b[..., None, :, :] if a.ndim > 1 else b
        if max(a.max(initial=0), b.max(initial=0)) <= _MASK // 2:  # no denominators
            return np.asarray(np.max(left + right, axis=-2, initial=0))
        return np.asarray(self.sum(self.mul(left, right), (-2,)).squeeze(-2))

    def maximum(self, a: Array, axes: tuple[int, ...]) -> Array:
        """One of the elements."""
        return np.asarray(np.max(a, axis=axes, keepdims=True))

    def where(self, condition: Array, a: Array, b: Array) -> Array:
        """One of both."""
        return np.where(condition, a, b)

    def apply(self, function: str, attrs: AttrMap, *operands: Array) -> Array:
        """One more variable per argument."""
        self.is_polynomial = False
        shape = np.broadcast_shapes(*(operand.shape for operand in operands))
        key = f"{function}{sorted(attrs.items())}"
        self.arguments[key] = self.arguments.get(key, 0) + int(np.prod(shape))
        for operand in operands:
            if operand.size:
                self.greatest_argument = max(self.greatest_argument, degree_of(operand))
        return np.ones(shape, dtype=np.int64)

    def constant(self, value: float, like: Array) -> Array:
        """A number."""
        return np.asarray(0, dtype=np.int64)


def degree_of(a: Array) -> int:
    """Greatest degree, denominators cleared."""
    numerator, denominator = _parts(a)
    return int(np.max(np.maximum(numerator, denominator), initial=0))
