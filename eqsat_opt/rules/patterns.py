"""Matching of patterns: left sides of rules and kernels of backends, at the values of a host.

A host lists the e-nodes that compute each value: several in an e-graph, one in a graph or among the
terms of a search. The binding of a pattern at a value depends on nothing else, so several roots are
matched separately and then joined over the variables that they share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from eqsat_opt.ir.graph.graph import Attrs, attributes
from eqsat_opt.ir.ops import IllTyped, get_op, is_known
from eqsat_opt.ir.ops.functions import FUNCTIONS
from eqsat_opt.ir.values.types import TensorType, ValueType
from eqsat_opt.rules.bindings import Bindings, bind_attr
from eqsat_opt.rules.term import MAP, Apply, AttrPattern, Condition, Expr, Term, Var

__all__ = [
    "Binding",
    "Enode",
    "Host",
    "in_any_order",
    "is_a",
    "joined",
    "leaves",
    "literal",
    "match",
    "names_in",
    "names_of",
    "operators_of",
    "settled",
]

_SCALAR = "Scalar"
_WITHOUT_END = 1 << 62

Value = TypeVar("Value", bound=Hashable)


class Enode(NamedTuple, Generic[Value]):
    """An operator on operands.

    E-nodes of the same key are one operator, with its operands in several orders.
    """

    key: Any
    op: str
    attrs: Attrs
    operands: tuple[Value, ...]


class Host(Protocol[Value]):
    """A container of values at which patterns are matched."""

    def enodes(self, value: Value, op: str) -> Sequence[Enode[Value]]:
        """Return the e-nodes of a value with an operator; with any function for :data:`~.term.MAP`.

        A uniform constant is a :func:`literal`.
        """

    def type(self, value: Value) -> ValueType | None:
        """Return the type of a value."""

    def is_const(self, value: Value) -> bool:
        """Return whether a value is known at compile time."""


def is_a(op: str, wanted: str) -> bool:
    """Return whether an operator is the wanted one, or any function for :data:`~.term.MAP`."""
    return op == wanted or (wanted == MAP and op in FUNCTIONS)


def literal(key: Any, value: float, dtype: str) -> Enode[Any]:
    """Return a uniform constant as the scalar that rules write."""
    return Enode(key, _SCALAR, attributes(value=value, dtype=dtype), ())


def in_any_order(enode: Enode[Value]) -> tuple[Enode[Value], ...]:
    """Return an e-node and, if its operator commutes, the same with exchanged operands."""
    operands = enode.operands
    if len(operands) != 2 or operands[0] == operands[1]:
        return (enode,)
    if not is_known(enode.op) or not get_op(enode.op).commutative:
        return (enode,)
    return enode, enode._replace(operands=operands[::-1])


@dataclass(slots=True)
class Binding(Generic[Value]):
    """The variables that a pattern binds at a value.

    Attributes:
        root: the value.
        values: tensor variable to value.
        variables: types of these, and values of attribute variables.
        covered: the e-node that computes each value inside, literals left out; from the root
            downwards.
        deferred: attributes that are computed from variables, with the values that they must have.
    """

    root: Value
    values: dict[str, Value] = field(default_factory=dict)
    variables: Bindings = field(default_factory=Bindings)
    covered: dict[Value, Enode[Value]] = field(default_factory=dict)
    deferred: list[tuple[AttrPattern, Any]] = field(default_factory=list)

    def copy(self) -> Binding[Value]:
        """Return an independent copy."""
        return Binding(
            root=self.root,
            values=dict(self.values),
            variables=self.variables.copy(),
            covered=dict(self.covered),
            deferred=list(self.deferred),
        )

    def bind(self, pattern: AttrPattern, value: Any) -> bool:
        """Match an attribute; an expression of variables is deferred until these are bound."""
        if isinstance(pattern, tuple):
            fits = isinstance(value, tuple) and len(value) == len(pattern)
            return fits and all(self.bind(p, v) for p, v in zip(pattern, value, strict=True))
        if pattern.kind == "attr":
            return bool(self.variables.attrs.setdefault(pattern.args[0], value) == value)
        if pattern.kind == "literal":
            return bool(pattern.args[0] == value)
        self.deferred.append((pattern, value))
        return True

    def agrees(self, other: Binding[Value]) -> bool:
        """Return whether the variables that both bind have the same values."""
        values, attrs = other.values, other.variables.attrs
        return all(
            values[name] == value for name, value in self.values.items() if name in values
        ) and all(
            attrs[name] == value for name, value in self.variables.attrs.items() if name in attrs
        )


# One root -----------------------------------------------------------------------------------------


@lru_cache(1 << 12)
def operators_of(pattern: Term) -> frozenset[str]:
    """Return the operators that the root of a pattern can match.

    The empty set means any operator; it is returned for a variable, and for a literal, which
    matches a uniform constant.
    """
    if not isinstance(pattern, Apply) or pattern.op == _SCALAR:
        return frozenset()
    return frozenset(FUNCTIONS) if pattern.op == MAP else frozenset((pattern.op,))


def leaves(expression: Expr) -> Iterator[Expr]:
    """Yield the variables, extents, ranks and types in an expression, axes of extents included."""
    for leaf in expression.leaves():
        if leaf.kind == "dim":
            yield from leaves(leaf.args[1])
        yield leaf


def names_of(pattern: Term) -> set[str]:
    """Return the variables that a pattern binds."""
    applied = [term for term in pattern.walk() if isinstance(term, Apply)]
    values = [value for term in applied for value in term.attrs.values()]
    parts = [part for value in values for part in (value if isinstance(value, tuple) else (value,))]
    return {str(part.args[0]) for part in parts if part.kind == "attr"} | pattern.variables()


@lru_cache(1 << 12)
def names_in(conditions: tuple[Condition, ...]) -> tuple[str, ...]:
    """Return the variables that conditions read."""
    args = [arg for condition in conditions for arg in condition.args]
    named = [str(leaf.args[0]) for arg in args if isinstance(arg, Expr) for leaf in leaves(arg)]
    return tuple(dict.fromkeys((*(arg for arg in args if isinstance(arg, str)), *named)))


def match(
    pattern: Term, host: Host[Value], value: Value, at: Any = None, most: int = _WITHOUT_END
) -> list[Binding[Value]]:
    """Match a pattern with an operator as its root at a value.

    Args:
        pattern: one root.
        host: the container of the value.
        value: the value to match with the root.
        at: the key of the e-node by which the root is computed; ``None`` for any.
        most: choices between e-nodes after which no further ones are made.

    Returns:
        One binding for each way to choose e-nodes. A value that occurs several times in the
        pattern has the same e-node everywhere.
    """
    assert isinstance(pattern, Apply)
    attempt = _Attempt(host, most)
    enodes = host.enodes(value, pattern.op)
    if at is not None:
        enodes = [enode for enode in enodes if enode.key == at]
    attempt.choose((pattern, value, None), enodes, Binding(value), None)
    return attempt.found


def _looks_like(term: Apply, enode: Enode[Value], host: Host[Value]) -> bool:
    """Return whether the operands of an e-node have the operators that a term demands."""
    for arg, operand in zip(term.args, enode.operands, strict=True):
        if isinstance(arg, Apply) and not host.enodes(operand, arg.op):
            return False
    return True


_Goal = tuple[Any, Any, Any]
"""A term, the value to match with it, and the reader: e-node, its value, number of the operand."""


class _Attempt(Generic[Value]):
    """One attempt to match a pattern at a value."""

    def __init__(self, host: Host[Value], most: int) -> None:
        self._host, self._left = host, most
        self.found: list[Binding[Value]] = []

    def choose(
        self, goal: _Goal, enodes: Sequence[Enode[Value]], binding: Binding[Value], others: Any
    ) -> None:
        """Match the term of a goal with each e-node that looks like it, and then the other goals.

        ``others`` is a linked list: a goal and the rest in a pair, or ``None`` at its end.
        """
        term, value, _ = goal
        fitting = [enode for enode in enodes if len(enode.operands) == len(term.args)]
        if len(fitting) > 1:  # a single one is matched without this filter
            fitting = [enode for enode in fitting if _looks_like(term, enode, self._host)]
        for number, enode in enumerate(fitting, 1):
            further = binding
            if number < len(fitting):
                self._left -= 1
                if self._left < 0:
                    return
                further = binding.copy()
            if self._take(goal, enode, further):
                goals, args = others, term.args
                for i in range(len(args) - 1, -1, -1):
                    goals = (args[i], enode.operands[i], (enode, value, i)), goals
                self._follow(goals, further)

    def _follow(self, goals: Any, binding: Binding[Value]) -> None:
        while goals is not None:
            goal, goals = goals
            term, value, _ = goal
            if isinstance(term, Var):
                if not self._bind(term, value, binding):
                    return
                continue
            enodes, known = self._host.enodes(value, term.op), binding.covered.get(value)
            if known is not None:
                enodes = [enode for enode in enodes if enode.key == known.key]
            self.choose(goal, enodes, binding, goals)
            return
        self.found.append(binding)

    def _take(self, goal: _Goal, enode: Enode[Value], binding: Binding[Value]) -> bool:
        term, value, reader = goal
        if term.attrs:
            is_map = term.op == MAP
            attrs: dict[str, Any] = {"f": (enode.op, enode.attrs)} if is_map else dict(enode.attrs)
            for name, pattern in term.attrs.items():
                if not binding.bind(pattern, attrs[name]):
                    return False
        if reader is not None and term.op == _SCALAR:
            return self._may_be_literal(value, *reader)
        binding.covered.setdefault(value, enode)
        return True

    def _may_be_literal(
        self, value: Value, reader: Enode[Value], result: Value, number: int
    ) -> bool:
        """Return whether a scalar in place of a uniform constant keeps the type of the result."""
        own = self._host.type(value)
        assert isinstance(own, TensorType)
        if not own.rank:
            return True
        types = [self._host.type(operand) for operand in reader.operands]
        types[number] = TensorType(own.dtype, ())
        try:
            made = get_op(reader.op).type_fn(types, dict(reader.attrs))  # type: ignore[arg-type]
        except IllTyped:
            return False
        return made == self._host.type(result)

    def _bind(self, variable: Var, value: Value, binding: Binding[Value]) -> bool:
        name = variable.name
        if name in binding.values:
            return binding.values[name] == value
        type_ = self._host.type(value)
        if not isinstance(type_, TensorType) or (variable.const and not self._host.is_const(value)):
            return False
        binding.values[name], binding.variables.types[name] = value, type_
        return True


# Several roots ------------------------------------------------------------------------------------


@lru_cache(1 << 12)
def _anchors(roots: tuple[Term, ...]) -> tuple[str | None, ...]:
    """Return, for each root but the first, a tensor variable that an earlier root binds too."""
    seen = roots[0].variables()
    anchors: list[str | None] = []
    for root in roots[1:]:
        shared = (t.name for t in root.walk() if isinstance(t, Var) and t.name in seen)
        anchors.append(next(shared, None))
        seen |= root.variables()
    return tuple(anchors)


def joined(
    roots: tuple[Term, ...], found: Sequence[Sequence[Binding[Value]]]
) -> Iterator[tuple[Binding[Value], ...]]:
    """Yield each choice of one binding per root in which all agree, at different values."""
    anchors = _anchors(roots)
    indices: list[Mapping[Value | None, list[Binding[Value]]]] = []
    for anchor, bindings in zip(anchors, found[1:], strict=True):
        index: dict[Value | None, list[Binding[Value]]] = defaultdict(list)
        for binding in bindings:
            index[binding.values[anchor] if anchor else None].append(binding)
        indices.append(index)

    def further(parts: tuple[Binding[Value], ...]) -> Iterator[tuple[Binding[Value], ...]]:
        done = len(parts) - 1
        if done == len(indices):
            yield parts
            return
        anchor = anchors[done]
        key = next(p.values[anchor] for p in parts if anchor in p.values) if anchor else None
        for binding in indices[done].get(key, ()):
            if all(binding.root != part.root and binding.agrees(part) for part in parts):
                yield from further((*parts, binding))

    for binding in found[0]:
        yield from further((binding,))


def settled(parts: Sequence[Binding[Value]]) -> tuple[dict[str, Value], Bindings] | None:
    """Return the variables of all roots; ``None`` if a deferred attribute has another value."""
    values, variables = parts[0].values, parts[0].variables
    if len(parts) > 1:
        values = {name: value for part in parts for name, value in part.values.items()}
        variables = Bindings(
            {name: type_ for part in parts for name, type_ in part.variables.types.items()},
            {name: value for part in parts for name, value in part.variables.attrs.items()},
        )
    deferred = (pair for part in parts for pair in part.deferred)
    return (values, variables) if all(bind_attr(p, v, variables) for p, v in deferred) else None
