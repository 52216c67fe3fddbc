"""What the variables of a rule stand for, and what sizes, conditions and types then mean.

Shared by the readers that work on concrete values: graph substitution and the checker.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from eqsat_opt.ir.dims import SymDim, floor_div
from eqsat_opt.ir.graph import Attrs
from eqsat_opt.ir.ops import AttrKind, get_op
from eqsat_opt.ir.types import FLOATS, TensorType
from eqsat_opt.rules.term import MAP, Apply, AttrPattern, Condition, Expr, Term, Var

__all__ = ["Bindings", "Undefined", "bind_attr", "holds", "operator", "size", "type_of"]


class Undefined(Exception):
    """An expression has no value: an unbound variable, a missing axis, a division by zero."""


@dataclass
class Bindings:
    """Values of the variables.

    Attributes:
        types: tensor variable to type.
        attrs: attribute variable to value; a function variable to operator and attributes.
    """

    types: dict[str, TensorType] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)

    def copy(self) -> Bindings:
        """An independent copy, for a trial match."""
        return Bindings(dict(self.types), dict(self.attrs))


def _lookup(sequence: Any, index: Any) -> Any:
    if isinstance(index, SymDim) or not 0 <= index < len(sequence):
        raise Undefined(f"no element {index}")
    return sequence[index]


def _shape(name: str, bindings: Bindings) -> tuple[Any, ...]:
    if name not in bindings.types:
        raise Undefined(f"{name} is unbound")
    return bindings.types[name].shape


def size(expression: Any, bindings: Bindings) -> Any:
    """The value of an expression.

    Raises:
        Undefined: where it has none.
    """
    if not isinstance(expression, Expr):
        return expression
    args = expression.args
    match expression.kind:
        case "literal":
            return args[0]
        case "attr":
            if args[0] not in bindings.attrs:
                raise Undefined(f"{args[0]} is unbound")
            return bindings.attrs[args[0]]
        case "rank":
            return len(_shape(args[0], bindings))
        case "dim":
            return _lookup(_shape(args[0], bindings), size(args[1], bindings))
        case "item":
            return _lookup(size(args[0], bindings), size(args[1], bindings))
        case "sqrt":
            return _root(size(args[0], bindings))
        case "real":
            return _float(size(args[0], bindings))
    left, right = (size(arg, bindings) for arg in args)
    match expression.kind:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case _:
            if right == 0:
                raise Undefined("division by zero")
            return left / right if expression.kind == "/" else floor_div(left, right)


def _root(value: Any) -> float:
    if value < 0:
        raise Undefined("root of a negative number")
    return math.sqrt(value)


def _float(value: Any) -> float:
    if isinstance(value, SymDim):
        raise Undefined(f"{value} is symbolic")
    return float(value)


def holds(
    condition: Condition, bindings: Bindings, related: Callable[[str, str, str], bool]
) -> bool:
    """Whether a condition is true; a comparison of symbolic sizes that depends on them is not.

    Args:
        condition: of the rule.
        bindings: of its variables.
        related: decides ``distinct`` and ``follows``, given the kind and two tensor variables.
    """
    args = condition.args
    try:
        match condition.kind:
            case "same-shape":
                return _shape(args[0], bindings) == _shape(args[1], bindings)
            case "is-float":
                return bindings.types[args[0]].dtype in FLOATS
            case "distinct" | "follows":
                return related(condition.kind, args[0], args[1])
        left, right = (size(arg, bindings) for arg in args[:2])
    except Undefined:
        return False
    match condition.kind:
        case "near":
            return bool(abs(left - right) <= args[2] * abs(right))
        case "far":
            return bool(abs(left - right) > args[2] * abs(right))
        case "==":
            return bool(left == right)
        case "!=":
            return _literal(left) and _literal(right) and bool(left != right)
        case "<":
            return _literal(left) and _literal(right) and bool(left < right)
        case _:
            return left == right or (_literal(left) and _literal(right) and bool(left <= right))


def _literal(value: Any) -> bool:
    return not isinstance(value, SymDim)


def bind_attr(pattern: AttrPattern, value: Any, bindings: Bindings) -> bool:
    """Match an attribute value and bind what the pattern leaves open."""
    if isinstance(pattern, tuple):
        fits = isinstance(value, tuple) and len(value) == len(pattern)
        return fits and all(bind_attr(p, v, bindings) for p, v in zip(pattern, value, strict=True))
    if pattern.kind == "attr":
        return bool(bindings.attrs.setdefault(pattern.args[0], value) == value)
    try:
        return bool(size(pattern, bindings) == value)
    except Undefined:
        return False


def _attr_value(pattern: AttrPattern, kind: AttrKind, bindings: Bindings) -> Any:
    if isinstance(pattern, tuple):
        return tuple(size(part, bindings) for part in pattern)
    value = size(pattern, bindings)
    return float(value) if kind == "float" else value


def operator(term: Apply, bindings: Bindings) -> tuple[str, dict[str, Any]]:
    """The registry operator of a pattern node and its attributes.

    Raises:
        Undefined: if an attribute has no value.
    """
    if term.op == MAP:
        function = term.attrs["f"]
        bound: tuple[str, Attrs] = size(function, bindings)
        return bound[0], dict(bound[1])
    if not term.attrs:
        return term.op, {}
    kinds = get_op(term.op).attrs
    return term.op, {k: _attr_value(v, kinds[k], bindings) for k, v in term.attrs.items()}


def type_of(term: Term, bindings: Bindings) -> TensorType:
    """The type of a pattern by the registry.

    Raises:
        IllTyped: if an operator does not accept its operands.
        Undefined: if an attribute has no value.
    """
    if isinstance(term, Var):
        if term.name not in bindings.types:
            raise Undefined(f"{term.name} is unbound")
        return bindings.types[term.name]
    assert isinstance(term, Apply)
    operands = [type_of(arg, bindings) for arg in term.args]
    op, attrs = operator(term, bindings)
    return get_op(op).type_fn(operands, attrs)
