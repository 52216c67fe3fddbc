"""Comparisons, truth values and choices between tensors."""

from eqsat_opt.rules import Func, Numerics, Sides, Tensor, is_float, ops, rule


@rule("logic/not-twice")
def not_twice(a: Tensor) -> Sides:
    """Two negations cancel."""
    return ops.Not(ops.Not(a)), a


@rule("logic/not-and", bidirectional=True)
def not_and(a: Tensor, b: Tensor) -> Sides:
    """De Morgan."""
    return ops.Not(ops.And(a, b)), ops.Or(ops.Not(a), ops.Not(b))


@rule("logic/not-or", bidirectional=True)
def not_or(a: Tensor, b: Tensor) -> Sides:
    """De Morgan."""
    return ops.Not(ops.Or(a, b)), ops.And(ops.Not(a), ops.Not(b))


@rule("logic/and-over-or", bidirectional=True)
def and_over_or(a: Tensor, b: Tensor, c: Tensor) -> Sides:
    """A lattice of truth values is distributive."""
    return ops.Or(ops.And(a, b), ops.And(a, c)), ops.And(a, ops.Or(b, c))


@rule("logic/absorption")
def absorption(a: Tensor, b: Tensor) -> Sides:
    """What a holds already."""
    return ops.And(a, ops.Or(a, b)), a, a.shape == b.shape


@rule("logic/and-itself")
def and_itself(a: Tensor) -> Sides:
    """The same truth twice."""
    return ops.And(a, a), a


@rule("logic/xor-spelled-out")
def xor_spelled_out(a: Tensor, b: Tensor) -> Sides:
    """One of both, and not both."""
    return ops.And(ops.Or(a, b), ops.Not(ops.And(a, b))), ops.Xor(a, b)


@rule("logic/xor-twice")
def xor_twice(a: Tensor, b: Tensor) -> Sides:
    """A second exclusion undoes the first."""
    return ops.Xor(ops.Xor(a, b), b), a, a.shape == b.shape


@rule("logic/less-is-greater", bidirectional=True)
def less_is_greater(x: Tensor, y: Tensor) -> Sides:
    """The same comparison read from the other side, NaN and all."""
    return ops.Less(x, y), ops.Greater(y, x)


@rule("logic/equal-commutes")
def equal_commutes(x: Tensor, y: Tensor) -> Sides:
    """Equality is symmetric."""
    return ops.Equal(x, y), ops.Equal(y, x)


@rule("logic/not-less", numerics=Numerics.RELAXED)
def not_less(x: Tensor, y: Tensor) -> Sides:
    """Of numbers; every comparison with a NaN is false."""
    return ops.Not(ops.Less(x, y)), ops.GreaterOrEqual(x, y)


@rule("logic/less-or-equal")
def less_or_equal(x: Tensor, y: Tensor) -> Sides:
    """Spelled out."""
    return ops.Or(ops.Less(x, y), ops.Equal(x, y)), ops.LessOrEqual(x, y)


@rule("logic/equal-both-ways")
def equal_both_ways(x: Tensor, y: Tensor) -> Sides:
    """Neither is greater; a NaN is in no order."""
    return ops.And(ops.LessOrEqual(x, y), ops.GreaterOrEqual(x, y)), ops.Equal(x, y)


@rule("logic/comparison-of-negatives")
def comparison_of_negatives(x: Tensor, y: Tensor) -> Sides:
    """A reflection reverses the order; the least integer has no opposite."""
    return ops.Less(ops.Neg(x), ops.Neg(y)), ops.Greater(x, y), is_float(x)


