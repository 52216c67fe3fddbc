"""The operator registry; importing this package fills it from every module of the package."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from eqsat_opt.ir.ops._base import (
    OPS,
    OUTPUT,
    Array,
    AttrKind,
    AttrMap,
    Domain,
    ExactFn,
    IllTyped,
    OnnxForm,
    Op,
    broadcast_shapes,
    get_op,
    is_known,
    with_trait,
)

__all__ = [
    "OPS",
    "OUTPUT",
    "Array",
    "AttrKind",
    "AttrMap",
    "Domain",
    "ExactFn",
    "IllTyped",
    "OnnxForm",
    "Op",
    "broadcast_shapes",
    "get_op",
    "is_known",
    "with_trait",
]

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)
