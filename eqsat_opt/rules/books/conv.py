"""Convolutions: siblings, kernel enlarging, residuals, linearity, folded scales.

Pads, strides, dilations and groups are explicit operands of every equation; all occurrences of a
variable must be equal.
"""

from __future__ import annotations

from eqsat_opt.rules.blockwise import gathered, inward, merged_siblings, outward
from eqsat_opt.rules.forms import FILTERS, SAMPLES, WEIGHT_FILTERS
from eqsat_opt.rules.rule import Int, Ints, Numerics, Phase, Sides, Tensor, Weight, rule
from eqsat_opt.rules.term import Term, concat, distinct, is_float, ops, slice_

__all__: list[str] = []


merge_siblings = merged_siblings(
    "conv/merge-siblings",
    "Two convolutions of one input become one with the filters of both; with groups the filters "
    "would meet other input channels.",
    WEIGHT_FILTERS,
)
slice_filters = outward(
    "conv/slice-filters",
    "A convolution with some of the filters is some channels of the whole one, so all parts of a "
    "merged kernel share one convolution; this does not hold with groups.",
    WEIGHT_FILTERS,
)
take_filters = inward(
    "conv/take-filters",
    "Only the output channels of a convolution that are read are computed.",
    FILTERS,
)
take_samples = inward(
    "conv/take-samples",
    "Only the samples of a batch that are read are convolved.",
    SAMPLES,
)
merge_samples = gathered(
    "conv/merge-samples",
    "Two convolutions with one kernel that are concatenated along the batch are one of the "
    "concatenated inputs.",
    SAMPLES,
)


@rule("conv/use-padded-kernel", numerics=Numerics.FINITE)
def use_padded_kernel(x: Tensor, w: Weight, s: Ints, a: Int, b: Int, c: Int, e: Int) -> Sides:
    """A convolution may use its kernel with a border of zeros, and pads as much larger.

    The zeros meet more pixels, so an infinity spreads. This applies only where the graph already
    holds the padded kernel.
    """
    padded = ops.Pad(w, pads=(0, 0, c, e, 0, 0, c, e), value=0.0)
    small = ops.Conv(x, w, strides=s, pads=(a, b, a, b), dilations=(1, 1), group=1)
    large = ops.Conv(
        x, padded, strides=s, pads=(a + c, b + e, a + c, b + e), dilations=(1, 1), group=1
    )
    return (small, padded), (large, padded), w.rank == 4, c >= 0, e >= 0


@rule("conv/enlarge-kernel", phase=Phase.SIBLINGS, numerics=Numerics.FINITE)
def enlarge_kernel(
    x: Tensor, w: Weight, v: Weight, s: Ints, a: Int, b: Int, c: Int, e: Int
) -> Sides:
    """A 1 x 1 kernel becomes a zero-padded 3 x 3 one where a 3 x 3 sibling can merge with it.

    The zeros meet the neighbours of each pixel, so an infinity spreads to them as 0 times it.
    """
    small = ops.Conv(x, w, strides=s, pads=(a, b, a, b), dilations=(1, 1), group=1)
    large = ops.Conv(x, v, strides=s, pads=(c, e, c, e), dilations=(1, 1), group=1)
    padded = ops.Pad(w, pads=(0, 0, 1, 1, 0, 0, 1, 1), value=0.0)
    return (
        (small, large),
        (ops.Conv(x, padded, strides=s, pads=(c, e, c, e), dilations=(1, 1), group=1), large),
        w.dim(2) == 1,
        w.dim(3) == 1,
        v.dim(2) == 3,
        v.dim(3) == 3,
        (c == a + 1).because("the pads must grow with the kernel"),
        e == b + 1,
    )


