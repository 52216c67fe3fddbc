"""Evaluation of index semantics on concrete arrays, for comparison with ``eval_fn``."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from eqsat_opt.ir.ops._base import Array, Domain
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.ir.ops.index.integers import (
    AllOf,
    AnyOf,
    Atom,
    Formula,
    IsZero,
    NonNegative,
    Poly,
    atom,
)
from eqsat_opt.ir.ops.index.scalars import (
    NAMED,
    Call,
    Choice,
    Constant,
    IndexTensor,
    Inverse,
    Parameter,
    Plus,
    Read,
    Reduce,
    Scalar,
    Times,
    Whole,
    bound,
)

__all__ = ["Sizes", "evaluate", "formula_value", "poly_value", "scalar_value"]

Sizes = Mapping[Atom, Any]
"""Symbol to its value, or to an array of values."""


def poly_value(value: Poly, sizes: Sizes) -> Any:
    """Return the integer (or array of integers) that a polynomial equals under ``sizes``."""
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
    """Return whether a formula holds under ``sizes``."""
    match formula:
        case NonNegative(p):
            return np.greater_equal(poly_value(p, sizes), 0)
        case IsZero(p):
            return np.equal(poly_value(p, sizes), 0)
        case AllOf(parts):
            return reduce(np.logical_and, (formula_value(f, sizes) for f in parts), np.True_)
        case AnyOf(parts):
            return reduce(np.logical_or, (formula_value(f, sizes) for f in parts), np.False_)


class _Evaluator:
    def __init__(
        self, domain: Domain, operands: Mapping[str, Array], parameters: Mapping[str, float]
    ) -> None:
        self.domain, self.operands, self.parameters = domain, operands, parameters
        self.like = next(iter(operands.values()), np.zeros((), dtype=np.int64))

    def number(self, value: float) -> Array:
        return self.domain.constant(value, self.like)

    def value(self, term: Scalar, sizes: Sizes, live: Array) -> Array:
        """Return the elements at all points; they are meaningless where ``live`` is false."""
        domain = self.domain
        match term:
            case Read(tensor, index):
                return self._read(self.operands[tensor], index, sizes, live)
            case Whole(value):
                whole = np.broadcast_to(poly_value(value, sizes), live.shape)
                return np.asarray(np.vectorize(self.number, otypes=[self.like.dtype])(whole))
            case Constant(value):
                above, below = self.number(value.numerator), self.number(value.denominator)
                return np.broadcast_to(domain.div(above, below), live.shape)
            case Parameter(name):
                return np.broadcast_to(self.number(self.parameters[name]), live.shape)
            case Plus(parts):
                return reduce(domain.add, (self.value(p, sizes, live) for p in parts))
            case Times(parts):
                return reduce(domain.mul, (self.value(p, sizes, live) for p in parts))
            case Inverse(operand):
                one = np.broadcast_to(self.number(1), live.shape)
                return domain.div(one, self.value(operand, sizes, live))
            case Call(function, attrs, args):
                values = [self.value(arg, sizes, live) for arg in args]
                if function == "Where":
                    return domain.where(*values)
                if function == NAMED:
                    place, extent, number = values
                    return np.asarray(number % extent == place)
                raw = {key: self._attribute(value) for key, value in attrs}
                return domain.apply(function, raw, *values)
            case Choice(condition, then, otherwise):
                holds = np.broadcast_to(formula_value(condition, sizes), live.shape)
                return np.where(
                    holds,
                    self.value(then, sizes, live & holds),
                    self.value(otherwise, sizes, live & ~holds),
                )
            case Reduce():
                return self._reduced(term, sizes, live)

    def _attribute(self, value: Any) -> Any:
        match value:
            case Parameter(name):
                return self.parameters[name]
            case Constant(number):
                return float(number)
            case Plus() | Times() | Inverse() | Call() | Whole():
                return scalar_value(value, {}, self.parameters)
            case _:
                return value

    def _read(self, operand: Array, index: Sequence[Poly], sizes: Sizes, live: Array) -> Array:
        if not index:
            return np.broadcast_to(operand, live.shape)
        places = []
        for axis, position in enumerate(index):
            place = np.broadcast_to(poly_value(position, sizes), live.shape)
            if np.any(live & ((place < 0) | (place >= operand.shape[axis]))):
                raise IndexError(f"axis {axis} is read outside its extent {operand.shape[axis]}")
            places.append(np.clip(place, 0, operand.shape[axis] - 1))
        return np.asarray(operand[tuple(places)])

    def _reduced(self, term: Reduce, sizes: Sizes, live: Array) -> Array:
        integer = self.like.dtype.kind == "i"
        limits = np.iinfo(np.int64)
        start: float = {
            "sum": 0,
            "max": limits.min if integer else -np.inf,
            "min": limits.max if integer else np.inf,
        }[term.kind]
        total = np.full(live.shape, start, dtype=self.like.dtype)
        extents = [int(poly_value(extent, sizes)) for _, extent in term.bound]
        for point in itertools.product(*map(range, extents)):
            inner = {**sizes, **{v: k for (v, _), k in zip(term.bound, point, strict=True)}}
            holds = live & np.broadcast_to(formula_value(term.where, inner), live.shape)
            element = self.value(term.body, inner, holds)
            if term.kind == "sum":
                joined = self.domain.add(total, element)
            else:
                joined = (np.maximum if term.kind == "max" else np.minimum)(total, element)
            total = np.where(holds, joined, total)
        return total


def scalar_value(term: Scalar, sizes: Sizes, parameters: Mapping[str, float]) -> float:
    """Return the value of a term that reads no elements, in double precision.

    It is not finite where the term is undefined.
    """
    evaluator = _Evaluator(FLOAT, {}, parameters)
    evaluator.like = np.zeros((), dtype=np.float64)
    with np.errstate(all="ignore"):
        return float(evaluator.value(term, sizes, np.ones((), dtype=np.bool_)))


def evaluate(
    tensor: IndexTensor,
    domain: Domain,
    operands: Mapping[str, Array],
    sizes: Sizes,
    parameters: Mapping[str, float] | None = None,
) -> Array:
    """Evaluate all elements of a tensor that is given by its index function.

    Raises:
        IndexError: an operand is read outside its extents.
    """
    shape = tuple(int(poly_value(extent, sizes)) for extent in tensor.shape)
    places = [bound("i") for _ in shape]
    grid = np.indices(shape).reshape(len(shape), int(np.prod(shape)))
    values = {**sizes, **dict(zip(places, grid, strict=True))}
    live = np.ones(int(np.prod(shape)), dtype=np.bool_)
    term = tensor.at([atom(place) for place in places])
    found = _Evaluator(domain, operands, parameters or {}).value(term, values, live)
    return np.asarray(found).reshape(shape)
