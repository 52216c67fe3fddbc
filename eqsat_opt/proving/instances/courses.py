"""Sizes that meet: values of several sizes at which the expressions of a rule take another course.

A rule sees its sizes through its own expressions only. Landmarks of single sizes miss what happens
at two of them together: at a quotient of two sizes, or where each has a certain residue. So the
expressions are evaluated at many values of their sizes at once. Values with the same signs of all
quotients, differences and products count as one *course*, and an instance is wanted of each.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_opt.proving.typing.landmarks import ARITHMETIC, expressions, leaves_of
from eqsat_opt.rules.bindings import REFUSED, Bindings, size
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import Condition, Expr

__all__ = ["Courses", "Wanted", "courses"]

_CELLS = 60_000
"""Most combinations of values that are evaluated."""
_DENSE = (0, 600, 128, 36, 15)
"""Greatest value of each size, by the number of sizes; more sizes are drawn up to the last."""
_MOST_SIZES = 6
"""Most sizes that are looked at together."""
_HIGHEST_RANK = 8
_REAL = 0.75
"""Value of a float attribute beside sizes."""
_SIDES = frozenset({"==", "!=", "<", "<="})
_EACH = 2
"""Combinations of each kind that are proposed for a course."""
_ORDERS = 40
"""Most combinations that are proposed for a course because their sizes are in another order."""
_PLENTY = 400
"""Most courses of a group of sizes; the rest only differ in how large numbers grow."""
_Rows = npt.NDArray[np.float64]
_Keys = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Wanted:
    """A course that some instance is to take.

    Attributes:
        key: the course; whether no size may be 1 or equal to another is part of it.
        values: proposals of values for the sizes.
    """

    key: tuple[int, int]
    values: tuple[tuple[int, ...], ...]


class Courses:
    """The courses that expressions take together, by the values of the sizes in them.

    Attributes:
        ranked: operands whose ranks are among the sizes.
    """

    def __init__(
        self, sizes: Sequence[Expr], values: Sequence[Expr], when: Sequence[Condition]
    ) -> None:
        """Name what is evaluated; nothing is, before it is asked for.

        Args:
            sizes: the sizes, each once.
            values: expressions of these sizes and float attributes.
            when: conditions on these sizes, which hold wherever the rule applies.
        """
        self._sizes = tuple(sizes)
        self._values = tuple(values)
        self._when = tuple(when)
        self.ranked = frozenset(one.args[0] for one in sizes if one.kind == "rank")

    def at(self, bindings: Bindings) -> tuple[int, ...] | None:
        """Return the values of the sizes at an instance; ``None`` where one has none."""
        try:
            return tuple(int(size(one, bindings)) for one in self._sizes)
        except (*REFUSED, TypeError, ValueError):
            return None

    def pins(self, values: Sequence[int]) -> tuple[Condition, ...]:
        """Return conditions that give the sizes these values."""
        return tuple(one == value for one, value in zip(self._sizes, values, strict=True))

    def of(self, bindings: Bindings) -> Iterator[tuple[int, int]]:
        """Yield the courses that an instance takes; none where a size has no value there."""
        row = self.at(bindings)
        if row is None:
            return
        cells = np.asarray(row, np.float64)[:, np.newaxis]
        with np.errstate(all="ignore"):
            keys, holds = self._keys(cells)
        if holds[0]:
            yield from ((int(keys[0]), tier) for tier in range(int(_tiers(cells)[0]) + 1))

    @cached_property
    def wanted(self) -> tuple[Wanted, ...]:
        """The courses, those that are taken at the fewest values first."""
        cells = self._cells()
        with np.errstate(all="ignore"):
            keys, holds = self._keys(cells)
        cells, keys = cells[:, holds], keys[holds]
        order = np.argsort(np.abs(cells).sum(axis=0), kind="stable")
        cells, keys, tiers = cells[:, order], keys[order], _tiers(cells)[order]
        multiples, orders = _multiples(cells), _orders(cells)
        distinct, counts = np.unique(keys, return_counts=True)
        if len(distinct) < 2:
            return ()
        found = []
        for at in np.argsort(counts, kind="stable")[:_PLENTY]:
            taken = np.flatnonzero(keys == distinct[at])
            most = int(tiers[taken].max())
            for tier in sorted({0, most}):
                fitting = taken[tiers[taken] >= tier]
                # Heads of keys and channels of groups are multiples of their number.
                several = dict.fromkeys((*fitting[:_EACH], *fitting[multiples[fitting]][:_EACH]))
                # Operators may demand an order of their attributes, which no expression tells.
                first = np.unique(orders[fitting], return_index=True)[1]
                several |= dict.fromkeys(fitting[np.sort(first)][:_ORDERS])
                values = tuple(tuple(map(int, cells[:, one])) for one in several)
                found.append(Wanted((int(distinct[at]), tier), values))
        return tuple(found)

    def _cells(self) -> _Rows:
        count = len(self._sizes)
        dense = _DENSE[min(count, len(_DENSE) - 1)]
        ranges = [list(_range(one, dense)) for one in self._sizes]
        if math.prod(map(len, ranges)) <= _CELLS * 2:
            return np.stack([axis.ravel() for axis in np.meshgrid(*map(_row, ranges))])
        rng = random.Random(" ".join(map(str, self._sizes)))
        return np.asarray([[*map(rng.choice, ranges)] for _ in range(_CELLS)], np.float64).T

    def _keys(self, cells: _Rows) -> tuple[_Keys, npt.NDArray[np.bool_]]:
        """Return the course at each combination, and whether the conditions hold there."""
        values = {str(one): row for one, row in zip(self._sizes, cells, strict=True)}
        keys = np.zeros(cells.shape[1], np.int64)
        holds = np.ones(cells.shape[1], np.bool_)
        for expression in self._values:
            keys, value = _followed(expression, values, keys)
            holds &= np.isfinite(value)
        for condition in self._when:
            sides = []
            for side in condition.args[:2]:
                keys, value = _followed(side, values, keys)
                sides.append(value)
            holds &= _compared(condition.kind, *sides)
            keys = _mixed(keys, np.sign(sides[0] - sides[1]))
        return keys, holds


def _row(values: Sequence[int]) -> _Rows:
    return np.asarray(values, np.float64)


def _range(one: Expr, dense: int) -> Iterator[int]:
    if one.kind == "rank":
        yield from range(_HIGHEST_RANK + 1)
        return
    if one.kind != "dim":
        yield from (0, -1, -2)
    yield from range(1, dense + 1)


def _tiers(cells: _Rows) -> npt.NDArray[np.int64]:
    """Return 1 where every size is at least 2, 2 where they also differ, and 0 elsewhere."""
    large = (cells >= 2).all(axis=0)
    ordered = np.sort(cells, axis=0)
    differ = (ordered[1:] != ordered[:-1]).all(axis=0)
    return np.where(large, np.where(differ, 2, 1), 0)


def _orders(cells: _Rows) -> _Keys:
    """Return a number for the order of the sizes, and which of them are negative or 0."""
    keys = np.zeros(cells.shape[1], np.int64)
    for number, row in enumerate(cells):
        for other in (*cells[:number], np.zeros_like(row)):
            keys = 3 * keys + np.sign(row - other).astype(np.int64) + 1
    return keys


def _multiples(cells: _Rows) -> npt.NDArray[np.bool_]:
    """Return where each size, in ascending order, divides the next one."""
    ordered = np.sort(cells, axis=0)
    with np.errstate(all="ignore"):
        return np.asarray((ordered[1:] % ordered[:-1] == 0).all(axis=0))


def _mixed(keys: _Keys, signs: _Rows) -> _Keys:
    codes = np.where(np.isnan(signs), 3.0, signs + 1.0).astype(np.int64)
    mixed: _Keys = (keys ^ (codes + 0x9E3779B9)) * np.int64(0x5851F42D4C957F2D)
    return mixed ^ (mixed >> np.int64(29))


def _followed(expression: Any, values: Mapping[str, _Rows], keys: _Keys) -> tuple[_Keys, _Rows]:
    """Return the values of an expression, and the keys with the signs of all operations in it."""
    if not isinstance(expression, Expr) or expression.kind == "literal":
        number = expression.args[0] if isinstance(expression, Expr) else expression
        number = number if isinstance(number, int | float) else 0.0
        return keys, np.full(keys.shape, float(number))
    if expression.kind not in ARITHMETIC:
        found = values.get(str(expression))
        return keys, np.full(keys.shape, _REAL) if found is None else found
    operands = []
    for arg in expression.args:
        keys, operand = _followed(arg, values, keys)
        operands.append(operand)
    match expression.kind:
        case "+":
            result = operands[0] + operands[1]
        case "-":
            result = operands[0] - operands[1]
        case "*":
            result = operands[0] * operands[1]
        case "//":
            result = np.floor_divide(*operands)
        case "/":
            result = operands[0] / operands[1]
        case "sqrt":
            result = np.sqrt(operands[0])
        case _:
            return keys, operands[0]
    return _mixed(keys, np.sign(result)), result


def _compared(kind: str, left: _Rows, right: _Rows) -> npt.NDArray[np.bool_]:
    match kind:
        case "==":
            return np.asarray(left == right)
        case "!=":
            return np.asarray(left != right)
        case "<":
            return np.asarray(left < right)
        case _:
            return np.asarray(left <= right)


@lru_cache(maxsize=16)
def courses(rule: Rule) -> tuple[Courses, ...]:
    """Return the groups of sizes that meet in a rule: in one expression, or in it and a condition.

    A size that meets no other, in an expression of one operation, has its landmarks instead.
    """
    floats = {name for name, kind in rule.kinds if kind == "Float"}
    values = [e for _, _, e in expressions(rule) if e.kind in ARITHMETIC]
    when = [c for c in rule.when if c.kind in _SIDES]
    sizes = {one: _sizes(one, floats) for one in values}
    about = {c: _sizes(_difference(c), floats) for c in when}
    groups: dict[frozenset[str], None] = {}
    for one, leaves in sizes.items():
        if leaves and _operations(one) > 1:
            groups[frozenset(leaves)] = None
            near = {n for c, of in about.items() if of.keys() & leaves.keys() for n in of}
            if len(near | leaves.keys()) <= len(_DENSE) - 1:
                groups[frozenset(near | leaves.keys())] = None
    known = {n: leaf for of in (*sizes.values(), *about.values()) for n, leaf in of.items()}
    largest = [g for g in groups if not any(g < other for other in groups)]
    return tuple(
        Courses(
            [known[name] for name in sorted(group)],
            [one for one, leaves in sizes.items() if leaves and leaves.keys() <= group],
            [c for c, leaves in about.items() if leaves and leaves.keys() <= group],
        )
        for group in largest
        if len(group) <= _MOST_SIZES
    )


def _difference(condition: Condition) -> Expr:
    left, right = condition.args[:2]
    return Expr("-", (left, right))


def _sizes(expression: Expr, floats: set[str]) -> dict[str, Expr]:
    """Return the whole sizes in an expression by their names."""
    return {str(n): n for n in leaves_of(expression) if n.kind != "attr" or n.args[0] not in floats}


def _operations(expression: Expr) -> int:
    if expression.kind not in ARITHMETIC:
        return 0
    inner = sum(_operations(arg) for arg in expression.args if isinstance(arg, Expr))
    return inner + (expression.kind != "real")
