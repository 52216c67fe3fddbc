"""Recognition: softmax and scaled dot-product attention from any spelling.

A factor on the queries, on the keys, on both or on the logits has left the products before (affine
family), so attention has one scale. Keys may come in any order of axes: the equation transposes
what it finds, and transposes compose.
"""

from __future__ import annotations

from eqsat_opt.rules.declare import recognition
from eqsat_opt.rules.parameters import plus, scalar, times
from eqsat_opt.rules.rule import Float, Int, Ints, Numerics, Phase, Rule, Sides, Tensor, rule
from eqsat_opt.rules.term import Condition, Expr, Term, Var, near, ops, real

__all__: list[str] = []


_law = recognition("attention")


def _sum(u: Term, i: Expr) -> Term:
    return ops.ReduceMean(ops.Exp(u), axes=(i,), keepdims=1)


@_law("softmax")
def softmax(u: Tensor, i: Int) -> Sides:
    """Exponentials over their mean are a softmax times the extent of the axis."""
    left = ops.Exp(u) * ops.Reciprocal(_sum(u, i))
    return left, times(ops.Softmax(u, axis=i), real(u.dim(i)))


@_law("softmax-meets-exponential")
def softmax_meets_exponential(u: Tensor, y: Tensor, i: Int) -> Sides:
    """In a product, exp(u) meets the reciprocal of its mean first, which makes a softmax."""
    h, e = ops.Reciprocal(_sum(u, i)), ops.Exp(u)
    return h * (e * y), (h * e) * y


@_law("softmax-of-logarithm")
def softmax_of_logarithm(x: Tensor, i: Int) -> Sides:
    """The exponential of a log-softmax is a softmax."""
    return ops.Exp(ops.LogSoftmax(x, axis=i)), ops.Softmax(x, axis=i)


@_law("softmax-less-maximum")
def softmax_less_maximum(x: Tensor, i: Int, c: Float) -> Sides:
    """A softmax subtracts the maximum inside, so subtracting it before changes nothing."""
    top = ops.ReduceMax(x, axes=(i,), keepdims=1)
    return ops.Softmax(x + times(top, c), axis=i), ops.Softmax(x, axis=i), near(c, -1.0)


@_law("softmax-of-shift", numerics=Numerics.RELAXED)
def softmax_of_shift(x: Tensor, i: Int, s: Float) -> Sides:
    """A softmax removes a constant addend, except where a large one would round x away."""
    return ops.Softmax(plus(x, s), axis=i), ops.Softmax(x, axis=i)


@_law("exponential-less-logarithm")
def exponential_less_logarithm(x: Tensor, u: Tensor, i: Int, c: Float) -> Sides:
    """exp(x - log s) = exp(x)/s, where s is a mean of exponentials and so positive."""
    s = _sum(u, i)
    return ops.Exp(x + times(ops.Log(s), c)), ops.Exp(x) * ops.Reciprocal(s), c == -1.0


@_law("exponential-less-scaled-logarithm")
def exponential_less_scaled_logarithm(x: Tensor, u: Tensor, i: Int, a: Float, c: Float) -> Sides:
    """exp(x - log(a * s)) = exp(x)/(a * s), where s is a mean of exponentials and a > 0."""
    s = times(_sum(u, i), a)
    left = ops.Exp(x + times(ops.Log(s), c))
    return left, ops.Exp(x) * ops.Reciprocal(s), c == -1.0, a > 0.0


# Transposes ---------------------------------------------------------------------------------------

_SWAP = {3: (0, 2, 1), 4: (0, 1, 3, 2)}


@_law("transpose-with-merged-heads")
def transpose_with_merged_heads(x: Tensor, b: Int, h: Int, s: Int, d: Int, n: Int) -> Sides:
    """A transpose of the last two axes works without merging batch and heads around it."""
    merged = ops.Reshape(x, shape=(n, s, d))
    return (
        ops.Reshape(ops.Transpose(merged, perm=_SWAP[3]), shape=(b, h, d, s)),
        ops.Transpose(x, perm=_SWAP[4]),
        x.rank == 4,
        b == x.dim(0),
        h == x.dim(1),
        s == x.dim(2),
        d == x.dim(3),
        n == x.dim(0) * x.dim(1),
    )


def _composed(rank: int) -> Rule:
    @_law(f"transpose-of-transpose-{rank}d")
    def compose(x: Tensor, p: Ints, q: Ints) -> Sides:
        """Two transposes in a row are one with the composed permutation."""
        inner = ops.Transpose(x, perm=p)
        right = ops.Transpose(x, perm=tuple(p[q[i]] for i in range(rank)))
        return ops.Transpose(inner, perm=q), right, x.rank == rank

    return compose


