"""Vectors of numbers in equal steps, of a given length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eqsat_opt.ir.ops._base import Array, AttrMap, Domain, define, require, traits
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.ir.values.types import TensorType

__all__: list[str] = []


def _type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    first = inputs[0]
    require(all(x.dtype == first.dtype and x.size == 1 for x in inputs), "numbers, not {}", inputs)
    require(first.dtype not in ("bool", "string"), "steps of {}", first)
    require(len(attrs["shape"]) == 1, "a range is a vector, not {}", attrs["shape"])
    return TensorType(first.dtype, tuple(attrs["shape"]))


def _evaluate(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    """Add one step after the other, as runtimes round; the limit only sets the length."""
    first, _, step = (operand.reshape(1) for operand in operands)
    (size,) = attrs["shape"]
    if domain is FLOAT:
        steps = np.concatenate([first, np.repeat(step, max(size - 1, 0))])
        return np.add.accumulate(steps, dtype=first.dtype)[:size]
    places = np.asarray([domain.constant(place, first) for place in range(size)])
    return domain.add(first, domain.mul(places, step))


define(
    "reduction",
    "Range",
    {"shape": "ints"},
    _type,
    eval_fn=_evaluate,
    arity=3,
    traits=traits("determined"),
)
