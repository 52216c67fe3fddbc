"""A rule at symbolic sizes: both sides as index functions, and what their typing says.

Sizes, strides, pads, dilations, kernels and groups are symbols. What decides the form of the index
functions is enumerated: ranks, axes, permutations, flags. Every combination is one scenario.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from eqsat_opt.ir.ops import IllTyped, get_op
from eqsat_opt.ir.ops.integers import (
    Atom,
    Formula,
    Poly,
    all_of,
    any_of,
    at_least,
    equal,
    less,
    negate,
    poly,
    quotient,
)
from eqsat_opt.ir.ops.scalars import (
    Call,
    Constant,
    IndexTensor,
    Parameter,
    Premises,
    Read,
    Unindexed,
)
from eqsat_opt.rules.bindings import Undefined
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import MAP, Apply, AttrPattern, Condition, Expr, Term, Var
from eqsat_opt.rules.verify.proof.branching import Choices
from eqsat_opt.rules.verify.proof.unify import Unifier, is_positive

__all__ = ["Scenario", "Strides", "scenarios"]

_MAX_RANK = 5
_POSITIVE = frozenset({"strides", "dilations", "kernel", "group", "size", "channels"})
_CHOSEN = {"keepdims": (0, 1), "ceil": (0, 1), "count_include_pad": (0, 1)}
_WINDOWS = frozenset({"Conv", "ConvTranspose", "MaxPool", "AveragePool"})
_ROUNDS = 8
_MAX_SCENARIOS = 15_000

Strides = int | None
"""A literal stride for all windows, or ``None`` for symbols."""


@dataclass(frozen=True)
class Scenario:
    """One combination of what is enumerated.

    Attributes:
        choices: what was chosen, by name (``rank x``, ``axis``, …).
        premises: what typing and conditions say of the symbols.
        shapes: tensor variable to its extents.
        sides: left and right side of every root, of equal shape.
    """

    choices: dict[str, Any]
    premises: tuple[Formula, ...]
    shapes: dict[str, tuple[Poly, ...]]
    sides: tuple[tuple[IndexTensor, IndexTensor], ...]


def scenarios(rule: Rule, strides: Strides) -> Iterator[Scenario]:
    """All scenarios that are not ruled out by typing alone.

    Raises:
        Unindexed: if an operator of the rule has no index semantics, or there are too many.
    """
    path: list[int] | None = []
    while path is not None:
        builder = _Builder(rule, strides, Choices(path))
        with contextlib.suppress(IllTyped, Undefined):
            yield builder.scenario()
        if builder.choices.combinations > _MAX_SCENARIOS:
            raise Unindexed(f"more than {_MAX_SCENARIOS} combinations of axes and flags")
        path = builder.choices.next_path()


@dataclass
class _Builder:
    rule: Rule
    strides: Strides
    choices: Choices
    unifier: Unifier = field(default_factory=lambda: Unifier({}, set()))
    ranks: dict[str, int] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)

    def scenario(self) -> Scenario:
        """Build, solve the equations of the typing, and build again until nothing is new."""
        self._choose_ranks()
        for _ in range(_ROUNDS):
            premises = Premises()
            self.attrs = {}
            lefts = [self._tensor(root, premises) for root in self.rule.lhs]
            rights = [self._tensor(root, premises) for root in self.rule.rhs]
            for condition in self.rule.when:
                premises.require(self._condition(condition))
            for left, right in zip(lefts, rights, strict=True):
                if left.rank != right.rank:
                    raise IllTyped("the sides differ in rank")
                for i, j in zip(left.shape, right.shape, strict=True):
                    premises.same(i, j)
            if not self.unifier.solve(premises.formulas):
                facts = self.unifier.premises(premises.formulas)
                if any(fact == any_of() for fact in facts):
                    raise IllTyped("contradiction")
                sides = tuple(zip(lefts, rights, strict=True))
                shapes = {name: self._shape(name) for name in self.ranks}
                return Scenario(dict(self.choices.made), tuple(facts), shapes, sides)
        raise Unindexed("the equations of the typing do not settle")

    # Ranks and sizes -----------------------------------------------------------------------------

    def _choose_ranks(self) -> None:
        sides = (*self.rule.lhs, *self.rule.rhs)
        highest = max(_MAX_RANK, *_literal_ranks(self.rule))
        windowed = {
            arg.name
            for root in sides
            for t in root.walk()
            if isinstance(t, Apply) and t.op in _WINDOWS
            for arg in t.args[:2]
            if isinstance(arg, Var)
        }
        rank_conditions = [c for c in self.rule.when if _about_ranks(c)]
        pinned = {
            a.args[0]: int(b.args[0])
            for c in rank_conditions
            if c.kind == "=="
            for a, b in (c.args, c.args[::-1])
            if a.kind == "rank" and b.kind == "literal"
        }
        for name in sorted({v for root in sides for v in root.variables()}):
            lowest = 3 if name in windowed else 0
            options = [pinned[name]] if name in pinned else range(lowest, highest + 1)
            self.ranks[name] = self.choices.pick(f"rank {name}", options)
            for condition in rank_conditions:
                named = {leaf.args[0] for a in condition.args for leaf in a.leaves()}
                if named <= set(self.ranks) and self._condition(condition) != all_of():
                    raise IllTyped("the ranks do not meet a condition")
        for condition in self.rule.when:
            if condition.kind == "same-shape":
                a, b = condition.args
                if self.ranks[a] != self.ranks[b]:
                    raise IllTyped("ranks differ")

    def _symbol(self, name: str, *, positive: bool) -> Poly:
        symbol = Atom(name)
        if positive:
            self.unifier.positive.add(symbol)
        return self.unifier.value(symbol)

    def _extent(self, name: str, axis: int) -> Poly:
        return self._symbol(f"{name}.{axis}", positive=True)

    def _shape(self, name: str) -> tuple[Poly, ...]:
        return tuple(self._extent(name, axis) for axis in range(self.ranks[name]))

    # Terms ---------------------------------------------------------------------------------------

    def _tensor(self, term: Term, premises: Premises) -> IndexTensor:
        if isinstance(term, Var):
            name = term.name
            return IndexTensor(self._shape(name), lambda index: Read(name, tuple(index)))
        assert isinstance(term, Apply)
        operands = [self._tensor(arg, premises) for arg in term.args]
        if term.op == MAP:
            function = f"any {term.attrs['f']}"
            (x,) = operands
            return IndexTensor(x.shape, lambda index: Call(function, (), (x.at(index),)))
        op = get_op(term.op)
        if op.index_fn is None:
            raise Unindexed(f"{term.op} has no index semantics")
        attrs = {
            key: self._attribute(term.op, key, pattern, operands)
            for key, pattern in term.attrs.items()
        }
        return op.index_fn(operands, attrs, premises)

    def _attribute(
        self, op: str, key: str, pattern: AttrPattern, operands: Sequence[IndexTensor]
    ) -> Any:
        kind = get_op(op).attrs[key]
        if isinstance(pattern, tuple):
            if key == "strides" and self.strides is not None:
                for part in pattern:
                    if part.kind == "attr":
                        self._bind(part.args[0], poly(self.strides))
            return tuple(self._value(part) for part in pattern)
        if pattern.kind == "attr" and pattern.args[0] not in self.attrs:
            self._bind(pattern.args[0], self._free(op, key, pattern.args[0], operands))
        value = self._value(pattern)
        if kind == "float":
            return value if isinstance(value, Parameter) else _constant(value)
        if not isinstance(value, {"ints": tuple, "int": Poly, "str": str}[kind]):
            raise Unindexed(f"{pattern} does not stand for one kind of attribute")
        return value

    def _bind(self, name: str, value: Any) -> None:
        self.attrs.setdefault(name, value)

    def _free(self, op: str, key: str, name: str, operands: Sequence[IndexTensor]) -> Any:
        """The value of an attribute variable: chosen, or a symbol."""
        kind = get_op(op).attrs[key]
        rank = operands[0].rank if operands else 0
        if kind == "float":
            return Parameter(name)
        if kind == "str":
            raise Unindexed(f"the attribute {key} is a variable string")
        if key == "axis":
            return poly(self.choices.pick(name, range(rank)))
        if key in _CHOSEN:
            return poly(self.choices.pick(name, _CHOSEN[key]))
        if key == "perm":
            perm = self.choices.pick(name, list(itertools.permutations(range(rank))))
            return tuple(map(poly, perm))
        if key == "axes":
            sets = [s for n in range(1, rank + 1) for s in itertools.combinations(range(rank), n)]
            return tuple(map(poly, self.choices.pick(name, sets)))
        if kind == "int":
            return self._symbol(name, positive=key in _POSITIVE)
        length = self._length(op, key, name, rank)
        if key == "strides" and self.strides is not None:
            return (poly(self.strides),) * length
        positive = key in _POSITIVE or key == "shape"
        return tuple(self._symbol(f"{name}[{i}]", positive=positive) for i in range(length))

    def _length(self, op: str, key: str, name: str, rank: int) -> int:
        if key == "shape":
            return int(self.choices.pick(f"rank {name}", range(_MAX_RANK + 1)))
        if op == "Pad":
            return 2 * rank
        if rank < 3:
            raise IllTyped("a window needs a spatial axis")
        return (rank - 2) * (2 if key == "pads" else 1)

    # Sizes and conditions ------------------------------------------------------------------------

    def _value(self, expression: Any) -> Any:
        """The value of an expression: a polynomial, a tuple of them, a number or a string."""
        if not isinstance(expression, Expr):
            return expression
        args = expression.args
        match expression.kind:
            case "literal":
                return poly(args[0]) if isinstance(args[0], int) else args[0]
            case "attr":
                if args[0] not in self.attrs:
                    # First met inside an expression: an integer without restriction.
                    self._bind(args[0], self._symbol(args[0], positive=False))
                return self.attrs[args[0]]
            case "rank":
                return poly(self.ranks[args[0]])
            case "dim":
                axis = self._literal(args[1])
                if not 0 <= axis < self.ranks[args[0]]:
                    raise Undefined("no such axis")
                return self._extent(args[0], axis)
            case "item":
                sequence, place = self._value(args[0]), self._literal(args[1])
                if not isinstance(sequence, tuple):
                    raise Unindexed("an element of what is no list here")
                if not 0 <= place < len(sequence):
                    raise Undefined("no such element")
                return sequence[place]
        left, right = (self._value(arg) for arg in args)
        if not (isinstance(left, Poly) and isinstance(right, Poly)):
            raise Unindexed("arithmetic on what is no integer")
        match expression.kind:
            case "+":
                return left + right
            case "-":
                return left - right
            case "*":
                return left * right
            case _:
                if not is_positive(right, self.unifier.positive):
                    raise Unindexed("a division by what is not known to be positive")
                return quotient(left, right)

    def _literal(self, expression: Any) -> int:
        value = self._value(expression)
        known = poly(value).constant
        if known is None:
            raise Unindexed("an axis that is no integer here")
        return known

    def _condition(self, condition: Condition) -> Formula:
        args = condition.args
        match condition.kind:
            case "same-shape":
                pairs = zip(*(self._shape(name) for name in args), strict=True)
                return all_of(*(equal(a, b) for a, b in pairs))
            case "distinct" | "follows" | "is-float":
                return all_of()
        left, right = (self._value(arg) for arg in args)
        if not (isinstance(left, Poly) and isinstance(right, Poly)):
            raise Unindexed(f"the condition {condition} is not about integers")
        match condition.kind:
            case "==":
                return equal(left, right)
            case "!=":
                return negate(equal(left, right))
            case "<":
                return less(left, right)
            case _:
                return at_least(right, left)


def _literal_ranks(rule: Rule) -> Iterator[int]:
    """Ranks that literal permutations of the rule ask for."""
    yield 0
    for root in (*rule.lhs, *rule.rhs):
        for term in root.walk():
            perm = term.attrs.get("perm") if isinstance(term, Apply) else None
            if isinstance(perm, tuple):
                yield len(perm)


def _about_ranks(condition: Condition) -> bool:
    if condition.kind not in ("==", "!=", "<", "<="):
        return False
    leaves = [leaf for arg in condition.args for leaf in arg.leaves()]
    return bool(leaves) and all(leaf.kind == "rank" for leaf in leaves)


def _constant(value: Any) -> Constant:
    if isinstance(value, Poly):
        known = value.constant
        if known is None:
            raise Unindexed("a number that depends on sizes")
        return Constant(Fraction(known))
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise Unindexed(f"{value} is no finite number")
    return Constant(Fraction(value))
