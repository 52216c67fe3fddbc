"""Whether what a generated kernel computes is what the registry evaluates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.ir.values.types import numpy_dtype
from tests.cuda_host.cases import Case

__all__ = ["difference"]

Array = NDArray[Any]

BOUNDS = {"float32": 1e-6, "float64": 1e-13, "float16": 1e-3, "bfloat16": 8e-3}
"""Of the error relative to the largest value; whole numbers and truths are equal."""


def difference(case: Case, operands: Sequence[Array], found: Array) -> str:
    """How a result differs from what the registry evaluates, if it does."""
    expected = _expected(case, operands)
    if found.shape != expected.shape:
        return f"{found.shape} instead of {expected.shape}"
    bound = BOUNDS.get(case.result.dtype)
    if bound is None:
        wrong = int((found != expected).sum())
        return f"{wrong} of {found.size} elements differ" if wrong else ""
    wide = found.astype(np.float64)
    largest = max(float(np.abs(expected).max(initial=0)), 1e-30)
    error = float(np.abs(wide - expected).max(initial=0)) / largest
    return "" if error <= bound else f"error {error:.1e} of the largest value"


def _expected(case: Case, operands: Sequence[Array]) -> Array:
    """What the registry evaluates, in double precision where there are fractions."""
    # What is rounded once, at the end, is compared with what is not rounded before.
    values = [x.astype(np.float64) if str(x.dtype) in BOUNDS else x for x in operands]
    with np.errstate(all="ignore"):
        found = np.asarray(get_op(case.op).eval_fn(FLOAT, values, dict(case.attrs)))
    type_ = case.result
    if type_.dtype in BOUNDS:
        return found.astype(np.float64)
    return found.astype(numpy_dtype(type_.dtype))
