"""Windows: the parts of a model that may be a spelling of a fused operator.

Every such part has an anchor: each spelling of Gelu contains an error function, a hyperbolic
tangent or a sigmoid, each of HardSwish a bound, each of a normalisation a root, and each of
attention an exponential or a softmax. A window holds the operators around its anchor that a
spelling may consist of.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from eqsat_opt.egraph.terms import LEAF, Lowered
from eqsat_opt.ir.graph.graph import OPAQUE, number_of
from eqsat_opt.ir.values.types import FLOATS, TensorType

__all__ = ["POINTWISE", "Cutter", "may_hide", "windows"]

POINTWISE = frozenset({"Add", "Sub", "Mul", "Div"})
"""Arithmetic, which becomes scales and shifts where an operand is a literal."""
_INSIDE = frozenset(
    {*POINTWISE, "Neg", "Pow", "Sqrt", "Reciprocal", "Exp", "Log", "Erf", "Tanh", "Sigmoid",
     "Relu", "Clip", "HardSigmoid", "Min", "Max", "ReduceMean", "ReduceSum", "ReduceMax",
     "Softmax", "LogSoftmax", "Reshape", "Transpose", "Expand", "MatMul", "Where", "IsNaN"}
)  # fmt: skip
"""Operators that a spelling may consist of."""
_ANCHORS = frozenset({"Erf", "Tanh", "Sigmoid", "Sqrt", "Exp", "Softmax", "HardSigmoid"})
_MOVEMENT = frozenset({"Reshape", "Transpose", "Expand"})
_UP, _DOWN = 8, 9
"""Number of operators above and below its anchor that a window reaches, data movement not
counted."""
_SIDE = 6
"""Number of operators over which a window follows another operand of an operator above the
anchor."""


@dataclass
class Cutter:
    """Finder of windows; a term is an index into those of ``lowered``.

    Attributes:
        lowered: the model.
        readers: for each term the terms that read it.
        constant: for each term whether it is known at compile time.
    """

    lowered: Lowered
    readers: list[list[int]] = field(init=False, default_factory=list)
    constant: list[bool] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        terms = self.lowered.terms
        self.readers = [[] for _ in terms]
        for number, term in enumerate(terms):
            known = (
                self.lowered.constant(number) is not None
                if term.op == LEAF
                else term.op != OPAQUE and all(self.constant[c] for c in term.children)
            )
            self.constant.append(known)
            for child in dict.fromkeys(term.children):
                self.readers[child].append(number)

    def is_inside(self, number: int) -> bool:
        """Return whether a term may belong to a window; products with a weight may not."""
        term = self.lowered.terms[number]
        if term.op not in _INSIDE or self.constant[number]:
            return False
        if not isinstance(term.type, TensorType) or term.type.dtype not in FLOATS | {"bool"}:
            return False
        if term.op == "Where":
            return self.lowered.terms[term.children[0]].op == "IsNaN"
        if term.op == "Clip":
            return all(math.isfinite(number_of(term.attrs, name)) for name, _ in term.attrs)
        return term.op != "MatMul" or not any(self.constant[c] for c in term.children)

    def is_anchor(self, number: int) -> bool:
        """Return whether a window is cut around a term."""
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
        """Return the value of a scalar literal; ``None`` for any other term."""
        term = self.lowered.terms[number]
        return number_of(term.attrs, "value") if term.op == "Scalar" else None

    def below(self, starts: Sequence[int], depth: int) -> set[int]:
        """Return the terms that ``starts`` are computed from, down to those outside of windows."""
        found = set(starts)
        level = [t for t in starts if self.is_inside(t)]
        for _ in range(depth):
            deeper: list[int] = []
            for term in level:
                # Data movement does not count as a step; the list grows during this iteration.
                after = level if self.lowered.terms[term].op in _MOVEMENT else deeper
                for child in self.lowered.terms[term].children:
                    if child not in found and not self.constant[child]:
                        found.add(child)
                        if self.is_inside(child):
                            after.append(child)
            level = deeper
        return found.difference(level)

    def window(self, anchor: int) -> set[int]:
        """Return the terms inside the window of an anchor."""
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
                    # A sum or product with a value of another origin ends the spelling.
                    if others and node.op in POINTWISE and not side & cone:
                        continue
                    above.add(reader)
                    higher.append(reader)
                    cone |= side
            level = higher
            cone.update(higher)
        return {term for term in cone if self.is_inside(term)}


def may_hide(lowered: Lowered) -> bool:
    """Return whether the model may have an anchor."""
    return any(term.op in _ANCHORS or term.op in ("Pow", "Clip", "Min") for term in lowered.terms)


def windows(cutter: Cutter) -> Iterator[set[int]]:
    """Yield the distinct windows of all anchors."""
    seen: set[frozenset[int]] = set()
    for number in range(len(cutter.lowered.terms)):
        if cutter.is_anchor(number):
            window = frozenset(cutter.window(number))
            if window not in seen:
                seen.add(window)
                yield set(window)
