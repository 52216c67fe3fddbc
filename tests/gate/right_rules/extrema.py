"""Laws of maxima, minima and clips: of a total order, and of what is monotone in it."""

from eqsat_opt.rules import Float, Numerics, Sides, Tensor, is_float, ops, rule


@rule("extrema/maximum-again")
def maximum_again(x: Tensor, y: Tensor) -> Sides:
    """A maximum holds x already."""
    return ops.Max(x, ops.Max(x, y)), ops.Max(x, y)


@rule("extrema/maximum-of-opposite")
def maximum_of_opposite(x: Tensor) -> Sides:
    """max(x, -x) = |x|."""
    return ops.Max(x, ops.Neg(x)), ops.Abs(x), is_float(x)


@rule("extrema/minimum-of-opposite", numerics=Numerics.BITEXACT)
def minimum_of_opposite(x: Tensor) -> Sides:
    """min(x, -x) = -|x|."""
    return ops.Min(x, ops.Neg(x)), ops.Neg(ops.Abs(x)), is_float(x)


@rule("extrema/span")
def span(x: Tensor, y: Tensor) -> Sides:
    """Max - min = |x - y|: one of the two differences, rounded alike; integers may wrap."""
    return ops.Max(x, y) - ops.Min(x, y), ops.Abs(x - y), is_float(x)


@rule("extrema/reflected", bidirectional=True)
def reflected(x: Tensor, y: Tensor) -> Sides:
    """A reflection exchanges maximum and minimum; the least integer has no opposite."""
    return ops.Max(ops.Neg(x), ops.Neg(y)), ops.Neg(ops.Min(x, y)), is_float(x)


@rule("extrema/scaled", bidirectional=True)
def scaled(x: Tensor, y: Tensor, a: Float) -> Sides:
    """A positive factor keeps the order."""
    return (
        ops.Max(ops.Scale(x, factor=a), ops.Scale(y, factor=a)),
        ops.Scale(ops.Max(x, y), factor=a),
        a > 0.0,
        is_float(x),
    )


@rule("extrema/scaled-by-negative")
def scaled_by_negative(x: Tensor, y: Tensor, a: Float) -> Sides:
    """A negative factor reverses the order."""
    return (
        ops.Min(ops.Scale(x, factor=a), ops.Scale(y, factor=a)),
        ops.Scale(ops.Max(x, y), factor=a),
        a < 0.0,
        is_float(x),
    )


@rule("extrema/shifted")
def shifted(x: Tensor, y: Tensor, s: Float) -> Sides:
    """Adding a number and rounding are monotone."""
    return (
        ops.Max(ops.Shift(x, offset=s), ops.Shift(y, offset=s)),
        ops.Shift(ops.Max(x, y), offset=s),
        is_float(x),
    )


@rule("extrema/median", numerics=Numerics.BITEXACT)
def median(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """Two forms of the middle one of three, as a lattice is distributive."""
    return (
        ops.Max(ops.Max(ops.Min(x, y), ops.Min(y, z)), ops.Min(z, x)),
        ops.Min(ops.Min(ops.Max(x, y), ops.Max(y, z)), ops.Max(z, x)),
    )


@rule("extrema/relu-as-half", numerics=Numerics.RELAXED)
def relu_as_half(x: Tensor) -> Sides:
    """(x + |x|) / 2 = relu(x); an infinity left a NaN."""
    return ops.Scale(x + ops.Abs(x), factor=0.5), ops.Relu(x), is_float(x)


@rule("extrema/clip-twice")
def clip_twice(x: Tensor, lo: Float, hi: Float) -> Sides:
    """What was clipped lies between the bounds."""
    once = ops.Clip(x, min=lo, max=hi)
    return ops.Clip(once, min=lo, max=hi), once


@rule("extrema/clip-in-clip")
def clip_in_clip(x: Tensor, lo: Float, hi: Float, low: Float, high: Float) -> Sides:
    """The narrower clip is all that counts."""
    return (
        ops.Clip(ops.Clip(x, min=low, max=high), min=lo, max=hi),
        ops.Clip(x, min=lo, max=hi),
        low <= lo,
        lo <= hi,
        hi <= high,
    )


@rule("extrema/relu-of-clip")
def relu_of_clip(x: Tensor, lo: Float, hi: Float) -> Sides:
    """Between bounds that are not negative a relu does nothing."""
    once = ops.Clip(x, min=lo, max=hi)
    return ops.Relu(once), once, lo >= 0.0, lo <= hi


@rule("extrema/clip-of-relu")
def clip_of_relu(x: Tensor, lo: Float, hi: Float) -> Sides:
    """A lower bound that is not negative makes a relu before it idle."""
    return ops.Clip(ops.Relu(x), min=lo, max=hi), ops.Clip(x, min=lo, max=hi), lo >= 0.0


@rule("extrema/clip-of-maximum", bidirectional=True)
def clip_of_maximum(x: Tensor, y: Tensor, lo: Float, hi: Float) -> Sides:
    """A clip is monotone."""
    return (
        ops.Max(ops.Clip(x, min=lo, max=hi), ops.Clip(y, min=lo, max=hi)),
        ops.Clip(ops.Max(x, y), min=lo, max=hi),
    )


@rule("extrema/clip-of-negative")
def clip_of_negative(x: Tensor, lo: Float, hi: Float) -> Sides:
    """A reflection exchanges the bounds."""
    return (
        ops.Clip(ops.Neg(x), min=lo, max=hi),
        ops.Neg(ops.Clip(x, min=0.0 - hi, max=0.0 - lo)),
        lo <= hi,
        is_float(x),
    )


@rule("extrema/positive-part-and-rest", numerics=Numerics.REASSOCIATE)
def positive_part_and_rest(x: Tensor, a: Float) -> Sides:
    """A relu and a scaled relu of the opposite are a leaky relu."""
    return (
        ops.Relu(x) - ops.Scale(ops.Relu(ops.Neg(x)), factor=a),
        ops.LeakyRelu(x, alpha=a),
        is_float(x),
    )


@rule("extrema/leaky-maximum")
def leaky_maximum(x: Tensor, a: Float) -> Sides:
    """With a slope of at most 1 the greater of x and ax is the leaky relu."""
    return (
        ops.Max(x, ops.Scale(x, factor=a)),
        ops.LeakyRelu(x, alpha=a),
        a > 0.0,
        a <= 1.0,
        is_float(x),
    )
