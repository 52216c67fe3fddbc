"""Axes, permutations and slices: the right operation along the wrong axis, or off by one."""

from __future__ import annotations

from eqsat_opt.rules import (
    Int,
    Ints,
    Numerics,
    Sides,
    Tensor,
    Term,
    Weight,
    concat,
    ops,
    rule,
    slice_,
)
from tests.gate.cases import f64, wrong

_R, _F = Numerics.REASSOCIATE, Numerics.REFACTOR


@wrong(x=f64(2, 3, 4), p=(1, 2, 0), i=0)
@rule("wrong/softmax-inverse-axis", numerics=_R)
def softmax_inverse_axis(x: Tensor, p: Ints, i: Int) -> Sides:
    """Moving a softmax inwards takes p[i], moving it outwards the inverse; they agree for swaps."""
    return (
        ops.Transpose(ops.Softmax(x, axis=i), perm=p),
        ops.Softmax(ops.Transpose(x, perm=p), axis=p[i]),
    )


@wrong(x=f64(2, 3, 4), p=(1, 2, 0), i=0)
@rule("wrong/softmax-same-axis", numerics=_R)
def softmax_same_axis(x: Tensor, p: Ints, i: Int) -> Sides:
    """The axis of a softmax moves with a transpose, unless it is one of the first two."""
    return (
        ops.Softmax(ops.Transpose(x, perm=p), axis=i),
        ops.Transpose(ops.Softmax(x, axis=i), perm=p),
        x.rank >= 3,
    )


@wrong(x=f64(2, 3, 4), p=(1, 2, 0), q=(0, 2, 1))
@rule("wrong/compose-other-order")
def compose_other_order(x: Tensor, p: Ints, q: Ints) -> Sides:
    """Permutations compose in one order only; swaps of the same axes hide it."""
    return (
        ops.Transpose(ops.Transpose(x, perm=p), perm=q),
        ops.Transpose(x, perm=tuple(q[p[i]] for i in range(3))),
        x.rank == 3,
    )


@wrong(x=f64(3, 3, 3), p=(1, 2, 0))
@rule("wrong/transpose-undone")
def transpose_undone(x: Tensor, p: Ints) -> Sides:
    """The same permutation twice is the identity for swaps only."""
    return ops.Transpose(ops.Transpose(x, perm=p), perm=p), x, x.dim(0) == x.dim(1)


@wrong(x=f64(2, 2, 2, 2), p=(1, 2, 3, 0))
@rule("wrong/transpose-six-times")
def transpose_six_times(x: Tensor, p: Ints) -> Sides:
    """Every permutation of three axes is undone by six turns, one of four axes is not."""
    result: Term = x
    for _ in range(6):
        result = ops.Transpose(result, perm=p)
    return result, x, x.rank >= 3


@wrong(x=f64(3, 3, 3), p=(1, 2, 0), i=1)
@rule("wrong/sum-of-transposed", numerics=_R)
def sum_of_transposed(x: Tensor, p: Ints, i: Int) -> Sides:
    """Summing the axis away leaves the others permuted."""
    return (
        ops.ReduceSum(ops.Transpose(x, perm=p), axes=(i,), keepdims=0),
        ops.ReduceSum(x, axes=(p[i],), keepdims=0),
        x.dim(0) == x.dim(1),
    )


@wrong(x=f64(3, 3, 4), y=f64(3, 3, 4), i=1, j=2)
@rule("wrong/sum-of-concat-axis", numerics=_R)
def sum_of_concat_axis(x: Tensor, y: Tensor, i: Int, j: Int) -> Sides:
    """An axis that is removed in front of the concatenated one moves it."""
    return (
        ops.ReduceSum(concat(x, y, i), axes=(j,), keepdims=0),
        concat(
            ops.ReduceSum(x, axes=(j,), keepdims=0), ops.ReduceSum(y, axes=(j,), keepdims=0), i - 1
        ),
        i >= 1,
        j != i,
    )


@wrong(x=f64(2, 3), y=f64(2, 5), i=1)
@rule("wrong/mean-of-concat", numerics=_F)
def mean_of_concat(x: Tensor, y: Tensor, i: Int) -> Sides:
    """The mean of two parts is the mean of their means only where they are as long."""
    mean = {"axes": (i,), "keepdims": 1}
    half = ops.ReduceMean(x, **mean) + ops.ReduceMean(y, **mean)
    return ops.ReduceMean(concat(x, y, i), **mean), ops.Scale(half, factor=0.5)


