"""The hints in the conditions of a rule: ranks, equal shapes and element types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eqsat_opt.ir.ops import with_trait
from eqsat_opt.proving.typing.element_types import demanded, literal_types
from eqsat_opt.proving.typing.extents import Shape
from eqsat_opt.proving.typing.landmarks import Landmarks
from eqsat_opt.rules.term import Condition, Expr, Term, applied, expr

__all__ = ["Hints"]

_SPATIAL = with_trait("spatial")

_FLOATS = ("float32", "float64")
_WHOLE = ("int64", "uint8", "int8", "int32", "uint8", "int8")
"""Integer types; narrow ones wrap soonest, and unsigned ones have no negative numbers."""
_HIGH = (7, 7, 6)
"""Ranks beyond those of most models; permutations of seven axes have orders that six have not."""


class Hints:
    """The hints that the conditions of a rule give about its variables.

    Attributes:
        equations: conditions that a typing can make hold, with the names they depend on.
        same: variable to the variables of equal shape.
        spatial: whether there are windows, so that operands have channels.
        dtypes: element types to choose from.
        marks: numbers to try attributes at.
        high: whether ranks are to be higher than usual, where they are open.
        large: whether sizes, strides and the like are to be beside and beyond the marks.
        even: whether these are as likely there as at usual numbers.
        demanded: element types of truth values and indices, by variable.
    """

    def __init__(
        self,
        lhs: Sequence[Term],
        when: Sequence[Condition],
        marks: Landmarks | None = None,
        high: bool = False,
        large: bool = False,
        even: bool = False,
    ) -> None:
        self.marks = marks or Landmarks()
        self.high = high
        self.large = large
        self.even = even
        self._leader: dict[str, str] = {}
        self._fixed: dict[str, int] = {}
        self._least: dict[str, int] = {}
        self.same: dict[str, list[str]] = {}
        used = {term.op for term in applied(lhs)}
        self.spatial = bool(used & _SPATIAL)
        self.equations = [
            (c, frozenset(_variables(c))) for c in when if c.kind in ("==", "same-shape")
        ]
        self.dtypes: tuple[str, ...] = (*_FLOATS, *_WHOLE)
        if any(condition.kind == "is-float" for condition in when):
            self.dtypes = _FLOATS
        self.demanded = demanded(lhs)
        others = (one for one in literal_types(lhs) if one not in (*self.dtypes, "bool"))
        self.dtypes = (*self.dtypes, *others)  # whatever meets a literal has its type
        for condition in when:
            self._read(condition)

    def _read(self, condition: Condition) -> None:
        args = condition.args
        if condition.kind == "same-shape":
            self._join(*args)
            self.same.setdefault(args[0], []).append(args[1])
            self.same.setdefault(args[1], []).append(args[0])
        elif condition.kind in ("==", "<="):
            left, right = map(expr, args)
            if condition.kind == "==" and left.kind == right.kind == "rank":
                self._join(left.args[0], right.args[0])
            for side, other in ((left, right), (right, left)):
                if side.kind == "rank" and other.kind == "literal":
                    if condition.kind == "==":
                        self._fixed[side.args[0]] = other.args[0]
                    elif side is right:
                        self._least[side.args[0]] = other.args[0]
        for leaf in (leaf for arg in args if isinstance(arg, Expr) for leaf in arg.leaves()):
            if leaf.kind == "dim" and leaf.args[1].kind == "literal":
                name, axis = leaf.args[0], leaf.args[1].args[0]
                self._least[name] = max(self._least.get(name, 0), axis + 1)

    def _join(self, a: str, b: str) -> None:
        self._leader[self.leader(a)] = self.leader(b)

    def leader(self, name: str) -> str:
        """Return one name for all variables of equal rank."""
        while self._leader.get(name, name) != name:
            name = self._leader[name]
        return name

    def usual(self, ranks: tuple[int, ...]) -> tuple[int, ...]:
        """Return ranks of an operand to try: high ones if wanted, unless it may have only one."""
        return (*_HIGH, *self.marks.ranks) if self.high and len(ranks) > 1 else ranks

    def options(self, name: str, usual: tuple[int, ...], shapes: Mapping[str, Shape]) -> list[int]:
        """Return the ranks that ``name`` may have, out of ``usual`` where its rank is open."""
        group = [n for n in (*self._leader, name) if self.leader(n) == self.leader(name)]
        for member in group:
            if member in shapes:
                return [len(shapes[member])]
            if member in self._fixed:
                return [self._fixed[member]]
        least = max(self._least.get(member, 0) for member in group)
        return [rank for rank in usual if rank >= least] or [least]


def _variables(part: Any) -> Iterator[str]:
    """Yield the names of tensors and attributes that a condition depends on."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, Condition | Expr) and part.kind != "literal":
        for arg in part.args:
            yield from _variables(arg)
