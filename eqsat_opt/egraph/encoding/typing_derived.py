"""Typing rules that follow from an operator's definition: its index function and type function.

The index function gives the ranks of the operands, the equations between their extents and the
extents of the result; the type function, tried on tensors of few elements, gives the valid
combinations of element types. Sums and products are those of codes, so they hold for symbolic
extents too; quotients and comparisons require literals.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from eqsat_opt.egraph.encoding.extents import is_literal, minus, plus, times
from eqsat_opt.egraph.encoding.typing_windows import typing_rule
from eqsat_opt.ir.ops import OUTPUT, IllTyped, Op, get_op
from eqsat_opt.ir.ops.index.evaluation import formula_value, poly_value
from eqsat_opt.ir.ops.index.integers import AllOf, Formula, IsZero, NonNegative, Poly
from eqsat_opt.ir.ops.index.polynomials import Atom, poly
from eqsat_opt.ir.ops.index.scalars import Unindexed
from eqsat_opt.ir.ops.index.signatures import HIGHEST, Signature, signatures
from eqsat_opt.ir.values.dims import LITERALS
from eqsat_opt.ir.values.types import DTYPE_CODES, TensorType

__all__ = ["derived_rules"]

_SIZES = (1, 2, 3, 4)
"""Extents and attributes at which element types are tried."""
_MOST = 2
"""Greatest number of operands; for more, there are too many combinations of ranks for a rule
each."""
_FEW = 32
"""Greatest number of rules of an operator whose empty operands are typed; trying more takes
long."""


@cache
def derived_rules(name: str) -> tuple[str, ...]:
    """Return the typing rules of an operator.

    They are empty where the index function does not determine them: the operator has lists among
    its attributes, an element type in addition to operands, or operands that broadcast or are many.
    """
    op = get_op(name)
    few = op.arity[0] == op.arity[1] <= _MOST
    if not few or (op.arity[1] and _element_type_keys(op)):
        return ()
    try:
        said = signatures(name, op.arity[0])
        return tuple(rule for part in _outputs(op, said) for rule in _typing(op, *part))
    except Unindexed:
        return ()


def _outputs(op: Op, said: Sequence[Signature]) -> Iterator[tuple[str, Sequence[Signature]]]:
    """Yield the rule name and the signatures of each output."""
    if op.outputs == 1:
        yield op.name, said
        return
    for number in range(op.outputs):
        yield f"{op.name}.{number}", [one for one in said if one.attrs[OUTPUT] == poly(number)]


def _typing(op: Op, name: str, said: Sequence[Signature]) -> list[str]:
    dtypes = _element_types(op, said)
    if not dtypes:
        return []
    if _keeps_shapes(op, said):
        rules = [_same(op, name, said[0])]
    else:
        types = dtypes[0] if len(said) <= _FEW else ()
        rules = [_rule(op, name, i, one, types=types) for i, one in enumerate(said)]
    table = _table(name)
    rows = [f"({table} {' '.join(map(_text, row))})" for row in dtypes]
    return [f"(relation {table} ({'String ' * len(dtypes[0])}))", *rows, *rules]


def _table(name: str) -> str:
    return f"types-of-{name}"


def _keeps_shapes(op: Op, said: Sequence[Signature]) -> bool:
    """Return whether the result has the shape of the only operand, at all ranks from a lowest."""
    if op.arity != (1, 1) or any(s.premises or s.operands != (s.result,) for s in said):
        return False
    ranks = [len(one.result) for one in said]
    every = [
        r for r in range(min(ranks), HIGHEST + 1) for _ in range(r if "axis" in op.attrs else 1)
    ]
    return ranks == every


def _same(op: Op, name: str, lowest: Signature) -> str:
    attrs = [_column(key, lowest.attrs[key]) if key == OUTPUT else key for key in sorted(op.attrs)]
    columns = " ".join(["x", *attrs])
    body = f"(= r ({op.name} {columns})) (= s (shape x)) (= u (dtype x)) ({_table(name)} u t)"
    if lowest.result:
        body += f" (<= {len(lowest.result)} (vec-length s))"
    if "axis" in op.attrs:
        body += " (>= axis 0) (< axis (vec-length s))"
    return typing_rule(name, body, "s")


def _text(dtype: str) -> str:
    return f'"{dtype}"'


# Element types -----------------------------------------------------------------------------------


def _element_type_keys(op: Op) -> list[str]:
    """Return the attributes that are element types."""
    return sorted(key for key, kind in op.attrs.items() if kind == "str" and key not in op.choices)


def _element_types(op: Op, said: Sequence[Signature]) -> list[tuple[str, ...]]:
    """Return element types of the operands, or else of attributes, with that of the result."""
    keys = _element_type_keys(op)
    for one in said:
        symbols = _symbols(one)
        for sizes in itertools.islice(itertools.product(_SIZES, repeat=len(symbols)), 256):
            shapes, attrs = _instance(one, dict(zip(symbols, sizes, strict=True)))
            found = []
            for dtypes in itertools.product(DTYPE_CODES, repeat=op.arity[1] or len(keys)):
                named = dict(zip(keys, dtypes, strict=False))
                result = _typed(op, dtypes[: len(shapes)], shapes, {**attrs, **named})
                if result is not None:
                    found.append((*dtypes, result.dtype))
            if found:
                return found
    return []


def _symbols(one: Signature) -> list[Atom]:
    attrs = [value for value in one.attrs.values() if isinstance(value, Poly)]
    return sorted({s for p in (*sum(one.operands, ()), *attrs) for s in p.symbols()})


def _instance(
    one: Signature, sizes: Mapping[Atom, int]
) -> tuple[list[tuple[int, ...]], dict[str, Any]]:
    """Return shapes and attributes at values of the symbols."""

    def number(value: Any) -> Any:
        return poly_value(value, sizes) if isinstance(value, Poly) else 1.0

    return (
        [tuple(map(number, shape)) for shape in one.operands],
        {k: v if isinstance(v, str) else number(v) for k, v in one.attrs.items()},
    )


def _typed(
    op: Op, dtypes: Sequence[str], shapes: Sequence[tuple[int, ...]], attrs: dict[str, Any]
) -> TensorType | None:
    try:
        return op.type_fn(list(map(TensorType, dtypes, shapes)), attrs)
    except IllTyped:
        return None


# Extents -----------------------------------------------------------------------------------------


def _may_be_empty(op: Op, one: Signature, extent: Poly, dtypes: Sequence[str]) -> bool:
    """Return whether type function and index function agree where an extent is 0.

    Index functions describe operands that are not empty, so the type function is tried.
    """
    symbols = _symbols(one)
    for size in _SIZES[:2]:
        sizes = dict.fromkeys(symbols, size) | dict.fromkeys(extent.symbols(), 0)
        shapes, attrs = _instance(one, sizes)
        typed = _typed(op, dtypes[: len(shapes)], shapes, attrs)
        result = tuple(poly_value(size, sizes) for size in one.result)
        if typed is None or typed.shape != result:
            return False
        if not all(formula_value(premise, sizes) for premise in one.premises):
            return False
    return True


def _rule(op: Op, name: str, number: int, one: Signature, types: Sequence[str]) -> str:
    """Return a rule for operands of some ranks, not empty ones if there are no ``types``."""
    facts = _Facts()
    named = _element_type_keys(op)
    dtypes = [f"{key}_" for key in named]
    for i, shape in enumerate(one.operands):
        dtypes.append(f"t{i}")
        facts.body += [f"(= s{i} (shape x{i}))", f"(= t{i} (dtype x{i}))"]
        facts.body.append(f"(= {len(shape)} (vec-length s{i}))")
        for j, extent in enumerate(shape):
            facts.body.append(f"(= d{i}_{j} (vec-get s{i} {j}))")
            if not types or not _may_be_empty(op, one, extent, types):
                facts.body.append(f"(!= 0 d{i}_{j})")
    columns = [f"x{i}" for i in range(len(one.operands))]
    for key, value in sorted(one.attrs.items()):
        columns.append(f"{key}_" if key in named else _column(key, value))
        if op.attrs[key] == "int" and columns[-1] == key:
            facts.body += [f"(< {-LITERALS} {key})", f"(< {key} {LITERALS})"]
    for premise in one.premises:
        facts.require(premise)
    sizes = [facts.code(extent) for extent in one.result]
    result = f"(vec-of {' '.join(sizes)})" if sizes else "(vec-empty)"
    body = [f"(= r ({op.name} {' '.join(columns)}))", *facts.body]
    body.append(f"({_table(name)} {' '.join([*dtypes, 't'])})")
    extra = "" if one.operands else "(const r)"
    return typing_rule(f"{name}-{number}", " ".join(body), result, extra=extra)


def _column(key: str, value: Any) -> str:
    if isinstance(value, Poly):
        return key if value.constant is None else str(value.constant)
    return _text(value) if isinstance(value, str) else key


class _Facts:
    """Facts that the body of a rule requires, and the variables that it has computed."""

    def __init__(self) -> None:
        self.body: list[str] = []
        self._known: dict[str, str] = {}

    def _named(self, expression: str) -> str:
        if expression not in self._known:
            self._known[expression] = f"v{len(self._known)}"
            self.body.append(f"(= {self._known[expression]} {expression})")
        return self._known[expression]

    def require(self, formula: Formula) -> None:
        """Add facts that require the formula to hold."""
        match formula:
            case AllOf(parts):
                for part in parts:
                    self.require(part)
            case IsZero(value):
                above = Poly(tuple(term for term in value.terms if term[1] > 0))
                below = Poly(tuple((m, -c) for m, c in value.terms if c < 0))
                self.body.append(f"(= {self.code(above)} {self.code(below)})")
            case NonNegative(value):
                self.body.append(f"(<= 0 {self._number(value)})")
            case _:
                raise Unindexed("operands that broadcast")

    def code(self, value: Poly) -> str:
        """Return the code of an extent."""
        total = "0"
        for monomial, coefficient in value.terms:
            product = str(abs(coefficient))
            for part in monomial:
                factor = self._atom(part)
                product = factor if product == "1" else self._times(product, factor)
            if coefficient < 0:
                total = self._named(minus(total, product))
            else:
                total = product if total == "0" else self._named(plus(total, product))
        return total

    def _times(self, left: str, right: str) -> str:
        key = f"{left} times {right}"
        if key not in self._known:
            self._known[key] = f"v{len(self._known)}"
            self.body += times(left, right, self._known[key])
        return self._known[key]

    def _atom(self, part: Atom) -> str:
        if part.kind == "symbol":
            return part.key
        if part.kind != "quotient":
            raise Unindexed("an extent by cases")
        above, below = (self._number(arg) for arg in part.args)
        self.body += [f"(<= 0 {above})", f"(< 0 {below})"]
        return self._named(f"(/ {above} {below})")

    def _number(self, value: Poly) -> str:
        """Return a number, with facts that require its symbols to be literals."""
        total = "0"
        for monomial, coefficient in value.terms:
            product = str(coefficient)
            for part in monomial:
                factor = self._atom(part)
                if part.kind == "symbol":
                    self.body += [fact for fact in is_literal(factor) if fact not in self.body]
                product = factor if product == "1" else f"(* {product} {factor})"
            total = product if total == "0" else f"(+ {total} {product})"
        return total
