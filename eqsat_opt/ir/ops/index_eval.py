"""Integers and formulas of index functions under given sizes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np

from eqsat_opt.ir.ops.integers import AllOf, AnyOf, Atom, Formula, IsZero, NonNegative, Poly

__all__ = ["Sizes", "formula_value", "poly_value"]

Sizes = Mapping[Atom, Any]
"""Symbol to its value, or to an array of values."""


def poly_value(value: Poly, sizes: Sizes) -> Any:
    """The integer (or array of integers) that a polynomial is under ``sizes``."""
    total: Any = 0
    for monomial, coefficient in value.terms:
        total = total + coefficient * reduce(
            lambda a, b: a * b, (_atom_value(part, sizes) for part in monomial), 1
        )
    return total


def _atom_value(part: Atom, sizes: Sizes) -> Any:
    if part.kind == "symbol":
        return sizes[part]
    if part.kind == "choose":
        condition, then, otherwise = part.args
        return np.where(
            formula_value(condition, sizes), poly_value(then, sizes), poly_value(otherwise, sizes)
        )
    args = [poly_value(arg, sizes) for arg in part.args]
    match part.kind:
        case "quotient":
            return args[0] // args[1]
        case "pick":
            return np.where(np.equal(args[1], 1), 0, args[0])
        case _:
            return reduce(np.maximum, args)


def formula_value(formula: Formula, sizes: Sizes) -> Any:
    """Whether a formula holds under ``sizes``."""
    match formula:
        case NonNegative(p):
            return np.greater_equal(poly_value(p, sizes), 0)
        case IsZero(p):
            return np.equal(poly_value(p, sizes), 0)
        case AllOf(parts):
            return reduce(np.logical_and, (formula_value(f, sizes) for f in parts), np.True_)
        case AnyOf(parts):
            return reduce(np.logical_or, (formula_value(f, sizes) for f in parts), np.False_)
