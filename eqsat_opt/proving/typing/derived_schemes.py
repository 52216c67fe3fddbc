"""The constraints of an operator on shapes and attributes, derived from its index function."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from eqsat_opt.ir.ops import IllTyped, get_op
from eqsat_opt.ir.ops.index.evaluation import poly_value
from eqsat_opt.ir.ops.index.integers import Atom, IsZero, Poly, atom, poly
from eqsat_opt.ir.ops.index.scalars import Parameter, Unindexed
from eqsat_opt.ir.ops.index.signatures import ranks_of, signature
from eqsat_opt.proving.typing.extents import Extent, Shape, Unknown, apply, resolve
from eqsat_opt.proving.typing.most_general import Fresh, Known, Typing
from eqsat_opt.proving.typing.open_attributes import SIGNED, attribute, multiple
from eqsat_opt.rules.term import Apply

__all__ = ["derived"]

_COUNTS = (2, 1, 3)
_WHOLE = ("int", "size")
"""Kinds of attributes that are whole numbers."""
_RANKS = 4
"""Most ranks of an operand that are tried, unless a condition requires others."""


def derived(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    """Return the shapes of operands and result of an operator without a scheme of its own."""
    op = get_op(term.op)
    axis = t.value(term.attrs["axis"]) if "axis" in op.attrs else None
    ranks = sorted(ranks_of(op.name, len(operands)), key=_rarity)
    shapes = _operands(t, operands, [r for r in ranks if not isinstance(axis, int) or axis < r[0]])
    attrs: dict[str, Any] = {}
    for key, kind in op.attrs.items():
        if key == "axis":
            options: Sequence[Any] = range(len(shapes[0]))
        else:
            options = op.choices.get(key, _COUNTS if kind in _WHOLE else SIGNED)
        value = attribute(t, term, key, options, core=2)
        attrs[key] = {"float": Parameter(key), "str": value}.get(kind, value)
        if kind in _WHOLE:
            t.require(isinstance(value, int))
            attrs[key] = poly(value)
    symbols = [[Atom(f"d{i}_{j}") for j in range(len(shape))] for i, shape in enumerate(shapes)]
    extents = dict(zip(chain(*symbols), chain(*shapes), strict=True))
    try:
        said = signature(op, [list(map(atom, row)) for row in symbols], attrs)
    except Unindexed as error:
        raise IllTyped(str(error)) from error
    for premise in said.premises:
        if isinstance(premise, IsZero):
            _equate(t, premise.poly, extents)
    return shapes, tuple(_extent(part, extents) for part in said.result)


def _rarity(ranks: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    return tuple((abs(rank - 2), rank) for rank in ranks)


def _operands(
    t: Typing, operands: Sequence[Known], options: Sequence[tuple[int, ...]]
) -> list[Shape]:
    """Give the operands ranks that go together, most often those that most models have."""
    shapes: list[Shape] = []
    for number, one in enumerate(operands):
        allowed = tuple(dict.fromkeys(ranks[number] for ranks in options))
        t.require(bool(allowed))
        shape = t.fresh(one, allowed[:_RANKS], core=2) if isinstance(one, Fresh) else one
        t.require(len(shape) in allowed)
        options = [ranks for ranks in options if ranks[number] == len(shape)]
        shapes.append(shape)
    return shapes


def _equate(t: Typing, zero: Poly, extents: Mapping[Atom, Extent]) -> None:
    """Make a polynomial 0 if it is ``n - d * (n // d)``, or linear in an extent; else test it."""
    for part in (part for monomial, _ in zero.terms for part in monomial):
        if part.kind == "quotient":
            whole, factor = part.args
            only = extents.get(next(iter(whole.symbols()), part))
            number = factor.constant
            if number and isinstance(only, Unknown) and zero in _exact(part):
                multiple(t, only, number, t.extents.new())
                return
    for monomial, coefficient in zero.terms:
        if len(monomial) == 1 and monomial[0] in extents and coefficient in (1, -1):
            rest = Poly(tuple(term for term in zero.terms if term[0] != monomial))
            t.equal(extents[monomial[0]], _extent(rest * -coefficient, extents))
            return
    t.equal(_extent(zero, extents), 0)


def _exact(part: Atom) -> tuple[Poly, Poly]:
    """Return the polynomials that are 0 where a quotient has no remainder, of either sign."""
    rest = part.args[0] - atom(part) * part.args[1]
    return rest, -rest


def _extent(value: Poly, extents: Mapping[Atom, Extent]) -> Extent:
    names = sorted(value.symbols())
    if value.constant is not None:
        return value.constant
    # A multiple of one extent is kept as such, so that equations with it are solved.
    if len(value.terms) == 1 and len(value.terms[0][0]) == len(names) == 1:
        (_, factor), extent = value.terms[0], extents[names[0]]
        return extent if factor == 1 else apply(operator.mul, int(factor), extent)

    def number(*sizes: int) -> int:
        return int(poly_value(value, dict(zip(names, sizes, strict=True))))

    return apply(number, *(resolve(extents[name]) for name in names))
