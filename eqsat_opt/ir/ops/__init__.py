"""The operator registry; importing this package fills it."""

from __future__ import annotations

from eqsat_opt.ir.ops import (
    attention,
    canonical,
    global_pool,
    linear,
    movement,
    normalisation,
    pointwise,
    reduction,
    window,
)
from eqsat_opt.ir.ops._base import (
    OPS,
    Array,
    AttrKind,
    AttrMap,
    Domain,
    IllTyped,
    Op,
    broadcast_shapes,
    get_op,
    is_known,
)

__all__ = [
    "OPS",
    "Array",
    "AttrKind",
    "AttrMap",
    "Domain",
    "IllTyped",
    "Op",
    "attention",
    "broadcast_shapes",
    "canonical",
    "get_op",
    "global_pool",
    "is_known",
    "linear",
    "movement",
    "normalisation",
    "pointwise",
    "reduction",
    "window",
]
