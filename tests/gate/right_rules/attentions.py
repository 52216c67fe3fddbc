"""Softmax, attention and rotary positions."""

from eqsat_opt.rules import (
    Float,
    Func,
    Int,
    Numerics,
    Sides,
    Tensor,
    Term,
    concat,
    ops,
    rule,
    slice_,
)


@rule("attentions/row-constant", numerics=Numerics.RELAXED)
def row_constant(x: Tensor, c: Tensor) -> Sides:
    """What is added to a whole row divides out."""
    return (
        ops.Softmax(x + c, axis=1),
        ops.Softmax(x, axis=1),
        x.rank == 2,
        c.rank == 2,
        c.dim(0) == x.dim(0),
        c.dim(1) == 1,
    )


@rule("attentions/logarithm-of-softmax", numerics=Numerics.RELAXED)
def logarithm_of_softmax(x: Tensor, i: Int) -> Sides:
    """Spelled out."""
    return ops.Log(ops.Softmax(x, axis=i)), ops.LogSoftmax(x, axis=i)


@rule("attentions/softmax-of-log-softmax", numerics=Numerics.RELAXED)
def softmax_of_log_softmax(x: Tensor, i: Int) -> Sides:
    """What was subtracted divides out."""
    return ops.Softmax(ops.LogSoftmax(x, axis=i), axis=i), ops.Softmax(x, axis=i)


@rule("attentions/softmax-sums-to-one", numerics=Numerics.RELAXED)
def softmax_sums_to_one(x: Tensor, y: Tensor, i: Int) -> Sides:
    """Times 1."""
    return (
        y * ops.ReduceSum(ops.Softmax(x, axis=i), axes=(i,), keepdims=1),
        y,
        x.shape == y.shape,
    )


@rule("attentions/scaled-queries", numerics=Numerics.REASSOCIATE)
def scaled_queries(q: Tensor, k: Tensor, v: Tensor, a: Float, s: Float) -> Sides:
    """A factor of all queries is one of the logits."""
    return (
        ops.Attention(ops.Scale(q, factor=a), k, v, scale=s),
        ops.Attention(q, k, v, scale=a * s),
    )


@rule("attentions/scaled-keys", numerics=Numerics.REASSOCIATE)
def scaled_keys(q: Tensor, k: Tensor, v: Tensor, m: Tensor, a: Float, s: Float) -> Sides:
    """A factor of all keys is one of the logits."""
    return (
        ops.MaskedAttention(q, ops.Scale(k, factor=a), v, m, scale=s),
        ops.MaskedAttention(q, k, v, m, scale=a * s),
    )


@rule("attentions/scaled-values", numerics=Numerics.REASSOCIATE, bidirectional=True)
def scaled_values(q: Tensor, k: Tensor, v: Tensor, a: Float, s: Float) -> Sides:
    """Attention is linear in the values."""
    return (
        ops.Attention(q, k, ops.Scale(v, factor=a), scale=s),
        ops.Scale(ops.Attention(q, k, v, scale=s), factor=a),
    )


@rule("attentions/values-added", numerics=Numerics.REASSOCIATE)
def values_added(q: Tensor, k: Tensor, v: Tensor, w: Tensor, s: Float) -> Sides:
    """Attention is linear in the values."""
    return (
        ops.Attention(q, k, v, scale=s) + ops.Attention(q, k, w, scale=s),
        ops.Attention(q, k, v + w, scale=s),
        v.shape == w.shape,
    )


@rule("attentions/queries-joined", bidirectional=True)
def queries_joined(q: Tensor, r: Tensor, k: Tensor, v: Tensor, s: Float) -> Sides:
    """Queries do not see each other."""
    return (
        ops.Attention(concat(q, r, 2), k, v, scale=s),
        concat(ops.Attention(q, k, v, scale=s), ops.Attention(r, k, v, scale=s), 2),
    )


@rule("attentions/features-joined", bidirectional=True)
def features_joined(q: Tensor, k: Tensor, v: Tensor, w: Tensor, s: Float) -> Sides:
    """Features of the values do not see each other."""
    return (
        ops.Attention(q, k, concat(v, w, 3), scale=s),
        concat(ops.Attention(q, k, v, scale=s), ops.Attention(q, k, w, scale=s), 3),
    )


