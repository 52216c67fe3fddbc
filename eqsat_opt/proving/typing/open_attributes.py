"""Open attributes and extents of a pattern: which a scheme decides, and which it leaves open."""

from __future__ import annotations

import operator as python
from collections.abc import Sequence
from typing import Any

from eqsat_opt.proving.typing.extents import Extent, Shape, Unknown, apply, resolve
from eqsat_opt.proving.typing.most_general import Known, Typing
from eqsat_opt.rules.term import Apply

__all__ = [
    "DYADIC",
    "PARAMETERS",
    "SIGNED",
    "attribute",
    "axis_of",
    "count_of",
    "extents_of",
    "multiple",
    "numbers",
    "repeated",
]

DYADIC = (0.25, 2.0, 0.5, 1.0)
"""Positive float attributes: exact in binary, so that no domain rounds them."""
PARAMETERS = (0.25, -0.5, 2.0, 0.0, 0.5, 1.0, 3.0, 2.0**-10)
"""Attributes of functions of one argument, of any sign."""
SIGNED = (0.5, -1.0, 2.0, -2.0, 1.0, 4.0, 0.25, -0.5, 0.0)
"""Factors, addends and bounds, of any sign; some are inverses or opposites of others."""


def attribute(t: Typing, term: Apply, key: str, options: Sequence[Any], core: int = 0) -> Any:
    """Return the value of an attribute; where it is open, choose one of ``options`` or one like it.

    Floats are also drawn for the rule, as are whole numbers if some option is beyond 1. Both are
    also taken beside and beyond the numbers that the rule names. If the options are a ``range``,
    there are no others.
    """
    pattern = term.attrs[key]
    value = t.value(pattern)
    if value is None:
        value = t.solved(pattern)
        if value is None:
            value = _like(t, options, core)
        t.bind(pattern, value)
    return value


def axis_of(t: Typing, operand: Known, term: Apply) -> tuple[Shape, int]:
    """Return an operand that has the axis of an operator, and the axis."""
    axis = t.value(term.attrs["axis"])
    x = t.at_least(operand, 1 if axis is None else axis + 1)
    axis = attribute(t, term, "axis", range(len(x)))
    t.require(isinstance(axis, int) and axis < len(x))
    return x, axis


def _like(t: Typing, options: Sequence[Any], core: int) -> Any:
    if isinstance(options, range):
        return t.choose(options, core=core)
    if all(isinstance(option, float) for option in options):
        marks = t.hints.marks
        more = marks.reals if min(options) <= 0 else marks.positive
        return t.choose((*options, *more), core=core or len(options))
    if all(type(option) is int for option in options) and max(options) > 1:
        return count_of(t, options, core)
    return t.choose(options, core=core)


def count_of(t: Typing, options: Sequence[int], core: int = 0) -> int:
    """Choose one of some counts, or sometimes one beyond them or beside a number of the rule."""
    marks = t.hints.marks
    more = tuple(n for n in (*marks.counts, *marks.drawn) if n not in options)
    if not more:
        return t.choose(options, core=core)
    if t.hints.large:
        return t.choose(more)
    if t.hints.even:
        return t.choose((*dict.fromkeys(options), *more))
    value = t.choose((*options, *options, None), core=core or len(options))
    return t.choose(more) if value is None else value


def extents_of(t: Typing, pattern: tuple[Any, ...]) -> Shape:
    """Return a shape that a pattern spells out axis by axis; open extents become unknowns."""
    shape = []
    for part in pattern:
        value = t.known(part)
        value = t.extents.new() if value is None else value
        t.bind(part, value)
        shape.append(value)
    return tuple(shape)


def numbers(
    t: Typing,
    term: Apply,
    key: str,
    count: int,
    usual: Sequence[Any],
    each: Sequence[int],
    low: int = 0,
) -> Any:
    """Return the value of a list attribute.

    Where it is open, it is one of the ``usual`` lists, or else ``count`` numbers out of ``each``.
    Where the pattern names its elements, open elements become unknowns, ``low`` at least.
    """
    pattern = term.attrs[key]
    if not isinstance(pattern, tuple):
        value = t.value(pattern)
        if value is None:
            value = t.choose((*usual, None), core=len(usual))
            if value is None:
                value = tuple(count_of(t, each) for _ in range(count))
            t.bind(pattern, value)
        return value
    values = []
    for part in pattern:
        value = t.known(part)
        value = t.extents.new(low=low) if value is None else value
        t.bind(part, value)
        values.append(value)
    return tuple(values)


def repeated(n_axes: int, *values: int) -> list[tuple[int, ...]]:
    """Return one list for each of ``values``, with the same value on all axes."""
    return [(value,) * n_axes for value in values]


def multiple(t: Typing, whole: Extent, factor: int, part: Extent) -> None:
    """Make ``whole`` equal to ``factor * part``, solved for the side that is open."""
    whole, part = resolve(whole), resolve(part)
    if factor == 1:
        t.equal(whole, part)
    elif isinstance(part, Unknown) and not isinstance(whole, Unknown):
        t.equal(part, apply(python.floordiv, whole, factor))
        t.equal(whole, apply(python.mul, factor, part))
    else:
        t.equal(whole, apply(python.mul, factor, part))
