"""The terms of two graphs in one table, and rules applied to terms of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias, cast

from eqsat_opt.checking.closure import Closure
from eqsat_opt.egraph.loading.lowering import lower
from eqsat_opt.egraph.terms import LEAF, OUT, Lowered
from eqsat_opt.errors import StageError
from eqsat_opt.ir.graph.broadcasting import Joins, result_type
from eqsat_opt.ir.graph.graph import OPAQUE, Attrs, Constant, Graph, attributes
from eqsat_opt.ir.graph.handles import Expression
from eqsat_opt.ir.ops import get_op, is_known
from eqsat_opt.ir.values.dims import Dim
from eqsat_opt.ir.values.types import FLOATS, TensorType, ValueType
from eqsat_opt.rules.bindings import REFUSED, Bindings, holds, operator, type_of
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import Apply, Term, Var
from eqsat_opt.runtime.planning.legalize import apart

__all__ = ["LAW", "ROUNDINGS", "AppliedRule", "Compared", "Step", "TermTable"]

LAW = -1
"""The reason of equations that no rule states: a constant keeps its elements in another shape, a
literal may be rounded, and many operands are joined one by one."""
ROUNDINGS = 8
"""Roundings by which literals may differ that count as one, as products of them are folded."""
_UNIT = {"bfloat16": 2**-8, "float16": 2**-11, "float32": 2**-24, "float64": 2**-53}


@dataclass(frozen=True)
class AppliedRule:
    """A rule applied to terms.

    Attributes:
        rule: name of the rule, in the direction in which it is read.
        values: tensor variable to term.
        attrs: attribute variable to value; a function variable to operator and attributes.
    """

    rule: str
    values: Mapping[str, int]
    attrs: Mapping[str, Any]


@dataclass(frozen=True)
class Compared:
    """Two terms that are compared on numbers, because no rule is known that makes them equal."""

    left: int
    right: int


Step: TypeAlias = AppliedRule | Compared


@dataclass
class TermTable:
    """Terms by number, with their types, and the equations between them so far.

    The terms of the original come first and have the numbers of its lowered form.

    Attributes:
        lowered: the original.
        closure: the terms and what is equal among them.
        types: type of each term.
        constant: whether each term is known at compile time.
    """

    UNKNOWN: ClassVar[str] = "Unknown"
    """Operator of a constant that is not made of those of the original."""

    lowered: Lowered
    closure: Closure = field(default_factory=Closure)
    types: list[ValueType] = field(default_factory=list)
    constant: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        own = self.lowered
        self._joins = Joins.of(
            (term.op, term.attrs, [own.terms[c].type for c in term.children], term.type)
            for term in own.terms
        )
        self._leaves = {name: number for number, name in enumerate(own.leaf_names)}
        self._digests: dict[str, int] = {}
        self._term_of: dict[str, int] = {}
        self._opaque = {node.outputs: number for number, node in enumerate(own.opaque)}
        self._literals: dict[str, list[tuple[float, int]]] = {}
        self._plain: dict[int, int] = {}
        self._shaped: dict[tuple[int, tuple[Dim, ...]], int] = {}
        for number, term in enumerate(own.terms):
            made = self._add(term.op, term.attrs, term.children, term.type)
            assert made == number
            if term.op == LEAF:
                self._term_of[own.leaf_names[term.index]] = number
                constant = own.constants.get(own.leaf_names[term.index])
                if constant is not None:
                    self.constant[number] = True
                    self._digests.setdefault(_key(constant), number)
        for number in range(len(own.terms)):
            self._join(number)
        for name, base in own.view_of.items():
            self._in_shape(self._term_of[name], own.value[base])

    def _add(self, op: str, attrs: Attrs, operands: tuple[int, ...], type_: ValueType) -> int:
        commutes = len(operands) == 2 and is_known(op) and get_op(op).commutative
        number = self.closure.add((op, attrs), operands, commutes=commutes)
        if number == len(self.types):
            self.types.append(type_)
            computed = op not in (LEAF, OUT, OPAQUE) and is_known(op)
            self.constant.append(computed and all(self.constant[one] for one in operands))
            if op == "Reshape" and self.constant[number]:
                self._in_shape(number, operands[0])
            elif op == "Scalar":
                self._round(number, dict(attrs))
            elif number >= len(self.lowered.terms):
                self._join(number)
        return number

    def _join(self, number: int) -> None:
        """Make a Concat of more than two operands equal to one of two at a time."""
        (op, attrs), operands, _ = self.heads(number)
        if op == "Concat" and len(operands) > 2:
            first = self.apply(op, attrs, operands[:-1])
            self.closure.unite(number, self.apply(op, attrs, (first, operands[-1])), LAW)

    def _in_shape(self, number: int, of: int) -> None:
        """Make a constant that only has another shape equal to all others of the same elements."""
        plain = self._plain[number] = self._plain.get(of, of)
        type_, own = self.types[number], self.types[plain]
        assert isinstance(type_, TensorType)
        assert isinstance(own, TensorType)
        self._shaped.setdefault((plain, own.shape), plain)
        same = self._shaped.setdefault((plain, type_.shape), number)
        self.closure.unite(number, same, LAW)

    def _round(self, number: int, attrs: dict[str, Any]) -> None:
        """Make a literal equal to others that differ from it by roundings only."""
        value, dtype = attrs["value"], attrs["dtype"]
        if dtype not in FLOATS or not math.isfinite(value):
            return
        known = self._literals.setdefault(dtype, [])
        room = ROUNDINGS * _UNIT[dtype]
        for one, other in known:
            if abs(one - value) <= room * abs(one):
                if one != value:
                    self.closure.unite(number, other, LAW)
                return
        # Only such a literal has others near it, so that no chain of roundings leads further away.
        known.append((value, number))

    def heads(self, term: int) -> tuple[tuple[str, Attrs], tuple[int, ...], bool]:
        """Return operator and attributes of a term, its operands, and whether these commute."""
        return cast("tuple[tuple[str, Attrs], tuple[int, ...], bool]", self.closure.terms[term])

    def apply(self, op: str, attrs: Attrs, operands: tuple[int, ...]) -> int:
        """Return the number of an operator of the registry on terms.

        Raises:
            IllTyped: the operator is not defined on them.
        """
        types: list[Any] = [self.types[one] for one in operands]
        return self._add(op, attrs, operands, result_type(op, types, dict(attrs), self._joins))

    # Another graph --------------------------------------------------------------------------------

    def add_graph(self, graph: Graph) -> dict[str, int]:
        """Add the terms of another graph with the same inputs; return the term of each output.

        Raises:
            StageError: it has an operator that passes through, or a constant, of unknown origin.
        """
        nodes = tuple(one for node in graph.nodes for one in apart(node))
        other = lower(replace(graph, nodes=nodes), exact=self.lowered.exact)
        places: list[int] = []
        for term in other.terms:
            operands = tuple(places[one] for one in term.children)
            if term.op == LEAF:
                place = self._leaf(other, other.leaf_names[term.index])
            elif term.op == OPAQUE:
                node = other.opaque[term.index]
                number = self._opaque.get(node.outputs)
                if number is None or self.lowered.opaque[number].payload != node.payload:
                    raise StageError(f"{node.op} {node.name!r} is not in the original")
                place = self._add(OPAQUE, attributes(index=number), operands, term.type)
            else:
                place = self._typed(term.op, term.attrs, operands, term.type)
            places.append(place)
        return {name: places[other.value[name]] for name in graph.outputs}

    def _typed(self, op: str, attrs: Attrs, operands: tuple[int, ...], type_: ValueType) -> int:
        """Add a term of another graph, whose type is claimed only."""
        if not is_known(op):
            return self._add(op, attrs, operands, type_)
        place = self.apply(op, attrs, operands)
        if self.types[place] != type_:
            raise StageError(f"{op} has the type {self.types[place]}, not {type_}")
        return place

    def _leaf(self, other: Lowered, name: str) -> int:
        constant = other.constants.get(name)
        if constant is not None:
            return self._constant(constant)
        number = self._leaves.get(name)
        if number is None:
            raise StageError(f"the input {name!r} is not one of the original")
        return self._add(LEAF, attributes(index=number), (), other.graph.types[name])

    def _constant(self, constant: Constant) -> int:
        known = self._digests.get(_key(constant))
        if known is not None:
            return known
        source = constant.source
        if isinstance(source, Expression):
            operands = tuple(map(self._constant, source.operands))
            made = self._add(source.op, source.attrs, operands, constant.type)
        else:
            made = self._add(self.UNKNOWN, attributes(digest=_key(constant)), (), constant.type)
            self.constant[made] = True
        self._digests[_key(constant)] = made
        return made

    # Rules ----------------------------------------------------------------------------------------

    def bindings(self, instance: AppliedRule) -> Bindings:
        """Return the types and attributes of the variables of a rule.

        Raises:
            StageError: a variable is no tensor.
        """
        types = {}
        for name, value in instance.values.items():
            type_ = self.types[value]
            if not isinstance(type_, TensorType):
                raise StageError(f"{name} is no tensor")
            types[name] = type_
        return Bindings(types, dict(instance.attrs))

    def sides(self, rule: Rule, instance: AppliedRule) -> list[tuple[int, int]]:
        """Return both sides of each root of a rule as terms, which are added.

        Raises:
            StageError: the rule does not apply to these terms.
        """
        bindings = self.bindings(instance)
        for condition in rule.when:
            if not holds(condition, bindings, lambda *_: True):
                raise StageError(f"the condition {condition} does not hold")
        pairs = []
        try:
            for left, right in zip(rule.lhs, rule.rhs, strict=True):
                types = type_of(left, bindings), type_of(right, bindings)
                if types[0] != types[1]:
                    raise StageError(f"its sides have the types {types[0]} and {types[1]}")
                sides = (self._term(side, instance, bindings) for side in (left, right))
                pairs.append((next(sides), next(sides)))
        except (*REFUSED, LookupError) as error:
            raise StageError(f"its sides have no type: {error}") from error
        return pairs

    def _term(self, term: Term, instance: AppliedRule, bindings: Bindings) -> int:
        if isinstance(term, Var):
            value = instance.values[term.name]
            if term.const and not self.constant[value]:
                raise StageError(f"{term.name} is not constant")
            return value
        assert isinstance(term, Apply)
        operands = tuple(self._term(arg, instance, bindings) for arg in term.args)
        op, attrs = operator(term, bindings)
        return self.apply(op, attributes(**attrs), operands)


def _key(constant: Constant) -> str:
    return f"{constant.type}:{constant.digest}"
