"""Checks that folding does not turn ordinary numbers into infinities, NaN, zeros or subnormals.

A model that multiplies by 1e-4 twice may be run on 3e4; folded into one factor of 1e-8, the factor
is 0 in half precision. So constants that a rewrite combines are computed before the rewrite is
accepted, and if a result leaves the range of its type though the operands do not, the constants
stay separate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from eqsat_opt.ir.ops import OPS, AttrMap, get_op, with_trait
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.ir.values.types import FLOATS, numpy_dtype

__all__ = ["is_epsilon", "is_representable", "spoils"]

Array = npt.NDArray[Any]

_PRODUCTS = frozenset({"Mul", "Div", "Pow", "Square", "Scale", "Reciprocal", "Rsqrt", "Exp"})
"""Pointwise operators that may leave the range; a sum that vanishes is exact."""
_CONTRACTIONS = frozenset(n for n in with_trait("ring") if OPS[n].kind == "contraction")


def _least(dtype: str) -> float:
    """Return the least positive normal number of an element type."""
    info: Any = ml_dtypes.finfo(numpy_dtype(dtype))  # type: ignore[no-untyped-call]
    return float(info.tiny)


def is_representable(value: float, dtype: str) -> bool:
    """Return whether a finite number other than 0 remains finite and normal in an element type."""
    if dtype not in FLOATS or value == 0 or not np.isfinite(value):
        return True
    rounded = _rounded(value, dtype)
    return math.isfinite(rounded) and abs(rounded) >= _least(dtype)


def is_epsilon(value: float, dtype: str) -> bool:
    """Return whether an epsilon that is added below a root remains non-zero after rounding.

    ONNX holds an epsilon in single precision and adds it there; for some lower opsets it is a
    tensor of the element type.
    """
    return value == 0 or (is_representable(value, "float32") and _rounded(value, dtype) != 0)


def _rounded(value: float, dtype: str) -> float:
    with np.errstate(all="ignore"):
        return float(np.asarray(value, numpy_dtype(dtype)))


def spoils(op: str, attrs: AttrMap, operands: Sequence[Array], result: Array) -> bool:
    """Return whether an operator on constants turns ordinary numbers into extraordinary ones.

    Ordinary numbers are finite, and normal or 0. A product may be 0 where a factor is 0, and
    subnormal where a factor is subnormal. Elementwise sums are not examined, since they are exact
    where they vanish. Infinities of a mask may be carried along, each at its place.
    """
    dtype = str(result.dtype)
    if dtype not in FLOATS or get_op(op).kind == "movement":
        return False
    floats = [np.asarray(o) for o in operands if str(o.dtype) in FLOATS]
    if not np.all(np.isfinite(result)):
        return not _carries(op, floats, result)
    if not all(np.all(np.isfinite(o)) for o in floats):
        return op in _CONTRACTIONS
    least = _least(dtype)
    small = np.abs(result) < least
    if op in _PRODUCTS:
        for operand in floats:
            small = small & (np.abs(operand) >= least)
        return bool(np.any(small))
    if op in _CONTRACTIONS and small.any():
        return _underflows(op, attrs, floats, least)
    return False


def _carries(op: str, operands: Sequence[Array], result: Array) -> bool:
    """Return whether all infinities and NaN of a result were in one operand, at the same places."""
    sources = [o for o in operands if not np.all(np.isfinite(o))]
    if get_op(op).kind != "pointwise" or len(sources) != 1 or sources[0].shape != result.shape:
        return False
    (source,) = sources
    return bool(
        np.array_equal(np.isnan(source), np.isnan(result))
        and np.array_equal(np.isinf(source), np.isinf(result))
    )


def _underflows(op: str, attrs: AttrMap, operands: Sequence[Array], least: float) -> bool:
    """Return whether the terms of some element, taken together, are below the normal numbers."""
    sizes = [np.abs(o.astype(np.float64)) for o in operands]
    smallest = [float(s[s > 0].min(initial=np.inf)) for s in sizes]
    if np.prod(smallest[:2]) >= least:
        return False
    with np.errstate(all="ignore"):
        terms = np.asarray(get_op(op).eval_fn(FLOAT, sizes, attrs))
    return bool(np.any((terms > 0) & (terms < least)))
