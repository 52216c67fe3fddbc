"""A rule at symbolic sizes: both sides as index functions, with the premises of their typing.

Sizes, strides, pads, dilations, kernels and groups are symbols. Ranks, axes, permutations and flags
determine the form of the index functions, so they are enumerated. Every combination is one
scenario.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat_opt.ir.ops import OPS, IllTyped, get_op
from eqsat_opt.ir.ops.index.evaluation import poly_value, scalar_value
from eqsat_opt.ir.ops.index.integers import (
    Atom,
    Formula,
    Poly,
    all_of,
    any_of,
    poly,
)
from eqsat_opt.ir.ops.index.scalars import (
    Call,
    IndexTensor,
    Premises,
    Read,
    Sign,
    Unindexed,
)
from eqsat_opt.proving.numbers.definitions import PI, as_truth
from eqsat_opt.proving.typing.branching import Choices
from eqsat_opt.proving.typing.choices import Chooser, Decisions
from eqsat_opt.proving.typing.parameters import definitions, number
from eqsat_opt.proving.typing.values import Values
from eqsat_opt.rules.bindings import Undefined
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import MAP, Apply, AttrPattern, Condition, Expr, Term, Var, applied, parts

__all__ = ["HIGHEST_RANK", "Scenario", "scenario", "scenarios", "value_at"]

WINDOWS = frozenset(name for name, op in OPS.items() if "strides" in op.attrs)
"""Operators that slide a window over their data."""
HIGHEST_RANK = 5
"""Highest rank that is tried, unless the rule fixes ranks."""
_POSITIVE = frozenset(
    {"strides", "dilations", "kernel", "group", "size", "channels", "repeats", "shape"}
)
_ROUNDS = 8
_MAX_SCENARIOS = 15_000


@dataclass(frozen=True)
class Scenario:
    """One combination of the enumerated choices.

    Attributes:
        choices: name of a choice (``rank x``, ``axis``, …) to the option chosen.
        premises: formulas about the symbols that follow from typing and conditions.
        shapes: tensor variable to its extents.
        attrs: attribute variable to its value.
        sides: left and right side of every root, of equal shape.
        parameters: numbers that may have any value of the sign that is known of them.
    """

    choices: dict[str, Any]
    premises: tuple[Formula, ...]
    shapes: dict[str, tuple[Poly, ...]]
    attrs: dict[str, Any]
    sides: tuple[tuple[IndexTensor, IndexTensor], ...]
    parameters: dict[str, Sign]


def scenarios(rule: Rule, highest: int = HIGHEST_RANK) -> Iterator[Scenario]:
    """Yield all scenarios that are not ruled out by typing alone.

    Tensors are tried up to the rank `highest`, unless a condition gives their rank.

    Raises:
        Unindexed: an operator of the rule has no index semantics, or there are too many
            combinations.
    """

    def attempt(chooser: Chooser) -> Scenario | None:
        choices = Choices(chooser.choose)
        found = None
        with contextlib.suppress(IllTyped, Undefined):
            found = scenario(rule, choices, highest)
        if choices.combinations > _MAX_SCENARIOS:
            raise Unindexed(f"more than {_MAX_SCENARIOS} combinations of axes and flags")
        return found

    return (found for found in Decisions(attempt).core() if found is not None)


def scenario(rule: Rule, choices: Choices, highest: int = HIGHEST_RANK) -> Scenario:
    """Return the scenario that some choices lead to.

    Raises:
        IllTyped: typing alone rules it out.
        Undefined: a condition reads an axis or element that does not exist.
        Unindexed: an operator of the rule has no index semantics.
    """
    return _Builder(rule, choices=choices, highest=highest).scenario()


def value_at(value: Any, sizes: Mapping[Atom, int], numbers: Mapping[str, float]) -> Any:
    """Evaluate a shape or an attribute at values of the symbols and of the parameters."""
    if isinstance(value, tuple):
        return tuple(value_at(part, sizes, numbers) for part in value)
    if isinstance(value, Poly):
        return int(poly_value(value, sizes))
    if isinstance(value, str):
        return value
    return scalar_value(value, sizes, {PI.name: math.pi, **numbers})


@dataclass
class _Builder(Values):
    choices: Choices = field(kw_only=True)
    highest: int = field(kw_only=True)

    def scenario(self) -> Scenario:
        """Build, solve the equations of the typing, and build again until nothing is new."""
        self._choose_ranks()
        for _ in range(_ROUNDS):
            premises = Premises()
            self.attrs = {}
            for name, value in definitions(self.rule):
                self.bind(name, number(self.value(value)))
            lefts = [self._tensor(root, premises) for root in self.rule.lhs]
            rights = [self._tensor(root, premises) for root in self.rule.rhs]
            for condition in self.rule.when:
                premises.require(self.condition(condition))
            for left, right in zip(lefts, rights, strict=True):
                if left.rank != right.rank:
                    raise IllTyped("the sides differ in rank")
                for i, j in zip(left.shape, right.shape, strict=True):
                    premises.same(i, j)
            if not self.unifier.solve(premises.formulas):
                facts = self.unifier.premises(premises.formulas)
                if any(fact == any_of() for fact in facts):
                    raise IllTyped("contradiction")
                if self.unifier.solve(self.choices.assumed(facts)):
                    continue
                sides = tuple(zip(lefts, rights, strict=True))
                shapes = {name: self.shape(name) for name in self.ranks}
                return Scenario(
                    choices=dict(self.choices.made),
                    premises=tuple(facts),
                    shapes=shapes,
                    attrs=dict(self.attrs),
                    sides=sides,
                    parameters=dict(self.parameters),
                )
        raise Unindexed("the equations of the typing do not settle")

    # Ranks and sizes -----------------------------------------------------------------------------

    def _choose_ranks(self) -> None:
        highest = max(self.highest, *_literal_ranks(self.rule))
        windowed = {
            arg.name
            for t in applied(self.rule.roots)
            if t.op in WINDOWS
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
        for name in sorted({v for root in self.rule.roots for v in root.variables()}):
            lowest = 3 if name in windowed else 0
            options = [pinned[name]] if name in pinned else range(lowest, highest + 1)
            self.ranks[name] = self.choices.pick(f"rank {name}", options)
            for condition in rank_conditions:
                named = {leaf.args[0] for a in condition.args for leaf in a.leaves()}
                if named <= set(self.ranks) and self.condition(condition) != all_of():
                    raise IllTyped("the ranks do not meet a condition")
        for condition in self.rule.when:
            if condition.kind == "same-shape":
                a, b = condition.args
                if self.ranks[a] != self.ranks[b]:
                    raise IllTyped("ranks differ")

    # Terms ---------------------------------------------------------------------------------------

    def _tensor(self, term: Term, premises: Premises) -> IndexTensor:
        if isinstance(term, Var):
            name = term.name
            if self._demanded.get(name) == "bool":
                return IndexTensor(
                    self.shape(name), lambda index: as_truth(Read(name, tuple(index)))
                )
            return IndexTensor(self.shape(name), lambda index: Read(name, tuple(index)))
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
            for part in pattern:
                if part.kind == "attr" and part.args[0] not in self.attrs:
                    self._bind_part(key, part.args[0], operands)
            return tuple(self.value(part) for part in pattern)
        if pattern.kind == "attr" and pattern.args[0] not in self.attrs:
            self.bind(pattern.args[0], self._free(op, key, pattern.args[0], operands))
        value = self.value(pattern)
        if kind == "float":
            return number(value)
        if not isinstance(value, {"ints": tuple, "int": Poly, "size": Poly, "str": str}[kind]):
            raise Unindexed(f"{pattern} does not stand for one kind of attribute")
        return value

    def _bind_part(self, key: str, name: str, operands: Sequence[IndexTensor]) -> None:
        """Bind a variable that is one entry of a list."""
        if key == "axes":
            rank = operands[0].rank if operands else 0
            self.bind(name, poly(self.choices.pick(name, range(rank))))
        elif key == "shape":
            self.bind(name, self.symbol(name, positive=True))

    def _free(self, op: str, key: str, name: str, operands: Sequence[IndexTensor]) -> Any:
        """Return the value of an attribute variable: chosen, or a symbol."""
        kind = get_op(op).attrs[key]
        rank = operands[0].rank if operands else 0
        if kind == "float":
            return self.parameter(name)
        if kind == "str":
            raise Unindexed(f"the attribute {key} is a variable string")
        if key == "axis":
            return poly(self.choices.pick(name, range(rank)))
        if key in get_op(op).choices:
            return poly(self.choices.pick(name, get_op(op).choices[key]))
        if key == "perm":
            perm = self.choices.pick(name, list(itertools.permutations(range(rank))))
            return tuple(map(poly, perm))
        if key == "axes":
            # Operators treat axes as a set; a rule that reads single elements of it meets any
            # order.
            subsets = itertools.permutations if self._is_indexed(name) else itertools.combinations
            sets = [s for n in range(1, rank + 1) for s in subsets(range(rank), n)]
            return tuple(map(poly, self.choices.pick(name, sets)))
        if kind in ("int", "size"):
            return self._integer(key, name)
        length = self._length(op, key, name, rank)
        return tuple(self._integer(key, f"{name}[{i}]") for i in range(length))

    def _integer(self, key: str, name: str) -> Poly:
        """Return an integer: a number where one is chosen, or a symbol."""
        chosen = self.choices.number(key, name)
        if chosen is not None:
            return poly(chosen)
        return self.symbol(name, positive=key in _POSITIVE)

    def _is_indexed(self, name: str) -> bool:
        """Return whether the rule reads single elements of a list."""
        expressions = [arg for c in self.rule.when for arg in c.args]
        for term in applied(self.rule.roots):
            expressions += (part for value in term.attrs.values() for part in parts(value))
        return any(name in _indexed(e) for e in expressions if isinstance(e, Expr))

    def _length(self, op: str, key: str, name: str, rank: int) -> int:
        if key == "shape":
            return int(self.choices.pick(f"rank {name}", range(self.highest + 1)))
        if op == "Pad":
            return 2 * rank
        if rank < 3:
            raise IllTyped("a window needs a spatial axis")
        return (rank - 2) * (2 if key == "pads" else 1)


def _indexed(expression: Expr) -> Iterator[str]:
    """Yield the lists of which an expression takes an element."""
    if expression.kind == "item":
        yield from (leaf.args[0] for leaf in expression.args[0].leaves())
    for arg in expression.args:
        if isinstance(arg, Expr):
            yield from _indexed(arg)


def _literal_ranks(rule: Rule) -> Iterator[int]:
    """Yield the ranks that literal permutations of the rule require, and 0."""
    yield 0
    for term in applied(rule.roots):
        if isinstance(perm := term.attrs.get("perm"), tuple):
            yield len(perm)


def _about_ranks(condition: Condition) -> bool:
    if condition.kind not in ("==", "!=", "<", "<="):
        return False
    leaves = [leaf for arg in condition.args for leaf in arg.leaves()]
    return bool(leaves) and all(leaf.kind == "rank" for leaf in leaves)
