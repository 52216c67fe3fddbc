"""What only moves data: transposes, reshapes, slices, pads, expansions, copies, gathers."""

from eqsat_opt.rules import (
    Float,
    Func,
    Int,
    Ints,
    Numerics,
    Sides,
    Tensor,
    concat,
    is_float,
    ops,
    rule,
    slice_,
)


@rule("movement/transposed-sum", bidirectional=True)
def transposed_sum(x: Tensor, y: Tensor, p: Ints) -> Sides:
    """Operands of one shape move alike."""
    return (
        ops.Max(ops.Transpose(x, perm=p), ops.Transpose(y, perm=p)),
        ops.Transpose(ops.Max(x, y), perm=p),
        x.shape == y.shape,
    )


@rule("movement/softmax-of-transpose", numerics=Numerics.REASSOCIATE)
def softmax_of_transpose(x: Tensor, p: Ints, i: Int) -> Sides:
    """The axis is another one before the transpose."""
    return (
        ops.LogSoftmax(ops.Transpose(x, perm=p), axis=i),
        ops.Transpose(ops.LogSoftmax(x, axis=p[i]), perm=p),
    )


@rule("movement/transpose-of-unit-axes")
def transpose_of_unit_axes(x: Tensor) -> Sides:
    """A column is the row in memory, too."""
    return (
        ops.Transpose(x, perm=(1, 0)),
        ops.Reshape(x, shape=(x.dim(1), x.dim(0))),
        x.rank == 2,
        x.dim(0) == 1,
    )


@rule("movement/reshape-of-concat")
def reshape_of_concat(x: Tensor, y: Tensor, a: Int, b: Int) -> Sides:
    """Rows of a matrix are added to it whatever they are made of."""
    return (
        ops.Reshape(concat(x, y, 0), shape=(a, b)),
        concat(
            ops.Reshape(x, shape=(x.dim(0), x.dim(1) * x.dim(2))),
            ops.Reshape(y, shape=(y.dim(0), y.dim(1) * y.dim(2))),
            0,
        ),
        x.rank == 3,
        a == x.dim(0) + y.dim(0),
        b == x.dim(1) * x.dim(2),
    )


@rule("movement/slice-of-reshape")
def slice_of_reshape(x: Tensor, a: Int, b: Int, lo: Int, hi: Int) -> Sides:
    """Rows of a tensor are rows of the matrix that it becomes."""
    return (
        slice_(ops.Reshape(x, shape=(a, b)), 0, lo, hi),
        ops.Reshape(slice_(x, 0, lo, hi), shape=(hi - lo, b)),
        x.rank == 3,
        a == x.dim(0),
    )


@rule("movement/concat-of-three", bidirectional=True)
def concat_of_three(x: Tensor, y: Tensor, z: Tensor, axis: Int) -> Sides:
    """One concatenation of three, or two of two."""
    return ops.Concat(x, y, z, axis=axis), concat(concat(x, y, axis), z, axis)


@rule("movement/concat-of-halves")
def concat_of_halves(x: Tensor, i: Int, m: Int) -> Sides:
    """A tensor cut into halves and joined again."""
    return (
        concat(slice_(x, i, 0, m), slice_(x, i, m, m + m), i),
        x,
        x.dim(i) // 2 == m,
        x.dim(i) == m + m,
    )


@rule("movement/slice-beyond-first")
def slice_beyond_first(x: Tensor, y: Tensor, z: Tensor, i: Int, lo: Int, hi: Int) -> Sides:
    """A slice within the second of three parts."""
    return (
        slice_(ops.Concat(x, y, z, axis=i), i, lo, hi),
        slice_(y, i, lo - x.dim(i), hi - x.dim(i)),
        x.dim(i) <= lo,
        hi <= x.dim(i) + y.dim(i),
    )


@rule("movement/pad-of-pad")
def pad_of_pad(x: Tensor, a: Int, b: Int, c: Int, d: Int, v: Float) -> Sides:
    """Two frames of the same value make a wider one."""
    return (
        ops.Pad(ops.Pad(x, pads=(a, b), value=v), pads=(c, d), value=v),
        ops.Pad(x, pads=(a + c, b + d), value=v),
        a >= 0,
        b >= 0,
        c >= 0,
        d >= 0,
    )


