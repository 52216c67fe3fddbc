"""Generic instances of a rule: its most general typing, with no more equal extents than needed.

The typing is that of a proof (:mod:`eqsat_opt.proving.typing.scenario`): ranks, axes and flags are
chosen, extents are symbols, and index functions, conditions and the equality of both sides relate
them. Free extents get large random numbers, so two extents are equal in the instance only if the
rule's typing makes them equal, up to coincidence. Each combination of choices is a frame.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from math import prod
from typing import Any

from eqsat_opt.ir.ops import IllTyped
from eqsat_opt.ir.ops.index.evaluation import poly_value
from eqsat_opt.ir.ops.index.integers import (
    AnyOf,
    Atom,
    Formula,
    IsZero,
    NonNegative,
    equal,
    polynomials,
)
from eqsat_opt.ir.ops.index.scalars import Unindexed
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.proving.typing.branching import Choices
from eqsat_opt.proving.typing.closure import closure
from eqsat_opt.proving.typing.element_types import demanded
from eqsat_opt.proving.typing.scenario import Scenario, scenario, value_at
from eqsat_opt.rules.bindings import Bindings, Undefined, holds, type_of
from eqsat_opt.rules.rule import Rule

__all__ = ["generic_instances"]

_RANKS = (2, 4, 3, 1, 5)
_FRAMES = 100
_ALIKE = 20
"""Number of first frames in which all tensors have one rank, as far as the rule allows."""
_BARREN = 10
"""Number of consecutive attempts without a new frame after which another is unlikely."""
_SINGLE = 0.3
"""Share of the broadcast extents that are 1, in every third frame."""
_EXTENTS = 1 << 10, 1 << 15
"""Range of free extents: products of four of them stay within 64 bits."""
_NUMBERS = {
    "group": (1, 4), "strides": (2, 5), "dilations": (2, 5), "pads": (1, 5), "kernel": (6, 8),
    "output_padding": (0, 1), "repeats": (2, 8), "size": (2, 8),
}  # fmt: skip
"""Ranges of attributes that are chosen.

