"""Recognition: one normal form for constant factors, addends and related operators.

A constant factor leaves every operator that lets it pass and a constant addend stays inside, so
every affine chain ends as factor * (x + offset), wherever a spelling put its constants. An inexact
factor could drift around a cycle of scales for ever (24 * fl(1/24) is not 1); an expression that
closes a cycle within 1e-12 is therefore replaced and not matched again.
"""

from __future__ import annotations

from eqsat_opt.rules.declare import recognition
from eqsat_opt.rules.parameters import plus, scalar, times
from eqsat_opt.rules.rule import Float, Int, Ints, Rule, Sides, Tensor
from eqsat_opt.rules.term import far, is_float, near, ops, real, sqrt

__all__: list[str] = []

_DRIFT = 1e-12


_law = recognition("affine")


# Definitions ------------------------------------------------------------------------------------


@_law("subtract")
def subtract(x: Tensor, y: Tensor) -> Sides:
    """A difference becomes a sum with the negated operand, so one form covers both."""
    return x - y, x + times(y, -1.0)


@_law("negate")
def negate(x: Tensor) -> Sides:
    """A negation becomes a factor of -1, so that it merges with other constant factors."""
    return ops.Neg(x), times(x, -1.0)


@_law("divide")
def divide(x: Tensor, y: Tensor) -> Sides:
    """A quotient becomes a product with the reciprocal, so one form covers both."""
    return x / y, x * ops.Reciprocal(y), is_float(x)


@_law("add-commute")
def add_commute(x: Tensor, y: Tensor) -> Sides:
    """Addition commutes, so a law of recognition finds its addends in either order."""
    return x + y, y + x


@_law("multiply-commute")
def multiply_commute(x: Tensor, y: Tensor) -> Sides:
    """Multiplication commutes, so a law of recognition finds its factors in either order."""
    return x * y, y * x


@_law("square")
def square(x: Tensor) -> Sides:
    """A product of a tensor with itself becomes a square."""
    return x * x, ops.Square(x)


def _power(name: str, exponent: float, of: str) -> Rule:
    @_law(f"power-{name}")
    def power(x: Tensor) -> Sides:
        """A power with a common constant exponent becomes a product, root or reciprocal."""
        right = {
            "square": lambda: ops.Square(x),
            "cube": lambda: x * ops.Square(x),
            "root": lambda: ops.Sqrt(x),
            "inverse-root": lambda: ops.Rsqrt(x),
            "inverse": lambda: ops.Reciprocal(x),
        }[of]()
        return ops.Pow(x, scalar(exponent, x)), right

    return power


power_two = _power("two", 2.0, "square")
power_three = _power("three", 3.0, "cube")
power_half = _power("half", 0.5, "root")
power_minus_half = _power("minus-half", -0.5, "inverse-root")
power_minus_one = _power("minus-one", -1.0, "inverse")


@_law("reciprocal-root")
def reciprocal_root(x: Tensor) -> Sides:
    """1/sqrt(x) becomes one function, the reciprocal root."""
    return ops.Reciprocal(ops.Sqrt(x)), ops.Rsqrt(x)


@_law("root-reciprocal")
def root_reciprocal(x: Tensor) -> Sides:
    """sqrt(1/x) = 1/sqrt(x), another spelling of the reciprocal root."""
    return ops.Sqrt(ops.Reciprocal(x)), ops.Rsqrt(x)


@_law("reciprocal-twice")
def reciprocal_twice(x: Tensor) -> Sides:
    """1/(1/x) = x: two reciprocals cancel."""
    return ops.Reciprocal(ops.Reciprocal(x)), x


@_law("reciprocal-product")
def reciprocal_product(x: Tensor, y: Tensor) -> Sides:
    """The reciprocal of a product becomes the product of the reciprocals."""
    return ops.Reciprocal(x * y), ops.Reciprocal(x) * ops.Reciprocal(y)


@_law("reciprocal-inverse-root")
def reciprocal_inverse_root(x: Tensor) -> Sides:
    """1/(1/sqrt(x)) = sqrt(x): the reciprocal of a reciprocal root is the root."""
    return ops.Reciprocal(ops.Rsqrt(x)), ops.Sqrt(x)