@rule("conv/enlarge-crossed-kernels", phase=Phase.SIBLINGS, numerics=Numerics.FINITE)
def enlarge_crossed_kernels(
    x: Tensor, w: Weight, v: Weight, s: Ints, a: Int, b: Int, c: Int, e: Int
) -> Sides:
    """A 1 x 3 and a 3 x 1 kernel become zero-padded 3 x 3 ones, which can merge with each other.

    This computes three times as much, and pays where a device has room to spare (MetaFlow, Figure
    7). The zeros meet further pixels, so an infinity spreads to them as 0 times it.
    """
    alike = {"strides": s, "dilations": (1, 1), "group": 1}
    pads = (c, b, c, b)
    return (
        (ops.Conv(x, w, pads=(a, b, a, b), **alike), ops.Conv(x, v, pads=(c, e, c, e), **alike)),
        (
            ops.Conv(x, ops.Pad(w, pads=(0, 0, 1, 0, 0, 0, 1, 0), value=0.0), pads=pads, **alike),
            ops.Conv(x, ops.Pad(v, pads=(0, 0, 0, 1, 0, 0, 0, 1), value=0.0), pads=pads, **alike),
        ),
        w.dim(2) == 1,
        w.dim(3) == 3,
        v.dim(2) == 3,
        v.dim(3) == 1,
        (c == a + 1).because("the pads must grow with the kernel"),
        b == e + 1,
    )


def _absorbed(x: Tensor, y: Tensor, w: Weight, p: Int, q: Int) -> tuple[Term, Term, Sides]:
    """Return a convolution, one that also adds ``y`` by an identity block, and the conditions."""
    identity = ops.IdentityKernel(channels=w.dim(0), height=w.dim(2), width=w.dim(3), dtype=x.dtype)
    attrs = {"strides": (1, 1), "pads": (p, q, p, q), "dilations": (1, 1), "group": 1}
    conditions = (
        distinct(x, y),
        y.rank == 4,
        y.dim(1) == w.dim(0),
        y.dim(0) == x.dim(0),
        y.dim(2) == x.dim(2),
        y.dim(3) == x.dim(3),
        (w.dim(2) == 2 * p + 1).because("the identity sits in the centre of an odd kernel"),
        w.dim(3) == 2 * q + 1,
    )
    whole = ops.Conv(concat(x, y, axis=1), concat(w, identity, axis=1), **attrs)
    return ops.Conv(x, w, **attrs), whole, conditions


@rule("conv/absorb-addend", numerics=Numerics.FINITE)
def absorb_addend(x: Tensor, y: Tensor, w: Weight, p: Int, q: Int) -> Sides:
    """conv(x, w) + y is one convolution over both, with an identity block in its kernel.

    It saves a pass over the result for more multiplications (MetaFlow, Figure 4b). The zeros of
    the block meet the neighbours of each pixel, so an infinity in y spreads to them as 0 times it.
    """
    own, whole, conditions = _absorbed(x, y, w=w, p=p, q=q)
    return own + y, whole, *conditions


@rule("conv/absorb-addend-after-bias", numerics=Numerics.FINITE)
def absorb_addend_after_bias(x: Tensor, y: Tensor, w: Weight, b: Weight, p: Int, q: Int) -> Sides:
    """(conv(x, w) + b) + y is one convolution over x and y, and then the bias."""
    own, whole, conditions = _absorbed(x, y, w=w, p=p, q=q)
    per_channel = [b.dim(axis) == 1 for axis in (0, 2, 3)]
    return (
        (own + b) + y,
        whole + b,
        *conditions,
        b.rank == 4,
        b.dim(1) == w.dim(0),
        *per_channel,
    )


@rule("conv/residual-identity", numerics=Numerics.FINITE)
def residual_identity(x: Tensor, w: Weight, p: Int, q: Int) -> Sides:
    """conv(x, w) + x = conv(x, w + I): the kernel absorbs a residual connection."""
    identity = ops.IdentityKernel(channels=w.dim(0), height=w.dim(2), width=w.dim(3), dtype=x.dtype)
    attrs = {"strides": (1, 1), "pads": (p, q, p, q), "dilations": (1, 1), "group": 1}
    return (
        ops.Conv(x, w, **attrs) + x,
        ops.Conv(x, w + identity, **attrs),
        w.dim(0) == w.dim(1),
        (w.dim(2) == 2 * p + 1).because("the identity sits in the centre of an odd kernel"),
        w.dim(3) == 2 * q + 1,
    )


@rule("conv/linear-in-weight", numerics=Numerics.FINITE)
def linear_in_weight(x: Tensor, w: Weight, v: Weight, s: Ints, p: Ints, d: Ints, g: Int) -> Sides:
    """Two convolutions of one input that are added are one with the sum of their kernels."""
    attrs = {"strides": s, "pads": p, "dilations": d, "group": g}
    return (
        ops.Conv(x, w, **attrs) + ops.Conv(x, v, **attrs),
        ops.Conv(x, w + v, **attrs),
        w.shape == v.shape,
    )


