"""Index functions of operators that have none in the registry, or an unsuitable one for loops.

The registry's function of `Gather` is a sum over all positions, of which one has the factor 1; here
the position is read. `ReduceProd` has none in the registry, because proofs do not need products of
many factors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat_opt.ir.ops.index.integers import TRUE, Atom, Poly, atom
from eqsat_opt.ir.ops.index.reduction import reduction
from eqsat_opt.ir.ops.index.scalars import IndexTensor, Premises, Reduce, Scalar, literal

__all__ = ["BY_HAND", "Multiplied", "SubstitutedTerm"]


@dataclass(frozen=True, slots=True)
class SubstitutedTerm:
    """A term in which a variable has the value of an integer term, modulo an extent."""

    variable: Atom
    number: Scalar
    extent: int
    term: Scalar


@dataclass(frozen=True, slots=True)
class Multiplied:
    """The product of a body over index variables with their extents."""

    bound: tuple[tuple[Atom, Poly], ...]
    body: Scalar


def _product(
    operands: Sequence[IndexTensor], attrs: Mapping[str, Any], premises: Premises
) -> IndexTensor:
    total = reduction("sum")(operands, attrs, premises)

    def at(index: Sequence[Poly]) -> Any:
        term = total.at(index)
        assert isinstance(term, Reduce)
        assert term.where == TRUE
        return Multiplied(term.bound, term.body)

    return IndexTensor(total.shape, at)


def _gather(
    operands: Sequence[IndexTensor], attrs: Mapping[str, Any], _premises: Premises
) -> IndexTensor:
    x, indices = operands
    axis = literal(attrs["axis"])
    after = axis + indices.rank

    def at(index: Sequence[Poly]) -> Any:
        here = Atom(f"chosen{axis} {index}")
        element = x.at((*index[:axis], atom(here), *index[after:]))
        return SubstitutedTerm(here, indices.at(index[axis:after]), literal(x.shape[axis]), element)

    return IndexTensor((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), at)


BY_HAND: Mapping[str, Callable[..., IndexTensor]] = {"Gather": _gather, "ReduceProd": _product}
"""Index functions by operator."""
