"""The most general typing of a left side: shapes with unknown extents, attributes with open values.

Each operator constrains its operands and attributes. Whatever it leaves open becomes an unknown
(extents, slice bounds, pads) or a decision (ranks, axes, strides, groups). The registry's own
``type_fn`` decides about every instance, so an error here can only lose instances.
"""

from __future__ import annotations

import contextlib
import math
import operator as python
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from eqsat_opt.ir.graph.graph import attributes
from eqsat_opt.ir.ops import IllTyped
from eqsat_opt.proving.typing.choices import Chooser
from eqsat_opt.proving.typing.extents import (
    Derived,
    Extent,
    Extents,
    Shape,
    Unknown,
    apply,
    resolve,
)
from eqsat_opt.proving.typing.hints import Hints
from eqsat_opt.rules.term import MAP, Apply, AttrPattern, Condition, Expr, Term, Var

__all__ = ["FUNCTIONS", "Fresh", "Known", "Scheme", "Typing"]

FUNCTIONS = (
    ("Relu", attributes()),
    ("Tanh", attributes()),
    ("LeakyRelu", attributes(alpha=0.25)),
    ("HardSwish", attributes()),
)
"""Functions that are tried for a variable function, which may be any elementwise one."""
_ARITHMETIC = {
    "+": python.add,
    "-": python.sub,
    "*": python.mul,
    "//": python.floordiv,
    "/": python.truediv,
}
_NUMBER = {"sqrt": math.sqrt, "real": float}
_EXTENTS = (int, Unknown, Derived)
_OPEN = (Unknown, Derived)
_ORDER = {"<": python.lt, "<=": python.le, "!=": python.ne}


class Fresh(str):
    """The name of a tensor variable that has no shape yet."""

    __slots__ = ()


Known: TypeAlias = "Fresh | Shape"
"""An operand as an operator's scheme sees it."""

Scheme: TypeAlias = "Callable[[Typing, Sequence[Known], Apply], tuple[list[Shape], Shape]]"
"""A function from operands and pattern node to the shapes of the operands and of the result."""


class Open(Exception):
    """The error raised where an expression depends on an attribute that has no value yet."""


