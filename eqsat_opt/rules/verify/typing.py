"""The most general typing of a left side: shapes with unknown extents, attributes with open values.

Each operator constrains its operands and attributes; what it leaves open becomes an unknown
(extents, slice bounds, pads) or a decision (ranks, axes, strides, groups). The registry's own
``type_fn`` has the last word on every instance, so an error here can only lose instances.
"""

from __future__ import annotations

import operator as python
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from eqsat_opt.ir.graph import attributes
from eqsat_opt.ir.ops import IllTyped
from eqsat_opt.ir.types import TensorType
from eqsat_opt.rules.bindings import Bindings
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import MAP, Apply, AttrPattern, Condition, Expr, Term, Var
from eqsat_opt.rules.verify.choices import Chooser
from eqsat_opt.rules.verify.extents import (
    Derived,
    Extent,
    Extents,
    Shape,
    Unknown,
    apply,
    resolve,
    value_of,
)

__all__ = ["Fresh", "Known", "RankHints", "Scheme", "Typing"]

_FUNCTIONS = (
    ("Relu", attributes()),
    ("Tanh", attributes()),
    ("LeakyRelu", attributes(alpha=0.25)),
    ("HardSwish", attributes()),
)
_ARITHMETIC = {"+": python.add, "-": python.sub, "*": python.mul, "//": python.floordiv}
_SPATIAL = frozenset({"Conv", "ConvTranspose", "MaxPool", "AveragePool", "LRN"})


class Fresh(str):
    """The name of a tensor variable that has no shape yet."""

    __slots__ = ()


Known: TypeAlias = "Fresh | Shape"
"""An operand as an operator's scheme sees it."""

Scheme: TypeAlias = "Callable[[Typing, Sequence[Known], Apply], tuple[list[Shape], Shape]]"
"""Operands and pattern node to the shapes of the operands and of the result."""


class Open(Exception):
    """An expression depends on an attribute that has no value yet."""


class RankHints:
    """What the conditions of a rule say about ranks and equal shapes."""

    def __init__(self, rule: Rule) -> None:
        self._leader: dict[str, str] = {}
        self._fixed: dict[str, int] = {}
        self._least: dict[str, int] = {}
        self.same: dict[str, set[str]] = {}
        used = {t.op for root in rule.lhs for t in root.walk() if isinstance(t, Apply)}
        self.spatial = bool(used & _SPATIAL)
        for condition in rule.when:
            self._read(condition)

    def _read(self, condition: Condition) -> None:
        args = condition.args
        if condition.kind == "same-shape":
            self._join(*args)
            self.same.setdefault(args[0], set()).add(args[1])
            self.same.setdefault(args[1], set()).add(args[0])
        elif condition.kind in ("==", "<="):
            left, right = args
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
        """One name for all variables of equal rank."""
        while self._leader.get(name, name) != name:
            name = self._leader[name]
        return name

    def options(self, name: str, usual: tuple[int, ...], shapes: Mapping[str, Shape]) -> list[int]:
        """Ranks that ``name`` may have, out of ``usual`` where the conditions leave it open."""
        group = [n for n in {*self._leader, name} if self.leader(n) == self.leader(name)]
        for member in group:
            if member in shapes:
                return [len(shapes[member])]
            if member in self._fixed:
                return [self._fixed[member]]
        least = max(self._least.get(member, 0) for member in group)
        return [rank for rank in usual if rank >= least] or [least]