@rule("attentions/mask-shifted", numerics=Numerics.RELAXED)
def mask_shifted(q: Tensor, k: Tensor, v: Tensor, m: Tensor, s: Float, a: Float) -> Sides:
    """What is added to all logits divides out."""
    return (
        ops.MaskedAttention(q, k, v, ops.Shift(m, offset=a), scale=s),
        ops.MaskedAttention(q, k, v, m, scale=s),
    )


@rule("attentions/spelled-out", numerics=Numerics.REASSOCIATE)
def spelled_out(q: Tensor, k: Tensor, v: Tensor, s: Float) -> Sides:
    """Softmax of products, times values, head by head."""
    return (
        ops.Attention(q, k, v, scale=s),
        ops.Softmax(ops.Scale(q @ ops.Transpose(k, perm=(0, 1, 3, 2)), factor=s), axis=3) @ v,
        q.dim(1) == k.dim(1),
    )


@rule("attentions/masked-samples", bidirectional=True)
def masked_samples(
    q: Tensor, r: Tensor, k: Tensor, h: Tensor, v: Tensor, w: Tensor, m: Tensor, s: Float
) -> Sides:
    """Samples do not see each other; the mask is that of all."""
    return (
        concat(
            ops.MaskedAttention(q, k, v, m, scale=s), ops.MaskedAttention(r, h, w, m, scale=s), 0
        ),
        ops.MaskedAttention(concat(q, r, 0), concat(k, h, 0), concat(v, w, 0), m, scale=s),
        m.rank == 2,
        q.dim(0) == k.dim(0),
        r.dim(0) == h.dim(0),
    )


def _rotated(x: Term, h: Int, n: Int) -> Term:
    return concat(ops.Neg(slice_(x, 3, h, n)), slice_(x, 3, 0, h), 3)


@rule("attentions/rotary-by-halves")
def rotary_by_halves(x: Tensor, c: Tensor, s: Tensor, h: Int, n: Int) -> Sides:
    """Rotary positions as two products and a turned copy, or half by half."""
    one, other = slice_(x, 3, 0, h), slice_(x, 3, h, n)
    return (
        x * c + _rotated(x, h, n) * s,
        concat(
            one * slice_(c, 3, 0, h) + ops.Neg(other) * slice_(s, 3, 0, h),
            other * slice_(c, 3, h, n) + one * slice_(s, 3, h, n),
            3,
        ),
        x.rank == 4,
        n == h + h,
        n == x.dim(3),
        c.rank == 4,
        s.rank == 4,
        c.dim(3) == n,
        s.dim(3) == n,
        c.dim(0) == 1,
        c.dim(1) == 1,
        s.dim(0) == 1,
        s.dim(1) == 1,
        c.dim(2) == x.dim(2),
        s.dim(2) == x.dim(2),
    )


@rule("attentions/half-turn")
def half_turn(x: Tensor, h: Int, n: Int) -> Sides:
    """Two quarter turns."""
    return _rotated(_rotated(x, h, n), h, n), ops.Neg(x), n == h + h, n == x.dim(3)


@rule("attentions/rotary-of-scale", numerics=Numerics.REASSOCIATE)
def rotary_of_scale(x: Tensor, c: Tensor, s: Tensor, h: Int, n: Int, a: Float) -> Sides:
    """A rotation is linear."""
    scaled = ops.Scale(x, factor=a)
    return (
        scaled * c + _rotated(scaled, h, n) * s,
        ops.Scale(x * c + _rotated(x, h, n) * s, factor=a),
        x.rank == 4,
        n == h + h,
        n == x.dim(3),
        c.shape == x.shape,
        s.shape == x.shape,
    )


@rule("attentions/rotary-of-repeat")
def rotary_of_repeat(x: Tensor, h: Int, n: Int, r: Int) -> Sides:
    """Shared heads are turned once."""
    return (
        _rotated(ops.Repeat(x, axis=1, repeats=r), h, n),
        ops.Repeat(_rotated(x, h, n), axis=1, repeats=r),
        n == x.dim(3),
    )


@rule("attentions/map-of-turned", numerics=Numerics.REASSOCIATE)
def map_of_turned(x: Tensor, f: Func, h: Int, n: Int) -> Sides:
    """Halves change places before or after a function of elements."""
    return (
        concat(slice_(f(x), 3, h, n), slice_(f(x), 3, 0, h), 3),
        f(concat(slice_(x, 3, h, n), slice_(x, 3, 0, h), 3)),
    )
