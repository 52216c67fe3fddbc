"""The normal form of a term, with the laws of powers and extrema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from typing import Any

from eqsat_opt.ir.ops.index.integers import Atom, Formula, Poly, atom, negate, substitute
from eqsat_opt.ir.ops.index.scalars import (
    Call,
    Choice,
    Constant,
    Inverse,
    Parameter,
    Plus,
    Read,
    Reduce,
    Scalar,
    Times,
    Whole,
    bound,
    conjunction,
)
from eqsat_opt.proving.numbers.definitions import as_truth, defined
from eqsat_opt.proving.proof.sums.normal import (
    ONE,
    Case,
    Extremum,
    Normal,
    Opaque,
    integer,
    multiply,
    negative,
    renamed,
    single,
)
from eqsat_opt.proving.proof.sums.powers import exponential, looks, power, rational

__all__ = ["extremum", "function", "normalise"]


def _guarded(sum_: Normal, *conditions: Formula) -> Normal:
    return tuple(replace(part, where=conjunction([*part.where, *conditions])) for part in sum_)


def extremum(kind: str, cases: Iterable[Case]) -> Normal:
    """Return an extremum of cases; nested extrema of one kind become one."""
    flat: list[Case] = []
    for case in cases:
        element = case.element
        if len(element) == 1 and element[0] == replace(ONE, factors=element[0].factors):
            factors = element[0].factors
            if len(factors) == 1 and isinstance(factors[0], Extremum) and factors[0].kind == kind:
                flat += (
                    Case(
                        case.bound + inner.bound,
                        conjunction([*case.where, *inner.where]),
                        inner.element,
                    )
                    for inner in factors[0].cases
                )
                continue
        flat.append(case)
    return single(Extremum(kind, tuple(flat)))


def _is_negative(argument: Normal) -> bool:
    """Return whether the first product of a sum is negative, in an order that ignores signs."""
    order = sorted(argument, key=lambda part: looks(part.factors))
    kinds = [looks(part.factors) for part in order[:2]]
    alone = len(kinds) == 1 or (len(kinds) == 2 and kinds[0] != kinds[1])
    return alone and order[0].coefficient < 0


def function(name: str, attrs: tuple[tuple[str, Any], ...], args: tuple[Normal, ...]) -> Normal:
    """Apply a function to sums; exponentials take sums apart, and the error function is odd."""
    if name == "Exp":
        return exponential(args[0])
    if name == "Erf" and _is_negative(args[0]):
        return negative(single(Opaque(name, attrs, (negative(args[0]),))))
    return single(Opaque(name, attrs, args))


def _call(call: Call, names: Mapping[Atom, Poly]) -> Normal:
    meaning = defined(call)
    if meaning is not None:
        return normalise(meaning, names)
    args = tuple(normalise(arg, names) for arg in call.args)
    match call.function:
        case "Relu":
            return extremum("max", [Case((), (), args[0]), Case((), (), ())])
        case "Max" | "Min":
            return extremum(call.function.lower(), [Case((), (), arg) for arg in args])
        case "Sqrt":
            return power(args[0], Fraction(1, 2))
        case "Where" if (known := rational(args[0])) is not None:
            return args[1] if known else args[2]
        case "Where":
            truth = normalise(as_truth(call.args[0]), names)
            otherwise = multiply(truth, args[2])
            return multiply(renamed(truth), args[1]) + args[2] + negative(renamed(otherwise))
        case "Pow" if (exponent := rational(args[1])) is not None:
            return power(args[0], exponent)
        case _:
            return function(call.function, call.attrs, args)


def normalise(term: Scalar, names: Mapping[Atom, Poly] | None = None) -> Normal:
    """Return the normal form of a term; every binder gets a new name."""
    names = names or {}
    match term:
        case Read(tensor, index):
            return single(Read(tensor, tuple(substitute(i, names) for i in index)))
        case Whole(value):
            return integer(substitute(value, names))
        case Constant(value):
            return (replace(ONE, coefficient=value),) if value else ()
        case Parameter():
            return single(term)
        case Plus(parts):
            return tuple(summand for part in parts for summand in normalise(part, names))
        case Times(parts):
            return reduce(multiply, (normalise(part, names) for part in parts), (ONE,))
        case Inverse(operand):
            return power(normalise(operand, names), Fraction(-1))
        case Call():
            return _call(term, names)
        case Choice(condition, then, otherwise):
            holds = substitute(condition, names)
            return _guarded(normalise(then, names), holds) + _guarded(
                normalise(otherwise, names), negate(holds)
            )
        case Reduce(kind, variables, where, body):
            new = [(bound("v"), substitute(extent, names)) for _, extent in variables]
            inner = {
                **names,
                **{old: atom(v) for (old, _), (v, _) in zip(variables, new, strict=True)},
            }
            condition = substitute(where, inner)
            element = normalise(body, inner)
            if kind == "sum":
                return tuple(
                    replace(part, bound=(*new, *part.bound))
                    for part in _guarded(element, condition)
                )
            return extremum(kind, [Case(tuple(new), conjunction([condition]), element)])
