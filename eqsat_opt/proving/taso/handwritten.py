"""Substitutions that other systems ship as code and that are wrong, as rules of this package.

They were found in the sources of TASO (HEAD, 2021), OCGGS and MetaFlow. They are here to be
refused; only ``taso-published``, a set for comparing costs, has two of them.
"""

from __future__ import annotations

from eqsat_opt.rules.rule import Ints, Rule, Sides, Tensor, rule
from eqsat_opt.rules.term import Condition, Var, concat, ops, slice_

__all__ = ["HAND_WRITTEN"]


def _per_channel(w: Var, y: Var) -> tuple[Condition, ...]:
    """Return conditions for the usual case: ``y`` has one number per channel of a convolution."""
    extents = [y.dim(axis) == 1 for axis in (0, 2, 3)]
    return w.rank == 4, y.rank == 4, y.dim(1) == w.dim(0), *extents


@rule("handwritten/conv-mul")
def _conv_mul(x: Tensor, w: Tensor, y: Tensor, s: Ints, p: Ints, d: Ints) -> Sides:
    """TASO and OCGGS, four variants of stride and padding: the factor is dropped."""
    conv = ops.Conv(x, w, strides=s, pads=p, dilations=d, group=1)
    return conv * y, conv, *_per_channel(w, y)


@rule("handwritten/conv-add")
def _conv_add(x: Tensor, w: Tensor, y: Tensor, s: Ints, p: Ints, d: Ints) -> Sides:
    """OCGGS, four variants of stride and padding (off in TASO): the addend is dropped."""
    conv = ops.Conv(x, w, strides=s, pads=p, dilations=d, group=1)
    return conv + y, conv, *_per_channel(w, y)


@rule("handwritten/enlarge-same-stride-2")
def _enlarge(x: Tensor, w: Tensor) -> Sides:
    """TASO and TENSAT: a kernel enlarged under SAME padding, which stride 2 puts at the end."""
    attrs = {"strides": (2, 2), "dilations": (1, 1), "group": 1}
    padded = ops.Pad(w, pads=(0, 0, 1, 1, 0, 0, 1, 1), value=0.0)
    return (
        ops.Conv(x, w, pads=(0, 0, 0, 0), **attrs),
        ops.Conv(x, padded, pads=(0, 0, 1, 1), **attrs),
        w.rank == 4,
        w.dim(2) == 1,
        w.dim(3) == 1,
        x.dim(2) == x.dim(2) // 2 * 2,
        x.dim(3) == x.dim(3) // 2 * 2,
    )


@rule("handwritten/merge-by-greatest-kernel")
def _merge(x: Tensor, w: Tensor, v: Tensor) -> Sides:
    """MetaFlow: siblings merge at the greatest kernel and pad, whatever their own pads are."""
    attrs = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1}
    padded = ops.Pad(w, pads=(0, 0, 1, 1, 0, 0, 1, 1), value=0.0)
    both = ops.Conv(x, concat(padded, v, axis=0), **attrs)
    return (
        (ops.Conv(x, w, **attrs), ops.Conv(x, v, **attrs)),
        (slice_(both, 1, 0, w.dim(0)), slice_(both, 1, w.dim(0), w.dim(0) + v.dim(0))),
        w.rank == 4,
        w.dim(2) == 1,
        w.dim(3) == 1,
        v.dim(2) == 3,
        v.dim(3) == 3,
    )


HAND_WRITTEN: tuple[Rule, ...] = (_conv_mul, _conv_add, _enlarge, _merge)
"""The wrong rules; :func:`~eqsat_opt.proving.checks.exact.check_rule` refutes each of them."""
