"""The check that a rule is bitexact: in single precision, every sum taken in one fixed order.

A rule of class bitexact computes every element by the same operations in the same order. So both
sides agree to the last bit wherever operators keep the order of their operands. They are run in
float32, with sums and matrix products that add from the first term to the last. Libraries sum in
orders that depend on the shape, and may differ for a rule that passes here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from eqsat_opt.errors import RuleRefuted
from eqsat_opt.ir.ops import OPS, Array
from eqsat_opt.ir.ops.domains import FloatDomain
from eqsat_opt.proving.checks.counterexample import Refutation, refutation_at
from eqsat_opt.proving.checks.differences import first_wrong
from eqsat_opt.proving.instances.search import Found, find_instances
from eqsat_opt.proving.numbers.evaluation import Values, normal_values
from eqsat_opt.rules.bindings import Bindings, fits
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import Expr, applied

__all__ = ["InOrderDomain", "InOrderNumbers", "rounding_difference"]

_SCALES = (1.0, 1.0, 1e-25, 1e12)
"""Scales of the values, by draw: operations exact for most numbers may underflow for small ones."""
_UNEVEN = (1.1, 1.3, 0.7)
"""Factors whose products with powers of two, and with each other, are rounded."""


class InOrderDomain(FloatDomain):
    """IEEE arithmetic whose sums run from the first term to the last."""

    def __init__(self, seed: int = 0) -> None:
        """Accept a seed, which has no effect, because other number domains need one."""

    def matmul(self, a: Array, b: Array) -> Array:
        """Return the matrix product over the last two axes."""
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
    """Sum over the last axis, which may be empty, from the first element to the last."""
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
        """Draw normal values of both signs at several scales; no zeros: poles are not covered."""
        scale = _SCALES[self.seed % len(_SCALES)]
        return {
            name: a if a.dtype.kind in "biu" else (a * scale).astype(np.float32)
            for name, a in normal_values(bindings, seed).items()
        }

    def wrong(self, left: Array, right: Array) -> npt.NDArray[np.bool_]:
        """Return the elements that differ in any bit but the sign of zero."""
        return np.asarray((left != right) & ((left == left) | (right == right)))


def _real_attributes(rule: Rule) -> list[str]:
    """Return the variables in real attributes of operators, however they are annotated."""
    found = [
        leaf.args[0]
        for node in applied(rule.roots)
        if node.op in OPS
        for name, pattern in node.attrs.items()
        if OPS[node.op].attrs.get(name) == "float" and isinstance(pattern, Expr)
        for leaf in pattern.leaves()
        if leaf.kind == "attr"
    ]
    return list(dict.fromkeys(found))


def _factors(rule: Rule, n: int) -> Iterator[tuple[float, ...]]:
    """Yield factors for ``n`` real attributes: all different, all the same, then any mixture."""
    yield tuple(itertools.islice(itertools.cycle(_UNEVEN), n))
    within = [1.0 + c.args[2] / 2 for c in rule.when if c.kind == "near"]
    for factor in (*_UNEVEN, *within):
        yield (factor,) * n
    yield from itertools.product((*_UNEVEN, *within, 1.0), repeat=n)


def _uneven(rule: Rule, found: Found, names: Sequence[str]) -> Found | None:
    """Scale real attributes so that they round; return ``None`` if the rule admits no such values.

    Instances have powers of two as real attributes, because all kinds of numbers hold these
    exactly.
    """
    # Whole attributes are not scaled: numbers that are computed from them round already.
    names = [name for name in names if isinstance(found.attrs[name], float)]
    if not names:
        return found
    for factors in _factors(rule, len(names)):
        if all(factor == 1.0 for factor in factors):
            continue
        attrs = {name: found.attrs[name] * f for name, f in zip(names, factors, strict=True)}
        changed = replace(found, attrs={**found.attrs, **attrs})
        if fits(rule.roots, rule.when, changed):
            return changed
    return None


def rounding_difference(rule: Rule, *, max_points: int, seed: int = 0) -> Refutation | None:
    """Find where both sides of a directed rule round differently; ``None`` if nowhere.

    Raises:
        RuleRefuted: the conditions of the rule admit no real attribute that rounds, so a difference
            could not be seen.
    """
    points = find_instances(rule, limit=max_points, seed=seed).points
    real = [point for point in points if not point.whole]
    if real and (names := _real_attributes(rule)):
        real = [one for found in real if (one := _uneven(rule, found, names)) is not None]
        if not real:
            raise RuleRefuted(
                f"rule {rule.name} is declared bitexact, but its conditions leave no value of "
                f"{', '.join(names)} that rounds, so this cannot be seen; declare another class",
                None,
            )
    with np.errstate(all="ignore"):
        wrong = first_wrong(rule, real, InOrderNumbers, range(seed, seed + len(_SCALES)))
        return None if isinstance(wrong, bool) else refutation_at(rule, *wrong)
