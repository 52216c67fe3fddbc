"""Choices, the extremes of two numbers, and comparisons."""

from eqsat_opt.rules import Float, Numerics, Sides, Tensor, is_float, ops, rule

_RELAXED = Numerics.RELAXED


@rule("choices/chosen-twice")
def chosen_twice(c: Tensor, x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """The same condition holds inside."""
    return (
        ops.Where(c, ops.Where(c, x, y), z), ops.Where(c, x, z),
        c.shape == x.shape, x.shape == y.shape, x.shape == z.shape,
    )  # fmt: skip


@rule("choices/of-products")
def of_products(c: Tensor, x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """The same factor either way."""
    return ops.Where(c, x * z, y * z), ops.Where(c, x, y) * z


@rule("choices/negated")
def negated(c: Tensor, x: Tensor, y: Tensor) -> Sides:
    """A sign changes either way."""
    return ops.Neg(ops.Where(c, x, y)), ops.Where(c, ops.Neg(x), ops.Neg(y))


@rule("choices/rectified")
def rectified(c: Tensor, x: Tensor, y: Tensor) -> Sides:
    """A function of each element does not care where it was."""
    return ops.Relu(ops.Where(c, x, y)), ops.Where(c, ops.Relu(x), ops.Relu(y))


@rule("choices/by-order", numerics=_RELAXED)
def by_order(x: Tensor, y: Tensor) -> Sides:
    """The greater of two numbers; NaN is in no order."""
    return ops.Where(ops.Less(x, y), y, x), ops.Max(x, y)


@rule("choices/least-by-order", numerics=_RELAXED)
def least_by_order(x: Tensor, y: Tensor) -> Sides:
    """The lesser of two numbers; NaN is in no order."""
    return ops.Where(ops.LessOrEqual(x, y), x, y), ops.Min(x, y)


@rule("choices/extremes-add-up")
def extremes_add_up(x: Tensor, y: Tensor) -> Sides:
    """Both numbers, in some order."""
    return ops.Max(x, y) + ops.Min(x, y), x + y


@rule("choices/extremes-multiply")
def extremes_multiply(x: Tensor, y: Tensor) -> Sides:
    """Both numbers, in some order."""
    return ops.Max(x, y) * ops.Min(x, y), x * y


@rule("choices/greatest-reflected")
def greatest_reflected(x: Tensor, y: Tensor) -> Sides:
    """A reflection reverses the order."""
    return ops.Neg(ops.Max(ops.Neg(x), ops.Neg(y))), ops.Min(x, y), is_float(x)


@rule("choices/greatest-of-doubled")
def greatest_of_doubled(x: Tensor, y: Tensor) -> Sides:
    """A positive factor keeps the order."""
    twice = [ops.Scale(one, factor=2.0) for one in (x, y)]
    return ops.Max(*twice), ops.Scale(ops.Max(x, y), factor=2.0), is_float(x)


@rule("choices/leaky-as-greatest", bidirectional=True)
def leaky_as_greatest(x: Tensor, a: Float) -> Sides:
    """With a slope below 1 the greater of both lines."""
    return ops.LeakyRelu(x, alpha=a), ops.Max(x, ops.Scale(x, factor=a)), a > 0.0, a < 1.0


@rule("choices/leaky-as-least")
def leaky_as_least(x: Tensor, a: Float) -> Sides:
    """With a slope above 1 the lesser of both lines."""
    return ops.LeakyRelu(x, alpha=a), ops.Min(x, ops.Scale(x, factor=a)), a > 1.0


@rule("choices/sign-of-magnitude")
def sign_of_magnitude(x: Tensor) -> Sides:
    """Sign and magnitude are all of a number."""
    return ops.Sign(x) * ops.Abs(x), x, is_float(x)


@rule("choices/below-both")
def below_both(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """Below two is below the lesser; below a NaN is nothing."""
    return ops.And(ops.Less(x, y), ops.Less(x, z)), ops.Less(x, ops.Min(y, z))


@rule("choices/below-either", numerics=_RELAXED)
def below_either(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """Below one of two is below the greater; a NaN hides the other."""
    return ops.Or(ops.Less(x, y), ops.Less(x, z)), ops.Less(x, ops.Max(y, z))


@rule("choices/equal-is-not-apart", numerics=_RELAXED)
def equal_is_not_apart(x: Tensor, y: Tensor) -> Sides:
    """Numbers are equal if neither is greater."""
    return ops.Not(ops.Or(ops.Less(x, y), ops.Less(y, x))), ops.Equal(x, y)


@rule("choices/shortfall", numerics=_RELAXED)
def shortfall(x: Tensor, y: Tensor) -> Sides:
    """What is missing to the greater; an infinity is not missing to itself."""
    return ops.Max(x, y) - x, ops.Relu(y - x), is_float(x), x.shape == y.shape
