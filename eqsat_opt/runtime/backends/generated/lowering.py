"""Lowering of nodes to kernels of plain loops by composition of index functions.

An output element is a term over elements of operands; an operand that the region computes itself is
replaced by its own term. Slices, transpositions and reshapes therefore cost nothing. Where an index
function chooses (the parts of a concatenation), the loop is split at the border; where it divides
(a reshape that splits an axis), the loop becomes two nested ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from eqsat_opt.ir.graph.graph import Graph, Node
from eqsat_opt.ir.ops.index.integers import (
    AllOf,
    AnyOf,
    Atom,
    Formula,
    IsZero,
    NonNegative,
    Poly,
    atom,
    poly,
    product,
    quotient,
    substitute,
)
from eqsat_opt.ir.ops.index.scalars import Choice
from eqsat_opt.ir.values.types import StaticType
from eqsat_opt.runtime.backends.generated.kernel import (
    LOAD,
    NUMBER,
    Access,
    FloatKernel,
    Nest,
    RegisterStep,
)
from eqsat_opt.runtime.backends.generated.term_translator import (
    Index,
    TermTranslator,
    Unfit,
    rounded,
)

__all__ = ["Unfit", "fits", "lowered"]

_MOST_STEPS = 2_000
_MOST_PIECES = 200


class _Cut(Exception):
    """Request to split a loop, given by its variable, into two consecutive ones at an index."""

    def __init__(self, variable: Atom, at: int) -> None:
        self.variable, self.at = variable, at


class _Halve(Exception):
    """Request to split a loop, given by its variable, into two nested ones by the inner extent."""

    def __init__(self, variable: Atom, inner: int) -> None:
        self.variable, self.inner = variable, inner


def fits(graph: Graph, nodes: Sequence[Node], outputs: Sequence[str]) -> bool:
    """Return whether some nodes have a kernel: all of float32 and literal sizes, none empty."""
    for name in {name for node in nodes for name in (*node.inputs, *node.outputs)}:
        type_ = graph.tensor_type(name)
        if not isinstance(type_, StaticType) or type_.dtype != "float32":
            return False
        if not type_.size:
            return False
    try:
        lowered(graph, nodes, outputs)
    except Unfit:
        return False
    return True


def lowered(
    graph: Graph,
    nodes: Sequence[Node],
    outputs: Sequence[str],
    strides: Mapping[str, Sequence[int]] | None = None,
) -> tuple[FloatKernel, tuple[str, ...], tuple[int, ...]]:
    """Return the kernel of some nodes, the values that it reads, and its first element in each.

    Equal nodes on other slices of a value have the same kernel and other first elements.

    Args:
        graph: a typed graph; all shapes of the region are literal.
        nodes: the nodes of the region, in order; all of float32.
        outputs: values that they define and that the kernel writes.
        strides: strides by axis, in elements, of values that are read or written and have gaps, or
            another order of axes. The kernel treats such a value as a vector from its first to its
            last element.

    Raises:
        Unfit: the nodes have no kernel.
    """
    try:
        return _Lowering(graph, nodes, outputs, strides or {}).run()
    except RecursionError as error:
        raise Unfit("its operators stand too deep within one another") from error


@dataclass
class _Building:
    """A nest under construction: its steps, and the registers of values at indices."""

    variables: tuple[Atom, ...]
    extents: tuple[int, ...]
    steps: list[RegisterStep] = field(default_factory=list)
    known: dict[Any, int] = field(default_factory=dict)
    stores: list[tuple[Access, int]] = field(default_factory=list)

    def register(self, step: RegisterStep) -> int:
        if step not in self.known:
            self.known[step] = len(self.steps)
            self.steps.append(step)
        return self.known[step]

    def bounds(self, value: Poly) -> tuple[int, int]:
        """Return the least and greatest value of a linear polynomial.

        Raises:
            Unfit: the polynomial is not linear in the loops.
        """
        low = high = 0
        extents = dict(zip(self.variables, self.extents, strict=True))
        for monomial, coefficient in value.terms:
            if not monomial:
                low, high = low + coefficient, high + coefficient
                continue
            if len(monomial) > 1:
                raise Unfit("an index is no linear function of the loops")
            (only,) = monomial
            if only.kind != "symbol":
                raise Unfit("an index is chosen")
            ends = (0, coefficient * (extents[only] - 1))
            low, high = low + min(ends), high + max(ends)
        return low, high

    def linear(self, value: Poly) -> Poly:
        """Return a polynomial without its quotients.

        Raises:
            _Halve: a loop has to be split for that.
            Unfit: a quotient remains.
        """
        total = poly(0)
        for monomial, coefficient in value.terms:
            factors = [self._quotient(a) if a.kind == "quotient" else atom(a) for a in monomial]
            total = total + product(factors) * coefficient
        return total

    def _quotient(self, part: Atom) -> Poly:
        above, below = self.linear(part.args[0]), part.args[1].constant
        if below is None:
            raise Unfit("a quotient by what is no number")
        if (whole := quotient(above, poly(below))) != atom(part):
            return self.linear(whole)
        low, high = self.bounds(above)
        if low // below != high // below:
            raise self._halved(above, below)
        return poly(low // below)

    def _halved(self, above: Poly, below: int) -> Exception:
        extents = dict(zip(self.variables, self.extents, strict=True))
        for monomial, coefficient in above.terms:
            if len(monomial) == 1 and coefficient > 0 and below % coefficient == 0:
                inner, extent = below // coefficient, extents.get(monomial[0], 1)
                if 1 < inner < extent and extent % inner == 0:
                    return _Halve(monomial[0], inner)
        return Unfit("a reshape cuts across the loops")

    def holds(self, formula: Formula) -> bool:
        """Return whether a condition holds in all iterations, not in none.

        Raises:
            _Cut: it holds in some iterations, so that a loop has to be split.
        """
        match formula:
            case AllOf(parts):
                return all(self.holds(part) for part in parts)
            case AnyOf(parts):
                return any(self.holds(part) for part in parts)
            case IsZero(p):
                return self.holds(NonNegative(p)) and self.holds(NonNegative(-p))
            case NonNegative(p):
                value = self.linear(p)
                low, high = self.bounds(value)
                if low >= 0 or high < 0:
                    return low >= 0
                raise self._cut(value)

    def _cut(self, value: Poly) -> Exception:
        rest, terms = 0, []
        for monomial, coefficient in value.terms:
            if monomial:
                terms.append((monomial[0], coefficient))
            else:
                rest = coefficient
        if len(terms) != 1:
            return Unfit("a border runs across the loops")
        variable, coefficient = terms[0]
        at = -(rest // coefficient) if coefficient > 0 else rest // -coefficient + 1
        return _Cut(variable, at)


@dataclass(frozen=True)
class _Piece:
    """A part of an output: its loops, and the index of an element as their function."""

    extents: tuple[int, ...]
    index: Index

    @property
    def variables(self) -> tuple[Atom, ...]:
        return tuple(_variable(k) for k in range(len(self.extents)))

    def cut(self, variable: Atom, at: int) -> tuple[_Piece, _Piece]:
        k = self.variables.index(variable)
        moved = tuple(substitute(i, {variable: atom(variable) + at}) for i in self.index)
        before, after = self.extents[:k], self.extents[k + 1 :]
        return (
            _Piece((*before, at, *after), self.index),
            _Piece((*before, self.extents[k] - at, *after), moved),
        )

    def halved(self, variable: Atom, inner: int) -> _Piece:
        k = self.variables.index(variable)
        places = {v: atom(_variable(i + (i > k))) for i, v in enumerate(self.variables)}
        places[variable] = places[variable] * inner + atom(_variable(k + 1))
        outer = self.extents[k] // inner
        extents = (*self.extents[:k], outer, inner, *self.extents[k + 1 :])
        return _Piece(extents, tuple(substitute(i, places) for i in self.index))


def _variable(k: int) -> Atom:
    return Atom(f"loop{k}")


class _Lowering(TermTranslator[_Building, int]):
    def __init__(
        self,
        graph: Graph,
        nodes: Sequence[Node],
        outputs: Sequence[str],
        strides: Mapping[str, Sequence[int]],
    ) -> None:
        super().__init__(graph)
        self.strides = strides
        self.outputs = outputs
        self.tensors = {node.output: self.indexed(node) for node in nodes}
        self.leaves: dict[str, int] = {}

    def run(self) -> tuple[FloatKernel, tuple[str, ...], tuple[int, ...]]:
        nests: dict[tuple[int, ...], _Building] = {}
        for number, name in enumerate(self.outputs):
            shape = self.shape(name)
            loops = [axis for axis, extent in enumerate(shape) if extent > 1]
            places = {axis: atom(_variable(k)) for k, axis in enumerate(loops)}
            index = tuple(places.get(axis, poly(0)) for axis in range(len(shape)))
            pieces, count = [_Piece(tuple(shape[axis] for axis in loops), index)], 0
            while pieces:
                piece, count = pieces.pop(), count + 1
                if count > _MOST_PIECES:
                    raise Unfit("too many parts")
                nest = nests.get(piece.extents) or _Building(piece.variables, piece.extents)
                try:
                    register = self.element(nest, name, piece.index)
                except _Cut as cut:
                    pieces += piece.cut(cut.variable, cut.at)
                    continue
                except _Halve as halve:
                    pieces.append(piece.halved(halve.variable, halve.inner))
                    continue
                nests[piece.extents] = nest
                nest.stores.append((self._access(nest, number, name, piece.index), register))
        made = [_collapsed(_live(nest)) for nest in nests.values()]
        loads = [step.access for nest in made for step in nest.steps if step.access is not None]
        begins = [
            min([a.offset for a in loads if a.buffer == i], default=0)
            for i in range(len(self.leaves))
        ]
        kernel = FloatKernel(
            tuple(self._extents(name) for name in self.leaves),
            tuple(self._extents(name) for name in self.outputs),
            tuple(_moved(nest, begins) for nest in made),
        )
        try:
            kernel.check([math.prod(self.shape(name)) for name in self.outputs])
        except ValueError as error:
            raise Unfit("it is too large for a kernel") from error
        return kernel, tuple(self.leaves), tuple(begins)

    def _extents(self, name: str) -> tuple[int, ...]:
        """Return a value's shape; with strides, that of its memory from first to last element."""
        shape = self.shape(name)
        if name not in self.strides:
            return shape
        steps = zip(shape, self.strides[name], strict=True)
        return (1 + sum((extent - 1) * stride for extent, stride in steps),)

    def _access(self, nest: _Building, buffer: int, name: str, index: Index) -> Access:
        shape = self.shape(name)
        dense = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        place = poly(0)
        for position, stride in zip(index, self.strides.get(name, dense), strict=True):
            place = place + position * stride
        place = nest.linear(place)
        found = {m[0] if m else None: c for m, c in place.terms}
        if any(len(m) > 1 for m, _ in place.terms) or any(c < 0 for c in found.values()):
            raise Unfit("an address falls along a loop")
        offset = found.get(None, 0)
        return Access(buffer, offset, tuple(found.get(v, 0) for v in nest.variables))

    def element(self, place: _Building, name: str, index: Index) -> int:
        key = (name, index)
        if key not in place.known:
            place.known[key] = self._computed(place, name, index)
            if len(place.steps) > _MOST_STEPS:
                raise Unfit("the region is too large")
        return place.known[key]

    def _computed(self, nest: _Building, name: str, index: Index) -> int:
        if (tensor := self.tensors.get(name)) is not None:
            return self.scalar(nest, tensor.at(index))
        constant = self.graph.constants.get(name)
        if constant is not None and constant.type.size == 1:
            return self.number(nest, float(np.asarray(constant.load()).reshape(())))
        buffer = self.leaves.setdefault(name, len(self.leaves))
        access = self._access(nest, buffer, name, index)
        return nest.register(RegisterStep(LOAD, access=access))

    def number(self, place: _Building, value: float) -> int:
        return place.register(RegisterStep(NUMBER, numbers=(rounded(value),)))

    def emit(
        self, place: _Building, function: str, operands: tuple[int, ...], numbers: Any = ()
    ) -> int:
        return place.register(RegisterStep(function, operands, numbers))

    def choice(self, place: _Building, term: Choice) -> int:
        return self.scalar(place, term.then if place.holds(term.condition) else term.otherwise)


