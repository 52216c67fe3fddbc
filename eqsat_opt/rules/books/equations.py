"""The general equations: whatever the other families restrict to where it pays, without the limit.

They hold for any tensors, weights or not, and are read both ways, so they would blow a model's
e-graph up. They are the axioms from which other rules are derived (rules of TASO among them); with
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
    "equations/matmul-columns", "Columns of the right operand are columns of the product.", COLUMNS
)
matmul_rows = scattered(
    "equations/matmul-rows", "Rows of the left operand are rows of the product.", ROWS
)


@rule("equations/matmul-blocks", phase=_AXIOM, bidirectional=True, numerics=Numerics.REASSOCIATE)
def matmul_blocks(x: Tensor, y: Tensor, z: Tensor, w: Tensor) -> Sides:
    """A sum of products is one product of blocks."""
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


@rule("equations/conv-add-weights", phase=_AXIOM, bidirectional=True, numerics=Numerics.REASSOCIATE)
def conv_add_weights(x: Tensor, w: Tensor, v: Tensor, s: Ints, p: Ints, d: Ints, g: Int) -> Sides:
    """A convolution is linear in its weight."""
    attrs = {"strides": s, "pads": p, "dilations": d, "group": g}
    return (
        ops.Conv(x, w + v, **attrs),
        ops.Conv(x, w, **attrs) + ops.Conv(x, v, **attrs),
        w.shape == v.shape,
    )


conv_filters = scattered(
    "equations/conv-filters",
    "Filters side by side give channels side by side; groups would pair them with other inputs.",
    FILTERS,
)
conv_batch = scattered("equations/conv-batch", "Samples do not see each other.", SAMPLES)


@rule("equations/conv-blocks", phase=_AXIOM, bidirectional=True, numerics=Numerics.REASSOCIATE)
def conv_blocks(x: Tensor, w: Tensor, y: Tensor, v: Tensor, s: Ints, p: Ints, d: Ints) -> Sides:
    """A sum of convolutions is one of stacked channels; groups would keep the channels apart."""
    attrs = {"strides": s, "pads": p, "dilations": d, "group": 1}
    return (
        ops.Conv(x, w, **attrs) + ops.Conv(y, v, **attrs),
        ops.Conv(concat(x, y, axis=1), concat(w, v, axis=1), **attrs),
        (x.dim(0) == y.dim(0)).because("the sum broadcasts, the stacked channels cannot"),
        w.dim(0) == v.dim(0),
    )


@rule("equations/concat-add", phase=_AXIOM, bidirectional=True)
def concat_add(x: Tensor, y: Tensor, z: Tensor, w: Tensor, axis: Int) -> Sides:
    """Sums of matching parts are one sum."""
    return (
        concat(x, y, axis) + concat(z, w, axis),
        concat(x + z, y + w, axis),
        x.shape == z.shape,
        y.shape == w.shape,
    )


@rule("equations/concat-mul", phase=_AXIOM, bidirectional=True)
def concat_mul(x: Tensor, y: Tensor, z: Tensor, w: Tensor, axis: Int) -> Sides:
    """Products of matching parts are one product."""
    return (
        concat(x, y, axis) * concat(z, w, axis),
        concat(x * z, y * w, axis),
        x.shape == z.shape,
        y.shape == w.shape,
    )


@rule("equations/concat-exchange", phase=_AXIOM)
def concat_exchange(x: Tensor, y: Tensor, z: Tensor, w: Tensor, a: Int, b: Int) -> Sides:
    """A table of tensors is stacked by rows or by columns; the equation is its own inverse."""
    return (
        concat(concat(x, y, b), concat(z, w, b), a),
        concat(concat(x, z, a), concat(y, w, a), b),
        a != b,
    )


@rule("equations/concat-assoc", phase=_AXIOM, bidirectional=True)
def concat_assoc(x: Tensor, y: Tensor, z: Tensor, axis: Int) -> Sides:
    """Concatenations along one axis nest either way."""
    return concat(concat(x, y, axis), z, axis), concat(x, concat(y, z, axis), axis)


@rule("equations/conv-merge-groups", phase=_AXIOM)
def conv_merge_groups(
    x: Tensor, w: Tensor, y: Tensor, v: Tensor, s: Ints, p: Ints, d: Ints, g: Int, h: Int
) -> Sides:
    """Independent convolutions are groups of one, if all groups are of one size."""
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
    """A grouped convolution falls apart between two groups."""
    attrs = {"strides": s, "pads": p, "dilations": d}
    first, second = x.dim(1) // w.dim(1), y.dim(1) // v.dim(1)
    return (
        ops.Conv(concat(x, y, axis=1), concat(w, v, axis=0), group=g, **attrs),
        concat(ops.Conv(x, w, group=first, **attrs), ops.Conv(y, v, group=second, **attrs), axis=1),
        (w.dim(0) * y.dim(1) == v.dim(0) * x.dim(1)).because("the cut must lie between two groups"),
    )
