"""Numerically stable forms of terms whose intermediate values would overflow.

An index function defines a value and not the order of operations: `Softmax` is ``exp(x) / Σ
exp(x)`` there. If the greatest x is subtracted first, both exponentials stay within range, as in
every runtime; for finite x the quotient is the same.
"""

from __future__ import annotations

from dataclasses import replace

from eqsat_opt.ir.ops.index.scalars import MINUS_ONE, Call, Inverse, Plus, Reduce, Scalar, Times

__all__ = ["stabilised"]


def stabilised(term: Scalar) -> Scalar:
    """Return the term with exponents shifted by their maximum.

    Quotients by sums of exponentials are changed, and logarithms of such sums.
    """
    match term:
        case Times((Call("Exp", _, (x,)), Inverse(Reduce("sum") as total))) if _exponent(total):
            greatest, shifted = _shifted(total)
            return Times((_exp(_minus(x, greatest)), Inverse(shifted)))
        case Plus((x, Times((sign, Call("Log", _, (Reduce("sum") as total,)))))) if (
            sign == MINUS_ONE and _exponent(total)
        ):
            greatest, shifted = _shifted(total)
            return _minus(_minus(x, greatest), Call("Log", (), (shifted,)))
        case Call("Log", _, (Reduce("sum") as total,)) if _exponent(total):
            greatest, shifted = _shifted(total)
            return Plus((greatest, Call("Log", (), (shifted,))))
    return term


def _exponent(total: Reduce) -> bool:
    """Return whether a sum is one of exponentials that are not shifted yet."""
    match total.body:
        case Call("Exp", _, (Plus((_, Times((_, Reduce("max"))))),)):
            return False
        case Call("Exp"):
            return True
    return False


def _shifted(total: Reduce) -> tuple[Scalar, Reduce]:
    assert isinstance(total.body, Call)
    (x,) = total.body.args
    greatest = replace(total, kind="max", body=x)
    return greatest, replace(total, body=_exp(_minus(x, greatest)))


def _exp(x: Scalar) -> Scalar:
    return Call("Exp", (), (x,))


def _minus(a: Scalar, b: Scalar) -> Scalar:
    return Plus((a, Times((MINUS_ONE, b))))