@wrong(x=f64(2, 3), y=f64(2, 3), i=0)
@rule("wrong/softmax-of-concat", numerics=_R)
def softmax_of_concat(x: Tensor, y: Tensor, i: Int) -> Sides:
    """A softmax along the concatenated axis sees both parts."""
    return (
        ops.Softmax(concat(x, y, i), axis=i),
        concat(ops.Softmax(x, axis=i), ops.Softmax(y, axis=i), i),
    )


@wrong(x=f64(2, 3), y=f64(2, 3), i=1)
@rule("wrong/concat-order")
def concat_order(x: Tensor, y: Tensor, i: Int) -> Sides:
    """Relu goes inwards, and the parts change places."""
    return ops.Relu(concat(x, y, i)), concat(ops.Relu(y), ops.Relu(x), i), x.shape == y.shape


@wrong(x=f64(2, 6), i=1, a=1, b=5, c=1, d=3)
@rule("wrong/slice-of-slice")
def slice_of_slice(x: Tensor, i: Int, a: Int, b: Int, c: Int, d: Int) -> Sides:
    """The second slice counts from the start of the first at both ends."""
    return slice_(slice_(x, i, a, b), i, c, d), slice_(x, i, c, d)


@wrong(x=f64(2, 6), y=f64(2, 4), i=1, a=6, b=8)
@rule("wrong/slice-of-concat")
def slice_of_concat(x: Tensor, y: Tensor, i: Int, a: Int, b: Int) -> Sides:
    """What begins behind the first part is read from the second, one too late."""
    return (
        slice_(concat(x, y, i), i, a, b),
        slice_(y, i, a - x.dim(i) + 1, b - x.dim(i) + 1),
        a >= x.dim(i),
    )


@wrong(x=f64(2, 6), y=f64(2, 4), i=1, a=5, b=8)
@rule("wrong/slice-across")
def slice_across(x: Tensor, y: Tensor, i: Int, a: Int, b: Int) -> Sides:
    """A slice that starts in the first part and ends in the second is cut at the wrong end."""
    return (
        slice_(concat(x, y, i), i, a, b),
        concat(slice_(x, i, a, x.dim(i)), slice_(y, i, y.dim(i) - (b - x.dim(i)), y.dim(i)), i),
        a < x.dim(i),
        b > x.dim(i),
    )


@wrong(x=f64(2, 7), i=1, a=3)
@rule("wrong/halves-of-odd")
def halves_of_odd(x: Tensor, i: Int, a: Int) -> Sides:
    """The halves of an odd extent leave one element out."""
    low, high = slice_(x, i, 0, a), slice_(x, i, a, 2 * a)
    return concat(low, high, i), x, x.dim(i) // 2 == a


@wrong(x=f64(2, 6), i=1, a=2)
@rule("wrong/rotate-back")
def rotate_back(x: Tensor, i: Int, a: Int) -> Sides:
    """Rotating by a and by a again is the identity for halves only."""

    def turned(of: Term) -> Term:
        return concat(slice_(of, i, a, x.dim(i)), slice_(of, i, 0, a), i)

    left = concat(slice_(x, i, a, 6), slice_(x, i, 0, a), i)
    return turned(left), x, x.dim(i) == 6


@wrong(x=f64(2, 3, 4), p=(1, 2, 0), i=1, a=0, b=2)
@rule("wrong/slice-of-transposed")
def slice_of_transposed(x: Tensor, p: Ints, i: Int, a: Int, b: Int) -> Sides:
    """The sliced axis of a transposed tensor is p[i], not i."""
    return (
        slice_(ops.Transpose(x, perm=p), i, a, b),
        ops.Transpose(slice_(x, i, a, b), perm=p),
        b <= x.dim(i),
    )


@wrong(x=f64(4, 6), i=0, r=2)
@rule("wrong/repeat-is-concat")
def repeat_is_concat(x: Tensor, i: Int, r: Int) -> Sides:
    """Repeating elements is not repeating the tensor."""
    return ops.Repeat(x, axis=i, repeats=r), concat(x, x, i), r == 2


