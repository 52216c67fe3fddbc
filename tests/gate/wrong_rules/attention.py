"""Attention, masks, rotary embeddings and softmax in models."""

from __future__ import annotations

import numpy as np

from eqsat_opt.rules import (
    Float,
    Int,
    Numerics,
    Sides,
    Tensor,
    Term,
    Weight,
    concat,
    is_float,
    ops,
    real,
    rule,
    slice_,
    sqrt,
)
from tests.gate.cases import f64, wrong

_R, _F = Numerics.REASSOCIATE, Numerics.REFACTOR
_QKV = {"q": f64(1, 2, 3, 4), "k": f64(1, 2, 5, 4), "v": f64(1, 2, 5, 4)}
_SWAP = (0, 1, 3, 2)


@wrong(**_QKV, a=0.7)
@rule("wrong/attention-scale-dropped", numerics=_R)
def attention_scale_dropped(q: Tensor, k: Tensor, v: Tensor, a: Float) -> Sides:
    """The scale of the logits is not always the usual one."""
    usual = 1.0 / sqrt(real(q.dim(3)))
    after = ops.Attention(q, k, v, scale=usual)
    return ops.Attention(q, k, v, scale=a), after, q.dim(3) >= 1


@wrong(**_QKV, a=0.7, b=0.3)
@rule("wrong/attention-scaled-twice", numerics=_R)
def attention_scaled_twice(q: Tensor, k: Tensor, v: Tensor, a: Float, b: Float) -> Sides:
    """Scales of query and key multiply."""
    left = ops.Attention(ops.Scale(q, factor=b), ops.Scale(k, factor=b), v, scale=a)
    return left, ops.Attention(q, k, v, scale=a * b)


@wrong(**_QKV, a=0.7)
@rule("wrong/attention-scale-inside", numerics=_F)
def attention_scale_inside(q: Tensor, k: Tensor, v: Tensor, a: Float) -> Sides:
    """The root of the scale goes into both operands; the whole of it into one."""
    left = ops.Attention(q, k, v, scale=a)
    return left, ops.Attention(ops.Scale(q, factor=a), ops.Scale(k, factor=a), v, scale=1.0)


@wrong(**_QKV, m=f64(1, 1, 3, 5), a=0.7)
@rule("wrong/mask-dropped", numerics=_R)
def mask_dropped(q: Tensor, k: Tensor, v: Tensor, m: Weight, a: Float) -> Sides:
    """A mask that is the same for all heads and samples is still one."""
    left = ops.MaskedAttention(q, k, v, m, scale=a)
    return left, ops.Attention(q, k, v, scale=a), m.rank == 4, m.dim(0) == 1, m.dim(1) == 1


@wrong(**_QKV, m=f64(5), a=0.7)
@rule("wrong/mask-scaled", numerics=_F)
def mask_scaled(q: Tensor, k: Tensor, v: Tensor, m: Tensor, a: Float) -> Sides:
    """The scale is for the logits, not for the mask that is added."""
    keys = ops.Transpose(k, perm=_SWAP)
    logits = ops.Scale((q @ keys) + m, factor=a)
    left = ops.MaskedAttention(q, k, v, m, scale=a)
    return left, ops.Softmax(logits, axis=3) @ v, k.dim(1) == q.dim(1)


@wrong(**_QKV, a=0.7)
@rule("wrong/attention-unfused-axis", numerics=_F)
def attention_unfused_axis(q: Tensor, k: Tensor, v: Tensor, a: Float) -> Sides:
    """The softmax runs along the keys; along the queries it types as well."""
    logits = ops.Scale(q @ ops.Transpose(k, perm=_SWAP), factor=a)
    after = ops.Softmax(logits, axis=2) @ v
    return ops.Attention(q, k, v, scale=a), after, k.dim(1) == q.dim(1)


@wrong(q=f64(1, 4, 3, 4), k=f64(1, 2, 5, 4), v=f64(1, 2, 5, 4), a=0.7)
@rule("wrong/heads-interleaved", numerics=_R)
def heads_interleaved(q: Tensor, k: Tensor, v: Tensor, a: Float) -> Sides:
    """Neighbouring heads share a key; concatenated keys serve every other head."""
    after = ops.Attention(q, concat(k, k, 1), concat(v, v, 1), scale=a)
    return ops.Attention(q, k, v, scale=a), after, q.dim(1) == 2 * k.dim(1)


@wrong(q=f64(1, 2, 3, 4), k=f64(1, 2, 3, 4), v=f64(1, 2, 3, 4), a=0.7)
@rule("wrong/attention-exchanged", numerics=_R)
def attention_exchanged(q: Tensor, k: Tensor, v: Tensor, a: Float) -> Sides:
    """Query and key change places where they are as long."""
    return ops.Attention(q, k, v, scale=a), ops.Attention(k, q, v, scale=a), q.shape == k.shape