def _live(nest: _Building) -> Nest:
    """Return the nest without steps that no store needs; pieces that were split leave such."""
    needed = {register for _, register in nest.stores}
    for i in reversed(range(len(nest.steps))):
        if i in needed:
            needed.update(nest.steps[i].operands)
    order = {old: new for new, old in enumerate(sorted(needed))}
    steps = tuple(
        replace(step, operands=tuple(order[o] for o in step.operands))
        for i, step in enumerate(nest.steps)
        if i in order
    )
    return Nest(nest.extents, steps, tuple((a, order[r]) for a, r in nest.stores))


def _moved(nest: Nest, begins: Sequence[int]) -> Nest:
    """Return the nest with offsets counted from the first element read of each input."""
    steps = (
        step
        if (a := step.access) is None
        else replace(step, access=replace(a, offset=a.offset - begins[a.buffer]))
        for step in nest.steps
    )
    return replace(nest, steps=tuple(steps))


def _collapsed(nest: Nest) -> Nest:
    """Merge loops that all accesses traverse like one, and remove loops of one iteration."""
    accesses = [step.access for step in nest.steps if step.access] + [a for a, _ in nest.stores]
    extents, groups = nest.extents, [[k] for k, extent in enumerate(nest.extents) if extent > 1]
    k = 0
    while k + 1 < len(groups):
        inner = math.prod(extents[i] for i in groups[k + 1])
        last, after = groups[k][-1], groups[k + 1][-1]
        if all(a.strides[last] == a.strides[after] * inner for a in accesses):
            groups[k : k + 2] = [groups[k] + groups[k + 1]]
        else:
            k += 1

    def moved(access: Access) -> Access:
        return replace(access, strides=tuple(access.strides[g[-1]] for g in groups))

    return Nest(
        tuple(math.prod(extents[i] for i in group) for group in groups),
        tuple(replace(s, access=moved(s.access)) if s.access else s for s in nest.steps),
        tuple((moved(access), register) for access, register in nest.stores),
    )
