"""How far a rule moves results in floating point: measured, not derived."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eqsat_opt.ir.ops import Array
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.rules.bindings import Bindings
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.verify.evaluation import FloatNumbers, program
from eqsat_opt.rules.verify.instances import find_instances

__all__ = ["HALF", "SINGLE", "relative_error", "worst_errors"]

SINGLE = "float32"
HALF = "float16"
_INSTANCES = 24
_CANCELLED = 1e-12
"""Results of values near 1 that are smaller are what rounding left of 0."""
_SEEDS = (1, 4)
"""Values near 1: half precision overflows at larger ones, which is no property of the rule."""


def relative_error(rule: Rule, bindings: Bindings, dtype: str, seeds: Sequence[int]) -> float:
    """Worst error of the right side in ``dtype`` against the left side in float64.

    It is relative to the greatest magnitude of the result; 0 where nothing is finite.
    """
    double, narrow = program(rule, bindings, "float64"), program(rule, bindings, dtype)
    worst = 0.0
    for seed in seeds:
        drawn = FloatNumbers(seed).draw(bindings, seed)
        rounded = {n: a if a.dtype.kind in "bi" else a.astype(dtype) for n, a in drawn.items()}
        wide = {n: a if a.dtype.kind in "bi" else a.astype(np.float64) for n, a in rounded.items()}
        sides = zip(double.run(wide, FLOAT), narrow.run(rounded, FLOAT), strict=True)
        worst = max(worst, *(_relative(exact[0], result[1]) for exact, result in sides))
    return worst


def _relative(exact: Array, result: Array) -> float:
    exact, result = np.asarray(exact, np.float64), np.asarray(result, np.float64)
    finite = np.isfinite(exact) & np.isfinite(result)
    if not finite.any():
        return 0.0
    scale = float(np.abs(exact[finite]).max())
    if scale <= _CANCELLED:
        return 0.0
    return float(np.abs(exact[finite] - result[finite]).max()) / scale


def worst_errors(rules: Sequence[Rule], *, seed: int = 0) -> dict[str, float]:
    """Worst relative error by element type, over the larger of some instances of each direction."""
    worst = {SINGLE: 0.0, HALF: 0.0}
    with np.errstate(all="ignore"):
        for rule in rules:
            drawn = find_instances(rule, limit=_INSTANCES, seed=seed).points
            points = [b for b in drawn if not _is_integer(b)]
            for bindings in points[-_INSTANCES // 2 :]:
                for dtype in worst:
                    worst[dtype] = max(worst[dtype], relative_error(rule, bindings, dtype, _SEEDS))
    return worst


def _is_integer(bindings: Bindings) -> bool:
    return any(t.dtype in ("int64", "int32") for t in bindings.types.values())
