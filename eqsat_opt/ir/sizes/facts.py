"""Facts about sizes in every run that succeeds, derived from the demands of operators.

A model that adds the first ``min(128, n)`` rows of a table to ``n`` rows runs for no ``n`` above
128: in every run that succeeds, the minimum is ``n``. With the facts of one import, the next import
can type operators that would stay opaque without them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from eqsat_opt.ir.sizes.equations import Equation, terms_of
from eqsat_opt.ir.values.dims import (
    Dim,
    Function,
    SymDim,
    applied,
    atom_of,
    is_size,
    plain_symbol,
    rewritten,
    substituted,
    sym,
)
from eqsat_opt.ir.values.types import StaticType, TensorType, ValueType

__all__ = ["NO_FACTS", "SizeFacts", "facts_of", "lengths", "windows"]


_DEPTH = 3
"""Depth to which the operands of maxima and minima are examined to find a sign."""


@dataclass(frozen=True)
class SizeFacts:
    """Inequalities and equalities of sizes.

    Attributes:
        bounds: pairs of which the first is at most the second.
        named: unknown sizes, and functions of sizes, with the sizes that they equal.
        equal: sizes with the simpler size that each equals.
    """

    bounds: frozenset[tuple[Dim, Dim]] = frozenset()
    named: Mapping[str, Dim] = field(default_factory=dict)
    equal: Mapping[Dim, Dim] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.bounds or self.named or self.equal)

    def merged(self, other: SizeFacts) -> SizeFacts:
        """Merge two sets of facts; where they conflict, the facts of this one take precedence."""
        return SizeFacts(
            self.bounds | other.bounds,
            {**other.named, **self.named},
            {**other.equal, **self.equal},
        )

    def simplified(self, dim: Dim) -> Dim:
        """Return a size in the simplest form that the facts allow."""
        if not isinstance(dim, SymDim):
            return dim
        if dim not in self._simplest:
            self._simplest[dim] = self._simplified(dim)
        return self._simplest[dim]

    def _simplified(self, dim: Dim) -> Dim:
        for _ in range(_STEPS):
            if not isinstance(dim, SymDim):
                break
            before = dim
            dim = rewritten(before, self.named.get, self._applied)
            dim = self.equal.get(dim, dim)
            if dim == before:
                break
        return dim

    # Sizes stand inside of others, which a model computes again and again: answers are kept.

    @cached_property
    def _simplest(self) -> dict[Dim, Dim]:
        return {}

    @cached_property
    def _judged(self) -> dict[tuple[Dim, int], bool]:
        return {}

    @cached_property
    def _values(self) -> dict[tuple[Function, Dim, Dim], Dim]:
        return {}

    def is_size(self, dim: Dim, *, depth: int = _DEPTH) -> bool:
        """Return whether a size is never negative in a run that succeeds.

        Args:
            dim: the size.
            depth: how deep the operands of maxima and minima are examined case by case.
        """
        key = dim, depth
        if key not in self._judged:
            self._judged[key] = self._is_size(dim) or self._is_size_by_cases(dim, depth)
        return self._judged[key]

    def _is_size_by_cases(self, dim: Dim, depth: int) -> bool:
        for name, factor in _factors_of(dim) if depth else ():
            atom = atom_of(name)
            if atom is not None and atom.function != "floor":
                # The value equals either operand. A maximum is at least as large as each of them,
                # and a minimum at most as large.
                bounded = {"max": factor > 0, "min": factor < 0}
                of_several = any if bounded.get(atom.function) else all
                rest = dim - sym(name) * factor
                cases = (rest + one * factor for one in (atom.left, atom.right))
                if of_several(self.is_size(case, depth=depth - 1) for case in cases):
                    return True
        return False

    def _is_size(self, dim: Dim) -> bool:
        """Return whether a size is never negative, without a look inside maxima and minima."""
        forms = {dim, _without_quotient(dim)}
        if any(map(is_size, forms)):
            return True
        if any(is_size(form - size) for form in forms for size in self._naturals):
            return True
        return bool(self._excesses) and is_size(substituted(dim, self._excesses))

    @cached_property
    def _naturals(self) -> frozenset[Dim]:
        """Sizes that are never negative, also in the form that has no quotient."""
        known = {most - least for least, most in self.bounds}
        return frozenset((*known, *map(_without_quotient, known)))

    def is_not_one(self, dim: Dim) -> bool:
        """Return whether a size is never 1 in a run that succeeds."""
        return self.is_size(dim - 2) if isinstance(dim, SymDim) else dim != 1

    @cached_property
    def _excesses(self) -> Mapping[str, Dim]:
        """Sizes with a least value above 0, each as the sum of this value and a new size."""
        lowest = dict[str, int]()
        for least, most in self.bounds:
            terms = dict(terms_of(_without_quotient(most - least)))
            added = terms.pop((), 0)
            if len(terms) == 1:
                ((names, factor),) = terms.items()
                if len(names) == 1 and factor > 0 and added < 0:
                    lowest[names[0]] = max(-(added // factor), lowest.get(names[0], 0))
        # No name of a size contains this character.
        return {name: sym(f"\0{name}") + size for name, size in lowest.items()}

    def typed(self, type_: ValueType) -> ValueType:
        """Return a type in the simplest form that the facts allow."""
        if not isinstance(type_, TensorType) or isinstance(type_, StaticType):
            return type_
        return TensorType(type_.dtype, tuple(map(self.simplified, type_.shape)))

    def _applied(self, function: Function, left: Dim, right: Dim) -> Dim:
        key = function, left, right
        if key not in self._values:
            self._values[key] = self._value(function, left, right)
        return self._values[key]

    def _value(self, function: Function, left: Dim, right: Dim) -> Dim:
        if function == "broadcast":
            return next(filter(self.is_not_one, (left, right)), applied(function, left, right))
        if function != "floor":
            for low, high in ((left, right), (right, left)):
                if self.is_size(high - low):
                    return low if function == "min" else high
        return applied(function, left, right)


NO_FACTS = SizeFacts()

_STEPS = 8
"""Rounds in which the result of one fact is simplified by others."""


def _without_quotient(dim: Dim) -> Dim:
    """Rewrite a scaled quotient plus a number as a size with the same sign and no quotient.

    ``c * (a // d) + k`` is negative where ``a // d`` is below ``-k / c`` rounded up, which is where
    ``a`` is below ``d`` times that.
    """
    while isinstance(dim, SymDim):
        terms = dict(terms_of(dim))
        added = terms.pop((), 0)
        ((names, factor), *others) = terms.items()
        atom = atom_of(names[0]) if len(names) == 1 and not others else None
        if atom is None or atom.function != "floor" or factor < 0:
            break
        if not isinstance(atom.right, int) or atom.right <= 0:
            break
        dim = atom.left + atom.right * (added // factor)
    return dim


def lengths(types: Iterable[TensorType]) -> SizeFacts:
    """Note that no size of a tensor is negative, if a size depends on a function of sizes.

    Args:
        types: the types of tensors that every run computes.
    """
    sizes = dict.fromkeys(dim for type_ in types for dim in type_.shape)
    if not any(atom_of(name) for dim in sizes for name in _inside(dim)):
        return NO_FACTS
    return SizeFacts(frozenset((0, dim) for dim in sizes if not is_size(dim)))


def windows(types: Iterable[TensorType]) -> SizeFacts:
    """Note that results of convolutions are not empty in a run that succeeds.

    Runtimes refuse an input in which no window fits, whatever the batch is, also if it is empty.

    Args:
        types: the types of results of convolutions that every run computes.
    """
    sides = {dim for type_ in types for dim in type_.shape[2:]}
    return SizeFacts(frozenset((1, dim) for dim in sides if not is_size(dim - 1)))


def facts_of(
    equations: Iterable[Equation], given: Collection[str], known: SizeFacts | None = None
) -> SizeFacts:
    """Derive facts from equations of sizes.

    Args:
        equations: the equations demanded by operators that run whenever the model does.
        given: names of sizes of the model's inputs, which stay as they are, except for one of two
            that must be equal, and one that must equal a number.
        known: facts that hold in any case; where they show that neither side is 1, an equation is
            strict.
    """
    facts = NO_FACTS
    for wanted in equations:
        sides = facts.simplified(wanted.left), facts.simplified(wanted.right)
        is_strict = wanted.is_strict or all(map((known or NO_FACTS).is_not_one, sides))
        equation = replace(wanted, left=sides[0], right=sides[1], is_strict=is_strict)
        facts = facts.merged(_follows(equation, given))
    return facts


def _follows(equation: Equation, given: Collection[str]) -> SizeFacts:
    """Derive facts from one equation."""
    difference = equation.left - equation.right
    if not isinstance(difference, SymDim):
        return NO_FACTS
    bounds = {*_bounds(equation), *_signs(equation)}
    if bounds or not equation.is_strict:
        return SizeFacts(frozenset(bounds))
    solution = _solved(difference) or _one_of_two(equation, given)
    if solution is not None:
        return SizeFacts(named=dict([solution]))
    target, source = sorted((equation.left, equation.right), key=_complexity)
    if _is_of(source, given):
        target, source = source, target
    return NO_FACTS if _is_of(source, given) else SizeFacts(equal={source: target})


def _bounds(equation: Equation) -> Iterator[tuple[Dim, Dim]]:
    """Yield pairs of sizes, the smaller one first, whose minimum or maximum equals one of the two.

    Where 1 is allowed for either side, a minimum is the other operand only if that is a literal
    above 1: any excess would meet that literal, and neither is 1.
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
    """Yield pairs of 0 and a size that is not negative, because an equation holds only then.

    Otherwise one side would have elements and the other none, or an empty batch hides both.
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


def _factors_of(dim: Dim) -> Iterator[tuple[str, int]]:
    """Yield the names that are terms by themselves, with their coefficients."""
    for names, factor in terms_of(dim):
        if len(names) == 1:
            yield names[0], factor


def _atoms_in(*dims: Dim) -> Iterator[str]:
    for dim in dims:
        for names, _ in terms_of(dim):
            yield from names


def _inside(dim: Dim) -> Iterator[str]:
    """Yield the names and atoms of a size, also those inside of atoms."""
    for name in _atoms_in(dim):
        yield name
        atom = atom_of(name)
        if atom is not None:
            yield from _inside(atom.left)
            yield from _inside(atom.right)


def _solved(difference: SymDim) -> tuple[str, Dim] | None:
    """Solve for an unknown size that is alone in a difference of 0, else for a function."""
    divisor = math.gcd(*(coefficient for _, coefficient in difference.terms))
    alone = [
        (names[0], coefficient)
        for names, coefficient in difference.terms
        if len(names) == 1 and abs(coefficient) == divisor
    ]
    unknown = [one for one in alone if one[0].startswith("?")]
    functions = [one for one in alone if atom_of(one[0]) is not None]
    for name, coefficient in unknown + sorted(functions, key=lambda one: (-len(one[0]), one[0])):
        rest = difference - sym(name) * coefficient
        if name not in set(_inside(rest)):
            return name, _divided(rest, -coefficient)
    return None


def _one_of_two(equation: Equation, given: Collection[str]) -> tuple[str, Dim] | None:
    """Return a given size and another one, or a literal, that it must equal."""
    sides = sorted((equation.left, equation.right), key=_complexity, reverse=True)
    for size, other in (sides, sides[::-1]):
        name, rest = plain_symbol(size), plain_symbol(other)
        if name is None or name not in given:
            continue
        if (rest is not None and rest in given) or (isinstance(other, int) and other >= 0):
            return name, other
    return None


def _divided(dim: Dim, divisor: int) -> Dim:
    """Divide a size by a number that divides all its coefficients."""
    return applied("floor", dim, divisor) if divisor > 0 else applied("floor", dim * -1, -divisor)


def _complexity(dim: Dim) -> tuple[int, int, str]:
    text = str(dim)
    return text.count("?"), len(text), text


def _is_of(dim: Dim, given: Collection[str]) -> bool:
    """Return whether a size is a literal or a polynomial of given sizes."""
    terms = dim.terms if isinstance(dim, SymDim) else ()
    return all(name in given for names, _ in terms for name in names)
