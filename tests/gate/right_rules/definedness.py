"""Equations of real numbers whose right side has values where the left side has none.

Where the left side is not a number nothing is claimed, which only the weakest class allows.
"""

from eqsat_opt.rules import Numerics, Sides, Tensor, is_float, ops, rule


@rule("definedness/square-of-root", numerics=Numerics.RELAXED)
def square_of_root(x: Tensor) -> Sides:
    """The square of a root is what it is the root of."""
    return ops.Square(ops.Sqrt(x)), x


@rule("definedness/exponential-of-logarithm", numerics=Numerics.RELAXED)
def exponential_of_logarithm(x: Tensor) -> Sides:
    """Whatever has a logarithm is its exponential."""
    return ops.Exp(ops.Log(x)), x


@rule("definedness/product-over-factor", numerics=Numerics.RELAXED)
def product_over_factor(x: Tensor, y: Tensor) -> Sides:
    """A factor that is not 0 cancels."""
    return (x * y) / y, x, x.shape == y.shape, is_float(x)


@rule("definedness/product-of-roots", numerics=Numerics.RELAXED)
def product_of_roots(x: Tensor) -> Sides:
    """The product of a root with itself."""
    return ops.Sqrt(x) * ops.Sqrt(x), x


@rule("definedness/sum-of-logarithms", numerics=Numerics.RELAXED)
def sum_of_logarithms(x: Tensor, y: Tensor) -> Sides:
    """The logarithm of a product, which two negative factors have as well."""
    return ops.Log(x) + ops.Log(y), ops.Log(x * y)


@rule("definedness/root-of-square", numerics=Numerics.RELAXED)
def root_of_square(x: Tensor) -> Sides:
    """The root of a square is the magnitude."""
    return ops.Sqrt(ops.Square(x)), ops.Abs(x)