@rule("movement/pad-by-nothing")
def pad_by_nothing(x: Tensor, v: Float) -> Sides:
    """A frame of no width."""
    return ops.Pad(x, pads=(0, 0, 0, 0), value=v), x


@rule("movement/pad-of-scalar")
def pad_of_scalar(x: Tensor, v: Float) -> Sides:
    """A tensor without axes has no frame."""
    return ops.Pad(x, pads=(), value=v), x


@rule("movement/pad-as-crop")
def pad_as_crop(x: Tensor, a: Int, b: Int, v: Float) -> Sides:
    """Pads that are not positive only cut."""
    return (
        ops.Pad(x, pads=(a, b), value=v),
        slice_(x, 0, 0 - a, x.dim(0) + b),
        a <= 0,
        b <= 0,
    )


@rule("movement/pad-of-relu", bidirectional=True)
def pad_of_relu(x: Tensor, p: Ints, v: Float) -> Sides:
    """A frame that is not negative is its own relu."""
    return (
        ops.Pad(ops.Relu(x), pads=p, value=v),
        ops.Relu(ops.Pad(x, pads=p, value=v)),
        v >= 0.0,
    )


@rule("movement/pad-of-scale", bidirectional=True)
def pad_of_scale(x: Tensor, p: Ints, a: Float) -> Sides:
    """Zeros stay zeros."""
    return (
        ops.Pad(ops.Scale(x, factor=a), pads=p, value=0.0),
        ops.Scale(ops.Pad(x, pads=p, value=0.0), factor=a),
        is_float(x),
    )


@rule("movement/pads-added")
def pads_added(x: Tensor, y: Tensor, p: Ints) -> Sides:
    """0 + 0 = 0."""
    return (
        ops.Pad(x, pads=p, value=0.0) + ops.Pad(y, pads=p, value=0.0),
        ops.Pad(x + y, pads=p, value=0.0),
        x.shape == y.shape,
    )


@rule("movement/pads-multiplied")
def pads_multiplied(x: Tensor, y: Tensor, p: Ints, v: Float) -> Sides:
    """A frame of zeros wins over any number."""
    return (
        ops.Pad(x, pads=p, value=v) * ops.Pad(y, pads=p, value=0.0),
        ops.Pad(x * y, pads=p, value=0.0),
        x.shape == y.shape,
    )


@rule("movement/pad-of-transpose", bidirectional=True)
def pad_of_transpose(x: Tensor, a: Int, b: Int, c: Int, d: Int, v: Float) -> Sides:
    """The widths move with their axes."""
    return (
        ops.Pad(ops.Transpose(x, perm=(1, 0)), pads=(a, b, c, d), value=v),
        ops.Transpose(ops.Pad(x, pads=(b, a, d, c), value=v), perm=(1, 0)),
    )


@rule("movement/pad-as-concat")
def pad_as_concat(x: Tensor, n: Int, v: Float) -> Sides:
    """A frame on one side is a constant block."""
    return (
        ops.Pad(x + ops.Scalar(value=0.5, dtype="float32"), pads=(0, n), value=v),
        concat(
            x + ops.Scalar(value=0.5, dtype="float32"),
            ops.Fill(shape=(n,), value=v, dtype="float32"),
            0,
        ),
        n >= 1,
    )


@rule("movement/map-of-expand", bidirectional=True)
def map_of_expand(x: Tensor, s: Ints) -> Sides:
    """Copies are negated alike."""
    return ops.Neg(ops.Expand(x, shape=s)), ops.Expand(ops.Neg(x), shape=s)


@rule("movement/expanded-sum")
def expanded_sum(x: Tensor, y: Tensor, s: Ints) -> Sides:
    """Adding before copying is cheaper."""
    return (
        ops.Expand(x, shape=s) + ops.Expand(y, shape=s),
        ops.Expand(x + y, shape=s),
        x.shape == y.shape,
    )