def _none(rank: int) -> Rule:
    @_law(f"transpose-of-nothing-{rank}d")
    def none(x: Tensor) -> Sides:
        """A transpose that keeps the order of the axes changes nothing."""
        return ops.Transpose(x, perm=tuple(range(rank))), x

    return none


compose_3d, compose_4d = _composed(3), _composed(4)
none_3d, none_4d = _none(3), _none(4)


# Attention ----------------------------------------------------------------------------------------


def _logits(q: Var, k: Var) -> Term:
    """Return the products of queries with ``k``, which represents the transposed keys."""
    return q @ k


def _four(q: Var, k: Var, v: Var) -> tuple[Condition, ...]:
    return q.rank == 4, k.rank == 4, v.rank == 4


def _keys(k: Term) -> Term:
    return ops.Transpose(k, perm=_SWAP[4])


@_law("plain")
def plain(q: Tensor, k: Tensor, v: Tensor) -> Sides:
    """softmax(q @ k) @ v, with k the transposed keys, is attention with scale 1."""
    left = ops.Softmax(_logits(q, k), axis=3) @ v
    return left, ops.Attention(q, _keys(k), v, scale=1.0), *_four(q, k, v)


@_law("scaled")
def scaled(q: Tensor, k: Tensor, v: Tensor, s: Float) -> Sides:
    """softmax(s * (q @ k)) @ v, with k the transposed keys, is attention with scale s."""
    left = ops.Softmax(times(_logits(q, k), s), axis=3) @ v
    return left, ops.Attention(q, _keys(k), v, scale=s), *_four(q, k, v)


