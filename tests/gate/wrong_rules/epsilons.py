"""Constants beside a variance: dropped, replaced, counted twice, not scaled along."""

from __future__ import annotations

from eqsat_opt.rules import (
    Float,
    Int,
    Ints,
    Numerics,
    Sides,
    Tensor,
    Term,
    Weight,
    is_float,
    near,
    ops,
    rule,
    sqrt,
)
from tests.gate.cases import f64, positive, wrong

_R, _F = Numerics.REASSOCIATE, Numerics.REFACTOR


@wrong(x=f64(2, 3), w=f64(3), i=1, e=0.9)
@rule("wrong/rms-usual-epsilon", numerics=_R)
def rms_usual_epsilon(x: Tensor, w: Weight, i: Int, e: Float) -> Sides:
    """Every epsilon is taken for 1e-5; shows at any other."""
    after = ops.RMSNormalization(x, w, axis=i, epsilon=1e-5)
    return ops.RMSNormalization(x, w, axis=i, epsilon=e), after


@wrong(x=f64(2, 3), w=f64(3), i=1, e=0.9, a=0.5)
@rule("wrong/rms-of-scaled", numerics=_F)
def rms_of_scaled(x: Tensor, w: Weight, i: Int, e: Float, a: Float) -> Sides:
    """The root mean square divides a factor out, but not out of epsilon."""
    inner = ops.Scale(x, factor=a)
    return (
        ops.RMSNormalization(inner, w, axis=i, epsilon=e),
        ops.RMSNormalization(x, w, axis=i, epsilon=e),
        a > 0.0,
    )


@wrong(x=f64(2, 3), w=f64(3), i=1, e=0.9, a=3.0)
@rule("wrong/layer-of-scaled-once", numerics=_F)
def layer_of_scaled_once(x: Tensor, w: Weight, i: Int, e: Float, a: Float) -> Sides:
    """Epsilon is divided by the factor, and not by its square."""
    inner = ops.Scale(x, factor=a)
    return (
        ops.LayerNormalization(inner, w, axis=i, epsilon=e),
        ops.LayerNormalization(x, w, axis=i, epsilon=e / a),
        a > 0.0,
    )


@wrong(x=f64(2, 3), i=1, e=0.1, d=0.7)
@rule("wrong/rms-twice", numerics=_F)
def rms_twice(x: Tensor, i: Int, e: Float, d: Float) -> Sides:
    """A second root mean square normalisation still divides, by its own epsilon."""
    inner = ops.RmsN(x, axes=(i,), epsilon=e)
    return ops.RmsN(inner, axes=(i,), epsilon=d), inner


@wrong(x=f64(2, 3), i=1, e=0.1, d=0.7)
@rule("wrong/rms-twice-sum", numerics=_F)
def rms_twice_sum(x: Tensor, i: Int, e: Float, d: Float) -> Sides:
    """Two epsilons are not one sum of them."""
    inner = ops.RmsN(x, axes=(i,), epsilon=e)
    return ops.RmsN(inner, axes=(i,), epsilon=d), ops.RmsN(x, axes=(i,), epsilon=e + d)


@wrong(x=f64(2, 3), i=1, e=0.9)
@rule("wrong/epsilon-beside-root", numerics=_F)
def epsilon_beside_root(x: Tensor, i: Int, e: Float) -> Sides:
    """Epsilon stands under the root, not beside it."""
    square = ops.ReduceMean(ops.Square(x), axes=(i,), keepdims=1)
    return ops.RmsN(x, axes=(i,), epsilon=e), x / ops.Shift(ops.Sqrt(square), offset=sqrt(e))


@wrong(x=f64(2, 3), i=1, e=0.9)
@rule("wrong/epsilon-before-mean", numerics=_F)
def epsilon_before_mean(x: Tensor, i: Int, e: Float) -> Sides:
    """The sum of squares takes epsilon once for each element, the mean once."""
    square = ops.Shift(ops.ReduceSum(ops.Square(x), axes=(i,), keepdims=1), offset=e)
    mean = ops.Scale(square, factor=1.0 / 3.0)
    return ops.RmsN(x, axes=(i,), epsilon=e), x * ops.Rsqrt(mean), x.dim(i) == 3