@wrong(**_QKV, u=f64(1, 2, 5, 4), w=f64(1, 2, 5, 4), a=0.7)
@rule("wrong/attention-of-chunks", numerics=_F)
def attention_of_chunks(q: Tensor, k: Tensor, v: Tensor, u: Tensor, w: Tensor, a: Float) -> Sides:
    """Attention over two chunks of keys is no sum of the two."""
    left = ops.Attention(q, concat(k, u, 2), concat(v, w, 2), scale=a)
    half = ops.Attention(q, k, v, scale=a) + ops.Attention(q, u, w, scale=a)
    return left, ops.Scale(half, factor=0.5), k.shape == u.shape


@wrong(x=f64(1, 4), c=f64(1, 4), s=f64(1, 4))
@rule("wrong/rotary-halves", numerics=_R)
def rotary_halves(x: Tensor, c: Tensor, s: Tensor) -> Sides:
    """The rotated half carries the sign of the first part, not of the second."""
    low, high = slice_(x, 1, 0, 2), slice_(x, 1, 2, 4)
    turned = concat(ops.Scale(high, factor=-1.0), low, 1)
    other = concat(high, ops.Scale(low, factor=-1.0), 1)
    return x * c + turned * s, x * c + other * s, x.shape == c.shape, c.shape == s.shape


@wrong(x=f64(1, 4), c=f64(1, 4), s=f64(1, 4), d=f64(1, 4), t=f64(1, 4))
@rule("wrong/rotary-twice", numerics=_F)
def rotary_twice(x: Tensor, c: Tensor, s: Tensor, d: Tensor, t: Tensor) -> Sides:
    """Two rotations are one by the sum of the angles: cosines and sines do not just multiply."""

    def turned(of: Term) -> Term:
        return concat(ops.Scale(slice_(of, 1, 2, 4), factor=-1.0), slice_(of, 1, 0, 2), 1)

    once = x * c + turned(x) * s
    return (
        once * d + turned(once) * t,
        x * (c * d) + turned(x) * (s * t),
        *(x.shape == y.shape for y in (c, s, d, t)),
        is_float(x),
    )


@wrong(x=f64(1, 4), c=f64(1, 2))
@rule("wrong/rotary-interleaved", numerics=_R)
def rotary_interleaved(x: Tensor, c: Tensor) -> Sides:
    """Halves and interleaved pairs are two conventions: cosines are concatenated or repeated."""
    return x * concat(c, c, 1), x * ops.Repeat(c, axis=1, repeats=2), x.dim(1) == 2 * c.dim(1)


@wrong(x=f64(3, 3), m=np.triu(np.full((3, 3), -50.0), 1), i=1)
@rule("wrong/causal-axis", numerics=_R)
def causal_axis(x: Tensor, m: Weight, i: Int) -> Sides:
    """A mask of rows is transposed with the logits, and not transposed itself."""
    t = (1, 0)
    left = ops.Softmax(ops.Transpose(x + m, perm=t), axis=i)
    return left, ops.Softmax(ops.Transpose(x, perm=t) + m, axis=i), x.shape == m.shape


@wrong(x=f64(2, 3), m=f64(2, 3), i=1)
@rule("wrong/mask-after-softmax", numerics=_F)
def mask_after_softmax(x: Tensor, m: Tensor, i: Int) -> Sides:
    """Masked and then normalised is not normalised and then masked."""
    return ops.Softmax(x + m, axis=i), ops.Softmax(x, axis=i) * ops.Exp(m), x.shape == m.shape


@wrong(x=f64(2, 3), i=1)
@rule("wrong/softmax-twice", numerics=_F)
def softmax_twice(x: Tensor, i: Int) -> Sides:
    """A softmax is no projection."""
    return ops.Softmax(ops.Softmax(x, axis=i), axis=i), ops.Softmax(x, axis=i)


@wrong(x=f64(2, 3), i=1)
@rule("wrong/log-softmax-as-shift", numerics=_F)
def log_softmax_as_shift(x: Tensor, i: Int) -> Sides:
    """Claim: x - log(sum exp x), with the greatest element in place of the sum."""
    return ops.LogSoftmax(x, axis=i), x - ops.ReduceMax(x, axes=(i,), keepdims=1), is_float(x)


@wrong(x=f64(4, 6), a=4, h=2, d=3)
@rule("wrong/heads-reshaped")
def heads_reshaped(x: Tensor, a: Int, h: Int, d: Int) -> Sides:
    """Splitting heads needs a transpose, not a reshape alone."""
    left = ops.Transpose(ops.Reshape(x, shape=(a, h, d)), perm=(1, 0, 2))
    return left, ops.Reshape(x, shape=(h, a, d))


@wrong(x=f64(2, 3), y=f64(3, 4), b=f64(4), i=0)
@rule("wrong/bias-through-average", numerics=_F)
def bias_through_average(x: Tensor, y: Tensor, b: Tensor, i: Int) -> Sides:
    """Weights that sum to 1 let a bias through; these sum to 1 along the other axis."""
    soft = ops.Softmax(x, axis=i)
    return soft @ (y + b), soft @ y + b, x.rank == 2, y.rank == 2, b.rank == 1, b.dim(0) == y.dim(1)
