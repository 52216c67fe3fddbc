"""A bound on the probability that a wrong rule passes, from the degrees of its polynomials.

An element is a quotient of polynomials in the operands' elements. This domain computes bounds on
the degrees of numerator and denominator, by the operators' own definitions. The value of a
nonlinear function counts as one more variable. The arguments of a function are counted, because two
that agree by chance give equal values.
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

    The bound is ((degree + degree * argument_pairs) / prime) ** trials by the Schwartz-Zippel
    lemma, for values drawn independently per trial and nonlinear functions that are taken to be
    random.

    Attributes:
        degree: degree of the difference of both sides, with denominators cleared.
        argument_pairs: number of pairs of arguments of the same nonlinear function.
        trials: independent draws.
        prime: size of the field.
    """

    degree: int
    argument_pairs: int
    trials: int
    prime: int = PRIME

    @property
    def log2(self) -> float:
        """Logarithm of the bound to base 2; 0 if the bound is no better than 1."""
        once = self.degree * (1 + self.argument_pairs) / self.prime
        return min(0.0, self.trials * float(np.log2(once))) if once else -31.0 * self.trials


def false_acceptance(
    degree: int, argument_pairs: int, target_log2: float, least: int
) -> FalseAcceptance:
    """Return the bound for enough trials to push it below ``target_log2``, at least ``least``."""
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
    """The degrees of numerator and denominator as a number domain, packed into one integer.

    The integer 0, which operators pad with, is a constant, as it should be.
    """

    name = "degrees"

    def __init__(self) -> None:
        self.arguments: dict[str, int] = {}
        self.greatest_argument = 0
        self.is_polynomial = True

    @property
    def pairs(self) -> int:
        """Number of pairs of arguments of the same function."""
        return sum(count * (count - 1) // 2 for count in self.arguments.values())

    def variable(self, shape: tuple[int, ...]) -> Array:
        """Return the degrees of the elements of an operand."""
        return np.ones(shape, dtype=np.int64)

    def add(self, a: Array, b: Array) -> Array:
        """Add over a common denominator."""
        (n, d), (m, e) = _parts(a), _parts(b)
        return _pack(np.maximum(n + e, m + d), d + e)

    sub = add

    def mul(self, a: Array, b: Array) -> Array:
        """Multiply; degrees add up."""
        (n, d), (m, e) = _parts(a), _parts(b)
        return _pack(n + m, d + e)

    def div(self, a: Array, b: Array) -> Array:
        """Divide by multiplying crosswise."""
        (n, d), (m, e) = _parts(a), _parts(b)
        self.is_polynomial = self.is_polynomial and not m.any()
        return _pack(n + e, d + m)

    def sum(self, a: Array, axes: tuple[int, ...]) -> Array:
        """Add all elements along ``axes``, over the product of their denominators."""
        n, d = _parts(a)
        total = np.sum(d, axis=axes, keepdims=True)
        return _pack(np.max(n - d, axis=axes, keepdims=True) + total, total)

    def matmul(self, a: Array, b: Array) -> Array:
        """Return the matrix product, as sums of products."""
        if b.ndim == 1:
            return np.asarray(self.sum(self.mul(a, b), (-1,))[..., 0])
        left = a[..., :, :, None] if a.ndim > 1 else a[:, None]
        right = b[..., None, :, :] if a.ndim > 1 else b
        if max(a.max(initial=0), b.max(initial=0)) <= _MASK // 2:  # no denominators
            return np.asarray(np.max(left + right, axis=-2, initial=0))
        return np.asarray(self.sum(self.mul(left, right), (-2,)).squeeze(-2))

    def maximum(self, a: Array, axes: tuple[int, ...]) -> Array:
        """Return the greatest of the packed degrees along ``axes``."""
        return np.asarray(np.max(a, axis=axes, keepdims=True))

    def where(self, condition: Array, a: Array, b: Array) -> Array:
        """Choose between two operands by a condition."""
        return np.where(condition, a, b)

    def apply(self, function: str, attrs: AttrMap, *operands: Array) -> Array:
        """Count the arguments of a nonlinear function; each value is one more variable."""
        self.is_polynomial = False
        shape = np.broadcast_shapes(*(operand.shape for operand in operands))
        key = f"{function}{sorted(attrs.items())}"
        self.arguments[key] = self.arguments.get(key, 0) + int(np.prod(shape))
        for operand in operands:
            if operand.size:
                self.greatest_argument = max(self.greatest_argument, degree_of(operand))
        return np.ones(shape, dtype=np.int64)

    def constant(self, value: float, like: Array) -> Array:
        """Return the degrees of a number, which are 0."""
        return np.asarray(0, dtype=np.int64)


def degree_of(a: Array) -> int:
    """Return the greatest degree of an array, with denominators cleared."""
    numerator, denominator = _parts(a)
    return int(np.max(np.maximum(numerator, denominator), initial=0))