class Typing:
    """One run over the left side: the decisions taken, and the shapes and attributes they gave."""

    def __init__(
        self,
        when: Sequence[Condition],
        hints: Hints,
        chooser: Chooser,
        schemes: Callable[[str], Scheme],
    ) -> None:
        """Take the decisions that concern the whole instance."""
        self._when = when
        self._pending = hints.equations
        self._schemes = schemes
        self.hints = hints
        self.extents = Extents()
        self.choose = chooser.choose
        self.prefer = chooser.prefer
        self.shapes: dict[str, Shape] = {}
        self.attrs: dict[str, Any] = {}
        self.dtypes: dict[str, str] = dict(hints.demanded)
        self._dtype = ""
        axes = (4, 5) if hints.high else (2, 1, 3)
        self.axes = self.choose(axes, core=1) if hints.spatial else 2

    @property
    def dtype(self) -> str:
        """Element type of most operands, decided at first use."""
        if not self._dtype:
            self._dtype = self.choose(self.hints.dtypes, core=1)
        return self._dtype

    # Building blocks of the operators' schemes ---------------------------------------------------

    def require(self, fits: bool) -> None:
        """Give up this combination of decisions unless ``fits``."""
        if not fits:
            raise IllTyped("this combination does not type")

    def equal(self, a: Any, b: Any) -> None:
        """Make two attribute values, extents or shapes equal, or give up."""
        if a is b:
            return
        if isinstance(a, _EXTENTS) and isinstance(b, _EXTENTS):
            self.require(self.extents.unify(a, b))
        elif isinstance(a, tuple) and isinstance(b, tuple):
            self.require(len(a) == len(b))
            for x, y in zip(a, b, strict=True):
                if x is not y:
                    self.equal(x, y)
        else:
            self.require(bool(a == b))

    def _given(self, name: str) -> Shape | None:
        """Return the shape that a variable has, or has by a condition; ``None`` if it has none."""
        for other in (name, *self.hints.same.get(name, ())):
            if other in self.shapes:
                return self.shapes[other]
        return None

    def fresh(self, name: str, usual: tuple[int, ...], core: int = 0) -> Shape:
        """Give a variable a shape: that of a variable of equal shape, or all unknowns."""
        shape = self._given(name)
        if shape is None:
            ranks = self.hints.options(name, self.hints.usual(usual), self.shapes)
            rank = self.choose(ranks, core=min(core, len(ranks)))
            shape = tuple(self.extents.new() for _ in range(rank))
        self.shapes[name] = shape
        if self.hints.even:
            self.settle()  # given sizes decide attributes of the operators on the way
        return shape

    def any_shape(self, name: str) -> Shape:
        """Give a variable a shape for an operator that takes any rank."""
        if self.hints.spatial:
            return self.fresh(name, (self.axes + 2,))
        return self.fresh(name, (2, 1, 3, 0, 4), core=2)

    def at_least(self, operand: Known, rank: int) -> Shape:
        """Return the shape of an operand, which must have at least ``rank`` axes."""
        if not isinstance(operand, Fresh):
            self.require(len(operand) >= rank)
            return operand
        first = max(rank, self.axes + 2 if self.hints.spatial else 1)
        usual = tuple(r for r in (2, 1, 3, 4, 5) if r >= first) or (first, first + 1)
        return self.fresh(operand, usual, core=2)

    def broadcast(self, a: Shape, b: Shape) -> Shape:
        """Broadcast two shapes as ONNX does; which side stretches is a decision per axis."""
        self.settle()
        result: list[Extent] = []
        for axis in range(1, max(len(a), len(b)) + 1):
            if axis > len(a) or axis > len(b):
                result.append(b[-axis] if axis > len(a) else a[-axis])
                continue
            x, y = resolve(a[-axis]), resolve(b[-axis])
            if x is y or y == 1:
                result.append(x)
                continue
            if x == 1:
                result.append(y)
                continue
            if isinstance(x, int) and isinstance(y, int):
                how = "same"
            else:
                how = self.prefer(
                    ("same", *(["x"] if not isinstance(x, int) else []),
                     *(["y"] if not isinstance(y, int) else []))
                )  # fmt: skip
            self.equal(x, {"same": y, "x": 1, "y": x}[how])
            if how == "y":
                self.equal(y, 1)
            result.append(y if how == "x" else x)
        return tuple(reversed(result))

    def partner(self, name: str, base: Shape) -> Shape:
        """Give ``name`` a shape that broadcasts with ``base``."""
        shape = self._given(name)
        if shape is None:
            if not base:
                return self.any_shape(name)
            shape = self._partner(name, base)
        self.shapes[name] = shape
        return shape

    def _partner(self, name: str, base: Shape) -> Shape:
        usual = (len(base), *range(len(base)), len(base) + 1)
        ranks = self.hints.options(name, usual, self.shapes)
        rank = self.prefer(ranks)
        if len(ranks) > 1 and rank == len(base) and self.prefer(("same", "other")) == "same":
            return base
        return tuple(self.extents.new() for _ in range(rank))

    def value(self, pattern: AttrPattern) -> Any:
        """Return the value of a pattern; ``None`` where it is a variable without one.

        Raises:
            Open: the pattern is arithmetic on a variable without a value.
        """
        if isinstance(pattern, tuple):
            return tuple(self.value(part) for part in pattern)
        if pattern.kind == "attr":
            return self.attrs.get(pattern.args[0])
        return self._expression(pattern)

    def _expression(self, expression: Any) -> Any:
        if not isinstance(expression, Expr):
            return expression
        args = expression.args
        match expression.kind:
            case "literal":
                return args[0]
            case "attr":
                if args[0] not in self.attrs:
                    raise Open
                return self.attrs[args[0]]
            case "dtype":
                return self.dtypes.get(args[0], self.dtype)
            case "rank":
                return len(self._shape(args[0]))
            case "dim":
                return self._item(self._shape(args[0]), self._expression(args[1]))
            case "item":
                return self._item(self._expression(args[0]), self._expression(args[1]))
        operands: list[Any] = [resolve(self._expression(arg)) for arg in args]
        unknown = any(isinstance(operand, _OPEN) for operand in operands)
        if expression.kind in _NUMBER:
            if unknown:
                raise Open
            self.require(expression.kind != "sqrt" or operands[0] >= 0)
            return _NUMBER[expression.kind](operands[0])
        function = _ARITHMETIC[expression.kind]
        if unknown:
            return apply(function, *operands)
        self.require(expression.kind not in ("//", "/") or operands[1] != 0)
        return function(*operands)

    def solved(self, pattern: AttrPattern) -> Any:
        """Return the value that a condition gives to a variable that has none yet, if any."""
        if isinstance(pattern, tuple) or pattern.kind != "attr":
            return None
        for condition in self._when:
            if condition.kind != "==":
                continue
            left, right = condition.args
            for side, other in ((left, right), (right, left)):
                if side.kind == "attr" and side.args == pattern.args:
                    with contextlib.suppress(Open):
                        return self._expression(other)
        return None

    def known(self, pattern: AttrPattern) -> Any:
        """Return the value of a pattern, or the one that a condition gives it, if any."""
        value = self.value(pattern)
        return self.solved(pattern) if value is None else value

    def _shape(self, name: str) -> Shape:
        if name not in self.shapes:
            raise Open
        return self.shapes[name]

    def _item(self, sequence: Any, index: Any) -> Any:
        index = resolve(index)
        self.require(isinstance(index, int) and 0 <= index < len(sequence))
        return sequence[index]

    def bind(self, pattern: AttrPattern, value: Any) -> None:
        """Match an attribute with a value, or give up."""
        if isinstance(pattern, tuple):
            self.require(isinstance(value, tuple) and len(value) == len(pattern))
            for part, element in zip(pattern, value, strict=True):
                self.bind(part, element)
        elif pattern.kind == "attr" and pattern.args[0] not in self.attrs:
            self.attrs[pattern.args[0]] = value
        else:
            self.equal(self._expression(pattern), value)

    # The run -------------------------------------------------------------------------------------

    def run(self, lhs: Sequence[Term]) -> None:
        """Type every root and solve the conditions that are equations.

        Raises:
            IllTyped: this combination of decisions does not type.
        """
        try:
            for root in lhs:
                self._term(root)
        except Open as error:
            raise IllTyped("the left side does not determine an attribute") from error
        self.settle()
        self.require(not self._pending)
        for condition in self._when:
            if condition.kind in _ORDER:
                self._ordered(condition)

    def settle(self) -> None:
        """Make every equation hold whose variables are all known."""
        if self._pending:
            known = self.shapes.keys() | self.attrs.keys()
            self._pending = [
                one for one in self._pending if not (one[1] <= known and self._solve(one[0]))
            ]

    def _solve(self, condition: Condition) -> bool:
        """Make an equation hold, and return whether that was possible yet."""
        try:
            if condition.kind == "==":
                sides = [self._expression(arg) for arg in condition.args]
            else:
                sides = [self._shape(name) for name in condition.args]
        except Open:
            return False
        self.equal(*sides)
        return True

    def _ordered(self, condition: Condition) -> None:
        """Give up where known numbers violate the order that a condition requires."""
        with contextlib.suppress(Open):
            left, right = (resolve(self._expression(arg)) for arg in condition.args)
            if not isinstance(left, _OPEN) and not isinstance(right, _OPEN):
                self.require(_ORDER[condition.kind](left, right))

    def run_right(self, rhs: Sequence[Term]) -> None:
        """Make the right side type as well, after :meth:`run`; it may type unlike the left side.

        Raises:
            IllTyped: this combination of decisions does not type.
        """
        try:
            for term in rhs:
                if isinstance(term, Apply):
                    self._term(term)
        except Open as error:
            raise IllTyped("the right side needs what the left side leaves open") from error

    def _term(self, term: Term) -> Shape:
        assert isinstance(term, Apply)
        computed = [self._term(arg) if isinstance(arg, Apply) else None for arg in term.args]
        operands: list[Known] = [
            shape if shape is not None else self._variable(arg)
            for arg, shape in zip(term.args, computed, strict=True)
        ]
        if term.op == MAP:
            function = term.attrs["f"]
            assert isinstance(function, Expr)
            if function.args[0] not in self.attrs:
                self.attrs[function.args[0]] = self.choose(FUNCTIONS, core=1)
            x = operands[0]
            shape = self.any_shape(x) if isinstance(x, Fresh) else x
            shapes, result = [shape], shape
        else:
            shapes, result = self._schemes(term.op)(self, operands, term)
        for arg, shape in zip(term.args, shapes, strict=True):
            if isinstance(arg, Var):
                self.equal(self.shapes.setdefault(arg.name, shape), shape)
        return result

    def _variable(self, arg: Term) -> Known:
        assert isinstance(arg, Var)
        return self.shapes.get(arg.name, Fresh(arg.name))
