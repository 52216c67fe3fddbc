"""Normalisations over axes, channels and batches."""

from eqsat_opt.rules import Float, Int, Numerics, Sides, Tensor, Weight, concat, is_float, ops, rule


@rule("normalisations/layer-of-shift", numerics=Numerics.RELAXED)
def layer_of_shift(x: Tensor, g: Tensor, b: Tensor, i: Int, e: Float, s: Float) -> Sides:
    """The mean takes a constant away."""
    return (
        ops.LayerNormalization(ops.Shift(x, offset=s), g, b, axis=i, epsilon=e),
        ops.LayerNormalization(x, g, b, axis=i, epsilon=e),
    )


@rule("normalisations/layer-of-negative", numerics=Numerics.REASSOCIATE)
def layer_of_negative(x: Tensor, g: Tensor, i: Int, e: Float) -> Sides:
    """Without a bias it is odd."""
    return (
        ops.LayerNormalization(ops.Neg(x), g, axis=i, epsilon=e),
        ops.Neg(ops.LayerNormalization(x, g, axis=i, epsilon=e)),
    )


@rule("normalisations/layer-of-scale", numerics=Numerics.RELAXED)
def layer_of_scale(x: Tensor, g: Tensor, b: Tensor, i: Int, e: Float, a: Float) -> Sides:
    """A factor divides out, if epsilon is scaled with the variance."""
    return (
        ops.LayerNormalization(ops.Scale(x, factor=a), g, b, axis=i, epsilon=e),
        ops.LayerNormalization(x, g, b, axis=i, epsilon=e / (a * a)),
        a > 0.0,
        e > 0.0,
    )


@rule("normalisations/layer-times", numerics=Numerics.REFACTOR)
def layer_times(x: Tensor, g: Weight, b: Weight, c: Weight, i: Int, e: Float) -> Sides:
    """A factor of the result is one of scale and bias."""
    return (
        ops.LayerNormalization(x, g, b, axis=i, epsilon=e) * c,
        ops.LayerNormalization(x, g * c, b * c, axis=i, epsilon=e),
        g.shape == b.shape,
        g.shape == c.shape,
    )


@rule("normalisations/layer-plus", numerics=Numerics.REASSOCIATE)
def layer_plus(x: Tensor, g: Weight, b: Weight, c: Weight, i: Int, e: Float) -> Sides:
    """An addend of the result is one of the bias."""
    return (
        ops.LayerNormalization(x, g, b, axis=i, epsilon=e) + c,
        ops.LayerNormalization(x, g, b + c, axis=i, epsilon=e),
        b.shape == c.shape,
    )


@rule("normalisations/layer-as-root-mean-square", numerics=Numerics.REASSOCIATE)
def layer_as_root_mean_square(x: Tensor, g: Tensor, i: Int, e: Float) -> Sides:
    """A layer normalisation is a root mean square normalisation of what is centred."""
    return (
        ops.LayerNormalization(x, g, axis=i, epsilon=e),
        ops.RMSNormalization(x - ops.ReduceMean(x, axes=(i,), keepdims=1), g, axis=i, epsilon=e),
        i + 1 == x.rank,
    )


@rule("normalisations/layer-with-bias", numerics=Numerics.REASSOCIATE)
def layer_with_bias(x: Tensor, g: Tensor, b: Tensor, i: Int, e: Float) -> Sides:
    """The bias is added at the end."""
    return (
        ops.LayerNormalization(x, g, b, axis=i, epsilon=e),
        ops.LayerNormalization(x, g, axis=i, epsilon=e) + b,
    )


@rule("normalisations/root-mean-square-of-negative")
def root_mean_square_of_negative(x: Tensor, g: Tensor, i: Int, e: Float) -> Sides:
    """What divides an element depends on squares."""
    return (
        ops.RMSNormalization(ops.Neg(x), g, axis=i, epsilon=e),
        ops.Neg(ops.RMSNormalization(x, g, axis=i, epsilon=e)),
    )


@rule("normalisations/root-mean-square-times", numerics=Numerics.REASSOCIATE)
def root_mean_square_times(x: Tensor, g: Weight, c: Weight, i: Int, e: Float) -> Sides:
    """A factor of the result is one of the scale."""
    return (
        ops.RMSNormalization(x, g, axis=i, epsilon=e) * c,
        ops.RMSNormalization(x, g * c, axis=i, epsilon=e),
        g.shape == c.shape,
    )


@rule("normalisations/root-mean-square-of-scale", numerics=Numerics.RELAXED)
def root_mean_square_of_scale(x: Tensor, g: Tensor, i: Int, e: Float, a: Float) -> Sides:
    """A factor divides out, if epsilon is scaled with the squares."""
    return (
        ops.RMSNormalization(ops.Scale(x, factor=a), g, axis=i, epsilon=e),
        ops.RMSNormalization(x, g, axis=i, epsilon=e / (a * a)),
        a > 0.0,
        e > 0.0,
    )


