"""What holds of sizes in every run that succeeds, because operators demand it.

A model that adds the first ``min(128, n)`` rows of a table to ``n`` rows runs for no ``n`` above
128: where it runs the smaller of both is ``n``. With the facts of one import the next one types
operators that would stay opaque without them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from eqsat_opt.ir.dims import (
    Dim,
    Function,
    SymDim,
    applied,
    atom_of,
    dim_names,
    is_size,
    rewritten,
    sym,
)
from eqsat_opt.ir.onnx_types import plain_symbol
from eqsat_opt.ir.size_equations import Equation
from eqsat_opt.ir.types import TensorType, ValueType

__all__ = ["NO_FACTS", "SizeFacts", "facts_of"]


@dataclass(frozen=True)
class SizeFacts:
    """Inequalities and equalities of sizes.

    Attributes:
        bounds: pairs of which the first is at most the second.
        named: sizes that nothing was known of, and what they are.
        equal: sizes with the simpler one that they equal.
    """

    bounds: frozenset[tuple[Dim, Dim]] = frozenset()
    named: Mapping[str, Dim] = field(default_factory=dict)
    equal: Mapping[Dim, Dim] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.bounds or self.named or self.equal)

    def merged(self, other: SizeFacts) -> SizeFacts:
        """Both."""
        return SizeFacts(
            self.bounds | other.bounds,
            {**other.named, **self.named},
            {**other.equal, **self.equal},
        )

    def simplified(self, dim: Dim) -> Dim:
        """The size in the simplest form that the facts allow."""
        if not isinstance(dim, SymDim):
            return dim
        result = rewritten(dim, self.named.get, self._applied)
        return self.equal.get(result, result)

    def typed(self, type_: ValueType) -> ValueType:
        """A type in the simplest form that the facts allow."""
        if not isinstance(type_, TensorType) or type_.is_static:
            return type_
        return TensorType(type_.dtype, tuple(map(self.simplified, type_.shape)))

    def _applied(self, function: Function, left: Dim, right: Dim) -> Dim:
        if function != "floor":
            for low, high in ((left, right), (right, left)):
                if self._is_at_most(low, high):
                    return low if function == "min" else high
        return applied(function, left, right)

    def _is_at_most(self, low: Dim, high: Dim) -> bool:
        return any(is_size(least - low) and is_size(high - most) for least, most in self.bounds)


NO_FACTS = SizeFacts()


def facts_of(equations: Iterable[Equation], given: Collection[str]) -> SizeFacts:
    """What follows from equations of sizes.

    Args:
        equations: those that operators demand which run whenever the model does.
        given: names of sizes of the model's inputs, which stay as they are.
    """
    bounds, named, equal = set[tuple[Dim, Dim]](), dict[str, Dim](), dict[Dim, Dim]()
    for equation in equations:
        found = set(_bounds(equation))
        found |= set(_signs(equation))
        bounds |= found
        if found or not equation.is_strict:
            continue
        difference = equation.left - equation.right
        solution = _solved(difference) if isinstance(difference, SymDim) else None
        if solution is not None:
            named.setdefault(*solution)
            continue
        target, source = sorted((equation.left, equation.right), key=_complexity)
        if _is_of(source, given):
            target, source = source, target
        if not _is_of(source, given):
            equal.setdefault(source, target)
    return SizeFacts(frozenset(bounds), named, equal)


def _bounds(equation: Equation) -> Iterator[tuple[Dim, Dim]]:
    """Which of two sizes is the smaller one, as their minimum or maximum equals one of them.

    Where 1 will do for either side, a minimum is the other operand only if that is a literal above
    1: any excess would meet that literal, and neither is 1.
    """
    sides = (equation.left, equation.right)
    for side, other in (sides, sides[::-1]):
        atom = atom_of(plain_symbol(side) or "")
        if atom is None or atom.function == "floor":
            continue
        for own, rest in ((atom.left, atom.right), (atom.right, atom.left)):
            if own != other:
                continue
            # The other side is the size of an axis, which is not negative.
            if atom.function == "max" and (equation.is_strict or rest == 0):
                yield rest, own
            elif atom.function == "min" and (
                equation.is_strict or (isinstance(rest, int) and rest > 1)
            ):
                yield own, rest


def _signs(equation: Equation) -> Iterator[tuple[Dim, Dim]]:
    """Sizes whose maximum with 0 is themselves, where two sizes are equal if that is so.

    Else one side would have elements and the other none, or an empty batch hides both.
    """
    if not equation.is_strict:
        return
    clipped = dict[str, Dim]()
    for name in _atoms_in(equation.left, equation.right):
        atom = atom_of(name)
        if atom is not None and atom.function == "max" and 0 in (atom.left, atom.right):
            clipped[name] = atom.right if atom.left == 0 else atom.left
    if clipped:
        left, right = (
            rewritten(side, clipped.get, applied) for side in (equation.left, equation.right)
        )
        if left == right:
            yield from ((0, size) for size in clipped.values())


def _atoms_in(*dims: Dim) -> Iterator[str]:
    for dim in dims:
        for names, _ in dim.terms if isinstance(dim, SymDim) else ():
            yield from names


def _solved(difference: SymDim) -> tuple[str, Dim] | None:
    """An unknown size that is alone in a difference of 0, and what it is."""
    divisor = math.gcd(*(coefficient for _, coefficient in difference.terms))
    for names, coefficient in difference.terms:
        if len(names) != 1 or not names[0].startswith("?") or abs(coefficient) != divisor:
            continue
        rest = difference - sym(names[0]) * coefficient
        if names[0] not in set(dim_names(rest)):
            return names[0], _divided(rest, -coefficient)
    return None


def _divided(dim: Dim, divisor: int) -> Dim:
    """A size over a number that divides all its coefficients."""
    return applied("floor", dim, divisor) if divisor > 0 else applied("floor", dim * -1, -divisor)


def _complexity(dim: Dim) -> tuple[int, int, str]:
    text = str(dim)
    return text.count("?"), len(text), text


def _is_of(dim: Dim, given: Collection[str]) -> bool:
    """Whether a size is a literal or a polynomial of given ones."""
    terms = dim.terms if isinstance(dim, SymDim) else ()
    return all(name in given for names, _ in terms for name in names)
