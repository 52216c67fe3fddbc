"""Laws of some elementwise functions that are stated for all of them."""

from __future__ import annotations

from eqsat_opt.rules import (
    Float,
    Func,
    Int,
    Ints,
    Numerics,
    Sides,
    Tensor,
    concat,
    ops,
    rule,
    slice_,
)
from tests.gate.cases import f64, wrong

_F = Numerics.REFACTOR
_Bound = tuple[str, dict[str, float]]
_SIGMOID: _Bound = ("Sigmoid", {})
_ABS: _Bound = ("Abs", {})
_RELU: _Bound = ("Relu", {})


@wrong(f=_ABS, x=f64(2, 3), y=f64(2, 3))
@rule("wrong/function-of-maximum")
def function_of_maximum(f: Func, x: Tensor, y: Tensor) -> Sides:
    """Right for what is monotone."""
    return ops.Max(f(x), f(y)), f(ops.Max(x, y)), x.shape == y.shape


@wrong(f=_ABS, x=f64(2, 3), i=1)
@rule("wrong/function-of-reduced")
def function_of_reduced(f: Func, x: Tensor, i: Int) -> Sides:
    """The same along an axis."""
    attrs = {"axes": (i,), "keepdims": 1}
    return ops.ReduceMax(f(x), **attrs), f(ops.ReduceMax(x, **attrs))


@wrong(f=_SIGMOID, x=f64(2, 3), y=f64(2, 3))
@rule("wrong/function-is-linear", numerics=_F)
def function_is_linear(f: Func, x: Tensor, y: Tensor) -> Sides:
    """No function of the registry is."""
    return f(x) + f(y), f(x + y), x.shape == y.shape


@wrong(f=_SIGMOID, x=f64(2, 3))
@rule("wrong/function-twice")
def function_twice(f: Func, x: Tensor) -> Sides:
    """Relu and the like are idempotent, few others are."""
    return f(f(x)), f(x)


@wrong(f=_RELU, x=f64(2, 3))
@rule("wrong/function-is-even")
def function_is_even(f: Func, x: Tensor) -> Sides:
    """Only even functions see no sign."""
    return f(ops.Abs(x)), f(x)


@wrong(f=_RELU, x=f64(2, 3), a=-0.7)
@rule("wrong/function-of-scaled", numerics=_F)
def function_of_scaled(f: Func, x: Tensor, a: Float) -> Sides:
    """Relu lets positive factors through."""
    return f(ops.Scale(x, factor=a)), ops.Scale(f(x), factor=a)


@wrong(f=_RELU, g=_SIGMOID, x=f64(2, 3))
@rule("wrong/functions-commute")
def functions_commute(f: Func, g: Func, x: Tensor) -> Sides:
    """Which of two functions comes first matters."""
    return f(g(x)), g(f(x))


@wrong(f=_SIGMOID, x=f64(2, 3), i=1)
@rule("wrong/function-of-sum", numerics=_F)
def function_of_sum(f: Func, x: Tensor, i: Int) -> Sides:
    """A sum of functions is no function of the sum, unless the axis has one element."""
    attrs = {"axes": (i,), "keepdims": 1}
    return ops.ReduceSum(f(x), **attrs), f(ops.ReduceSum(x, **attrs))


@wrong(f=_SIGMOID, g=_RELU, x=f64(2, 3), y=f64(2, 3), i=1)
@rule("wrong/functions-of-parts")
def functions_of_parts(f: Func, g: Func, x: Tensor, y: Tensor, i: Int) -> Sides:
    """Both parts take one function where they had two."""
    return concat(f(x), g(y), i), f(concat(x, y, i)), x.shape == y.shape


@wrong(f=_SIGMOID, x=f64(2, 6), i=1, a=1, b=4)
@rule("wrong/function-of-slice")
def function_of_slice(f: Func, x: Tensor, i: Int, a: Int, b: Int) -> Sides:
    """The function goes inwards, the slice moves by one."""
    return f(slice_(x, i, a, b)), slice_(f(x), i, a - 1, b - 1), a >= 1


@wrong(f=_SIGMOID, x=f64(2, 3, 4), p=(2, 0, 1))
@rule("wrong/function-of-transposed")
def function_of_transposed(f: Func, x: Tensor, p: Ints) -> Sides:
    """The function goes inwards, the permutation becomes its inverse."""
    after = ops.Transpose(ops.Transpose(f(x), perm=p), perm=p)
    return f(ops.Transpose(x, perm=p)), after, x.rank == 3


@wrong(f=_SIGMOID, x=f64(2, 4), a=4, b=2)
@rule("wrong/function-of-reshaped")
def function_of_reshaped(f: Func, x: Tensor, a: Int, b: Int) -> Sides:
    """A reshape to exchanged extents and a transpose are mixed up behind a function."""
    return (
        f(ops.Reshape(x, shape=(a, b))),
        f(ops.Transpose(x, perm=(1, 0))),
        x.dim(0) == b,
        (x.rank == 2),
    )


@wrong(f=_SIGMOID, x=f64(2, 3, 6), k=(2,), s=(2,), i=1)
@rule("wrong/function-of-average", numerics=_F)
def function_of_average(f: Func, x: Tensor, k: Ints, s: Ints, i: Int) -> Sides:
    """A mean of functions is no function of the mean."""
    attrs = {
        "kernel": k, "strides": s, "pads": (0, 0), "dilations": (1,), "ceil": 0,
        "count_include_pad": i,
    }  # fmt: skip
    return ops.AveragePool(f(x), **attrs), f(ops.AveragePool(x, **attrs)), x.rank == 3


@wrong(f=_SIGMOID, x=f64(2, 3), i=1, r=3)
@rule("wrong/function-of-repeated")
def function_of_repeated(f: Func, x: Tensor, i: Int, r: Int) -> Sides:
    """Repeated along another axis of the same extent."""
    after = ops.Repeat(f(x), axis=1 - i, repeats=r)
    return f(ops.Repeat(x, axis=i, repeats=r)), after, x.rank == 2, i <= 1


@wrong(f=_SIGMOID, x=f64(2, 3), y=f64(2, 3))
@rule("wrong/function-of-difference", numerics=_F)
def function_of_difference(f: Func, x: Tensor, y: Tensor) -> Sides:
    """Claim: f(|x - y|) is a distance of functions nowhere."""
    return ops.Abs(f(x) - f(y)), ops.Abs(f(x - y)), x.shape == y.shape
