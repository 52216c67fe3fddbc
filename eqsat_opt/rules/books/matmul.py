"""Matrix products: associativity, linearity, siblings, recurrent batching, low-rank adapters."""

from __future__ import annotations

from eqsat_opt.rules.blockwise import inward, merged_siblings, outward
from eqsat_opt.rules.forms import LAST_COLUMNS, ROWS, WEIGHT_COLUMNS, WEIGHT_ROWS
from eqsat_opt.rules.rule import Int, Numerics, Phase, Sides, Tensor, Weight, rule
from eqsat_opt.rules.term import concat, distinct, slice_

__all__: list[str] = []


@rule("matmul/assoc", bidirectional=True, numerics=Numerics.REASSOCIATE)
def assoc(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """Matrix products are associative: weights fold, linear attention needs no L x L matrix."""
    return (x @ y) @ z, x @ (y @ z), x.rank >= 2, y.rank >= 2, z.rank >= 2


@rule(
    "matmul/distribute-right", bidirectional=True, numerics=Numerics.REFACTOR,
    backward=Numerics.REASSOCIATE,
)  # fmt: skip
def distribute_right(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """x(y + z) = xy + xz; read backwards it folds a low-rank adapter into its weight (LoRA)."""
    return x @ (y + z), x @ y + x @ z, y.shape == z.shape


@rule(
    "matmul/distribute-left", bidirectional=True, numerics=Numerics.REFACTOR,
    backward=Numerics.REASSOCIATE,
)  # fmt: skip
def distribute_left(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """(x + y)z = xz + yz; read backwards, two products with one right operand become one."""
    return (x + y) @ z, x @ z + y @ z, x.shape == y.shape


merge_weights = merged_siblings(
    "matmul/merge-weights",
    "Two products of one tensor with different weights become one with the weights side by side, "
    "as for query, key and value.",
    WEIGHT_COLUMNS,
)
batch_steps = merged_siblings(
    "matmul/batch-steps",
    "Two products with one weight become one of the stacked rows, as over the steps of a recurrent "
    "net.",
    WEIGHT_ROWS,
    reason="only values that do not depend on each other's products are stacked",
)
slice_columns = outward(
    "matmul/slice-columns",
    "A product with some columns of a weight is those columns of the whole product, so all parts "
    "of a merged weight share one product.",
    WEIGHT_COLUMNS,
)
slice_rows = outward(
    "matmul/slice-rows",
    "A product of some rows with a weight is those rows of the whole product, so all steps of a "
    "recurrent net share one product.",
    WEIGHT_ROWS,
)
take_rows = inward(
    "matmul/take-rows",
    "Only the rows of a matrix product that are read are computed, as for the logits of the last "
    "token.",
    ROWS,
)
take_columns = inward(
    "matmul/take-columns",
    "Only the columns of a matrix product that are read are computed.",
    LAST_COLUMNS,
    phase=Phase.DERIVATION,
)


@rule("matmul/block-sum", numerics=Numerics.REASSOCIATE)
def block_sum(x: Tensor, y: Weight, z: Tensor, w: Weight) -> Sides:
    """A sum of two products is one product of concatenated operands, as in recurrent cells."""
    return (
        x @ y + z @ w,
        concat(x, z, axis=1) @ concat(y, w, axis=0),
        x.rank == 2,
        z.rank == 2,
        y.rank == 2,
        w.rank == 2,
        distinct(x, z),
    )


@rule("matmul/merge-operands", phase=Phase.SIBLINGS)
def merge_addends(m: Tensor, a: Weight, b: Weight, axis: Int, lo: Int, mid: Int, hi: Int) -> Sides:
    """Adjacent slices, as of merged products, get their biases in one addition before the cut."""
    whole = slice_(m, axis, lo, hi) + concat(a, b, axis=axis)
    return (
        (slice_(m, axis, lo, mid) + a, slice_(m, axis, mid, hi) + b),
        (slice_(whole, axis, 0, mid - lo), slice_(whole, axis, mid - lo, hi - lo)),
        a.rank == m.rank,
        b.rank == m.rank,
        a.dim(axis) == mid - lo,
        b.dim(axis) == hi - mid,
    )


@rule("matmul/scale-left", bidirectional=True, numerics=Numerics.REASSOCIATE)
def scale_left(x: Tensor, y: Tensor, s: Tensor) -> Sides:
    """A scalar factor moves between a matrix product and its left operand."""
    return (x * s) @ y, (x @ y) * s, s.rank == 0, x.rank >= 2, y.rank >= 2


@rule("matmul/scale-right", bidirectional=True, numerics=Numerics.REASSOCIATE)
def scale_right(x: Tensor, y: Tensor, s: Tensor) -> Sides:
    """A scalar factor moves between a matrix product and its right operand, often a weight."""
    return x @ (y * s), (x @ y) * s, s.rank == 0, x.rank >= 2, y.rank >= 2


@rule("matmul/bias-through-weight", numerics=Numerics.REFACTOR)
def bias_through(x: Tensor, b: Weight, w: Weight) -> Sides:
    """(x + b)w = xw + bw, where bw is a constant: chains of weights with biases fold as well."""
    return (x + b) @ w, x @ w + b @ w, x.rank >= 2, b.rank == x.rank, w.rank == 2