# Scales and shifts merge --------------------------------------------------------------------------


@_law("scale-of-scale")
def scale_of_scale(x: Tensor, a: Float, b: Float) -> Sides:
    """Two constant factors in a row become their product."""
    return times(times(x, b), a), times(x, a * b), far(a * b, 1.0, _DRIFT)


@_law("scale-cancels", subsumes=True)
def scale_cancels(x: Tensor, a: Float, b: Float) -> Sides:
    """Two constant factors whose product is 1, rounding aside, cancel."""
    return times(times(x, b), a), x, near(a * b, 1.0, _DRIFT)


@_law("scale-one", subsumes=True)
def scale_one(x: Tensor, a: Float) -> Sides:
    """A constant factor of 1, rounding aside, is dropped."""
    return times(x, a), x, near(a, 1.0, _DRIFT)


@_law("scale-same", subsumes=True)
def scale_same(x: Tensor, a: Float, b: Float) -> Sides:
    """Two constant factors of one tensor that differ only by rounding become one."""
    kept = times(x, a)
    return (kept, times(x, b)), (kept, times(x, a)), a < b, near(b, a, _DRIFT)


@_law("shift-of-shift")
def shift_of_shift(x: Tensor, a: Float, b: Float) -> Sides:
    """Two constant addends in a row become their sum."""
    return plus(plus(x, b), a), plus(x, a + b), a != b * -1.0


@_law("shift-cancels", subsumes=True)
def shift_cancels(x: Tensor, a: Float, b: Float) -> Sides:
    """A constant addend and its negative cancel."""
    return plus(plus(x, b), a), x, a == b * -1.0


@_law("shift-zero", subsumes=True)
def shift_zero(x: Tensor) -> Sides:
    """A constant addend of 0 is dropped."""
    return plus(x, 0.0), x


@_law("shift-same", subsumes=True)
def shift_same(x: Tensor, a: Float, b: Float) -> Sides:
    """Two constant addends of one tensor that differ only by rounding become one."""
    kept = plus(x, a)
    return (kept, plus(x, b)), (kept, plus(x, a)), a < b, near(b, a, _DRIFT)


@_law("shift-of-scale")
def shift_of_scale(x: Tensor, a: Float, s: Float) -> Sides:
    """In the normal form factors stand outside, addends inside: a * x + s = a * (x + s/a)."""
    return plus(times(x, a), s), times(plus(x, s / a), a), a != 0.0


# Factors leave ------------------------------------------------------------------------------------


@_law("product-of-scale")
def product_of_scale(x: Tensor, y: Tensor, a: Float) -> Sides:
    """A constant factor of an operand moves out of a product: (a * x) * y = a * (x * y)."""
    return times(x, a) * y, times(x * y, a)


@_law("sum-of-scales")
def sum_of_scales(x: Tensor, y: Tensor, a: Float) -> Sides:
    """A common constant factor moves out of a sum: a * x + a * y = a * (x + y)."""
    return times(x, a) + times(y, a), times(x + y, a)


@_law("difference-of-scales")
def difference_of_scales(x: Tensor, y: Tensor, a: Float, b: Float) -> Sides:
    """A common constant factor moves out of a difference: a * x - a * y = a * (x - y)."""
    return (
        times(x, a) + times(y, b),
        times(x + times(y, -1.0), a),
        near(b, a * -1.0, _DRIFT),
        a > 0.0,
        a != 1.0,
    )


@_law("sum-of-shift")
def sum_of_shift(x: Tensor, y: Tensor, s: Float) -> Sides:
    """A constant addend of an operand moves out of a sum: (x + s) + y = (x + y) + s."""
    return plus(x, s) + y, plus(x + y, s)


@_law("reciprocal-of-scale")
def reciprocal_of_scale(x: Tensor, a: Float) -> Sides:
    """A constant factor a moves out of a reciprocal as 1/a."""
    return ops.Reciprocal(times(x, a)), times(ops.Reciprocal(x), 1.0 / a), a != 0.0


