"""The values of a rule's variables, and the sizes, conditions and types that follow from them.

Graph substitution and the checker, which work on concrete values, share this module. The e-graph
reads rules by a compiler of its own; :func:`literal_sizes` keeps the two from differing over sizes
that are not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from eqsat_opt.ir.graph.graph import Attrs
from eqsat_opt.ir.ops import AttrKind, IllTyped, get_op
from eqsat_opt.ir.values.dims import SymDim, floor_div
from eqsat_opt.ir.values.types import FLOATS, StaticType, TensorType, require_static
from eqsat_opt.rules.term import MAP, Apply, AttrPattern, Condition, Expr, Term, Var, parts

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
    """An expression without a value: an unbound variable, a missing axis, a division by zero.

    A float that overflows or is computed from a symbolic size has no value either.
    """


REFUSED = (IllTyped, Undefined, ZeroDivisionError)
"""Errors that typing raises for values of variables that it refuses."""


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
        """Return an independent copy, for a trial match."""
        return Bindings(dict(self.types), dict(self.attrs))

    @property
    def static_types(self) -> dict[str, StaticType]:
        """The types of an instance, whose sizes are literal.

        Raises:
            SymbolicSizes: a type has a symbolic size.
        """
        return {name: require_static(type_) for name, type_ in self.types.items()}


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
    """Return the value of an expression.

    Raises:
        Undefined: the expression has no value.
    """
    return _reader(expression)(bindings) if isinstance(expression, Expr) else expression


_Reader = Callable[["Bindings"], Any]


@lru_cache(maxsize=1 << 13)
def _reader(expression: Expr) -> _Reader:
    """Return a function of bindings that computes an expression.

    Each expression is compiled once and evaluated at many instances.
    """
    kind, args = expression.kind, expression.args
    first = args[0]
    match kind:
        case "literal":
            return lambda _bindings: first
        case "attr":
            return partial(_attribute, first)
        case "rank":
            return lambda bindings: len(_shape(first, bindings))
        case "dtype":
            return lambda bindings: _type(first, bindings).dtype
        case "dim":
            at = _operand(args[1])
            return lambda bindings: _lookup(_shape(first, bindings), at(bindings))
    left = _operand(first)
    match kind:
        case "sqrt":
            return lambda bindings: _root(left(bindings))
        case "real":
            return lambda bindings: _float(left(bindings))
    right = _operand(args[1])
    if kind == "item":
        return lambda bindings: _lookup(left(bindings), right(bindings))
    return lambda bindings: _computed(kind, left(bindings), right(bindings))


def _operand(value: Any) -> _Reader:
    return _reader(value) if isinstance(value, Expr) else lambda _bindings: value


def _attribute(name: str, bindings: Bindings) -> Any:
    if name not in bindings.attrs:
        raise Undefined(f"{name} is unbound")
    return bindings.attrs[name]


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
    # An infinite bound may be scaled, but an overflow is another number than the rule means.
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
    """Return the attributes, list elements and extents that must be numbers to decide a condition.

    Sums and products of symbolic sizes are polynomials, which every reader compares alike. Whether
    two polynomials are in order, near or different is undecided as long as their symbols are open,
    and a quotient or a root is not a polynomial. Every reader must take a condition for false where
    a size that is returned here is symbolic.

    For an expression, the result is the sizes without which it has no value.
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
    """Return whether a condition is true; it is false where a size that it needs is symbolic.

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
            # A condition on NaN is never true, not even this one.
            return bool(left == left and right == right and left != right)
        case "<":
            return bool(left < right)
        case _:
            return bool(left <= right)


def _is_symbolic(value: Any) -> bool:
    return isinstance(value, SymDim) or (isinstance(value, tuple) and any(map(_is_symbolic, value)))


def bind_attr(pattern: AttrPattern, value: Any, bindings: Bindings) -> bool:
    """Match an attribute value and bind the unbound variables of the pattern."""
    if isinstance(pattern, tuple):
        fits = isinstance(value, tuple) and len(value) == len(pattern)
        return fits and all(bind_attr(p, v, bindings) for p, v in zip(pattern, value, strict=True))
    if pattern.kind == "attr":
        return bool(bindings.attrs.setdefault(pattern.args[0], value) == value)
    try:
        return bool(size(pattern, bindings) == value)
    except Undefined:
        return False


def _whole(read: _Reader, bindings: Bindings) -> Any:
    value = read(bindings)
    if isinstance(value, float):
        raise Undefined(f"{value} is not a whole number")
    return value


def _attribute_reader(pattern: AttrPattern, kind: AttrKind) -> _Reader:
    if isinstance(pattern, tuple):
        each = [partial(_whole, _reader(part)) for part in pattern]
        return lambda bindings: tuple([read(bindings) for read in each])
    read = _reader(pattern)
    return (lambda bindings: _float(read(bindings))) if kind == "float" else partial(_whole, read)


@lru_cache(maxsize=1 << 12)
def _attributes(term: Apply) -> tuple[dict[str, Any], tuple[tuple[str, _Reader], ...]]:
    """Return the attributes of a pattern node: values of literals, and readers of the others."""
    kinds = get_op(term.op).attrs
    readers = {key: _attribute_reader(value, kinds[key]) for key, value in term.attrs.items()}
    known = {
        key: read(Bindings())
        for key, read in readers.items()
        if all(part.kind == "literal" for part in parts(term.attrs[key]))
    }
    values = {key: known.get(key) for key in readers}
    return values, tuple((key, read) for key, read in readers.items() if key not in known)


def operator(term: Apply, bindings: Bindings) -> tuple[str, dict[str, Any]]:
    """Return the registry operator of a pattern node and its attributes.

    Raises:
        Undefined: an attribute has no value.
    """
    if term.op == MAP:
        function = term.attrs["f"]
        bound: tuple[str, Attrs] = size(function, bindings)
        return bound[0], dict(bound[1])
    values, open_ = _attributes(term)
    attrs = values.copy()
    for key, read in open_:
        attrs[key] = read(bindings)
    return term.op, attrs


def type_of(term: Term, bindings: Bindings) -> TensorType:
    """Return the type of a pattern by the registry.

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
    """Return whether all patterns have a type and all conditions hold.

    Outside a graph it is unknown how tensors relate, so ``distinct`` and ``follows`` count as
    true.
    """
    try:
        for root in roots:
            type_of(root, bindings)
    except REFUSED:
        return False
    return all(holds(condition, bindings, lambda *_: True) for condition in conditions)


def types_of(term: Term, bindings: Bindings) -> list[TensorType]:
    """Return the types of a pattern and of all patterns in it, its own last.

    Raises:
        IllTyped: an operator does not accept its operands.
        Undefined: an attribute has no value.
    """
    if isinstance(term, Var):
        return [type_of(term, bindings)]
    assert isinstance(term, Apply)
    below = [types_of(arg, bindings) for arg in term.args]
    op, attrs = operator(term, bindings)
    own = get_op(op).type_fn([types[-1] for types in below], attrs)
    return [*(type_ for types in below for type_ in types), own]
