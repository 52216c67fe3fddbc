"""Powers of sums: roots of numbers in one normal form, positive factors taken out.

All laws hold where all powers are defined, which :mod:`eqsat_opt.proving.proof.definedness`
ensures. A root is split only where no choice of signs makes one side undefined, and another choice
the other side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import reduce

from eqsat_opt.ir.ops.index.scalars import Parameter, Read
from eqsat_opt.proving.proof.sums.normal import (
    ONE,
    Factor,
    Normal,
    Opaque,
    Power,
    Summand,
    mentioned,
    multiply,
    renamed,
    single,
)
from eqsat_opt.proving.proof.sums.signs import is_positive_factor

__all__ = ["exponential", "looks", "power", "rational"]

_EXPANDED = 4
"""Greatest integer power that is expanded into a product."""
_PRIMES_BELOW = 1000


def rational(sum_: Normal) -> Fraction | None:
    """Return the number that a sum is, whatever the sizes; ``None`` if it is not a number."""
    if not sum_:
        return Fraction(0)
    if all(not (p.bound or p.where or p.factors) for p in sum_):
        return sum((p.coefficient for p in sum_), Fraction(0))
    return None


def _constant(value: Fraction) -> Normal:
    return (replace(ONE, coefficient=value),)


def _inverse(factor: Factor) -> Normal:
    if isinstance(factor, Power):
        return power(factor.base, -factor.exponent)
    return single(Power(single(factor), Fraction(-1)))


def _inverse_of_sum(part: Summand) -> Normal:
    """Invert a sum by 1 / sum of f g = 1/f / sum of g, where f is free of the index of the sum."""
    variables = {v for v, _ in part.bound}
    outer = [f for f in part.factors if variables.isdisjoint(mentioned(f))]
    inner = tuple(f for f in part.factors if f not in outer)
    rest: Normal = (replace(part, coefficient=Fraction(1), factors=inner),)
    sum_ = Power(rest, Fraction(-1))
    constant: Normal = (replace(ONE, coefficient=1 / part.coefficient, factors=(sum_,)),)
    return reduce(multiply, map(_inverse, outer), constant)


def exponential(argument: Normal) -> Normal:
    """Return an exponential as a product, by exp(a + b) = exp(a) exp(b)."""
    factors = tuple(Opaque("Exp", (), ((part,),)) for part in argument)
    return (replace(ONE, factors=factors),)


# Roots -------------------------------------------------------------------------------------------


def _prime_powers(value: int) -> Iterator[tuple[int, int]]:
    """Yield primes and exponents; a factor without small primes stays whole."""
    prime = 2
    while prime < _PRIMES_BELOW and prime * prime <= value:
        count = 0
        while value % prime == 0:
            value, count = value // prime, count + 1
        if count:
            yield prime, count
        prime += 1
    if value > 1:
        yield value, 1


def _power_of_number(value: Fraction, exponent: Fraction) -> Normal:
    """Return a power of a positive rational, as a rational times roots of primes.

    The exponents of the primes are below 1.
    """
    counts = dict(_prime_powers(value.numerator))
    for prime, count in _prime_powers(value.denominator):
        counts[prime] = counts.get(prime, 0) - count
    coefficient, roots = Fraction(1), []
    for prime, count in sorted(counts.items()):
        total = count * exponent
        whole = total.numerator // total.denominator
        coefficient *= Fraction(prime) ** whole
        if total != whole:
            roots.append(Power(_constant(Fraction(prime)), total - whole))
    return (replace(ONE, coefficient=coefficient, factors=tuple(roots)),)


def _power_of_factor(factor: Factor, exponent: Fraction) -> Normal:
    """Return a power of a positive factor."""
    match factor:
        case Power(base, inner):
            return power(base, inner * exponent)
        case Opaque("Exp", _, (argument,)):
            scaled = tuple(replace(p, coefficient=p.coefficient * exponent) for p in argument)
            return exponential(scaled)
        case _:
            return single(Power(single(factor), exponent))


def _root_of_product(only: Summand, exponent: Fraction) -> Normal | None:
    """Take the positive factors out of a root of a product; return ``None`` if there are none."""
    positive = [f for f in only.factors if is_positive_factor(f)]
    rest = tuple(f for f in only.factors if f not in positive)
    size, sign = abs(only.coefficient), 1 if only.coefficient > 0 else -1
    if not positive and size == 1:
        return None
    taken = reduce(
        multiply,
        (_power_of_factor(f, exponent) for f in positive),
        _power_of_number(size, exponent),
    )
    if not rest and sign == 1:
        return taken
    kept = power((replace(ONE, coefficient=Fraction(sign), factors=rest),), exponent)
    return multiply(taken, kept)


def _root_of_power(only: Summand, exponent: Fraction) -> Normal | None:
    """Apply (b^m)^e = b^(m e) to roots of roots and of odd powers, which keep the sign of b."""
    if only.coefficient != 1 or len(only.factors) != 1 or not isinstance(only.factors[0], Power):
        return None
    inner = only.factors[0]
    total = inner.exponent * exponent
    odd = inner.exponent.denominator == 1 and inner.exponent.numerator % 2 == 1
    if (odd and exponent.denominator % 2 == 0) or (
        inner.exponent.denominator != 1 and total.denominator != 1
    ):
        return single(Power(inner.base, total))
    return None


def looks(factors: Iterable[Factor]) -> list[str]:
    """Return the parts of a product, without its indices, in sorted order."""
    shown = []
    for factor in factors:
        match factor:
            case Read(name, _) | Parameter(name) | Opaque(name, _, _):
                shown.append(name)
            case Power(_, exponent):
                shown.append(str(exponent))
            case _:
                shown.append(type(factor).__name__)
    return sorted(shown)


def _is_scale(factor: Factor) -> bool:
    return isinstance(factor, Parameter) and factor.sign == "positive"


def _root_of_scaled(base: Normal, exponent: Fraction) -> Normal | None:
    """Apply (k s + c)^e = k^e (s + c/k)^e with the positive parameters k of the first product."""
    parts = [
        (looks(f for f in part.factors if not _is_scale(f)), part)
        for part in base
        if not all(isinstance(f, Parameter | Power) for f in part.factors)
    ]
    if not parts:
        return None
    _, first = min(parts, key=lambda part: part[0])
    scale = [f for f in first.factors if _is_scale(f)]
    if not scale:
        return None
    rest = tuple(_divided(part, scale) for part in base)
    taken = (single(Power(single(f), exponent)) for f in scale)
    return reduce(multiply, taken, single(Power(rest, exponent)))


def _divided(part: Summand, scale: Iterable[Factor]) -> Summand:
    factors = list(part.factors)
    for factor in scale:
        if factor in factors:
            factors.remove(factor)
        else:
            factors.append(Power(single(factor), Fraction(-1)))
    return replace(part, factors=tuple(factors))


def power(base: Normal, exponent: Fraction) -> Normal:
    """Return a power of a sum.

    Small positive integer powers, and inverses of single products, are expanded.
    """
    if exponent.denominator == 1 and 0 <= exponent <= _EXPANDED:
        factors = (renamed(base) for _ in range(int(exponent)))
        return reduce(multiply, factors, (ONE,))
    known = rational(base)
    if known is not None and known and (exponent.denominator == 1 or known > 0):
        if exponent.denominator == 1:
            return _constant(known ** int(exponent))
        return _power_of_number(known, exponent)
    if len(base) == 1 and exponent == -1 and base[0].bound:
        return _inverse_of_sum(base[0])
    if len(base) == 1 and not base[0].bound and not base[0].where:
        (only,) = base
        if exponent == -1:
            return reduce(multiply, map(_inverse, only.factors), _constant(1 / only.coefficient))
        if exponent.denominator != 1:
            apart = _root_of_product(only, exponent) or _root_of_power(only, exponent)
            if apart is not None:
                return apart
    if len(base) > 1 and exponent.denominator != 1:
        scaled = _root_of_scaled(base, exponent)
        if scaled is not None:
            return scaled
    return single(Power(base, exponent))