@wrong(x=f64(2, 3, 2), s=f64(3), b=f64(3), m=f64(3), v=positive(3), e=0.9)
@rule("wrong/batch-epsilon-twice", numerics=_F)
def batch_epsilon_twice(x: Tensor, s: Weight, b: Weight, m: Weight, v: Weight, e: Float) -> Sides:
    """Epsilon moves into the variance and stays where it was."""
    return (
        ops.BatchNormalization(x, s, b, m, v, epsilon=e),
        ops.BatchNormalization(x, s, b, m, ops.Shift(v, offset=e), epsilon=e),
        is_float(v),
    )


@wrong(x=f64(2, 3, 2), s=f64(3), b=f64(3), m=f64(3), v=positive(3), e=0.9)
@rule("wrong/batch-epsilon-zero", numerics=_F)
def batch_epsilon_zero(x: Tensor, s: Weight, b: Weight, m: Weight, v: Weight, e: Float) -> Sides:
    """Running variances are never 0, and epsilon matters all the same."""
    return (
        ops.BatchNormalization(x, s, b, m, v, epsilon=e),
        ops.BatchNormalization(x, s, b, m, v, epsilon=0.0),
    )


@wrong(x=f64(2, 3, 2), s=f64(3), b=f64(3), m=f64(3), v=positive(3), a=2.0, e=0.9)
@rule("wrong/batch-of-scaled", numerics=_F)
def batch_of_scaled(
    x: Tensor, s: Weight, b: Weight, m: Weight, v: Weight, a: Float, e: Float
) -> Sides:
    """Scaling variance and mean with the operand leaves epsilon too large."""
    mean, variance = ops.Scale(m, factor=1.0 / a), ops.Scale(v, factor=1.0 / (a * a))
    return (
        ops.BatchNormalization(ops.Scale(x, factor=a), s, b, m, v, epsilon=e),
        ops.BatchNormalization(x, s, b, mean, variance, epsilon=e),
        a > 0.0,
    )


@wrong(x=f64(2, 3, 2), s=f64(3), b=f64(3), e=0.1, d=0.7)
@rule("wrong/instance-usual-epsilon", numerics=_R)
def instance_usual_epsilon(x: Tensor, s: Weight, b: Weight, e: Float) -> Sides:
    """The epsilon of instance normalisation is not always 1e-5."""
    return (
        ops.InstanceNormalization(x, s, b, epsilon=e),
        ops.InstanceNormalization(x, s, b, epsilon=1e-5),
    )


@wrong(x=f64(2, 3, 4), s=f64(3), b=f64(3), a=4.0, e=0.1)
@rule("wrong/instance-of-scaled", numerics=_F)
def instance_of_scaled(x: Tensor, s: Weight, b: Weight, a: Float, e: Float) -> Sides:
    """A factor in front of instance normalisation drops out only where epsilon is 0."""
    return (
        ops.InstanceNormalization(ops.Scale(x, factor=a), s, b, epsilon=e),
        ops.InstanceNormalization(x, s, b, epsilon=e),
        a >= 1.0,
    )


@wrong(x=f64(2, 4), w=f64(4), u=f64(4), i=1, e=0.1, d=0.7)
@rule("wrong/layer-of-layer", numerics=_F)
def layer_of_layer(x: Tensor, w: Weight, u: Weight, i: Int, e: Float, d: Float) -> Sides:
    """Normalising what is normalised is not the identity: the first scale is lost."""
    inner = ops.LayerNormalization(x, w, axis=i, epsilon=e)
    return (
        ops.LayerNormalization(inner, u, axis=i, epsilon=d),
        ops.LayerNormalization(x, u, axis=i, epsilon=e + d),
        w.rank == 1,
        u.rank == 1,
    )


@wrong(x=f64(2, 4), i=1, e=0.1, d=0.7)
@rule("wrong/centred-rms-twice", numerics=_F)
def centred_rms_twice(x: Tensor, i: Int, e: Float, d: Float) -> Sides:
    """Of two normalisations in a row the second is dropped, with its epsilon."""
    inner = ops.RmsN(ops.Center(x, axes=(i,)), axes=(i,), epsilon=e)
    return ops.RmsN(ops.Center(inner, axes=(i,)), axes=(i,), epsilon=d), inner


