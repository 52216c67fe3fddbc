"""Laws of whole numbers, which wrap, and of casts."""

from eqsat_opt.rules import Float, Int, Ints, Numerics, Sides, Tensor, concat, ops, rule


@rule("whole/sum-of-multiples")
def sum_of_multiples(x: Tensor) -> Sides:
    """2x + 3x = 5x, modulo the range of the type."""
    two, three = (ops.Scalar(value=n, dtype="int64") for n in (2.0, 3.0))
    return (x * two) + (x * three), x * ops.Scalar(value=5.0, dtype="int64")


@rule("whole/added-twice")
def added_twice(x: Tensor, a: Float, b: Float) -> Sides:
    """Whole constants are added ahead of time; sums wrap alike."""
    return (
        (x + ops.Scalar(value=a, dtype="int64")) + ops.Scalar(value=b, dtype="int64"),
        x + ops.Scalar(value=a + b, dtype="int64"),
    )


@rule("whole/distributes")
def distributes(x: Tensor, y: Tensor, a: Float) -> Sides:
    """In the ring of integers modulo the range no digit is lost."""
    a_ = ops.Scalar(value=a, dtype="int32")
    return (x * a_) + (y * a_), (x + y) * a_


@rule("whole/square-of-opposite")
def square_of_opposite(x: Tensor) -> Sides:
    """Holds in every ring, so in integers that wrap."""
    return ops.Square(ops.Neg(x)), ops.Square(x)


@rule("whole/product-over-factor", numerics=Numerics.REASSOCIATE)
def remainder_of_sum(x: Tensor, y: Tensor) -> Sides:
    """(x + y)y - y² = xy in every ring; of floats the terms cancel to the same."""
    one = ops.Scalar(value=1.0, dtype="int64")
    return ((x + one) * y) - y, x * y, x.shape == y.shape


@rule("whole/cast-of-concat", bidirectional=True)
def cast_of_concat(x: Tensor, y: Tensor, axis: Int) -> Sides:
    """A cast sees one element at a time."""
    return (
        ops.Cast(concat(x, y, axis), to="float16"),
        concat(ops.Cast(x, to="float16"), ops.Cast(y, to="float16"), axis),
    )


@rule("whole/cast-of-transpose", bidirectional=True)
def cast_of_transpose(x: Tensor, p: Ints) -> Sides:
    """A cast sees one element at a time."""
    return (
        ops.Cast(ops.Transpose(x, perm=p), to="int32"),
        ops.Transpose(ops.Cast(x, to="int32"), perm=p),
    )


@rule("whole/cast-to-bool-twice")
def cast_to_bool_twice(x: Tensor) -> Sides:
    """A truth value stays what it is."""
    once = ops.Cast(x, to="bool")
    return ops.Cast(once, to="bool"), once


@rule("whole/cast-to-wider-bool")
def cast_to_wider_bool(a: Tensor, b: Tensor) -> Sides:
    """0 and 1 are themselves in every type."""
    return (
        ops.Cast(ops.Cast(ops.Greater(a, b), to="int32"), to="float32"),
        ops.Cast(ops.Greater(a, b), to="float32"),
    )


@rule("whole/cast-of-magnitude")
def cast_of_magnitude(x: Tensor) -> Sides:
    """A wider type keeps sign and digits of what was compared."""
    zero = ops.Scalar(value=0.0, dtype="float32")
    return (
        ops.Cast(ops.Max(x, zero), to="float64"),
        ops.Relu(ops.Cast(x, to="float64")),
    )
