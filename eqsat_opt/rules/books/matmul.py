"""Matrix products: associativity, linearity, siblings, recurrent batching, low-rank adapters."""

from __future__ import annotations

from eqsat_opt.rules.blockwise import inward, merged_siblings, outward
from eqsat_opt.rules.forms import LAST_COLUMNS, ROWS, WEIGHT_COLUMNS, WEIGHT_ROWS
from eqsat_opt.rules.rule import Int, Numerics, Phase, Sides, Tensor, Weight, rule
from eqsat_opt.rules.term import concat, distinct, slice_

__all__: list[str] = []


@rule("matmul/assoc", bidirectional=True, numerics=Numerics.REASSOCIATE)
def assoc(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """Matrix products reassociate: weight chains fold, linear attention loses its L x L matrix."""
    return (x @ y) @ z, x @ (y @ z), x.rank >= 2, y.rank >= 2, z.rank >= 2


@rule("matmul/distribute-right", bidirectional=True, numerics=Numerics.REASSOCIATE)
def distribute_right(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """x(y + z) = xy + xz; read backwards it folds a low-rank adapter into its weight (LoRA)."""
    return x @ (y + z), x @ y + x @ z, y.shape == z.shape


@rule("matmul/distribute-left", bidirectional=True, numerics=Numerics.REASSOCIATE)
def distribute_left(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """(x + y)z = xz + yz: two products with one weight become one."""
    return (x + y) @ z, x @ z + y @ z, x.shape == y.shape


merge_weights = merged_siblings(
    "matmul/merge-weights",
    "Products that share the data become one with the weights side by side (query, key, value).",
    WEIGHT_COLUMNS,
)
batch_steps = merged_siblings(
    "matmul/batch-steps",
    "Products with one weight become one on stacked rows: all steps of a recurrent net.",
    WEIGHT_ROWS,
    reason="only values that do not depend on each other's products are stacked",
)
slice_columns = outward(
    "matmul/slice-columns",
    "Columns of the weight are columns of the product: merged weights give all parts.",
    WEIGHT_COLUMNS,
)
slice_rows = outward(
    "matmul/slice-rows",
    "Rows of the data are rows of the product: all steps of a recurrent net in one.",
    WEIGHT_ROWS,
)
take_rows = inward(
    "matmul/take-rows",
    "Rows of a product that nobody reads are not computed: the last token's logits.",
    ROWS,
)
take_columns = inward(
    "matmul/take-columns",
    "Columns of a product that nobody reads are not computed.",
    LAST_COLUMNS,
    phase=Phase.DERIVATION,
)


@rule("matmul/block-sum", numerics=Numerics.REASSOCIATE)
def block_sum(x: Tensor, y: Weight, z: Tensor, w: Weight) -> Sides:
    """Xy + zw is one product of blocks (recurrent cells: input and state)."""
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
    """Biases of merged products are added before the products are taken apart."""
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
    """A scalar factor moves between a product and its left operand."""
    return (x * s) @ y, (x @ y) * s, s.rank == 0, x.rank >= 2, y.rank >= 2


@rule("matmul/scale-right", bidirectional=True, numerics=Numerics.REASSOCIATE)
def scale_right(x: Tensor, y: Tensor, s: Tensor) -> Sides:
    """A scalar factor moves between a product and its right operand, where a weight swallows it."""
    return x @ (y * s), (x @ y) * s, s.rank == 0, x.rank >= 2, y.rank >= 2


@rule("matmul/bias-through-weight", numerics=Numerics.REFACTOR)
def bias_through(x: Tensor, b: Weight, w: Weight) -> Sides:
    """(x + b)w = xw + bw with a constant bw, so that weight chains with biases fold as well."""
    return (x + b) @ w, x @ w + b @ w, x.rank >= 2, b.rank == x.rank, w.rank == 2
