"""Index semantics of scaled dot-product attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eqsat_opt.ir.ops._base import require
from eqsat_opt.ir.ops.index.integers import Poly, any_of, broadcast, equal, poly, quotient
from eqsat_opt.ir.ops.index.reduction import softmax
from eqsat_opt.ir.ops.index.scalars import (
    IndexTensor,
    Plus,
    Premises,
    Scalar,
    Times,
    aligned,
    reduce_over,
)

__all__ = ["attention"]


def attention(
    operands: Sequence[IndexTensor], attrs: Mapping[str, Any], premises: Premises
) -> IndexTensor:
    """Return softmax(scale q kᵀ + mask) v; head h of q reads head h // (heads / heads of k)."""
    q, k, v = operands[:3]
    require(all(operand.rank == 4 for operand in (q, k, v)), "attention needs four axes")
    for operand in (k, v):
        premises.same(operand.shape[0], q.shape[0])
    premises.same(k.shape[1], v.shape[1])
    premises.same(q.shape[3], k.shape[3])
    premises.same(k.shape[2], v.shape[2])
    sharing = quotient(q.shape[1], k.shape[1])
    require(sharing != poly(0), "more heads of keys than of queries")
    premises.same(sharing * k.shape[1], q.shape[1])
    shape = (*q.shape[:3], k.shape[2])
    mask = _fitting(operands[3], shape, premises) if len(operands) == 4 else None

    def logit(index: Sequence[Poly]) -> Scalar:
        b, h, s, t = index
        head = quotient(h, sharing)
        product = reduce_over(
            "sum", [q.shape[3]], lambda d: Times((q.at((b, h, s, d[0])), k.at((b, head, t, d[0]))))
        )
        scaled = Times((attrs["scale"], product))
        return scaled if mask is None else Plus((scaled, aligned(mask, shape, index)))

    weights = softmax([IndexTensor(shape, logit)], {"axis": poly(3)}, premises)

    def at(index: Sequence[Poly]) -> Scalar:
        b, h, s, e = index
        head = quotient(h, sharing)
        return reduce_over(
            "sum",
            [shape[3]],
            lambda t: Times((weights.at((b, h, s, t[0])), v.at((b, head, t[0], e)))),
        )

    return IndexTensor((*q.shape[:3], v.shape[3]), at)


def _fitting(mask: IndexTensor, shape: Sequence[Poly], premises: Premises) -> IndexTensor:
    """Return a mask after adding the premises that it broadcasts to the shape of the logits."""
    require(mask.rank <= len(shape), "a mask has more axes than the logits")
    for extent, wanted in zip(mask.shape, shape[len(shape) - mask.rank :], strict=True):
        premises.require(any_of(equal(extent, 1), equal(extent, wanted)))
        premises.require(equal(broadcast(extent, wanted), wanted))
    return mask