No equation of the rulebook singles out one of these numbers (as it does a stride of 1), so a
derivation for them holds for any. One group is among them, because some left sides have no other
typing.
"""
_FUNCTIONS = ("Mish", "Softsign", "Cos", "Softplus", "Sin", "Ceil", "Floor", "Round")
"""Functions that each represent an arbitrary one: no equation of the rulebook mentions any of
them."""
_DRAWS = 10
_REPAIRS = 20
"""Number of rounds; each halves the error that is left in an equation with a rounded half."""


class _Frame(Choices):
    """Random choices, including integers and the extents that broadcast."""

    def __init__(self, rng: random.Random, rank: int | None, ones: bool) -> None:
        """Create a frame without any choice.

        Args:
            rng: the random generator.
            rank: rank of all tensors, as far as the rule allows; ``None`` for any.
            ones: whether some extents are 1, so that operands broadcast.
        """
        super().__init__(rng.choice)
        self._rng = rng
        self._rank = rank
        self._ones = ones

    def pick(self, name: str, options: Sequence[Any]) -> Any:
        """Return the rank nearest to the usual one, or any option but the identity permutation."""
        rank = self._rank
        if rank is None or not name.startswith("rank "):
            return super().pick(name, _unusual(options))
        self.counts[name] = len(options)
        return self.made.setdefault(name, min(options, key=lambda option: abs(option - rank)))

    def number(self, key: str, name: str) -> int | None:
        """Return a small random number for a count; ``None`` for an extent or a position."""
        if key not in _NUMBERS:
            return None
        if name not in self.made:
            low, high = _NUMBERS[key]
            self.counts[name] = high - low + 1
            self.made[name] = self._rng.randint(low, high)
        return int(self.made[name])

    def assumed(self, premises: Sequence[Formula]) -> Iterator[Formula]:
        """Yield assumptions: extents that broadcast are equal, or sometimes some of them are 1."""
        parts = {part for one in premises for p in polynomials(one) for part in p.atoms()}
        common = sorted(part for part in parts if part.kind == "broadcast")
        for part in common:
            self.counts[str(part)] = 2 ** len(part.args)
            single = [e for e in part.args if self._ones and self._rng.random() < _SINGLE]
            for extent in single:
                self.made[str(extent)] = 1
                yield equal(extent, 1)
            for extent in () if single else part.args[1:]:
                yield equal(part.args[0], extent)
        for one in premises if not common else ():
            if isinstance(one, AnyOf):
                self.counts[str(one)] = len(one.parts)
                yield self._rng.choice(one.parts)


def _unusual(options: Sequence[Any]) -> Sequence[Any]:
    """Return the options without the identity permutation, which equations single out."""
    last = options[-1] if options else None
    in_order = isinstance(last, tuple) and options[0] == tuple(range(len(last)))
    return options[1:] if in_order and len(options) > 1 else options


def generic_instances(rule: Rule, *, seed: int = 0, most: int = 4) -> list[Bindings]:
    """Return up to ``most`` typed instances of both sides of ``rule``, each of another frame."""
    rng = random.Random(seed)
    limit = closure(rule)
    found: dict[str, Bindings] = {}
    last, all_frames = _FRAMES, 1
    for number in range(_FRAMES):
        if len(found) in (most, all_frames) or number > last + _BARREN:
            break
        rank = _RANKS[number % len(_RANKS)] if number < _ALIKE else None
        frame = _Frame(rng, rank, ones=number % 3 == 2)
        try:
            typing = scenario(limit, frame)
        except (IllTyped, Undefined, Unindexed):
            continue
        key = str(sorted(frame.made.items()))
        drawn = None if key in found else _drawn(limit, typing, rng)
        if drawn is not None:
            found[key], last, all_frames = drawn, number, prod(frame.counts.values())
    return list(found.values())


def _drawn(rule: Rule, typing: Scenario, rng: random.Random) -> Bindings | None:
    """Draw the free numbers so that both sides are typed and all conditions hold."""
    functions = cycle((name, ()) for name in _FUNCTIONS)
    named = {name: next(functions) for name, kind in rule.kinds if kind == "Func"}
    dtypes = demanded(rule.roots)
    for _ in range(_DRAWS):
        try:
            sizes, numbers = _sizes(typing, rng), _numbers(typing, rng)
            shapes = {n: value_at(shape, sizes, numbers) for n, shape in typing.shapes.items()}
            bindings = Bindings(
                {n: TensorType(dtypes.get(n, "float32"), shape) for n, shape in shapes.items()},
                {n: value_at(value, sizes, numbers) for n, value in typing.attrs.items()} | named,
            )
            if _fits(rule, bindings):
                return bindings
        except (IllTyped, Undefined, ArithmeticError, LookupError, TypeError, ValueError):
            # The registry checks types; nonsensical attributes fail in its arithmetic.
            continue
    return None


def _fits(rule: Rule, bindings: Bindings) -> bool:
    if any(d < 1 for t in bindings.static_types.values() for d in t.shape):
        return False
    sides = zip(rule.lhs, rule.rhs, strict=True)
    return all(type_of(left, bindings) == type_of(right, bindings) for left, right in sides) and (
        all(holds(c, bindings, lambda *_: True) for c in rule.when)
    )


def _sizes(typing: Scenario, rng: random.Random) -> Mapping[Atom, int]:
    """Return random values of the symbols, moved to meet premises that are not solved yet."""
    sizes: dict[Atom, int] = defaultdict(lambda: rng.randrange(*_EXTENTS))
    for _ in range(_REPAIRS):
        moved = False
        for one in typing.premises:
            if isinstance(one, (NonNegative, IsZero)):
                moved = _moved(one, sizes, rng) or moved
        if not moved:
            break
    return sizes


def _moved(premise: NonNegative | IsZero, sizes: dict[Atom, int], rng: random.Random) -> bool:
    """Make one premise hold by changing one symbol; return whether a symbol was changed."""
    value = poly_value(premise.poly, sizes)
    exact = isinstance(premise, IsZero)
    if value == 0 or (value > 0 and not exact):
        return False
    for monomial, factor in premise.poly.terms:
        if len(monomial) == 1 and monomial[0].kind == "symbol":
            if exact and abs(factor) == 1:
                sizes[monomial[0]] -= factor * value
                return True
            if not exact and factor > 0:
                sizes[monomial[0]] += rng.randrange(*_EXTENTS) - value
                return True
    return False


def _numbers(typing: Scenario, rng: random.Random) -> dict[str, float]:
    """Return random values of the numbers, with the signs that are known."""
    signs = {name: -1 if sign == "negative" else 1 for name, sign in typing.parameters.items()}
    return {name: sign * rng.randrange(3, 99) / 64 for name, sign in signs.items()}
