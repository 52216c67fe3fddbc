"""Extents as integers of the engine: their encoding, and arithmetic on codes.

A literal is its own code. The code of a symbolic extent is a residue modulo the prime ``MODULUS``,
so far from all literals that adding or subtracting a literal never gives one. The engine's own
arithmetic is checked (an overflow is no match), so products of codes are computed in pieces of 31
bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from eqsat_opt.egraph.terms import TermNode
from eqsat_opt.errors import SaturationError
from eqsat_opt.ir.values.dims import LITERALS, MODULUS, Dim, SymDim, encode_dim
from eqsat_opt.ir.values.types import TensorType

__all__ = ["ExtentCodes", "congruent", "is_literal", "minus", "plus", "times"]

_SALTS = 16
_PIECE = 31
"""Bits of the lower piece of a code; the upper one has 30."""


def is_literal(code: str) -> list[str]:
    """Return facts that a code is a literal extent."""
    return [f"(<= 0 {code})", f"(< {code} {LITERALS})"]


def plus(left: str, right: str) -> str:
    """Return an expression for the code of a sum."""
    return f"(% (+ {left} {right}) {MODULUS})"


def minus(left: str, right: str) -> str:
    """Return an expression for the code of a difference."""
    return f"(% (+ (- {left} {right}) {MODULUS}) {MODULUS})"


def congruent(left: str, right: str) -> str:
    """Return an expression that is 0 if two results of arithmetic are equal, even if negative."""
    return f"(% (- {left} {right}) {MODULUS})"


def times(left: str, right: str, product: str) -> list[str]:
    """Return facts that bind ``product`` to the code of a product; codes may be negative.

    With a = 2³¹h + l and b = 2³¹i + k, the product is 2⁶²hi + 2³¹m + lk for m = hk + li, and 2⁶¹ is
    congruent to 1. No partial result exceeds 2⁶³.
    """
    high, low, other_high, other_low, middle = (f"{product}{part}" for part in "hlikm")
    mask, rest = (1 << _PIECE) - 1, (1 << (61 - _PIECE)) - 1
    upper = f"(+ (* 2 (* {high} {other_high})) (+ (>> {middle} 30) (* {low} {other_low})))"
    lower = f"(<< (& {middle} {rest}) {_PIECE})"
    return [
        f"(= {high} (>> {left} {_PIECE}))",
        f"(= {low} (& {left} {mask}))",
        f"(= {other_high} (>> {right} {_PIECE}))",
        f"(= {other_low} (& {right} {mask}))",
        f"(= {middle} (+ (* {high} {other_low}) (* {low} {other_high})))",
        f"(= {product} (% (+ (% {upper} {MODULUS}) {lower}) {MODULUS}))",
    ]


@dataclass(frozen=True)
class ExtentCodes:
    """The codes of one model's extents.

    Attributes:
        codes: code of each extent that is not a small literal.
        extents: extent of each of these codes.
    """

    codes: Mapping[Dim, int]
    extents: Mapping[int, Dim]

    @classmethod
    def of(cls, terms: Iterable[TermNode]) -> ExtentCodes:
        """Assign distinct codes to all extents in ``terms``, symbolic ones far from literals.

        Raises:
            SaturationError: no salt gives such codes.
        """
        found = {
            dim: None
            for values in dict.fromkeys(_vectors(terms))
            for dim in values
            if isinstance(dim, SymDim) or (isinstance(dim, int) and abs(dim) >= LITERALS)
        }
        for salt in range(_SALTS):
            codes = {dim: encode_dim(dim, salt) for dim in found}
            extents = {code: dim for dim, code in codes.items()}
            if len(extents) == len(codes) and all(map(_is_apart, codes, codes.values())):
                return cls(codes, extents)
        raise SaturationError(
            "the model's symbolic sizes cannot be told from numbers; please report this model"
        )

    def encode(self, extent: Dim) -> int:
        """Return the code of an extent of the model."""
        return self.codes[extent] if extent in self.codes else encode_dim(extent)

    def decode(self, code: int) -> Dim | None:
        """Return the extent of a code; ``None`` if it is neither literal nor one of the model's."""
        extent = self.extents.get(code)
        return code if extent is None and -LITERALS < code < LITERALS else extent


def _vectors(terms: Iterable[TermNode]) -> Iterable[tuple[Any, ...]]:
    for term in terms:
        if isinstance(term.type, TensorType):
            yield term.type.shape
            yield (prod(term.type.shape[:-1], start=1),)  # rows of stacked matrix products
        for _, value in term.attrs:
            if isinstance(value, tuple):
                yield value
            elif isinstance(value, SymDim):
                yield (value,)


def _is_apart(extent: Dim, code: int) -> bool:
    """Return whether a code plus or minus any literal is between literals and the modulus."""
    return isinstance(extent, int) or 2 * LITERALS <= code <= MODULUS - LITERALS