@rule("movement/idle-expand")
def idle_expand(x: Tensor, y: Tensor, a: Int, b: Int) -> Sides:
    """An operator that broadcasts needs no copies."""
    return (
        ops.Expand(x, shape=(a, b)) * y,
        x * y,
        y.rank == 2,
        y.dim(0) == a,
        y.dim(1) == b,
    )


@rule("movement/repeat-of-repeat")
def repeat_of_repeat(x: Tensor, i: Int, n: Int, m: Int) -> Sides:
    """Copies of copies."""
    return (
        ops.Repeat(ops.Repeat(x, axis=i, repeats=n), axis=i, repeats=m),
        ops.Repeat(x, axis=i, repeats=n * m),
    )


@rule("movement/map-of-repeat", bidirectional=True)
def map_of_repeat(x: Tensor, i: Int, n: Int) -> Sides:
    """Copies are clipped alike."""
    return ops.Relu(ops.Repeat(x, axis=i, repeats=n)), ops.Repeat(ops.Relu(x), axis=i, repeats=n)


@rule("movement/repeat-of-concat", bidirectional=True)
def repeat_of_concat(x: Tensor, y: Tensor, i: Int, j: Int, n: Int) -> Sides:
    """Every element is repeated where it stands, whichever part it is of."""
    return (
        ops.Repeat(concat(x, y, j), axis=i, repeats=n),
        concat(ops.Repeat(x, axis=i, repeats=n), ops.Repeat(y, axis=i, repeats=n), j),
    )


@rule("movement/slice-of-repeat")
def slice_of_repeat(x: Tensor, i: Int, n: Int, lo: Int, hi: Int) -> Sides:
    """A slice that starts and ends between groups of copies."""
    return (
        slice_(ops.Repeat(x, axis=i, repeats=n), i, lo, hi),
        ops.Repeat(slice_(x, i, lo // n, hi // n), axis=i, repeats=n),
        (lo // n) * n == lo,
        (hi // n) * n == hi,
    )


@rule("movement/gather-of-map", numerics=Numerics.REASSOCIATE, bidirectional=True)
def gather_of_map(x: Tensor, k: Tensor, f: Func, axis: Int) -> Sides:
    """Rows are looked up before or after a function of their elements."""
    return ops.Gather(f(x), k, axis=axis), f(ops.Gather(x, k, axis=axis))


@rule("movement/gather-of-sum")
def gather_of_sum(x: Tensor, y: Tensor, k: Tensor, axis: Int) -> Sides:
    """Two tables that are added row by row."""
    return (
        ops.Gather(x, k, axis=axis) + ops.Gather(y, k, axis=axis),
        ops.Gather(x + y, k, axis=axis),
        x.shape == y.shape,
    )


@rule("movement/gather-of-gather")
def gather_of_gather(x: Tensor, k: Tensor, m: Tensor) -> Sides:
    """Indices are looked up instead of rows."""
    return (
        ops.Gather(ops.Gather(x, k, axis=0), m, axis=0),
        ops.Gather(x, ops.Gather(k, m, axis=0), axis=0),
        k.rank == 1,
    )


@rule("movement/gather-of-concat")
def gather_of_concat(x: Tensor, y: Tensor, k: Tensor) -> Sides:
    """Columns side by side are looked up side by side."""
    return (
        ops.Gather(concat(x, y, 1), k, axis=0),
        concat(ops.Gather(x, k, axis=0), ops.Gather(y, k, axis=0), 1),
        k.rank == 1,
    )


@rule("movement/gather-of-indices-joined")
def gather_of_indices_joined(x: Tensor, k: Tensor, m: Tensor) -> Sides:
    """Two lists of rows at once."""
    return (
        concat(ops.Gather(x, k, axis=0), ops.Gather(x, m, axis=0), 0),
        ops.Gather(x, concat(k, m, 0), axis=0),
        k.rank == 1,
        m.rank == 1,
    )


@rule("movement/gather-of-product")
def gather_of_product(x: Tensor, w: Tensor, k: Tensor) -> Sides:
    """Only the rows that are looked up are multiplied."""
    return (
        ops.Gather(x @ w, k, axis=0),
        ops.Gather(x, k, axis=0) @ w,
        x.rank == 2,
        w.rank == 2,
        k.rank == 1,
    )
