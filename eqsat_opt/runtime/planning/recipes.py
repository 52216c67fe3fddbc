"""How the constants of a graph are made again of the tensors that its model stores."""

from __future__ import annotations

import numpy as np

from eqsat_opt.errors import PlanError
from eqsat_opt.ir.graph import Constant
from eqsat_opt.ir.types import TensorType
from eqsat_opt.runtime.plan.constants import Tensors, digest_of
from eqsat_opt.runtime.plan.plan import Literal, Recipe, Stored

__all__ = ["recipe_of"]

_FEW = 64
"""Elements of a constant that a plan holds itself."""


def recipe_of(name: str, constant: Constant, tensors: Tensors) -> Recipe:
    """The recipe of a constant.

    Args:
        name: its name in the graph.
        constant: of a static numeric type.
        tensors: that the model stores.

    Raises:
        PlanError: the model does not store it, and it has too many elements to be written down.
    """
    array = np.asarray(constant.load())
    digest = digest_of(array)
    if name in tensors:
        stored = tensors[name]()
        if digest_of(stored) == digest:
            return Stored(name, digest)
    if array.dtype.kind != "c" and array.size:
        flat = array.reshape(-1)
        if flat.tobytes() == np.full_like(flat, flat[0]).tobytes():
            return Literal((_number(flat[0]),))
        if array.size <= _FEW:
            return Literal(tuple(_number(value) for value in flat))
    elif not array.size:
        return Literal((0,))
    type_ = TensorType(constant.type.dtype, array.shape)
    raise PlanError(
        f"the constant {name!r}, {type_}, is not stored in the model; write the model as a file "
        "first, and plan from that"
    )


def _number(value: np.generic) -> bool | int | float:
    """A number of Python; those of element types that NumPy lacks are floating point."""
    item = value.item()
    return item if isinstance(item, bool | int | float) else float(item)