@rule(
    "conv/linear-in-data", bidirectional=True, numerics=Numerics.REASSOCIATE,
    backward=Numerics.REFACTOR,
)  # fmt: skip
def linear_in_data(x: Tensor, y: Tensor, w: Tensor, s: Ints, p: Ints, d: Ints, g: Int) -> Sides:
    """Two convolutions with one kernel that are added are one of the sum of their inputs."""
    attrs = {"strides": s, "pads": p, "dilations": d, "group": g}
    return (
        ops.Conv(x, w, **attrs) + ops.Conv(y, w, **attrs),
        ops.Conv(x + y, w, **attrs),
        x.shape == y.shape,
    )


@rule("conv/block-sum", numerics=Numerics.REASSOCIATE)
def block_sum(x: Tensor, w: Weight, y: Tensor, v: Weight, s: Ints, p: Ints, d: Ints) -> Sides:
    """Two convolutions that are added are one over the concatenated input channels."""
    attrs = {"strides": s, "pads": p, "dilations": d, "group": 1}
    return (
        ops.Conv(x, w, **attrs) + ops.Conv(y, v, **attrs),
        ops.Conv(concat(x, y, axis=1), concat(w, v, axis=1), **attrs),
        distinct(x, y),
        w.rank == 4,
        w.dim(2) == v.dim(2),
        w.dim(3) == v.dim(3),
    )


@rule("conv/fold-scale", numerics=Numerics.REFACTOR)
def fold_scale(x: Tensor, w: Weight, f: Weight, s: Ints, p: Ints, d: Ints, g: Int) -> Sides:
    """A constant factor per output channel of a convolution folds into its kernel."""
    attrs = {"strides": s, "pads": p, "dilations": d, "group": g}
    per_output = ops.Reshape(f, shape=(f.dim(1), 1, 1, 1))
    return (
        ops.Conv(x, w, **attrs) * f,
        ops.Conv(x, w * per_output, **attrs),
        f.rank == 4,
        w.rank == 4,
        f.dim(1) == w.dim(0),
        f.dim(0) == 1,
        f.dim(2) == 1,
        f.dim(3) == 1,
        is_float(x),
    )


@rule("conv/take-groups")
def take_groups(x: Tensor, w: Tensor, lo: Int, hi: Int, s: Ints, p: Ints, d: Ints, g: Int) -> Sides:
    """Where a slice of channels cuts between groups, only the groups in it are computed."""
    attrs = {"strides": s, "pads": p, "dilations": d}
    first, last = lo * g // w.dim(0), hi * g // w.dim(0)
    part = slice_(x, 1, first * w.dim(1), last * w.dim(1))
    return (
        slice_(ops.Conv(x, w, group=g, **attrs), 1, lo, hi),
        ops.Conv(part, slice_(w, 0, lo, hi), group=last - first, **attrs),
        (first * w.dim(0) == lo * g).because("the cut must lie between two groups"),
        last * w.dim(0) == hi * g,
        g > 1,
    )


# Other forms of one convolution -------------------------------------------------------------------


def _turned(x: Term) -> Term:
    return ops.Transpose(x, perm=(0, 1, 3, 2))


@rule("conv/column-as-row")
def column_as_row(
    x: Tensor, w: Weight, s: Int, t: Int, a: Int, b: Int, d: Int, e: Int, g: Int
) -> Sides:
    """A convolution along a column of width 1 is one along a row, which runtimes vectorise."""
    column = {"strides": (s, t), "pads": (a, 0, b, 0), "dilations": (d, e), "group": g}
    row = {"strides": (t, s), "pads": (0, a, 0, b), "dilations": (e, d), "group": g}
    return (
        ops.Conv(x, w, **column),
        _turned(ops.Conv(_turned(x), _turned(w), **row)),
        x.rank == 4,
        (x.dim(3) == 1).because("the image must be a column"),
        (w.dim(3) == 1).because("the kernel must be a column"),
        (w.dim(2) > 1).because("a row of a row would be a column again"),
    )
