"""Pools over whole planes, which runtimes compute differently from the equal reductions.

They keep the layout of the convolutions before them, refuse empty planes, and start a maximum from
the least finite number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eqsat_opt.ir.ops._base import (
    Array,
    AttrMap,
    Domain,
    OnnxForm,
    define,
    per_operand_element,
    require,
    traits,
)
from eqsat_opt.ir.ops.index import reduction as index_reduction
from eqsat_opt.ir.ops.index.integers import poly
from eqsat_opt.ir.ops.index.scalars import IndexFn, IndexTensor, Premises, ReduceKind
from eqsat_opt.ir.ops.reduction import REDUCTIONS
from eqsat_opt.ir.values.types import FLOATS, TensorType

__all__ = ["GLOBAL_POOLS"]

GLOBAL_POOLS = {"GlobalAveragePool": "ReduceMean", "GlobalMaxPool": "ReduceMax"}
"""Global pools to the reductions over all axes after the channels; the two are equal on numbers."""


def _type(inputs: Sequence[TensorType], _attrs: AttrMap) -> TensorType:
    (x,) = inputs
    require(x.rank >= 3 and x.dtype in FLOATS, "a global pool of {}", x)
    require(0 not in x.shape[1:], "a pool over nothing")
    return TensorType(x.dtype, (*x.shape[:2], *(1,) * (x.rank - 2)))


def _evaluated(reduction: str) -> Any:
    def evaluate(domain: Domain, operands: Sequence[Array], _attrs: AttrMap) -> Array:
        axes = tuple(range(2, operands[0].ndim))
        return REDUCTIONS[reduction](domain, operands, {"axes": axes, "keepdims": 1})

    return evaluate


def _indexed(kind: ReduceKind, *, mean: bool = False) -> IndexFn:
    reduced = index_reduction.reduction(kind, mean=mean)

    def index_fn(
        operands: Sequence[IndexTensor], _attrs: Mapping[str, Any], premises: Premises
    ) -> IndexTensor:
        rank = operands[0].rank
        require(rank >= 3, "no plane")
        attrs = {"axes": tuple(poly(axis) for axis in range(2, rank)), "keepdims": poly(1)}
        return reduced(operands, attrs, premises)

    return index_fn


_INDEX_FNS = {
    "GlobalAveragePool": _indexed("sum", mean=True),
    "GlobalMaxPool": _indexed("max"),
}
_TRAITS = traits("floats", "plane", "spatial")
for _name, _reduction in GLOBAL_POOLS.items():
    define(
        "reduction",
        _name,
        {},
        _type,
        eval_fn=_evaluated(_reduction),
        index_fn=_INDEX_FNS[_name],
        flops=per_operand_element,
        traits=_TRAITS | traits("order") if _name == "GlobalMaxPool" else _TRAITS,
        onnx=OnnxForm(),
    )
