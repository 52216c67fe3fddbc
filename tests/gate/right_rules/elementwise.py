"""Laws of arithmetic, element by element: each holds for real numbers, and as its class says."""

from eqsat_opt.rules import Float, Func, Numerics, Sides, Tensor, is_float, ops, rule


@rule("arithmetic/negated-sum", bidirectional=True)
def negated_sum(x: Tensor, y: Tensor) -> Sides:
    """Rounding is symmetric, so a sum may be negated before or after."""
    return ops.Neg(x + y), ops.Neg(x) - y


@rule("arithmetic/negated-difference")
def negated_difference(x: Tensor, y: Tensor) -> Sides:
    """-(x - y) = y - x, rounded alike; in integers that wrap, too."""
    return ops.Neg(x - y), y - x


@rule("arithmetic/negated-factor", bidirectional=True)
def negated_factor(x: Tensor, y: Tensor) -> Sides:
    """A sign passes through a product."""
    return ops.Neg(x) * y, ops.Neg(x * y)


@rule("arithmetic/negated-factors")
def negated_factors(x: Tensor, y: Tensor) -> Sides:
    """Two signs cancel."""
    return ops.Neg(x) * ops.Neg(y), x * y


@rule("arithmetic/nested-differences", numerics=Numerics.REASSOCIATE, bidirectional=True)
def nested_differences(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """A sum of three terms in another order."""
    return (x - y) - z, x - (y + z)


@rule("arithmetic/difference-of-sums", numerics=Numerics.REASSOCIATE)
def difference_of_sums(x: Tensor, y: Tensor, z: Tensor, w: Tensor) -> Sides:
    """Four terms in another order."""
    return (x + y) - (z + w), (x - z) + (y - w)


@rule("arithmetic/common-addend", numerics=Numerics.RELAXED)
def common_addend(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """The addend cancels over the reals; an infinite one left a NaN; z widens no shape."""
    return (x + z) - (y + z), x - y, x.shape == z.shape


@rule("arithmetic/difference-of-squares", numerics=Numerics.REASSOCIATE)
def difference_of_squares(x: Tensor, y: Tensor) -> Sides:
    """x² - y² = (x + y)(x - y), which loses less than what it replaces; infinities stay."""
    return (x * x) - (y * y), (x + y) * (x - y)


@rule("arithmetic/square-of-sum", numerics=Numerics.REFACTOR)
def square_of_sum(x: Tensor, y: Tensor) -> Sides:
    """(x + y)² multiplied out; in integers that wrap it is a ring identity."""
    return (x + y) * (x + y), ((x * x) + (x * y)) + ((y * x) + (y * y))


@rule("arithmetic/telescoping", numerics=Numerics.RELAXED)
def telescoping(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """Y is added and subtracted."""
    return (x - y) + (y - z), x - z, x.shape == y.shape


@rule("arithmetic/quotient-of-quotient", numerics=Numerics.RELAXED)
def quotient_of_quotient(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """(x / y) / z = x / (yz) for numbers that are not truncated."""
    return (x / y) / z, x / (y * z), is_float(x)


@rule("arithmetic/quotient-by-quotient", numerics=Numerics.RELAXED)
def quotient_by_quotient(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """X / (y / z) = xz / y, where y and z are not 0."""
    return x / (y / z), (x * z) / y, is_float(x)


@rule("arithmetic/common-denominator", numerics=Numerics.REASSOCIATE)
def common_denominator(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """A quotient is linear in what is divided."""
    return (x / z) + (y / z), (x + y) / z, is_float(x)


@rule("arithmetic/product-of-reciprocals", numerics=Numerics.RELAXED)
def product_of_reciprocals(x: Tensor, y: Tensor) -> Sides:
    """One division instead of two; the product may leave the range."""
    return ops.Reciprocal(x) * ops.Reciprocal(y), ops.Reciprocal(x * y)


@rule("arithmetic/reciprocal-of-quotient", numerics=Numerics.RELAXED)
def reciprocal_of_quotient(x: Tensor, y: Tensor) -> Sides:
    """1 / (x / y) = y / x."""
    return ops.Reciprocal(x / y), y / x


@rule("arithmetic/absolute-negative")
def absolute_negative(x: Tensor) -> Sides:
    """|-x| = |x|, and the least integer is its own negative on both sides."""
    return ops.Abs(ops.Neg(x)), ops.Abs(x)


@rule("arithmetic/absolute-twice")
def absolute_twice(x: Tensor) -> Sides:
    """|x| is not negative; the least integer stays what it is."""
    return ops.Abs(ops.Abs(x)), ops.Abs(x)


@rule("arithmetic/absolute-square")
def absolute_square(x: Tensor) -> Sides:
    """A square is not negative, unless an integer wraps."""
    return ops.Abs(x * x), x * x, is_float(x)


@rule("arithmetic/absolute-product", bidirectional=True)
def absolute_product(x: Tensor, y: Tensor) -> Sides:
    """|xy| = |x| |y|, rounded alike; integers that wrap break it."""
    return ops.Abs(x * y), ops.Abs(x) * ops.Abs(y), is_float(x)


@rule("arithmetic/absolute-quotient")
def absolute_quotient(x: Tensor, y: Tensor) -> Sides:
    """|x / y| = |x| / |y|, rounded alike."""
    return ops.Abs(x) / ops.Abs(y), ops.Abs(x / y), is_float(x)


@rule("arithmetic/square-of-absolute")
def square_of_absolute(x: Tensor) -> Sides:
    """Signs of a square cancel."""
    return ops.Square(ops.Abs(x)), ops.Square(x)


@rule("arithmetic/sign-times-magnitude")
def sign_times_magnitude(x: Tensor) -> Sides:
    """A number is its sign times its magnitude."""
    return ops.Sign(x) * ops.Abs(x), x


@rule("arithmetic/sign-twice")
def sign_twice(x: Tensor) -> Sides:
    """Signs of signs."""
    return ops.Sign(ops.Sign(x)), ops.Sign(x)


@rule("arithmetic/sign-of-negative")
def sign_of_negative(x: Tensor) -> Sides:
    """Sign is odd; the least integer is its own negative, so floats only."""
    return ops.Sign(ops.Neg(x)), ops.Neg(ops.Sign(x)), is_float(x)


@rule("arithmetic/sign-of-product", numerics=Numerics.RELAXED)
def sign_of_product(x: Tensor, y: Tensor) -> Sides:
    """Over the reals; a product that underflows loses its sign."""
    return ops.Sign(x * y), ops.Sign(x) * ops.Sign(y), is_float(x)


@rule("arithmetic/floor-twice")
def floor_twice(x: Tensor) -> Sides:
    """A whole number is its own floor."""
    return ops.Floor(ops.Floor(x)), ops.Floor(x)


@rule("arithmetic/round-of-ceil")
def round_of_ceil(x: Tensor) -> Sides:
    """A whole number is rounded to itself."""
    return ops.Round(ops.Ceil(x)), ops.Ceil(x)


@rule("arithmetic/ceil-of-negative", bidirectional=True)
def ceil_of_negative(x: Tensor) -> Sides:
    """Floor and ceil are reflections of each other."""
    return ops.Ceil(ops.Neg(x)), ops.Neg(ops.Floor(x))


@rule("arithmetic/round-of-negative")
def round_of_negative(x: Tensor) -> Sides:
    """Rounding half to even is odd."""
    return ops.Round(ops.Neg(x)), ops.Neg(ops.Round(x))


@rule("arithmetic/exponentials-divided", numerics=Numerics.RELAXED)
def exponentials_divided(x: Tensor, y: Tensor) -> Sides:
    """exp(x) / exp(y) = exp(x - y)."""
    return ops.Exp(x) / ops.Exp(y), ops.Exp(x - y)


@rule("arithmetic/reciprocal-of-exponential", numerics=Numerics.RELAXED)
def reciprocal_of_exponential(x: Tensor) -> Sides:
    """1 / exp(x) = exp(-x)."""
    return ops.Reciprocal(ops.Exp(x)), ops.Exp(ops.Neg(x))


@rule("arithmetic/logarithm-of-exponential", numerics=Numerics.RELAXED)
def logarithm_of_exponential(x: Tensor) -> Sides:
    """log(exp(x)) = x for every real number."""
    return ops.Log(ops.Exp(x)), x


@rule("arithmetic/root-of-square", numerics=Numerics.RELAXED)
def root_of_square(x: Tensor) -> Sides:
    """√(x²) = |x|; the square may overflow."""
    return ops.Sqrt(x * x), ops.Abs(x)


@rule("arithmetic/squares-multiplied", numerics=Numerics.RELAXED)
def squares_multiplied(x: Tensor, y: Tensor) -> Sides:
    """x² y² = (xy)²."""
    return ops.Square(x) * ops.Square(y), ops.Square(x * y)


@rule("arithmetic/scale-as-shifted-sum", numerics=Numerics.REFACTOR)
def scale_as_shifted_sum(x: Tensor, y: Tensor, a: Float, s: Float) -> Sides:
    """The constant of two scaled terms is added at the end."""
    return (
        ops.Shift(ops.Scale(x, factor=a), offset=s) + ops.Scale(y, factor=a),
        ops.Shift(ops.Scale(x + y, factor=a), offset=s),
        is_float(x),
    )


@rule("arithmetic/map-of-expression")
def map_of_expression(x: Tensor, y: Tensor, f: Func) -> Sides:
    """What is equal inside of a function is equal outside of it."""
    return f(ops.Neg(x - y)), f(y - x)


@rule("arithmetic/sine-of-negative", numerics=Numerics.REASSOCIATE, bidirectional=True)
def sine_of_negative(x: Tensor) -> Sides:
    """Sine is odd."""
    return ops.Sin(ops.Neg(x)), ops.Neg(ops.Sin(x))


@rule("arithmetic/cosine-of-negative", numerics=Numerics.REASSOCIATE)
def cosine_of_negative(x: Tensor) -> Sides:
    """Cosine is even."""
    return ops.Cos(ops.Neg(x)), ops.Cos(x)
