"""Scaled dot-product attention (Vaswani et al. 2017, §3.2.1), with groups of heads (Ainslie 2023).

``q`` is [batch, heads, tokens, size], ``k`` and ``v`` have as many heads or a divisor of them; head
h of ``q`` reads head h // (heads / heads of k). A mask is added to the scaled logits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eqsat_opt.ir.ops._base import (
    Array,
    AttrMap,
    Domain,
    IllTyped,
    broadcast_shapes,
    define,
    get_op,
    require,
    traits,
)
from eqsat_opt.ir.ops.index import attention as index_attention
from eqsat_opt.ir.values.dims import Dim, dim_product
from eqsat_opt.ir.values.types import FLOATS, TensorType

__all__: list[str] = []


def _type(inputs: Sequence[TensorType], _attrs: AttrMap) -> TensorType:
    q, k, v = inputs[:3]
    require(
        q.dtype in FLOATS and all(i.dtype == q.dtype for i in inputs), f"element types {inputs}"
    )
    require(q.rank == k.rank == v.rank == 4, "attention of {}, {}, {}", q, k, v)
    require(q.shape[0] == k.shape[0] == v.shape[0], "batches differ")
    require(
        q.shape[3] == k.shape[3] and k.shape[2] == v.shape[2], "{}, {} and {} do not fit", q, k, v
    )
    heads, groups = q.shape[1], k.shape[1]
    require(groups == v.shape[1], "keys and values have different heads")
    shared = (
        isinstance(heads, int) and isinstance(groups, int) and groups > 0 and heads % groups == 0
    )
    require(heads == groups or shared, "{} heads do not share {}", heads, groups)
    if len(inputs) == 4:
        logits = (*q.shape[:3], k.shape[2])
        try:
            fits = broadcast_shapes(logits, inputs[3].shape) == logits
        except IllTyped:
            fits = False
        require(fits, "mask {} does not broadcast to {}", inputs[3], logits)
    return TensorType(q.dtype, (*q.shape[:3], v.shape[3]))


def _attention(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    q, k, v = operands[:3]
    repeats = q.shape[1] // max(k.shape[1], 1)
    k, v = (np.repeat(operand, repeats, axis=1) for operand in (k, v))
    logits = domain.matmul(q, np.swapaxes(k, -1, -2))
    logits = domain.mul(logits, domain.constant(attrs["scale"], logits))
    if len(operands) == 4:
        logits = domain.add(logits, operands[3])
    return domain.matmul(get_op("Softmax").eval_fn(domain, [logits], {"axis": 3}), v)


def _flops(inputs: Sequence[TensorType], _output: TensorType, _attrs: AttrMap) -> Dim:
    q, k, v = inputs[:3]
    logits = dim_product((*q.shape[:3], k.shape[2]))
    return logits * (2 * q.shape[3] + 2 * v.shape[3] + 14)


_MASKED = "`Attention` with a mask `m` that is added to the scaled products"
for _name, _arity in (("Attention", 3), ("MaskedAttention", 4)):
    define(
        "contraction",
        _name,
        {"scale": "float"},
        _type,
        eval_fn=_attention,
        index_fn=index_attention.attention,
        arity=_arity,
        flops=_flops,
        traits=traits("floats"),
        doc=_MASKED if _arity > 3 else "",
    )
