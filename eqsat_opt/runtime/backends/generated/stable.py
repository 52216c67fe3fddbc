"""Terms that overflow where their value does not, in an order of operations that does not either.

An index function says what is computed and not how: `Softmax` is ``exp(x) / Σ exp(x)`` there. Less
the greatest x, both exponentials stay within range, as in every runtime; for finite x the quotient
is the same.
"""

from __future__ import annotations

from dataclasses import replace

from eqsat_opt.ir.ops.index.scalars import MINUS_ONE, Call, Inverse, Plus, Reduce, Scalar, Times

__all__ = ["stabilised"]


def stabilised(term: Scalar) -> Scalar:
    """The term with quotients and logarithms of sums of exponentials shifted by the greatest."""
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
    """Whether it is a sum of exponentials that are not shifted yet."""
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
