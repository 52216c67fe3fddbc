"""Matrix products, with and without axes of a batch."""

from eqsat_opt.rules import Int, Numerics, Sides, Tensor, Weight, concat, ops, rule, slice_


@rule("products/transposed-batches", numerics=Numerics.REASSOCIATE, bidirectional=True)
def transposed_batches(x: Tensor, y: Tensor) -> Sides:
    """(xy)ᵀ = yᵀxᵀ, matrix by matrix."""
    return (
        ops.Transpose(x @ y, perm=(0, 1, 2, 3, 5, 4)),
        ops.Transpose(y, perm=(0, 1, 2, 3, 5, 4)) @ ops.Transpose(x, perm=(0, 1, 2, 3, 5, 4)),
        x.rank == 6,
        y.rank == 6,
    )


@rule("products/negated", bidirectional=True)
def negated(x: Tensor, y: Tensor) -> Sides:
    """A sign passes through every product of the sum."""
    return ops.Neg(x) @ y, ops.Neg(x @ y)


@rule("products/of-difference", numerics=Numerics.REFACTOR)
def of_difference(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """A product is linear in its left operand."""
    return (x - y) @ z, (x @ z) - (y @ z), x.shape == y.shape


@rule("products/of-squares", numerics=Numerics.REFACTOR)
def of_squares(x: Tensor, y: Tensor) -> Sides:
    """(x + y)(x + y) multiplied out, in this order."""
    return (
        (x + y) @ (x + y),
        ((x @ x) + (x @ y)) + ((y @ x) + (y @ y)),
        x.shape == y.shape,
        x.rank == 2,
    )


@rule("products/scaled-rows", numerics=Numerics.REASSOCIATE)
def scaled_columns_meet_rows(x: Tensor, s: Tensor, w: Weight) -> Sides:
    """A factor per column of x is a factor per row of w."""
    return (
        (x * s) @ w,
        x @ (ops.Reshape(s, shape=(s.dim(0), 1)) * w),
        x.rank == 2,
        w.rank == 2,
        s.rank == 1,
        s.dim(0) == x.dim(1),
    )


@rule("products/scaled-columns", numerics=Numerics.REASSOCIATE)
def scaled_columns(x: Tensor, s: Tensor, w: Weight) -> Sides:
    """A factor per column of the result is a factor per column of w."""
    return (
        (x @ w) * s,
        x @ (w * s),
        x.rank >= 2,
        w.rank == 2,
        s.rank == 1,
        s.dim(0) == w.dim(1),
    )


@rule("products/flattened-batch", numerics=Numerics.REASSOCIATE)
def flattened_batch(x: Tensor, w: Weight, a: Int, b: Int) -> Sides:
    """The rows of all matrices of a batch meet one weight."""
    return (
        ops.Reshape(x, shape=(a, b)) @ w,
        ops.Reshape(x @ w, shape=(a, w.dim(1))),
        x.rank == 3,
        w.rank == 2,
        b == x.dim(2),
    )


@rule("products/batches-joined", bidirectional=True)
def batches_joined(x: Tensor, y: Tensor, z: Tensor, w: Tensor) -> Sides:
    """Batches side by side."""
    return (
        concat(x @ z, y @ w, 0),
        concat(x, y, 0) @ concat(z, w, 0),
        x.rank == 3,
        y.rank == 3,
        z.rank == 3,
        w.rank == 3,
        x.dim(0) == z.dim(0),
        y.dim(0) == w.dim(0),
    )


@rule("products/batch-of-one")
def batch_of_one(x: Tensor, w: Weight, n: Int, m: Int) -> Sides:
    """A batch of one weight is the weight."""
    return (
        x @ ops.Reshape(w, shape=(1, n, m)),
        x @ w,
        x.rank == 3,
        w.rank == 2,
        n == w.dim(0),
    )


@rule("products/slice-of-batch", numerics=Numerics.REASSOCIATE)
def slice_of_batch(x: Tensor, y: Tensor, lo: Int, hi: Int) -> Sides:
    """Some matrices of a batch."""
    return (
        slice_(x @ y, 0, lo, hi),
        slice_(x, 0, lo, hi) @ slice_(y, 0, lo, hi),
        x.rank == 3,
        y.rank == 3,
        x.dim(0) == y.dim(0),
    )


@rule("products/row-vector", numerics=Numerics.REASSOCIATE)
def row_vector(x: Tensor, w: Tensor, n: Int) -> Sides:
    """A vector is a matrix of one row."""
    return (
        ops.Reshape(x, shape=(1, n)) @ w,
        ops.Reshape(x @ w, shape=(1, w.dim(1))),
        x.rank == 1,
        w.rank == 2,
    )


@rule("products/weighted-sum", numerics=Numerics.REASSOCIATE)
def weighted_sum(x: Tensor, w: Tensor) -> Sides:
    """A sum of products along the last axis."""
    return (
        ops.ReduceSum(x * w, axes=(1,), keepdims=0),
        x @ w,
        x.rank == 2,
        w.rank == 1,
        w.dim(0) == x.dim(1),
    )


@rule("products/sum-of-rows", numerics=Numerics.REFACTOR)
def sum_of_rows(x: Tensor, y: Tensor) -> Sides:
    """1ᵀ(xy) = (1ᵀx)y."""
    return (
        ops.ReduceSum(x @ y, axes=(0,), keepdims=1),
        ops.ReduceSum(x, axes=(0,), keepdims=1) @ y,
        x.rank == 2,
        y.rank == 2,
    )


@rule("products/zero-columns", numerics=Numerics.REFACTOR)
def zero_columns(x: Tensor, w: Tensor, n: Int) -> Sides:
    """Columns of zeros meet rows that do not count; infinite ones made a NaN."""
    return (
        ops.Pad(x, pads=(0, 0, 0, n), value=0.0) @ w,
        x @ slice_(w, 0, 0, x.dim(1)),
        w.rank == 2,
        n >= 0,
    )


@rule("products/outer", numerics=Numerics.REASSOCIATE)
def outer(x: Tensor, y: Tensor) -> Sides:
    """A column times a row has products of two numbers as elements."""
    return x @ y, x * y, x.rank == 2, y.rank == 2, x.dim(1) == 1


@rule("products/chain-of-three", numerics=Numerics.REASSOCIATE, bidirectional=True)
def chain_of_three(x: Tensor, y: Tensor, z: Tensor, w: Tensor) -> Sides:
    """Four matrices in another order."""
    return (
        ((x @ y) @ z) @ w,
        (x @ y) @ (z @ w),
        x.rank == 2,
        y.rank == 2,
        z.rank == 2,
        w.rank == 2,
    )