class Typing:
    """One run over the left side: the decisions taken, and the shapes and attributes they gave."""

    def __init__(
        self, rule: Rule, hints: RankHints, chooser: Chooser, schemes: Callable[[str], Scheme]
    ) -> None:
        """Take the decisions that concern the whole instance."""
        self.rule = rule
        self._schemes = schemes
        self.hints = hints
        self.extents = Extents()
        self.choose = chooser.choose
        self.prefer = chooser.prefer
        self.shapes: dict[str, Shape] = {}
        self.attrs: dict[str, Any] = {}
        self.dtypes: dict[str, str] = {}
        self.dtype = self.choose(("float32", "float64", "int64"), core=1)
        self.axes = self.choose((2, 1, 3), core=1) if hints.spatial else 2

    # Building blocks of the operators' schemes ---------------------------------------------------

    def require(self, fits: bool) -> None:
        """Give up this combination of decisions unless ``fits``."""
        if not fits:
            raise IllTyped("this combination does not type")

    def equal(self, a: Any, b: Any) -> None:
        """Make two attribute values, extents or shapes equal, or give up."""
        if isinstance(a, tuple) and isinstance(b, tuple):
            self.require(len(a) == len(b))
            for x, y in zip(a, b, strict=True):
                self.equal(x, y)
        elif all(isinstance(v, int | Unknown | Derived) for v in (a, b)):
            self.require(self.extents.unify(a, b))
        else:
            self.require(bool(a == b))

    def fresh(self, name: str, usual: tuple[int, ...], core: int = 0) -> Shape:
        """A shape for a variable: that of a variable of equal shape, or all unknowns."""
        for other in self.hints.same.get(name, ()):
            if other in self.shapes:
                return self.shapes[other]
        ranks = self.hints.options(name, usual, self.shapes)
        rank = self.choose(ranks, core=min(core, len(ranks)))
        return tuple(self.extents.new() for _ in range(rank))

    def any_shape(self, name: str) -> Shape:
        """A shape for an operator that takes any rank."""
        if self.hints.spatial:
            return self.fresh(name, (self.axes + 2,))
        return self.fresh(name, (2, 1, 3, 0, 4), core=2)

    def at_least(self, operand: Known, rank: int) -> Shape:
        """The operand with that many axes at least."""
        if not isinstance(operand, Fresh):
            self.require(len(operand) >= rank)
            return operand
        first = max(rank, self.axes + 2 if self.hints.spatial else 1)
        return self.fresh(operand, tuple(r for r in (2, 1, 3, 4, 5) if r >= first), core=2)

    def broadcast(self, a: Shape, b: Shape) -> Shape:
        """ONNX broadcasting of two shapes; which side stretches is a decision per axis."""
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
        """A shape for ``name`` that broadcasts with ``base``."""
        for other in self.hints.same.get(name, ()):
            if other in self.shapes:
                return self.shapes[other]
        if not base:
            return self.any_shape(name)
        usual = (len(base), *range(len(base)), len(base) + 1)
        ranks = self.hints.options(name, usual, self.shapes)
        rank = self.prefer(ranks)
        if len(ranks) > 1 and rank == len(base) and self.prefer(("same", "other")) == "same":
            return base
        return tuple(self.extents.new() for _ in range(rank))

    def value(self, pattern: AttrPattern) -> Any:
        """The value of a pattern; ``None`` where it is a variable without one.

        Raises:
            Open: for arithmetic on a variable without a value.
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
            case "rank":
                return len(self._shape(args[0]))
            case "dim":
                return self._item(self._shape(args[0]), self._expression(args[1]))
            case "item":
                return self._item(self._expression(args[0]), self._expression(args[1]))
        left, right = (self._expression(arg) for arg in args)
        function = _ARITHMETIC[expression.kind]
        if isinstance(left, Unknown | Derived) or isinstance(right, Unknown | Derived):
            return apply(function, left, right)
        self.require(expression.kind != "//" or right != 0)
        return function(left, right)

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

    def run(self) -> None:
        """Type every root and solve the conditions that are equations.

        Raises:
            IllTyped: this combination of decisions does not type.
        """
        try:
            for root in self.rule.lhs:
                self._term(root)
            for condition in self.rule.when:
                if condition.kind == "==":
                    self.equal(*(self._expression(arg) for arg in condition.args))
                elif condition.kind == "same-shape":
                    self.equal(*(self._shape(name) for name in condition.args))
        except Open as error:
            raise IllTyped("the left side does not determine an attribute") from error

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
                self.attrs[function.args[0]] = self.choose(_FUNCTIONS, core=1)
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

    # Instances -----------------------------------------------------------------------------------

    def bindings(self) -> Bindings:
        """The instance at the present values of the unknowns."""
        types = {
            name: TensorType(self.dtypes.get(name, self.dtype), tuple(value_of(d) for d in shape))
            for name, shape in self.shapes.items()
        }
        return Bindings(types, {name: _concrete(value) for name, value in self.attrs.items()})


def _concrete(value: Any) -> Any:
    if isinstance(value, Unknown | Derived):
        return value_of(value)
    if isinstance(value, tuple):
        return tuple(_concrete(element) for element in value)
    return value
