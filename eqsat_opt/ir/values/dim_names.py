"""Names of dimensions that are expressions: ``past + seq``, ``floor(height/2 - 1/2) + 1``.

Exporters name a derived size after its formula. A name is read as a formula only if every name in
it is itself a dimension of an input; any other name is a plain symbol.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache, reduce

from eqsat_opt.ir.values.dims import (
    Dim,
    SymDim,
    dim_max,
    dim_min,
    dim_names,
    dim_product,
    floor_div,
    sym,
)

__all__ = ["UNNAMED", "declared_dim", "fresh_dim", "parsed_name", "plain_names", "read_name"]

UNNAMED = frozenset({"", "?"})
"""Names for an unknown size; two dimensions with such a name need not have the same size."""

_LONGEST = 500
"""Characters of the longest name that is parsed."""

_LARGEST_POWER = 4

_FORMULA = re.compile(r"[\w\s+\-*/(),]+", re.ASCII)
_NUMBER_IN_WORD = re.compile(r"\b\d+[A-Za-z_]")
"""A number that runs into a word, which Python warns about."""

_Fraction = tuple[Dim, Dim]
"""A numerator and a denominator."""


class _NoFormula(Exception):
    """The name is not an expression in the grammar."""


@lru_cache(maxsize=4096)
def parsed_name(name: str) -> SymDim | None:
    """Return the expression that ``name`` spells; ``None`` for a plain name and for anything else.

    The grammar has sums, differences, products, small powers, quotients under ``floor`` or
    ``ceiling``, ``//``, ``Mod``, ``Max``, ``Min`` and parentheses. Divisors are assumed to be
    positive, as sizes are.
    """
    if len(name) > _LONGEST or name.isidentifier() or not _is_plausible(name):
        return None
    try:
        tree = ast.parse(name.strip(), mode="eval")
        value = _whole(_fraction(tree.body))
    except (SyntaxError, ValueError, RecursionError, MemoryError, ZeroDivisionError, _NoFormula):
        return None
    return value if isinstance(value, SymDim) else None


def _is_plausible(name: str) -> bool:
    words = re.findall(r"\w+", name)
    return (
        _FORMULA.fullmatch(name) is not None
        and _NUMBER_IN_WORD.search(name) is None
        and not any(map(keyword.iskeyword, words))
    )


def _whole(value: _Fraction) -> Dim:
    above, below = value
    if below == 1:
        return above
    quotient = floor_div(above, below)
    if quotient * below != above:
        raise _NoFormula
    return quotient


def _fraction(node: ast.expr) -> _Fraction:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value, 1
        case ast.Name(id=name):
            return sym(name), 1
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            above, below = _fraction(operand)
            return above * -1, below
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(power))):
            above, below = _fraction(left)
            if not 0 < power <= _LARGEST_POWER:
                raise _NoFormula
            return dim_product([above] * power), dim_product([below] * power)
        case ast.BinOp(left=left, op=op, right=right):
            return _combined(_fraction(left), op, _fraction(right))
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]):
            return _rounded(name.lower(), _fraction(argument)), 1
        case ast.Call(func=ast.Name(id=name), args=[first, second, *others], keywords=[]):
            operands = [_whole(_fraction(one)) for one in (first, second, *others)]
            return reduce(_function(name.lower()), operands), 1
        case _:
            raise _NoFormula


def _function(name: str) -> Callable[[Dim, Dim], Dim]:
    """Return a function of two sizes by its name in lower case."""
    match name:
        case "max":
            return dim_max
        case "min":
            return dim_min
        case "mod" | "pythonmod":
            return lambda left, right: left - floor_div(left, right) * right
        case "floordiv":
            return floor_div
        case "ceildiv" | "ceil_div":
            return lambda left, right: floor_div(left + right - 1, right)
        case _:
            raise _NoFormula


def _combined(left: _Fraction, op: ast.operator, right: _Fraction) -> _Fraction:
    (a, b), (c, d) = left, right
    match op:
        case ast.Add() | ast.Sub():
            sign = 1 if isinstance(op, ast.Add) else -1
            return (a * d + c * b * sign, b * d) if b != d else (a + c * sign, b)
        case ast.Mult():
            return a * c, b * d
        case ast.Div():
            return a * d, b * c
        case ast.FloorDiv():
            return floor_div(a * d, b * c), 1
        case _:
            raise _NoFormula


def _rounded(function: str, value: _Fraction) -> Dim:
    above, below = value
    match function:
        case "floor" | "floortoint" | "trunctoint":
            return floor_div(above, below)
        case "ceiling" | "ceil" | "ceiltoint":
            return floor_div(above + below - 1, below)
        case "int" | "intwrap":
            return _whole(value)
        case _:
            raise _NoFormula


def plain_names(names: Iterable[str]) -> frozenset[str]:
    """Return the names that are plain symbols, not formulas and not unknown."""
    return frozenset(name for name in names if name not in UNNAMED and parsed_name(name) is None)


def read_name(name: str, plain: Collection[str]) -> Dim:
    """Return the size that ``name`` denotes: a formula over ``plain`` names, else a symbol."""
    parsed = parsed_name(name)
    if parsed is None or not set(dim_names(parsed)) <= set(plain):
        return sym(name)
    return parsed


def fresh_dim(value: str, axis: int) -> SymDim:
    """Return an unknown dimension, with a name that only this axis of this value has."""
    return sym(f"?{value}.{axis}")


def declared_dim(declared: int | str, value: str, axis: int, plain: Collection[str] = ()) -> Dim:
    """Return a declared dimension; a negative size, no name and the name ``?`` mean unknown."""
    if isinstance(declared, int):
        return declared if declared >= 0 else fresh_dim(value, axis)
    return read_name(declared, plain) if declared not in UNNAMED else fresh_dim(value, axis)
