"""The glossary of the rulebook: classes, phases, levels, operators, conditions and constants."""

from __future__ import annotations

import math
from fractions import Fraction

from eqsat_opt.ir.ops import OPS
from eqsat_opt.rules.rule import Numerics, Phase

__all__ = ["CONDITIONS", "LEVELS", "NUMERICS", "OPERATORS", "PHASES", "closed_form"]

_DIGITS = 6
"""Largest number of digits of a decimal that is shown as it is."""
_ROUNDING = 4e-16

NUMERICS = {
    Numerics.BITEXACT: "every element is computed by the same operations in the same order, so "
    "every bit but the sign of zero is the same (of +0 and -0 a `Max` or `Min` may return either, "
    "and `Neg(x)` stands for 0 - x); this is verified in float32 with sums from the first term to "
    "the last; libraries sum in orders that depend on the shape",
    Numerics.REASSOCIATE: "sums and products are taken in another order; gates, masks, infinities "
    "and NaN work as before",
    Numerics.FINITE: "as `reassociate` wherever inputs, weights and intermediate values of the "
    "original are finite; an infinity may meet a new 0 and become NaN",
    Numerics.REFACTOR: "factors and weights are recombined: large terms that cancel may cost "
    "digits, infinities and NaN may spread",
    Numerics.RELAXED: "equal over the real numbers; special values (NaN, infinities) may differ, "
    "and a mask of -1e9 may round away on one side only",
}
PHASES = {
    Phase.RECOGNISE: "alone and first, on cut-out parts of the graph: brings every spelling of a "
    "fused operator to one form and names it",
    Phase.SIMPLIFY: "makes graphs smaller",
    Phase.EXPLORE: "opens alternatives",
    Phase.SIBLINGS: "merges operators that lie side by side, in one fixed order",
    Phase.ALGEBRA: "associativity and its kin, for few rounds only, because they never saturate",
    Phase.DERIVATION: "proves other rules and never runs on a model",
}
LEVELS = (
    "sampled in floating point",
    "exact at instances",
    "proven for all sizes",
    "derived from proven rules",
)
OPERATORS = {name: op.doc for name, op in sorted(OPS.items()) if op.doc}
"""Operators of the registry that ONNX does not have; ``OPERANDS`` names their operands."""
OPERANDS = {"MaskedAttention": ("q", "k", "v", "m")}
"""Operator to the names of its operands, where these are not ``x``."""
CONDITIONS = {
    "same-shape(x, y)": "the shapes are equal, not only compatible",
    "distinct(x, y)": "two different values of the graph",
    "follows(x, y)": "`y` comes after `x` in the order of the graph, so two siblings merge in one "
    "order only",
    "x is floating point": "the elements are neither integers nor booleans",
    "a ≈ b, a ≉ b": "the difference is at most, or more than, the tolerance times the size of `b`",
    "x.rank, x.dim(i), p[i]": "the number of axes, the extent along axis `i`, entry `i` of a list",
    "a // b": "the quotient, rounded down",
}


def _decimal(value: float) -> str | None:
    """Return a value as a short decimal, if it is equal to one up to rounding."""
    text = f"{value:.{_DIGITS}g}"
    return text if math.isclose(float(text), value, rel_tol=_ROUNDING) else None


def closed_form(value: float) -> str | None:
    """Return a constant in closed form; ``None`` for a short decimal or if no form is found.

    The forms are reciprocals of short decimals, square roots of fractions and multiples of √(2/π).
    """
    if _decimal(value) or value == 0:
        return None
    if inverse := _decimal(1 / value):
        return f"1/{inverse}"
    square = Fraction(value * value).limit_denominator(99)
    if value > 0 and math.isclose(math.sqrt(square), value, rel_tol=_ROUNDING):
        return f"√({square})"
    multiple = _decimal(value / math.sqrt(2 / math.pi))
    return f"{multiple}·√(2/π)" if multiple else None