@_law("masked")
def masked(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Sides:
    """softmax(q @ k + m) @ v is attention with mask m and scale 1; k are transposed keys."""
    left = ops.Softmax(_logits(q, k) + m, axis=3) @ v
    return left, ops.MaskedAttention(q, _keys(k), v, m, scale=1.0), *_four(q, k, v)


@_law("scaled-masked")
def scaled_masked(q: Tensor, k: Tensor, v: Tensor, m: Tensor, s: Float) -> Sides:
    """softmax(s * (q @ k) + m) @ v is attention with mask m and scale s; k are transposed keys."""
    left = ops.Softmax(times(_logits(q, k), s) + m, axis=3) @ v
    return left, ops.MaskedAttention(q, _keys(k), v, m, scale=s), *_four(q, k, v)


@_law("masked-scaled")
def masked_scaled(q: Tensor, k: Tensor, v: Tensor, m: Tensor, s: Float) -> Sides:
    """softmax(s * (q @ k + m)) @ v is attention with scale s and mask s * m."""
    left = ops.Softmax(times(_logits(q, k) + m, s), axis=3) @ v
    return left, ops.MaskedAttention(q, _keys(k), v, times(m, s), scale=s), *_four(q, k, v)


@_law("twice-masked")
def twice_masked(q: Tensor, k: Tensor, v: Tensor, m: Tensor, n: Tensor) -> Sides:
    """softmax(q @ k + m + n) @ v is attention with mask m + n and scale 1."""
    left = ops.Softmax((_logits(q, k) + m) + n, axis=3) @ v
    return left, ops.MaskedAttention(q, _keys(k), v, m + n, scale=1.0), *_four(q, k, v)


@_law("scaled-twice-masked")
def scaled_twice_masked(q: Tensor, k: Tensor, v: Tensor, m: Tensor, n: Tensor, s: Float) -> Sides:
    """softmax(s * (q @ k) + m + n) @ v is attention with mask m + n and scale s."""
    left = ops.Softmax((times(_logits(q, k), s) + m) + n, axis=3) @ v
    return left, ops.MaskedAttention(q, _keys(k), v, m + n, scale=s), *_four(q, k, v)


@rule("attention/guarded-softmax", numerics=Numerics.RELAXED, phase=Phase.RECOGNISE)
def guarded_softmax(x: Tensor, i: Int) -> Sides:
    """NaN need not be replaced by 0 after a softmax; only results that are NaN differ.

    Exporters add the guard for rows in which every key is masked.
    """
    p = ops.Softmax(x, axis=i)
    return ops.Where(ops.IsNaN(p), scalar(0.0, x), p), p


# With batch and heads in one axis -----------------------------------------------------------------


def _four_axes(x: Var) -> Term:
    return ops.Reshape(x, shape=(x.dim(0), 1, x.dim(1), x.dim(2)))


def _three(q: Var, k: Var, v: Var) -> tuple[Condition, ...]:
    return q.rank == 3, k.rank == 3, v.rank == 3, q.dim(0) == k.dim(0), k.dim(0) == v.dim(0)


def _merged(q: Var, k: Var, v: Var, s: float | Expr, *m: Var) -> Term:
    keys = ops.Transpose(_four_axes(k), perm=_SWAP[4])
    operands = [_four_axes(q), keys, _four_axes(v), *map(_four_axes, m)]
    op = ops.MaskedAttention if m else ops.Attention
    shape = (q.dim(0), q.dim(1), v.dim(2))
    return ops.Reshape(op(*operands, scale=s), shape=shape)


def _merged_alike(q: Var, k: Var, v: Var, m: Var, s: float | Expr) -> Term:
    keys = ops.Transpose(_four_axes(k), perm=_SWAP[4])
    attention = ops.MaskedAttention(_four_axes(q), keys, _four_axes(v), m, scale=s)
    return ops.Reshape(attention, shape=(q.dim(0), q.dim(1), v.dim(2)))


@_law("merged-plain")
def merged_plain(q: Tensor, k: Tensor, v: Tensor) -> Sides:
    """With batch and heads in one axis, softmax(q @ k) @ v is attention with one head."""
    return ops.Softmax(_logits(q, k), axis=2) @ v, _merged(q, k, v, 1.0), *_three(q, k, v)


@_law("merged-scaled")
def merged_scaled(q: Tensor, k: Tensor, v: Tensor, s: Float) -> Sides:
    """With batch and heads in one axis, softmax(s * (q @ k)) @ v is attention with scale s."""
    left = ops.Softmax(times(_logits(q, k), s), axis=2) @ v
    return left, _merged(q, k, v, s), *_three(q, k, v)


@_law("merged-masked")
def merged_masked(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Sides:
    """With batch and heads in one axis, softmax(q @ k + m) @ v is attention with mask m."""
    left = ops.Softmax(_logits(q, k) + m, axis=2) @ v
    return left, _merged(q, k, v, 1.0, m), *_three(q, k, v), m.rank == 3


@_law("merged-scaled-masked")
def merged_scaled_masked(q: Tensor, k: Tensor, v: Tensor, m: Tensor, s: Float) -> Sides:
    """With batch and heads in one axis, softmax(s * (q @ k) + m) @ v is masked attention."""
    left = ops.Softmax(times(_logits(q, k), s) + m, axis=2) @ v
    return left, _merged(q, k, v, s, m), *_three(q, k, v), m.rank == 3


@_law("merged-masked-alike")
def merged_masked_alike(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Sides:
    """With batch and heads in one axis, a mask may be the same for all of them."""
    left = ops.Softmax(_logits(q, k) + m, axis=2) @ v
    return left, _merged_alike(q, k, v, m=m, s=1.0), *_three(q, k, v), m.rank <= 2


@_law("merged-scaled-masked-alike")
def merged_scaled_masked_alike(q: Tensor, k: Tensor, v: Tensor, m: Tensor, s: Float) -> Sides:
    """With batch and heads in one axis and a scale, a mask may be the same for all of them."""
    left = ops.Softmax(times(_logits(q, k), s) + m, axis=2) @ v
    return left, _merged_alike(q, k, v, m=m, s=s), *_three(q, k, v), m.rank <= 2


@_law("merged-masks-join")
def merged_masks_join(q: Tensor, k: Tensor, m: Tensor, n: Tensor) -> Sides:
    """With batch and heads in one axis, two masks are one."""
    left = ops.Softmax((_logits(q, k) + m) + n, axis=2)
    return left, ops.Softmax(_logits(q, k) + (m + n), axis=2), q.rank == 3, k.rank == 3


@_law("merged-scaled-masks-join")
def merged_scaled_masks_join(q: Tensor, k: Tensor, m: Tensor, n: Tensor, s: Float) -> Sides:
    """With batch and heads in one axis and a scale, two masks are one."""
    logits = times(_logits(q, k), s)
    left = ops.Softmax((logits + m) + n, axis=2)
    return left, ops.Softmax(logits + (m + n), axis=2), q.rank == 3, k.rank == 3


# Batch and heads that become one axis around the mask only ----------------------------------------


@_law("logits-of-merged-heads")
def logits_of_merged_heads(q: Tensor, k: Tensor, b: Int, h: Int, s: Int, t: Int) -> Sides:
    """Logits whose batch and heads part afterwards are logits of parted queries and keys."""
    parted = ops.Reshape(q, shape=(b, h, s, q.dim(2))) @ ops.Reshape(k, shape=(b, h, q.dim(2), t))
    return (
        ops.Reshape(_logits(q, k), shape=(b, h, s, t)),
        parted,
        q.rank == 3,
        k.rank == 3,
        q.dim(0) == b * h,
        k.dim(0) == b * h,
        s == q.dim(1),
        t == k.dim(2),
    )


@_law("softmax-of-merged-heads")
def softmax_of_merged_heads(x: Tensor, n: Int, s: Int, t: Int) -> Sides:
    """A softmax of keys does not see that batch and heads were merged."""
    return (
        ops.Softmax(ops.Reshape(x, shape=(n, s, t)), axis=2),
        ops.Reshape(ops.Softmax(x, axis=3), shape=(n, s, t)),
        x.rank == 4,
        s == x.dim(2),
        t == x.dim(3),
    )


@_law("product-of-merged-heads")
def product_of_merged_heads(p: Tensor, v: Tensor, n: Int, s: Int, t: Int) -> Sides:
    """Weights whose batch and heads were merged for the values meet parted values instead."""
    values = ops.Reshape(v, shape=(p.dim(0), p.dim(1), t, v.dim(2)))
    return (
        ops.Reshape(p, shape=(n, s, t)) @ v,
        ops.Reshape(p @ values, shape=(n, s, v.dim(2))),
        p.rank == 4,
        v.rank == 3,
        n == v.dim(0),
        s == p.dim(2),
        t == p.dim(3),
    )


# Groups of heads ----------------------------------------------------------------------------------


@_law("repeated-heads")
def repeated_heads(k: Tensor, b: Int, h: Int, s: Int, d: Int, g: Int, n: Int) -> Sides:
    """Repeating each head for the queries that share it is one Repeat (Ainslie et al. 2023)."""
    wide = ops.Expand(ops.Reshape(k, shape=(b, h, 1, s, d)), shape=(b, h, g, s, d))
    return (
        ops.Reshape(wide, shape=(b, n, s, d)),
        ops.Repeat(k, axis=1, repeats=g),
        k.rank == 4,
        b == k.dim(0),
        h == k.dim(1),
        s == k.dim(2),
        d == k.dim(3),
        n == h * g,
    )


@_law("repeated-merged-heads")
def repeated_merged_heads(k: Tensor, b: Int, h: Int, s: Int, d: Int, g: Int, n: Int) -> Sides:
    """Repeating each head while batch and heads become one axis is a Repeat and a reshape."""
    wide = ops.Expand(ops.Reshape(k, shape=(b, h, 1, s, d)), shape=(b, h, g, s, d))
    return (
        ops.Reshape(wide, shape=(n, s, d)),
        ops.Reshape(ops.Repeat(k, axis=1, repeats=g), shape=(n, s, d)),
        k.rank == 4,
        b == k.dim(0),
        h == k.dim(1),
        s == k.dim(2),
        d == k.dim(3),
        n == (b * h) * g,
    )


@_law("repeat-of-scale")
def repeat_of_scale(x: Tensor, i: Int, n: Int, a: Float) -> Sides:
    """A constant factor moves out of a repetition along an axis, as of heads."""
    repeated = ops.Repeat(times(x, a), axis=i, repeats=n)
    return repeated, times(ops.Repeat(x, axis=i, repeats=n), a)


def _repeated(x: Term, repeats: Expr) -> Term:
    return ops.Repeat(x, axis=1, repeats=repeats)


@_law("grouped")
def grouped(q: Tensor, k: Tensor, v: Tensor, g: Int, s: Float) -> Sides:
    """Attention shares key and value heads among query heads, so they need no Repeat."""
    left = ops.Attention(q, _repeated(k, g), _repeated(v, g), scale=s)
    return left, ops.Attention(q, k, v, scale=s), *_four(q, k, v)


@_law("grouped-masked")
def grouped_masked(q: Tensor, k: Tensor, v: Tensor, m: Tensor, g: Int, s: Float) -> Sides:
    """Masked attention shares key and value heads among query heads, so they need no Repeat."""
    left = ops.MaskedAttention(q, _repeated(k, g), _repeated(v, g), m, scale=s)
    return left, ops.MaskedAttention(q, k, v, m, scale=s), *_four(q, k, v)
