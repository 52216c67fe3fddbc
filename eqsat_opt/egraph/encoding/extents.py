"""Extents as integers of the engine: how they are coded, and arithmetic on codes.

A literal stands for itself. A symbolic extent is a residue modulo the prime ``MODULUS``, far from
every literal: adding or subtracting a literal never makes one of it. The engine's own arithmetic is
checked (an overflow is no match), so products of codes are computed in pieces of 31 bits.
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
    """Facts: a code is a literal extent."""
    return [f"(<= 0 {code})", f"(< {code} {LITERALS})"]


def plus(left: str, right: str) -> str:
    """The code of a sum."""
    return f"(% (+ {left} {right}) {MODULUS})"


def minus(left: str, right: str) -> str:
    """The code of a difference."""
    return f"(% (+ (- {left} {right}) {MODULUS}) {MODULUS})"


def congruent(left: str, right: str) -> str:
    """An expression that is 0 where two results of arithmetic are equal, negative ones too."""
    return f"(% (- {left} {right}) {MODULUS})"


def times(left: str, right: str, product: str) -> list[str]:
    """Facts that bind the variable ``product`` to the code of a product; codes may be negative.

    With a = 2³¹h + l and b = 2³¹i + k, the product is 2⁶²hi + 2³¹m + lk for m = hk + li, and 2⁶¹ is
    1. No partial result exceeds 2⁶³.
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
        codes: what is not a small literal, to its code.
        extents: the same the other way round.
    """

    codes: Mapping[Dim, int]
    extents: Mapping[int, Dim]

    @classmethod
    def of(cls, terms: Iterable[TermNode]) -> ExtentCodes:
        """Codes of all extents in ``terms``: different ones, and none near a literal.

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
        """The code of an extent of the model."""
        return self.codes[extent] if extent in self.codes else encode_dim(extent)

    def decode(self, code: int) -> Dim | None:
        """An extent by its code; ``None`` if it is not a literal and none of the model's."""
        extent = self.extents.get(code)
        return code if extent is None and -LITERALS < code < LITERALS else extent


def _vectors(terms: Iterable[TermNode]) -> Iterable[tuple[Any, ...]]:
    for term in terms:
        if isinstance(term.type, TensorType):
            yield term.type.shape
            yield (prod(term.type.shape[:-1], start=1),)  # rows, as products of matrices stack them
        for _, value in term.attrs:
            if isinstance(value, tuple):
                yield value
            elif isinstance(value, SymDim):
                yield (value,)


def _is_apart(extent: Dim, code: int) -> bool:
    """Whether a code plus or minus any literal stays above all literals and below the modulus."""
    return isinstance(extent, int) or 2 * LITERALS <= code <= MODULUS - LITERALS