@wrong(x=f64(4, 6), i=0, r=2, t=3)
@rule("wrong/repeat-reduced", numerics=_R)
def repeat_reduced(x: Tensor, i: Int, r: Int, t: Int) -> Sides:
    """The sum over a repeated axis counts every element r times."""
    summed = {"axes": (i,), "keepdims": 1}
    before = ops.ReduceSum(
        ops.Repeat(ops.Repeat(x, axis=i, repeats=r), axis=i, repeats=t), **summed
    )
    return before, ops.ReduceSum(ops.Repeat(x, axis=i, repeats=t), **summed)


@wrong(x=f64(3, 4, 3), i=0, j=1)
@rule("wrong/reduce-two-axes")
def reduce_two_axes(x: Tensor, i: Int, j: Int) -> Sides:
    """Without kept axes the second one has moved."""
    inner = ops.ReduceMax(x, axes=(i,), keepdims=0)
    return (
        ops.ReduceMax(inner, axes=(j,), keepdims=0),
        ops.ReduceMax(x, axes=(i, j), keepdims=0),
        i < j,
        x.dim(0) == x.dim(2),
    )


@wrong(x=f64(3, 3, 3), i=0, j=1)
@rule("wrong/reduce-two-axes-square")
def reduce_two_axes_square(x: Tensor, i: Int, j: Int) -> Sides:
    """The same where all extents agree, so that only values tell."""
    inner = ops.ReduceMax(x, axes=(i,), keepdims=0)
    return (
        ops.ReduceMax(inner, axes=(j,), keepdims=0),
        ops.ReduceMax(x, axes=(i, j), keepdims=0),
        i < j,
        x.dim(0) == x.dim(1),
        x.dim(1) == x.dim(2),
    )


@wrong(x=f64(2, 3, 4), i=0)
@rule("wrong/softmax-of-kept", numerics=_R)
def softmax_of_kept(x: Tensor, i: Int) -> Sides:
    """An axis of extent 1 is kept, so the softmax runs along another."""
    kept = ops.ReduceSum(x, axes=(i,), keepdims=1)
    return ops.Softmax(kept, axis=i + 1), ops.Softmax(kept, axis=i)


@wrong(x=f64(2, 6), a=2, b=6)
@rule("wrong/reshape-is-transpose")
def reshape_is_transpose(x: Tensor, a: Int, b: Int) -> Sides:
    """A reshape to exchanged extents moves nothing."""
    return ops.Reshape(x, shape=(b, a)), ops.Transpose(x, perm=(1, 0)), x.dim(0) == a, x.rank == 2


@wrong(x=f64(2, 3, 4), a=6, b=4)
@rule("wrong/reshape-of-transposed")
def reshape_of_transposed(x: Tensor, a: Int, b: Int) -> Sides:
    """Merging axes in the other order."""
    moved = ops.Transpose(x, perm=(1, 0, 2))
    return ops.Reshape(moved, shape=(a, b)), ops.Reshape(x, shape=(a, b)), b == x.dim(2)


@wrong(x=f64(2, 3), y=f64(2, 3), a=6)
@rule("wrong/concat-of-flat")
def concat_of_flat(x: Tensor, y: Tensor, a: Int) -> Sides:
    """Flat tensors that are concatenated are those concatenated along the first axis, no other."""
    flat = {"shape": (a,)}
    return (
        concat(ops.Reshape(x, **flat), ops.Reshape(y, **flat), 0),
        ops.Reshape(concat(x, y, 1), shape=(a + a,)),
        x.shape == y.shape,
        x.rank == 2,
    )


@wrong(x=f64(4, 3), a=2, b=6)
@rule("wrong/softmax-through-reshape", numerics=_R)
def softmax_through_reshape(x: Tensor, a: Int, b: Int) -> Sides:
    """The last axis of the reshaped tensor is longer."""
    return (
        ops.Reshape(ops.Softmax(x, axis=1), shape=(a, b)),
        ops.Softmax(ops.Reshape(x, shape=(a, b)), axis=1),
    )


@wrong(x=f64(4, 3, 4), y=f64(4, 4))
@rule("wrong/matmul-transposed")
def matmul_transposed(x: Tensor, y: Tensor) -> Sides:
    """Transposing a batch of products turns more than the last two axes."""
    left = ops.Transpose(x @ y, perm=(2, 0, 1))
    return left, ops.Transpose(y, perm=(1, 0)) @ ops.Transpose(x, perm=(2, 0, 1)), y.rank == 2


@wrong(x=f64(3, 3), y=f64(3, 3))
@rule("wrong/matmul-commutes", numerics=_R)
def matmul_commutes(x: Tensor, y: Tensor) -> Sides:
    """Products of square matrices do not commute."""
    return x @ y, y @ x, x.rank == 2, y.rank == 2, x.dim(0) == y.dim(1)


