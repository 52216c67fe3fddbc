"""The values of a rule's variables, and the sizes, conditions and types that follow from them.

Shared by the readers that work on concrete values: graph substitution and the checker. The e-graph
reads rules by a compiler of its own; :func:`literal_sizes` keeps the two from differing over sizes
that are not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from eqsat_opt.ir.dims import SymDim, floor_div
from eqsat_opt.ir.graph import Attrs
from eqsat_opt.ir.ops import AttrKind, IllTyped, get_op
from eqsat_opt.ir.types import FLOATS, TensorType
from eqsat_opt.rules.term import MAP, Apply, AttrPattern, Condition, Expr, Term, Var

__all__ = [
    "REFUSED",
    "Bindings",
    "Undefined",
    "bind_attr",
    "fits",
    "holds",
    "literal_sizes",
    "operator",
    "size",
    "type_of",
    "types_of",
]


class Undefined(Exception):
    """An expression has no value: an unbound variable, a missing axis, a division by zero.

    Nor has a float that overflows or is computed from a symbolic size.
    """


REFUSED = (IllTyped, Undefined, ZeroDivisionError)
"""Errors by which typing refuses the values of variables."""


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


def _type(name: str, bindings: Bindings) -> TensorType:
    if name not in bindings.types:
        raise Undefined(f"{name} is unbound")
    return bindings.types[name]


def _shape(name: str, bindings: Bindings) -> tuple[Any, ...]:
    return _type(name, bindings).shape


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
        case "dtype":
            return _type(args[0], bindings).dtype
        case "dim":
            return _lookup(_shape(args[0], bindings), size(args[1], bindings))
        case "item":
            return _lookup(size(args[0], bindings), size(args[1], bindings))
        case "sqrt":
            return _root(size(args[0], bindings))
        case "real":
            return _float(size(args[0], bindings))
    return _computed(expression.kind, *(size(arg, bindings) for arg in args))


def _computed(kind: str, left: Any, right: Any) -> Any:
    if kind == "/":
        left, right = _float(left), _float(right)
    elif isinstance(left, float) or isinstance(right, float):
        left, right = (x if isinstance(x, float) else _float(x) for x in (left, right))
    if kind in ("/", "//") and right == 0:
        raise Undefined("division by zero")
    match kind:
        case "+":
            value = left + right
        case "-":
            value = left - right
        case "*":
            value = left * right
        case "/":
            value = left / right
        case _:
            value = left // right if isinstance(left, float) else floor_div(left, right)
    # An infinite bound may be scaled; what overflows is another number than the rule means.
    if isinstance(value, float) and (
        math.isnan(value) or (math.isinf(value) and math.isfinite(left) and math.isfinite(right))
    ):
        raise Undefined(f"{left} {kind} {right} is not a number")
    return value


def _root(value: Any) -> float:
    number = _float(value)
    if not number >= 0:
        raise Undefined("root of a negative number")
    return math.sqrt(number)


def _float(value: Any) -> float:
    if isinstance(value, SymDim):
        raise Undefined(f"{value} is symbolic")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise Undefined(f"{value} is not a number") from error


def _finite(value: Any) -> float:
    number = _float(value)
    if not math.isfinite(number):
        raise Undefined(f"{value} is not finite")
    return number


_UNKNOWN_TELLS_NOTHING = frozenset({"!=", "<", "<=", "near", "far"})
_OF_NUMBERS = frozenset({"//", "/", "sqrt", "real"})


@lru_cache(maxsize=1 << 13)
def literal_sizes(condition: Condition | Expr) -> tuple[Expr, ...]:
    """The attributes, list elements and extents that must be numbers for a condition to be read.

    Sums and products of symbolic sizes are polynomials, which every reader compares alike. Whether
    two are in order, are near or differ is open as long as their symbols are, and a quotient or a
    root of them is not a polynomial. Every reader must take a condition for false where one of
    these is symbolic. For an expression: those without which it has no value.
    """
    if isinstance(condition, Expr):
        return tuple(_sizes(condition, False))
    if condition.kind not in (*_UNKNOWN_TELLS_NOTHING, "=="):
        return ()
    everything = condition.kind in _UNKNOWN_TELLS_NOTHING
    arguments = [arg for arg in condition.args if isinstance(arg, Expr)]
    return tuple(leaf for arg in arguments for leaf in _sizes(arg, everything))


def _sizes(expression: Expr, everything: bool) -> Iterator[Expr]:
    if expression.kind in ("attr", "dim", "item"):
        if everything:
            yield expression
        # The index of a list is an expression of its own.
        inner = expression.args[1:] if expression.kind != "attr" else ()
        everything = False
    else:
        inner = expression.args
        everything = everything or expression.kind in _OF_NUMBERS
    for arg in inner:
        if isinstance(arg, Expr):
            yield from _sizes(arg, everything)


def holds(
    condition: Condition, bindings: Bindings, related: Callable[[str, str, str], bool]
) -> bool:
    """Whether a condition is true; where it needs a size that is symbolic, it is not.

    `related` decides ``distinct`` and ``follows``, given the kind and two tensor variables.
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
        if any(_is_symbolic(size(leaf, bindings)) for leaf in literal_sizes(condition)):
            return False
        left, right = (size(arg, bindings) for arg in args[:2])
        if condition.kind in ("near", "far"):
            left, right = _finite(left), _finite(right)
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
            # NaN differs from nothing.
            return bool(left == left and right == right and left != right)
        case "<":
            return bool(left < right)
        case _:
            return bool(left <= right)


def _is_symbolic(value: Any) -> bool:
    return isinstance(value, SymDim) or (isinstance(value, tuple) and any(map(_is_symbolic, value)))


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
        return tuple(_attr_value(part, "int", bindings) for part in pattern)
    value = size(pattern, bindings)
    if kind == "float":
        return _float(value)
    if isinstance(value, float):
        raise Undefined(f"{value} is not a whole number")
    return value


def operator(term: Apply, bindings: Bindings) -> tuple[str, dict[str, Any]]:
    """The registry operator of a pattern node and its attributes.

    Raises:
        Undefined: an attribute has no value.
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
        IllTyped: an operator does not accept its operands.
        Undefined: an attribute has no value.
    """
    if isinstance(term, Var):
        return _type(term.name, bindings)
    assert isinstance(term, Apply)
    operands = [type_of(arg, bindings) for arg in term.args]
    op, attrs = operator(term, bindings)
    return get_op(op).type_fn(operands, attrs)


def fits(roots: Iterable[Term], conditions: Iterable[Condition], bindings: Bindings) -> bool:
    """Whether patterns type and conditions hold.

    Outside a graph nothing is known of how tensors relate, so ``distinct`` and ``follows`` count as
    true.
    """
    try:
        for root in roots:
            type_of(root, bindings)
    except REFUSED:
        return False
    return all(holds(condition, bindings, lambda *_: True) for condition in conditions)


def types_of(term: Term, bindings: Bindings) -> list[TensorType]:
    """The types of all that a pattern consists of, its own last; raises as :func:`type_of`."""
    if isinstance(term, Var):
        return [type_of(term, bindings)]
    assert isinstance(term, Apply)
    below = [types_of(arg, bindings) for arg in term.args]
    op, attrs = operator(term, bindings)
    own = get_op(op).type_fn([types[-1] for types in below], attrs)
    return [*(type_ for types in below for type_ in types), own]
