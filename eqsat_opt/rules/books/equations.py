"""The general equations, without the conditions that limit other families to where it pays.

They hold for any tensors, weights or not, and are read both ways, so they would blow up a model's
e-graph. They are the axioms from which other rules are derived (rules of TASO among them); with
the families above they make the 23 equations listed in :mod:`eqsat_opt.rules.axioms`.
"""

from __future__ import annotations

from eqsat_opt.rules.blockwise import scattered
from eqsat_opt.rules.forms import COLUMNS, FILTERS, ROWS, SAMPLES
from eqsat_opt.rules.rule import Int, Ints, Numerics, Phase, Sides, Tensor, rule
from eqsat_opt.rules.term import concat, ops

__all__: list[str] = []

_AXIOM = Phase.DERIVATION


matmul_columns = scattered(
    "equations/matmul-columns",
    "Concatenated columns of the right operand give concatenated columns of the matrix product.",
    COLUMNS,
)
matmul_rows = scattered(
    "equations/matmul-rows",
    "Concatenated rows of the left operand give concatenated rows of the matrix product.",
    ROWS,
)


@rule("equations/matmul-blocks", phase=_AXIOM, bidirectional=True, numerics=Numerics.REASSOCIATE)
def matmul_blocks(x: Tensor, y: Tensor, z: Tensor, w: Tensor) -> Sides:
    """A sum of two matrix products is one product of the concatenated operands."""
    return (
        x @ y + z @ w,
        concat(x, z, axis=1) @ concat(y, w, axis=0),
        x.rank == 2,
        y.rank == 2,
        z.rank == 2,
        w.rank == 2,
        (x.dim(0) == z.dim(0)).because("the sum broadcasts, the blocks cannot"),
        y.dim(1) == w.dim(1),
    )


@rule(
    "equations/conv-add-weights", phase=_AXIOM, bidirectional=True, numerics=Numerics.REFACTOR,
    backward=Numerics.REASSOCIATE,
)  # fmt: skip
def conv_add_weights(x: Tensor, w: Tensor, v: Tensor, s: Ints, p: Ints, d: Ints, g: Int) -> Sides:
    """A convolution is linear in its kernel: a sum of kernels gives a sum of convolutions."""
    attrs = {"strides": s, "pads": p, "dilations": d, "group": g}
    return (
        ops.Conv(x, w + v, **attrs),
        ops.Conv(x, w, **attrs) + ops.Conv(x, v, **attrs),
        w.shape == v.shape,
    )


conv_filters = scattered(
    "equations/conv-filters",
    "Concatenated filters give concatenated output channels, if there are no groups.",
    FILTERS,
)
conv_batch = scattered(
    "equations/conv-batch", "A convolution treats the samples of a batch independently.", SAMPLES
)


@rule("equations/conv-blocks", phase=_AXIOM, bidirectional=True, numerics=Numerics.REASSOCIATE)
def conv_blocks(x: Tensor, w: Tensor, y: Tensor, v: Tensor, s: Ints, p: Ints, d: Ints) -> Sides:
    """A sum of two convolutions is one over concatenated channels, if there are no groups."""
    attrs = {"strides": s, "pads": p, "dilations": d, "group": 1}
    return (
        ops.Conv(x, w, **attrs) + ops.Conv(y, v, **attrs),
        ops.Conv(concat(x, y, axis=1), concat(w, v, axis=1), **attrs),
        (x.dim(0) == y.dim(0)).because("the sum broadcasts, the stacked channels cannot"),
        w.dim(0) == v.dim(0),
    )


@rule("equations/concat-add", phase=_AXIOM, bidirectional=True)
def concat_add(x: Tensor, y: Tensor, z: Tensor, w: Tensor, axis: Int) -> Sides:
    """A sum of two concatenations is a concatenation of the sums of matching parts."""
    return (
        concat(x, y, axis) + concat(z, w, axis),
        concat(x + z, y + w, axis),
        x.shape == z.shape,
        y.shape == w.shape,
    )


@rule("equations/concat-mul", phase=_AXIOM, bidirectional=True)
def concat_mul(x: Tensor, y: Tensor, z: Tensor, w: Tensor, axis: Int) -> Sides:
    """A product of two concatenations is a concatenation of the products of matching parts."""
    return (
        concat(x, y, axis) * concat(z, w, axis),
        concat(x * z, y * w, axis),
        x.shape == z.shape,
        y.shape == w.shape,
    )


@rule("equations/concat-exchange", phase=_AXIOM)
def concat_exchange(x: Tensor, y: Tensor, z: Tensor, w: Tensor, a: Int, b: Int) -> Sides:
    """Four tensors in a 2 x 2 table are concatenated rows first or columns first."""
    return (
        concat(concat(x, y, b), concat(z, w, b), a),
        concat(concat(x, z, a), concat(y, w, a), b),
        a != b,
    )


@rule("equations/concat-assoc", phase=_AXIOM, bidirectional=True)
def concat_assoc(x: Tensor, y: Tensor, z: Tensor, axis: Int) -> Sides:
    """Concatenation along one axis is associative."""
    return concat(concat(x, y, axis), z, axis), concat(x, concat(y, z, axis), axis)


@rule("equations/conv-merge-groups", phase=_AXIOM)
def conv_merge_groups(
    x: Tensor, w: Tensor, y: Tensor, v: Tensor, s: Ints, p: Ints, d: Ints, g: Int, h: Int
) -> Sides:
    """Two convolutions that are concatenated are groups of one, if all groups have one size."""
    attrs = {"strides": s, "pads": p, "dilations": d}
    return (
        concat(ops.Conv(x, w, group=g, **attrs), ops.Conv(y, v, group=h, **attrs), axis=1),
        ops.Conv(concat(x, y, axis=1), concat(w, v, axis=0), group=g + h, **attrs),
        w.dim(1) == v.dim(1),
        (w.dim(0) * h == v.dim(0) * g).because("every group has as many filters"),
    )


@rule("equations/conv-split-groups", phase=_AXIOM)
def conv_split_groups(
    x: Tensor, w: Tensor, y: Tensor, v: Tensor, s: Ints, p: Ints, d: Ints, g: Int
) -> Sides:
    """A grouped convolution that is cut between two groups is a concatenation of two."""
    attrs = {"strides": s, "pads": p, "dilations": d}
    first, second = x.dim(1) // w.dim(1), y.dim(1) // v.dim(1)
    return (
        ops.Conv(concat(x, y, axis=1), concat(w, v, axis=0), group=g, **attrs),
        concat(ops.Conv(x, w, group=first, **attrs), ops.Conv(y, v, group=second, **attrs), axis=1),
        (w.dim(0) * y.dim(1) == v.dim(0) * x.dim(1)).because("the cut must lie between two groups"),
    )
