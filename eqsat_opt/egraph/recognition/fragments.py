"""Windows of a model as small models of their own, from which recognition starts.

Literals become attributes of scales and shifts, and values from outside become leaves. Windows that
are equal up to their values are searched once, so that a deep model costs as much as one of its
layers; a model without anchors costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eqsat_opt.egraph.recognition.literals import lift
from eqsat_opt.egraph.recognition.windows import POINTWISE, Cutter, may_hide, windows
from eqsat_opt.egraph.terms import LEAF, Lowered, TermNode
from eqsat_opt.ir.graph.graph import attributes
from eqsat_opt.ir.values.types import StaticType, TensorType, ValueType

__all__ = ["Fragment", "fragments"]


@dataclass(frozen=True)
class Fragment:
    """A set of windows that are equal up to the values that they read.

    Attributes:
        terms: the window, with leaves for values from outside and literals as attributes.
        constant: leaves that are known at compile time.
        occurrences: for each window the number of the model's term for every term here; -1 where
            the model has no such term.
    """

    terms: tuple[TermNode, ...]
    constant: frozenset[int]
    occurrences: tuple[tuple[int, ...], ...]


def _type(lowered: Lowered, term: int) -> TensorType:
    type_ = lowered.terms[term].type
    assert isinstance(type_, TensorType)
    return type_


class _Builder:
    """Builder of a copy of a window, in an order that depends only on its structure."""

    def __init__(self, cutter: Cutter, window: set[int]) -> None:
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
        """Add an operand; a constant of symbolic size is computed at run time."""
        type_ = self.lowered.terms[number].type
        local = self.add(LEAF, (), type_, number, index=len(self.terms))
        if self.cutter.constant[number] and isinstance(type_, StaticType):
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
            type_ = _type(self.lowered, number)
            value = lift(value, type_.dtype)
            return self.add("Scalar", (), type_, number, value=value, dtype=type_.dtype)
        term = self.lowered.terms[number]
        children = [self.local[c] for c in term.children]
        literals = [self.cutter.literal(c) for c in term.children]
        if term.op in POINTWISE and any(v is not None for v in literals):
            copied = self._affine(number, term, children, literals)
            if copied is not None:
                return copied
        attrs: dict[str, Any] = dict(term.attrs)
        if term.op in ("Min", "Max") and literals[0] is not None:
            children.reverse()
        if term.op in ("HardSigmoid", "Clip"):
            # Attributes of ONNX are in single precision, but bounds of a clip have the operand's
            # type.
            dtype = "float32" if term.op != "Clip" else _type(self.lowered, number).dtype
            attrs = {key: lift(float(value), dtype) for key, value in attrs.items()}
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
        """Add arithmetic with a literal as scales and shifts, so that no e-node is the literal."""
        first = literals[0] is not None
        found = literals[0] if first else literals[1]
        if found is None or (literals[0] is not None and literals[1] is not None):
            return None
        value = lift(found, _type(self.lowered, number).dtype)
        x = children[1 if first else 0]
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
        """Add a reshape in place of a chain of them; a reshape to the same shape adds nothing."""
        assert isinstance(type_, TensorType)
        while self.terms[local].op == "Reshape":
            (local,) = self.terms[local].children
        if self.terms[local].type == type_:
            if self.origin[local] < 0:
                self.origin[local] = origin
            return local
        return self.add("Reshape", [local], type_, origin, shape=type_.shape)


def fragments(lowered: Lowered) -> list[Fragment]:
    """Return the distinct windows of a model; none without an anchor."""
    if not may_hide(lowered):
        return []
    cutter = Cutter(lowered)
    found: dict[object, tuple[_Builder, list[tuple[int, ...]]]] = {}
    for window in windows(cutter):
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