@rule("normalisations/batch-of-shift", numerics=Numerics.REFACTOR)
def batch_of_shift(
    x: Tensor, s: Weight, b: Weight, m: Weight, v: Weight, e: Float, a: Float
) -> Sides:
    """What is added to the data is taken from the mean."""
    return (
        ops.BatchNormalization(ops.Shift(x, offset=a), s, b, m, v, epsilon=e),
        ops.BatchNormalization(x, s, b, ops.Shift(m, offset=a * -1.0), v, epsilon=e),
    )


@rule("normalisations/batch-scaled", numerics=Numerics.REFACTOR)
def batch_scaled(
    x: Tensor, s: Weight, b: Weight, m: Weight, v: Weight, e: Float, a: Float
) -> Sides:
    """A factor of the result is one of scale and bias."""
    return (
        ops.Scale(ops.BatchNormalization(x, s, b, m, v, epsilon=e), factor=a),
        ops.BatchNormalization(x, ops.Scale(s, factor=a), ops.Scale(b, factor=a), m, v, epsilon=e),
    )


@rule("normalisations/batch-of-samples", bidirectional=True)
def batch_of_samples(
    x: Tensor, y: Tensor, s: Weight, b: Weight, m: Weight, v: Weight, e: Float
) -> Sides:
    """Statistics are given, so samples do not see each other."""
    return (
        ops.BatchNormalization(concat(x, y, 0), s, b, m, v, epsilon=e),
        concat(
            ops.BatchNormalization(x, s, b, m, v, epsilon=e),
            ops.BatchNormalization(y, s, b, m, v, epsilon=e),
            0,
        ),
    )


@rule("normalisations/batch-turned")
def batch_turned(x: Tensor, s: Weight, b: Weight, m: Weight, v: Weight, e: Float) -> Sides:
    """Only channels matter."""
    return (
        ops.BatchNormalization(ops.Transpose(x, perm=(0, 1, 3, 2)), s, b, m, v, epsilon=e),
        ops.Transpose(ops.BatchNormalization(x, s, b, m, v, epsilon=e), perm=(0, 1, 3, 2)),
    )


@rule("normalisations/batch-of-conv", numerics=Numerics.REFACTOR)
def batch_of_conv(
    x: Tensor, w: Weight, c: Weight, s: Weight, b: Weight, m: Weight, v: Weight, e: Float
) -> Sides:
    """The bias of a convolution is taken from the mean."""
    one = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1}
    return (
        ops.BatchNormalization(ops.Conv(x, w, c, **one), s, b, m, v, epsilon=e),
        ops.BatchNormalization(ops.Conv(x, w, **one), s, b, m - c, v, epsilon=e),
    )


@rule("normalisations/instance-of-shift", numerics=Numerics.RELAXED)
def instance_of_shift(x: Tensor, s: Weight, b: Weight, e: Float, a: Float) -> Sides:
    """The mean takes a constant away."""
    return (
        ops.InstanceNormalization(ops.Shift(x, offset=a), s, b, epsilon=e),
        ops.InstanceNormalization(x, s, b, epsilon=e),
    )


@rule("normalisations/instance-spelled-out", numerics=Numerics.REASSOCIATE)
def instance_spelled_out(x: Tensor, s: Weight, b: Weight, e: Float) -> Sides:
    """Every image is centred, divided by its deviation, scaled and shifted."""
    return (
        ops.InstanceNormalization(x, s, b, epsilon=e),
        ops.RmsN(ops.Center(x, axes=(2, 3)), axes=(2, 3), epsilon=e)
        * ops.Reshape(s, shape=(1, s.dim(0), 1, 1))
        + ops.Reshape(b, shape=(1, b.dim(0), 1, 1)),
        x.rank == 4,
        e > 0.0,
    )


@rule("normalisations/instance-of-bias", numerics=Numerics.RELAXED)
def instance_of_bias(x: Tensor, w: Weight, c: Weight, s: Weight, b: Weight, e: Float) -> Sides:
    """A bias per channel goes with the mean of its image."""
    one = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 1}
    return (
        ops.InstanceNormalization(ops.Conv(x, w, c, **one), s, b, epsilon=e),
        ops.InstanceNormalization(ops.Conv(x, w, **one), s, b, epsilon=e),
        is_float(x),
    )


@rule("normalisations/centred-of-negative")
def centred_of_negative(x: Tensor, i: Int) -> Sides:
    """Taking a mean away is odd."""
    return ops.Center(ops.Neg(x), axes=(i,)), ops.Neg(ops.Center(x, axes=(i,))), is_float(x)
