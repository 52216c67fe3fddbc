"""Cutting the parts out of a graph in which a fused operator may hide.

Every such part has an anchor: no spelling of Gelu is without an error function, a hyperbolic
tangent or a sigmoid, none of a normalisation without a root, none of attention without an
exponential or a softmax. Around each anchor a window of operators is cut out that a spelling may
consist of. Windows that are equal up to their values are searched once, so that a deep model costs
as much as one of its layers; a model without anchors costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat_opt.egraph.literals import lift
from eqsat_opt.egraph.lowering import LEAF, Lowered, TermNode
from eqsat_opt.ir.graph import attributes
from eqsat_opt.ir.types import TensorType, ValueType

__all__ = ["Fragment", "fragments"]

_POINTWISE = frozenset({"Add", "Sub", "Mul", "Div"})
_INSIDE = frozenset(
    {*_POINTWISE, "Neg", "Pow", "Sqrt", "Reciprocal", "Exp", "Log", "Erf", "Tanh", "Sigmoid",
     "Relu", "Clip", "HardSigmoid", "Min", "Max", "ReduceMean", "ReduceSum", "ReduceMax",
     "Softmax", "LogSoftmax", "Reshape", "Transpose", "Expand", "MatMul", "Where", "IsNaN"}
)  # fmt: skip
"""Operators that a spelling may consist of."""
_ANCHORS = frozenset({"Erf", "Tanh", "Sigmoid", "Sqrt", "Exp", "Softmax", "HardSigmoid"})
_MOVEMENT = frozenset({"Reshape", "Transpose", "Expand"})
_UP, _DOWN = 8, 9
"""How many operators above and below its anchor a window reaches, data movement left out."""
_SIDE = 6
"""How many operators a window follows an operand of what lies above the anchor."""
_DTYPE = "float32"


@dataclass(frozen=True)
class Fragment:
    """Windows that are equal up to the values that they read.

    Attributes:
        terms: the window, with leaves for what lies outside and literals as attributes.
        constant: leaves that are known at compile time.
        occurrences: for each window the model's term of every term here, -1 for what the model
            has not.
    """

    terms: tuple[TermNode, ...]
    constant: frozenset[int]
    occurrences: tuple[tuple[int, ...], ...]


def _type(lowered: Lowered, term: int) -> ValueType:
    return lowered.terms[term].type


@dataclass
class _Cutter:
    """Finds windows; a term is a number of ``lowered``."""

    lowered: Lowered
    readers: list[list[int]] = field(default_factory=list)
    constant: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        terms = self.lowered.terms
        self.readers = [[] for _ in terms]
        for number, term in enumerate(terms):
            known = (
                self.lowered.constant(number) is not None
                if term.op == LEAF
                else all(self.constant[c] for c in term.children)
            )
            self.constant.append(known)
            for child in dict.fromkeys(term.children):
                self.readers[child].append(number)

    def is_inside(self, number: int) -> bool:
        """Whether a term may belong to a window: not the products with a weight."""
        term = self.lowered.terms[number]
        if term.op not in _INSIDE or self.constant[number]:
            return False
        if not isinstance(term.type, TensorType) or term.type.dtype not in (_DTYPE, "bool"):
            return False
        if term.op == "Where":
            return self.lowered.terms[term.children[0]].op == "IsNaN"
        if term.op == "Clip":
            return all(math.isfinite(float(str(bound))) for _, bound in term.attrs)
        return term.op != "MatMul" or not any(self.constant[c] for c in term.children)

    def is_anchor(self, number: int) -> bool:
        """Whether a window is cut around a term."""
        term = self.lowered.terms[number]
        if term.op in _ANCHORS:
            return self.is_inside(number)
        if term.op == "Pow":
            exponent = self.literal(term.children[1])
            return exponent in (0.5, -0.5) and self.is_inside(number)
        bounded = term.op == "Clip" or (
            term.op == "Min" and any(self.literal(child) is not None for child in term.children)
        )
        return bounded and self.is_inside(number)

    def literal(self, number: int) -> float | None:
        """The value of a scalar literal."""
        term = self.lowered.terms[number]
        return float(str(dict(term.attrs)["value"])) if term.op == "Scalar" else None

    def below(self, starts: Sequence[int], depth: int) -> set[int]:
        """Terms that ``starts`` are computed from, down to what lies outside."""
        found = set(starts)
        level = [t for t in starts if self.is_inside(t)]
        for _ in range(depth):
            deeper: list[int] = []
            for term in level:
                # What only moves data is no step; a list may grow while it is walked.
                after = level if self.lowered.terms[term].op in _MOVEMENT else deeper
                for child in self.lowered.terms[term].children:
                    if child not in found and not self.constant[child]:
                        found.add(child)
                        if self.is_inside(child):
                            after.append(child)
            level = deeper
        return found.difference(level)

    def window(self, anchor: int) -> set[int]:
        """The terms inside the window of an anchor."""
        cone = self.below([anchor], _DOWN)
        above, level = {anchor}, [anchor]
        for _ in range(_UP):
            higher = []
            for term in level:
                for reader in self.readers[term]:
                    if reader in above or not self.is_inside(reader):
                        continue
                    node = self.lowered.terms[reader]
                    others = [c for c in node.children if c not in above and not self.constant[c]]
                    side = self.below(others, _SIDE) if others else set()
                    # A sum or product with something of another origin ends the spelling.
                    if others and node.op in _POINTWISE and not side & cone:
                        continue
                    above.add(reader)
                    higher.append(reader)
                    cone |= side
            level = higher
            cone.update(higher)
        return {term for term in cone if self.is_inside(term)}


class _Builder:
    """Copies a window in an order that only its structure determines."""

    def __init__(self, cutter: _Cutter, window: set[int]) -> None:
        self.cutter = cutter
        self.lowered = cutter.lowered
        self.window = window
        self.terms: list[TermNode] = []
        self.index: dict[tuple[Any, ...], int] = {}
        self.constant: set[int] = set()
        self.origin: list[int] = []
        self.local: dict[int, int] = {}

    def add(
        self, op: str, children: Sequence[int], type_: ValueType, origin: int = -1, **attrs: Any
    ) -> int:
        term = TermNode(op, attributes(**attrs), tuple(children), type_)
        key = (term.op, term.attrs, term.children)
        if key not in self.index:
            self.index[key] = len(self.terms)
            self.terms.append(term)
            self.origin.append(origin)
        elif self.origin[self.index[key]] < 0:
            self.origin[self.index[key]] = origin
        return self.index[key]

    def leaf(self, number: int) -> int:
        type_ = _type(self.lowered, number)
        local = self.add(LEAF, (), type_, number, index=len(self.terms))
        if self.cutter.constant[number]:
            self.constant.add(local)
        return local

    def build(self) -> None:
        read = {c for t in self.window for c in self.lowered.terms[t].children}
        for root in sorted(self.window - read):
            stack = [root]
            while stack:
                number = stack[-1]
                if number in self.local:
                    stack.pop()
                    continue
                pending = self._pending(number)
                if pending:
                    stack += reversed(pending)
                else:
                    stack.pop()
                    self.local[number] = self._copy(number)

    def _pending(self, number: int) -> list[int]:
        if number not in self.window:
            return []
        children = self.lowered.terms[number].children
        return [c for c in children if c not in self.local]

    def _copy(self, number: int) -> int:
        if number not in self.window:
            value = self.cutter.literal(number)
            if value is None:
                return self.leaf(number)
            return self.add("Scalar", (), _type(self.lowered, number), number,
                            value=lift(value), dtype=_DTYPE)  # fmt: skip
        term = self.lowered.terms[number]
        children = [self.local[c] for c in term.children]
        literals = [self.cutter.literal(c) for c in term.children]
        if term.op in _POINTWISE and any(v is not None for v in literals):
            copied = self._affine(number, term, children, literals)
            if copied is not None:
                return copied
        attrs: dict[str, Any] = dict(term.attrs)
        if term.op in ("Min", "Max") and literals[0] is not None:
            children.reverse()
        if term.op in ("HardSigmoid", "Clip"):
            attrs = {key: lift(float(value)) for key, value in attrs.items()}
        if term.op == "Reshape":
            return self._reshape(children[0], term.type, number)
        if "keepdims" in attrs and not attrs["keepdims"]:
            kept = self.add(term.op, children, self._kept(children[0], attrs["axes"]),
                            axes=attrs["axes"], keepdims=1)  # fmt: skip
            return self._reshape(kept, term.type, number)
        return self.add(term.op, children, term.type, number, **attrs)

    def _affine(
        self, number: int, term: TermNode, children: list[int], literals: list[float | None]
    ) -> int | None:
        """Arithmetic with a literal as scales and shifts; a literal is never an e-node of these."""
        first = literals[0] is not None
        found = literals[0] if first else literals[1]
        if found is None or (literals[0] is not None and literals[1] is not None):
            return None
        value, x = lift(found), children[1 if first else 0]
        match term.op:
            case "Mul":
                return self.add("Scale", [x], term.type, number, factor=value)
            case "Add":
                return self.add("Shift", [x], term.type, number, offset=value)
            case "Sub" if first:
                x = self.add("Scale", [x], term.type, factor=-1.0)
                return self.add("Shift", [x], term.type, number, offset=value)
            case "Sub":
                return self.add("Shift", [x], term.type, number, offset=-value)
            case _ if first:
                x = self.add("Reciprocal", [x], term.type)
                return self.add("Scale", [x], term.type, number, factor=value)
            case _:
                return (
                    self.add("Scale", [x], term.type, number, factor=1.0 / value) if value else None
                )

    def _kept(self, local: int, axes: Sequence[int]) -> TensorType:
        type_ = self.terms[local].type
        assert isinstance(type_, TensorType)
        shape = tuple(1 if i in axes else d for i, d in enumerate(type_.shape))
        return TensorType(type_.dtype, shape)

    def _reshape(self, local: int, type_: ValueType, origin: int) -> int:
        """A reshape, where reshapes of reshapes are one and one to the same shape is none."""
        assert isinstance(type_, TensorType)
        while self.terms[local].op == "Reshape":
            (local,) = self.terms[local].children
        if self.terms[local].type == type_:
            if self.origin[local] < 0:
                self.origin[local] = origin
            return local
        return self.add("Reshape", [local], type_, origin, shape=type_.shape)


def _windows(cutter: _Cutter) -> Iterator[set[int]]:
    """Windows of all anchors, those left out that lie in another."""
    seen: set[frozenset[int]] = set()
    for number in range(len(cutter.lowered.terms)):
        if cutter.is_anchor(number):
            window = frozenset(cutter.window(number))
            if window not in seen:
                seen.add(window)
                yield set(window)


def fragments(lowered: Lowered) -> list[Fragment]:
    """The distinct windows of a model; none without an anchor."""
    if not any(term.op in _ANCHORS or term.op in ("Pow", "Clip", "Min") for term in lowered.terms):
        return []
    cutter = _Cutter(lowered)
    found: dict[object, tuple[_Builder, list[tuple[int, ...]]]] = {}
    for window in _windows(cutter):
        builder = _Builder(cutter, window)
        builder.build()
        key = (
            tuple((t.op, t.attrs, t.children, t.type) for t in builder.terms),
            tuple(origin < 0 for origin in builder.origin),
            frozenset(builder.constant),
        )
        found.setdefault(key, (builder, []))[1].append(tuple(builder.origin))
    return [
        Fragment(tuple(builder.terms), frozenset(builder.constant), tuple(occurrences))
        for builder, occurrences in found.values()
    ]