@wrong(x=f64(3, 3), y=f64(3, 3))
@rule("wrong/transposed-product")
def transposed_product(x: Tensor, y: Tensor) -> Sides:
    """The operands of a transposed product change places."""
    t = (1, 0)
    after = ops.Transpose(x, perm=t) @ ops.Transpose(y, perm=t)
    return ops.Transpose(x @ y, perm=t), after, x.rank == 2, y.rank == 2


@wrong(x=f64(2, 3), y=f64(3, 3), z=f64(3, 3))
@rule("wrong/product-order", numerics=_F)
def product_order(x: Tensor, y: Weight, z: Weight) -> Sides:
    """Two weights are multiplied ahead in the wrong order; shows where both are square."""
    return (x @ y) @ z, x @ (z @ y), y.rank == 2, z.rank == 2


@wrong(x=f64(2, 3), i=1, j=0)
@rule("wrong/log-softmax-axis", numerics=_F)
def log_softmax_axis(x: Tensor, i: Int, j: Int) -> Sides:
    """The logarithm of a softmax along another axis."""
    return ops.Log(ops.Softmax(ops.Softmax(x, axis=j), axis=i)), ops.LogSoftmax(
        ops.Softmax(x, axis=i), axis=j
    )


@wrong(x=f64(2, 3, 4), p=(2, 0, 1))
@rule("wrong/max-of-transposed-axes")
def max_of_transposed_axes(x: Tensor, p: Ints) -> Sides:
    """Two axes are reduced after a transpose; the inverse permutation names others."""
    reduced = ops.ReduceMax(ops.Transpose(x, perm=p), axes=(0, 1), keepdims=1)
    inverse = ops.ReduceMax(x, axes=(p[p[0]], p[p[1]]), keepdims=1)
    return reduced, ops.Transpose(inverse, perm=p), x.rank == 3


@wrong(x=f64(2, 3, 4), i=0, j=1)
@rule("wrong/center-axes", numerics=_R)
def center_axes(x: Tensor, i: Int, j: Int) -> Sides:
    """Centred along two axes one by one is not centred along both at once."""
    return ops.Center(ops.Center(x, axes=(i,)), axes=(j,)), ops.Center(x, axes=(i, j)), i != j


@wrong(x=f64(3, 4), i=0)
@rule("wrong/sum-then-last", numerics=_R)
def sum_then_last(x: Tensor, i: Int) -> Sides:
    """The last axis is meant, the second one is written: they agree up to rank 2."""
    return (
        ops.ReduceSum(ops.Softmax(x, axis=i), axes=(i,), keepdims=1),
        ops.ReduceSum(ops.Softmax(x, axis=1), axes=(i,), keepdims=1),
        i <= 1,
    )


@wrong(x=f64(2, 3, 3, 3))
@rule("wrong/swap-inner")
def swap_inner(x: Tensor) -> Sides:
    """Two transposes that look inverse to each other and are not."""
    inner = ops.Transpose(x, perm=(0, 2, 3, 1))
    return ops.Relu(ops.Transpose(inner, perm=(0, 2, 3, 1))), ops.Relu(x), x.dim(1) == x.dim(2)


@wrong(x=f64(2, 3, 4), y=f64(2, 3, 4), p=(1, 2, 0), i=0)
@rule("wrong/concat-of-transposed")
def concat_of_transposed(x: Tensor, y: Tensor, p: Ints, i: Int) -> Sides:
    """The axis of a concatenation moves with the transpose, the other way round."""
    return (
        ops.Transpose(concat(x, y, i), perm=p),
        concat(ops.Transpose(x, perm=p), ops.Transpose(y, perm=p), p[i]),
        x.shape == y.shape,
    )


@wrong(x=f64(2, 3, 4), y=f64(2, 3, 4))
@rule("wrong/pair-exchanged")
def pair_exchanged(x: Tensor, y: Tensor) -> Sides:
    """Two results of one concatenation come back in the wrong order."""
    both = ops.Relu(concat(x, y, 0))
    return (
        (ops.Relu(x), ops.Relu(y)),
        (slice_(both, 0, y.dim(0), x.dim(0) + y.dim(0)), slice_(both, 0, 0, x.dim(0))),
        x.shape == y.shape,
    )