@rule("logic/above-both")
def above_both(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """Above the greater of two is above both."""
    return ops.And(ops.Greater(x, y), ops.Greater(x, z)), ops.Greater(x, ops.Max(y, z))


@rule("logic/nan-of-absolute")
def nan_of_absolute(x: Tensor) -> Sides:
    """A magnitude is a NaN where the number is."""
    return ops.IsNaN(ops.Abs(x)), ops.IsNaN(x), is_float(x)


@rule("logic/choice-of-not")
def choice_of_not(c: Tensor, x: Tensor, y: Tensor) -> Sides:
    """A negated choice exchanges its branches."""
    return ops.Where(ops.Not(c), x, y), ops.Where(c, y, x)


@rule("logic/idle-choice")
def idle_choice(c: Tensor, x: Tensor) -> Sides:
    """Both branches are alike."""
    return ops.Where(c, x, x), x, c.shape == x.shape


@rule("logic/choice-within-choice")
def choice_within_choice(c: Tensor, x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """The inner choice is settled already."""
    return (
        ops.Where(c, ops.Where(c, x, y), z),
        ops.Where(c, x, z),
        x.shape == y.shape,
    )


@rule("logic/choices-joined")
def choices_joined(a: Tensor, b: Tensor, x: Tensor, y: Tensor) -> Sides:
    """Both conditions choose x."""
    return ops.Where(a, ops.Where(b, x, y), y), ops.Where(ops.And(a, b), x, y)


@rule("logic/map-of-choice", numerics=Numerics.REASSOCIATE, bidirectional=True)
def map_of_choice(c: Tensor, x: Tensor, y: Tensor, f: Func) -> Sides:
    """A function of a choice is a choice of its values."""
    return ops.Where(c, f(x), f(y)), f(ops.Where(c, x, y))


@rule("logic/sum-after-choice")
def sum_after_choice(c: Tensor, x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """Both branches add the same."""
    return ops.Where(c, x + z, y + z), ops.Where(c, x, y) + z


@rule("logic/choice-of-greater", numerics=Numerics.RELAXED)
def choice_of_greater(x: Tensor, y: Tensor) -> Sides:
    """The greater of two numbers; a NaN is not greater."""
    return ops.Where(ops.Greater(x, y), x, y), ops.Max(x, y)


@rule("logic/choice-of-magnitude")
def choice_of_magnitude(x: Tensor) -> Sides:
    """The sign is turned where it is negative."""
    zero = ops.Scalar(value=0.0, dtype="float32")
    return ops.Where(ops.Less(x, zero), ops.Neg(x), x), ops.Abs(x)


@rule("logic/choice-of-relu")
def choice_of_relu(x: Tensor) -> Sides:
    """What is below 0 is replaced by it; a NaN is not below."""
    zero = ops.Scalar(value=0.0, dtype="float32")
    return ops.Where(ops.Less(x, zero), zero, x), ops.Relu(x)


@rule("logic/nan-guard-keeps", numerics=Numerics.RELAXED)
def nan_guard_keeps(x: Tensor, y: Tensor) -> Sides:
    """No real number is a NaN."""
    return ops.Where(ops.IsNaN(x), y, x), x, x.shape == y.shape, is_float(x)


@rule("logic/gate-as-relu", numerics=Numerics.RELAXED)
def gate_as_relu(x: Tensor) -> Sides:
    """A truth value of 0 or 1 times x; infinity times 0 was a NaN."""
    zero = ops.Scalar(value=0.0, dtype="float32")
    return ops.Cast(ops.Greater(x, zero), to="float32") * x, ops.Relu(x)


@rule("logic/and-as-product")
def and_as_product(a: Tensor, b: Tensor) -> Sides:
    """Truth values as numbers 0 and 1."""
    return (
        ops.Cast(ops.And(a, b), to="float32"),
        ops.Cast(a, to="float32") * ops.Cast(b, to="float32"),
    )


@rule("logic/not-as-difference")
def not_as_difference(a: Tensor) -> Sides:
    """1 - 0 and 1 - 1."""
    one = ops.Scalar(value=1.0, dtype="float32")
    return ops.Cast(ops.Not(a), to="float32"), one - ops.Cast(a, to="float32")