@wrong(x=f64(2, 4), w=f64(4), i=1, e=1e-3, d=1e-1)
@rule("wrong/shared-epsilon", numerics=_R)
def shared_epsilon(x: Tensor, w: Weight, i: Int, e: Float, d: Float) -> Sides:
    """Of two normalisations of one operand the second takes the epsilon of the first."""
    one = ops.RMSNormalization(x, w, axis=i, epsilon=e)
    other = ops.RMSNormalization(x, w, axis=i, epsilon=d)
    return (one, other), (one, one)


@wrong(x=f64(2, 4), w=f64(4), i=1, e=1e-3, d=1e-1)
@rule("wrong/exchanged-epsilons", numerics=_R)
def exchanged_epsilons(x: Tensor, w: Weight, i: Int, e: Float, d: Float) -> Sides:
    """Epsilons of two normalisations in a row are exchanged."""

    def norm(of: Term, epsilon: Float) -> Term:
        return ops.LayerNormalization(of, w, axis=i, epsilon=epsilon)

    return norm(norm(x, e), d), norm(norm(x, d), e)


@wrong(x=f64(2, 5, 3), n=3, a=0.5, b=0.75, c=1.7)
@rule("wrong/lrn-bias-one", numerics=_R)
def lrn_bias_one(x: Tensor, n: Int, a: Float, b: Float, c: Float) -> Sides:
    """The bias of local response normalisation is 1 in most models, not in all."""
    return (
        ops.LRN(x, size=n, alpha=a, beta=b, bias=c),
        ops.LRN(x, size=n, alpha=a, beta=b, bias=1.0),
    )


@wrong(x=f64(2, 5, 3), n=3, a=0.5, b=0.5, c=1.7, t=2.0)
@rule("wrong/lrn-of-scaled", numerics=_F)
def lrn_of_scaled(x: Tensor, n: Int, a: Float, b: Float, c: Float, t: Float) -> Sides:
    """A factor leaves the normalisation with alpha scaled by it, where its square belongs."""
    return (
        ops.LRN(ops.Scale(x, factor=t), size=n, alpha=a, beta=b, bias=c),
        ops.Scale(ops.LRN(x, size=n, alpha=a * t, beta=b, bias=c), factor=t),
        t > 0.0,
    )


@wrong(x=f64(2, 5, 3), n=3, a=0.9, b=0.5, c=1.7)
@rule("wrong/lrn-alpha-per-element", numerics=_F)
def lrn_alpha_per_element(x: Tensor, n: Int, a: Float, b: Float, c: Float) -> Sides:
    """Alpha is divided by the size; a window of one channel takes it whole."""
    return (
        ops.LRN(x, size=n, alpha=a, beta=b, bias=c),
        ops.LRN(x, size=1, alpha=a, beta=b, bias=c),
        n <= 3,
    )