@_law("square-of-scale")
def square_of_scale(x: Tensor, a: Float) -> Sides:
    """A constant factor moves out of a square as its own square."""
    return ops.Square(times(x, a)), times(ops.Square(x), a * a)


@_law("root-of-scale")
def root_of_scale(x: Tensor, a: Float) -> Sides:
    """A positive constant factor moves out of a root as its own root."""
    return ops.Sqrt(times(x, a)), times(ops.Sqrt(x), sqrt(a)), a > 0.0


@_law("inverse-root-of-scale")
def inverse_root_of_scale(x: Tensor, a: Float) -> Sides:
    """A positive constant factor moves out of a reciprocal root as its own reciprocal root."""
    return ops.Rsqrt(times(x, a)), times(ops.Rsqrt(x), 1.0 / sqrt(a)), a > 0.0


@_law("transpose-of-scale")
def transpose_of_scale(x: Tensor, p: Ints, a: Float) -> Sides:
    """A constant factor moves out of a transpose."""
    return ops.Transpose(times(x, a), perm=p), times(ops.Transpose(x, perm=p), a)


@_law("reshape-of-scale")
def reshape_of_scale(x: Tensor, s: Ints, a: Float) -> Sides:
    """A constant factor moves out of a reshape."""
    return ops.Reshape(times(x, a), shape=s), times(ops.Reshape(x, shape=s), a)


@_law("expand-of-scale")
def expand_of_scale(x: Tensor, s: Ints, a: Float) -> Sides:
    """A constant factor moves out of an expansion."""
    return ops.Expand(times(x, a), shape=s), times(ops.Expand(x, shape=s), a)


@_law("reshape-of-shift")
def reshape_of_shift(x: Tensor, s: Ints, a: Float) -> Sides:
    """A constant addend moves out of a reshape."""
    return ops.Reshape(plus(x, a), shape=s), plus(ops.Reshape(x, shape=s), a)


@_law("matmul-of-scale-left")
def matmul_of_scale_left(x: Tensor, y: Tensor, a: Float) -> Sides:
    """A constant factor of the left operand moves out of a matrix product."""
    return times(x, a) @ y, times(x @ y, a), x.rank >= 2, y.rank >= 2


@_law("matmul-of-scale-right")
def matmul_of_scale_right(x: Tensor, y: Tensor, a: Float) -> Sides:
    """A constant factor of the right operand moves out of a matrix product."""
    return x @ times(y, a), times(x @ y, a), x.rank >= 2, y.rank >= 2


@_law("mean-of-scale")
def mean_of_scale(x: Tensor, k: Ints, a: Float) -> Sides:
    """A constant factor moves out of a mean."""
    return (
        ops.ReduceMean(times(x, a), axes=k, keepdims=1),
        times(ops.ReduceMean(x, axes=k, keepdims=1), a),
    )


@_law("mean-of-shift")
def mean_of_shift(x: Tensor, k: Ints, a: Float) -> Sides:
    """A constant addend moves out of a mean."""
    return (
        ops.ReduceMean(plus(x, a), axes=k, keepdims=1),
        plus(ops.ReduceMean(x, axes=k, keepdims=1), a),
    )


@_law("sum-over-axis")
def sum_over_axis(x: Tensor, i: Int) -> Sides:
    """A sum over one axis becomes a mean times the extent of the axis."""
    mean = ops.ReduceMean(x, axes=(i,), keepdims=1)
    total = ops.ReduceSum(x, axes=(i,), keepdims=1)
    return total, times(mean, real(x.dim(i))), x.dim(i) >= 1


@_law("sum-over-two-axes")
def sum_over_two_axes(x: Tensor, i: Int, j: Int) -> Sides:
    """A sum over two axes becomes a mean times the extents of both."""
    mean = ops.ReduceMean(x, axes=(i, j), keepdims=1)
    total, extent = ops.ReduceSum(x, axes=(i, j), keepdims=1), x.dim(i) * x.dim(j)
    return total, times(mean, real(extent)), x.dim(i) >= 1, x.dim(j) >= 1
