"""Whether a rule is bitexact: single precision, every sum taken in one fixed order.

A rule of class bitexact computes every element by the same operations in the same order. Then both
sides agree to the last bit wherever operators keep the order of their operands: so they are run in
float32, with sums and matrix products that add from the first term to the last. Libraries sum in
orders that depend on the shape, and may differ for a rule that passes here.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from eqsat_opt.ir.ops import Array
from eqsat_opt.ir.ops.domains import FloatDomain
from eqsat_opt.rules.bindings import Bindings, holds, type_of
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.verify.counterexample import Refutation, refutation_at
from eqsat_opt.rules.verify.differences import first_wrong
from eqsat_opt.rules.verify.evaluation import Values, normal_values
from eqsat_opt.rules.verify.instances import Found, find_instances
from eqsat_opt.rules.verify.left_side import REFUSED

__all__ = ["InOrderDomain", "InOrderNumbers", "rounding_difference"]

_SEEDS = 2
_UNEVEN = (1.1, 1.3, 0.7)
"""Powers of two times these are rounded, and so are their products."""


class InOrderDomain(FloatDomain):
    """IEEE arithmetic whose sums run from the first term to the last."""

    def __init__(self, seed: int = 0) -> None:
        """All are equal; ``seed`` is there because other numbers need one."""

    def matmul(self, a: Array, b: Array) -> Array:
        """Matrix product over the last two axes."""
        left = a[np.newaxis] if a.ndim == 1 else a
        right = b[:, np.newaxis] if b.ndim == 1 else b
        product = _last_sum(
            np.swapaxes(left[..., np.newaxis] * right[..., np.newaxis, :, :], -2, -1)
        )
        axes = ((-2,) if a.ndim == 1 else ()) + ((-1,) if b.ndim == 1 else ())
        return np.squeeze(product, axes)

    def sum(self, a: Array, axes: tuple[int, ...]) -> Array:
        """Sum over ``axes``, which are kept with size 1."""
        summed = sorted(axis % a.ndim for axis in axes)
        kept = [axis for axis in range(a.ndim) if axis not in summed]
        count = math.prod(a.shape[axis] for axis in summed)
        rows = a.transpose(*kept, *summed).reshape(*(a.shape[axis] for axis in kept), count)
        shape = [1 if axis in summed else size for axis, size in enumerate(a.shape)]
        return _last_sum(rows).reshape(shape)


def _last_sum(a: Array) -> Array:
    """Over the last axis, which may be empty."""
    if a.shape[-1] == 0:
        return np.zeros(a.shape[:-1], a.dtype)
    return np.asarray(np.add.accumulate(a, axis=-1, dtype=a.dtype)[..., -1])


@dataclass(frozen=True)
class InOrderNumbers:
    """Single precision with sums in order."""

    seed: int
    name = "float32 with sums in order"
    dtype = "float32"
    domain = InOrderDomain()

    def draw(self, bindings: Bindings, seed: int) -> Values:
        """Normal values of both signs; no zeros, for poles are not covered."""
        values = normal_values(bindings, seed)
        return {n: a if a.dtype.kind == "b" else a.astype(np.float32) for n, a in values.items()}

    def wrong(self, left: Array, right: Array) -> npt.NDArray[np.bool_]:
        """Elements that differ in any bit but the sign of zero."""
        return np.asarray((left != right) & ((left == left) | (right == right)))


def _uneven(rule: Rule, found: Found) -> Found:
    """The same instance with factors that round, where the rule admits them.

    Instances have powers of two for real attributes, since all numbers hold these exactly.
    """
    names = [name for name, kind in rule.kinds if kind == "Float"]
    factors = zip(names, itertools.cycle(_UNEVEN))
    attrs = {name: found.attrs[name] * factor for name, factor in factors}
    changed = replace(found, attrs={**found.attrs, **attrs})
    try:
        for root in (*rule.lhs, *rule.rhs):
            type_of(root, changed)
    except REFUSED:
        return found
    # How tensors relate does not depend on numbers, and it did hold.
    fits = all(holds(condition, changed, lambda *_: True) for condition in rule.when)
    return changed if fits else found


def rounding_difference(rule: Rule, *, max_points: int, seed: int = 0) -> Refutation | None:
    """Where both sides of a directed rule round differently; ``None`` if nowhere.

    Args:
        rule: one direction; it holds over the reals.
        max_points: instances to look at.
        seed: of instances and values.
    """
    points = find_instances(rule, limit=max_points, seed=seed).points
    real = [b for b in points if all(t.dtype != "int64" for t in b.types.values())]
    with np.errstate(all="ignore"):
        uneven = [_uneven(rule, found) for found in real]
        wrong = first_wrong(rule, uneven, InOrderNumbers, range(seed, seed + _SEEDS))
        return None if isinstance(wrong, bool) else refutation_at(rule, *wrong)