@wrong(x=f64(2, 6, 3), n=4, a=0.9, b=0.5, c=1.7)
@rule("wrong/lrn-size-odd", numerics=_F)
def lrn_size_odd(x: Tensor, n: Int, a: Float, b: Float, c: Float) -> Sides:
    """A window of even size reaches further behind than before: it is no odd one."""
    return (
        ops.LRN(x, size=n, alpha=a, beta=b, bias=c),
        ops.LRN(x, size=(n + 1) // 2 * 2 - 1, alpha=a, beta=b, bias=c),
        n >= 1,
    )


@wrong(x=f64(2, 3), a=-1.0, b=0.2, c=-0.3, d=0.9)
@rule("wrong/clip-outer", numerics=_R)
def clip_outer(x: Tensor, a: Float, b: Float, c: Float, d: Float) -> Sides:
    """Of two clips in a row the inner one is dropped."""
    inner = ops.Clip(x, min=a, max=b)
    return ops.Clip(inner, min=c, max=d), ops.Clip(x, min=c, max=d), a <= b, c <= d


@wrong(x=f64(2, 3), a=-0.1, b=0.1, t=-1.0)
@rule("wrong/clip-of-scaled", numerics=_R)
def clip_of_scaled(x: Tensor, a: Float, b: Float, t: Float) -> Sides:
    """Bounds change places where the factor is negative."""
    return (
        ops.Clip(ops.Scale(x, factor=t), min=a, max=b),
        ops.Scale(ops.Clip(x, min=a / t, max=b / t), factor=t),
        a <= b,
        t != 0.0,
    )


@wrong(x=f64(40), a=0.5, b=0.3)
@rule("wrong/clip-exchanged-bounds")
def clip_exchanged_bounds(x: Tensor, a: Float, b: Float) -> Sides:
    """Min after max is not max after min where the bounds are in disorder."""
    low, high = ops.Clip(x, min=a, max=1e9), ops.Clip(x, min=-1e9, max=b)
    return (
        ops.Clip(low, min=-1e9, max=b),
        ops.Clip(high, min=a, max=1e9),
        is_float(x),
    )


@wrong(x=f64(2, 3), a=0.3)
@rule("wrong/celu-is-elu", numerics=_R)
def celu_is_elu(x: Tensor, a: Float) -> Sides:
    """Celu divides its argument by alpha, Elu does not; they agree at alpha = 1."""
    return ops.Celu(x, alpha=a), ops.Elu(x, alpha=a), a > 0.0


@wrong(x=f64(2, 3), a=-0.3, b=0.5)
@rule("wrong/leaky-of-leaky", numerics=_R)
def leaky_of_leaky(x: Tensor, a: Float, b: Float) -> Sides:
    """Slopes multiply only where the first one keeps the sign."""
    inner = ops.LeakyRelu(x, alpha=a)
    return ops.LeakyRelu(inner, alpha=b), ops.LeakyRelu(x, alpha=a * b), is_float(x)


@wrong(x=f64(20), a=1.5)
@rule("wrong/leaky-as-max")
def leaky_as_max(x: Tensor, a: Float) -> Sides:
    """Claim: max(x, ax) is the leaky relu for slopes up to 1, and only for these."""
    return (
        ops.Max(x, ops.Scale(x, factor=a)),
        ops.LeakyRelu(x, alpha=a),
        a < 2.0,
    )


@wrong(x=f64(20), a=0.3, g=1.2)
@rule("wrong/selu-alpha", numerics=_F)
def selu_alpha(x: Tensor, a: Float, g: Float) -> Sides:
    """Gamma scales both branches of Selu, not one."""
    return ops.Selu(x, alpha=a, gamma=g), ops.Elu(x, alpha=a * g)


@wrong(x=f64(20), a=-0.3)
@rule("wrong/thresholded-of-relu")
def thresholded_of_relu(x: Tensor, a: Float) -> Sides:
    """A threshold below 0 lets negative numbers pass, which the relu had removed."""
    return ops.ThresholdedRelu(ops.Relu(x), alpha=a), ops.ThresholdedRelu(x, alpha=a)


@wrong(x=f64(20), a=0.3, b=0.6)
@rule("wrong/hard-sigmoid-complement", numerics=_F)
def hard_sigmoid_complement(x: Tensor, a: Float, b: Float) -> Sides:
    """1 - hs(x) is hs(-x) for beta = 1/2 only."""
    one = ops.Scalar(value=1.0, dtype="float64")
    negative = ops.HardSigmoid(ops.Scale(x, factor=-1.0), alpha=a, beta=b)
    return one - ops.HardSigmoid(x, alpha=a, beta=b), negative


@wrong(x=f64(20), a=1.7)
@rule("wrong/swish-alpha-outside", numerics=_F)
def swish_alpha_outside(x: Tensor, a: Float) -> Sides:
    """Alpha is inside the sigmoid only."""
    return ops.Swish(x, alpha=a), ops.Swish(ops.Scale(x, factor=a), alpha=1.0), a > 0.0


@wrong(x=f64(2, 3), i=0, e=0.3, a=1.0000005)
@rule("wrong/rms-of-near-one", numerics=_F)
def rms_of_near_one(x: Tensor, i: Int, e: Float, a: Float) -> Sides:
    """A factor near 1 is dropped, and epsilon with it."""
    after = ops.RmsN(x, axes=(i,), epsilon=0.0)
    return ops.RmsN(ops.Scale(x, factor=a), axes=(i,), epsilon=e), after, near(a, 1.0)


@wrong(x=f64(2, 3), k=(1,), e=0.3)
@rule("wrong/rms-of-center", numerics=_F)
def rms_of_center(x: Tensor, k: Ints, e: Float) -> Sides:
    """The mean square of what is not centred is no variance."""
    return ops.RmsN(ops.Center(x, axes=k), axes=k, epsilon=e), ops.RmsN(x, axes=k, epsilon=e)
