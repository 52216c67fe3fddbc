"""A rule that claims to be bitexact must compute every element in the same order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eqsat_opt.errors import RuleRefuted
from eqsat_opt.proving.checks.counterexample import Refutation
from eqsat_opt.proving.checks.rounding import InOrderDomain, rounding_difference
from eqsat_opt.proving.gate import certify_exact
from eqsat_opt.rules import rule
from eqsat_opt.rules.rule import Float, Int, Numerics, Rule, Sides, Tensor
from eqsat_opt.rules.term import near, ops
from tests.sampling import sampled


@rule("test/regrouped")
def regrouped(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    return (x + y) + z, x + (y + z), x.shape == y.shape


@rule("test/distributed")
def distributed(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    return x * (y + z), x * y + x * z, y.shape == z.shape


@rule("test/sum-in-two-parts")
def in_two_parts(x: Tensor, y: Tensor, w: Tensor, v: Tensor) -> Sides:
    joined = ops.Concat(x, y, axis=1) @ ops.Concat(w, v, axis=0)
    return joined, x @ w + y @ v, x.rank == 2, w.rank == 2, x.dim(1) == w.dim(0)


@rule("test/sum-across")
def across(x: Tensor) -> Sides:
    """The sum runs over rows first on one side and over columns first on the other."""
    swapped = ops.Transpose(x, perm=(1, 0))
    left, right = (
        ops.ReduceSum(x, axes=(0, 1), keepdims=1),
        ops.ReduceSum(swapped, axes=(0, 1), keepdims=1),
    )
    return left, right, x.rank == 2


@rule("test/scaled-twice")
def scaled_twice(x: Tensor, a: Float, b: Float) -> Sides:
    """Powers of two would hide the difference."""
    return ops.Scale(ops.Scale(x, factor=a), factor=b), ops.Scale(x, factor=a * b)


@rule("test/scaled-addends")
def scaled_addends(x: Tensor, y: Tensor, a: Float) -> Sides:
    return ops.Scale(x, factor=a) + ops.Scale(y, factor=a), ops.Scale(x + y, factor=a), a > 0.0


@rule("test/nearly-one")
def nearly_one(x: Tensor, a: Float) -> Sides:
    return ops.Scale(x, factor=a), ops.Scale(x, factor=1.0), near(a, 1.0)


@rule("test/equal-factors")
def equal_factors(x: Tensor, y: Tensor, a: Float, b: Float) -> Sides:
    """The factors round only where they move together."""
    return ops.Scale(x, factor=a) + ops.Scale(y, factor=b), ops.Scale(x + y, factor=a), a == b


@rule("test/whole-factor")
def whole_factor(x: Tensor, y: Tensor, a: Int) -> Sides:
    """The annotation does not say that the factor is real, the operator does."""
    return ops.Scale(x, factor=a) + ops.Scale(y, factor=a), ops.Scale(x + y, factor=a)


@rule("test/underflow")
def underflow(x: Tensor) -> Sides:
    """Exact for most numbers, but small ones lose bits on the way."""
    return ops.Scale(ops.Scale(x, factor=2.0**-80), factor=2.0**80), ops.Scale(x, factor=1.0)


@rule("test/negated-difference")
def negated_difference(x: Tensor, y: Tensor) -> Sides:
    """At a pole the sign of zero would decide, but poles are not covered."""
    return ops.Reciprocal(ops.Scale(x - y, factor=-1.0)), ops.Reciprocal(y - x)


@rule("test/commuted", bidirectional=True)
def commuted(x: Tensor, y: Tensor) -> Sides:
    return x * y, y * x


@rule("test/slices-of-a-product")
def sliced(x: Tensor, w: Tensor, n: Int, m: Int) -> Sides:
    """Columns of a product keep their sums."""
    left = ops.Slice(x @ w, axis=1, lo=n, hi=m)
    return left, x @ ops.Slice(w, axis=1, lo=n, hi=m), x.rank == 2, w.rank == 2


REORDERED = [
    regrouped, distributed, in_two_parts, across, scaled_twice, scaled_addends, nearly_one,
    equal_factors, whole_factor, underflow,
]  # fmt: skip


@pytest.mark.parametrize("wrong", sampled(REORDERED, 3))
def test_another_order_is_refused(wrong: Rule) -> None:
    with pytest.raises(
        RuleRefuted, match=r"declared bitexact, but .* declare Numerics.REASSOC"
    ) as e:
        certify_exact(wrong)
    refutation = e.value.refutation
    assert isinstance(refutation, Refutation)
    assert refutation.left is not None
    assert refutation.right is not None
    np.testing.assert_allclose(refutation.left, refutation.right, rtol=1e-3, atol=1e-5)
    assert "float32" in refutation.method
    with pytest.raises(AssertionError):
        exec(refutation.code, {})


@pytest.mark.parametrize("wrong", sampled(REORDERED, 3))
def test_who_admits_it_is_certified(wrong: Rule) -> None:
    numerics = Numerics.REFACTOR if wrong is distributed else Numerics.REASSOCIATE
    assert certify_exact(replace(wrong, numerics=numerics)).level == 1


@pytest.mark.parametrize("right", [commuted, sliced, negated_difference])
def test_the_same_order_is_accepted(right: Rule) -> None:
    assert certify_exact(right).level == 1
    assert rounding_difference(replace(right, bidirectional=False), max_points=20) is None


@rule("test/factor-of-one")
def factor_of_one(x: Tensor, a: Float) -> Sides:
    return ops.Scale(x, factor=a), ops.Scale(ops.Scale(x, factor=a), factor=a), a == 1.0


def test_attributes_that_never_round_are_no_evidence() -> None:
    with pytest.raises(RuleRefuted, match=r"no value of a that rounds.*declare another class"):
        rounding_difference(factor_of_one, max_points=8)


def test_sums_run_from_first_to_last() -> None:
    numbers = InOrderDomain()
    terms = np.array([1e8, 1.0, -1e8, 1.0], np.float32)
    assert numbers.sum(terms, (0,)).tolist() == [1.0]
    assert numbers.sum(terms[::-1], (0,)).tolist() == [0.0]
    assert numbers.matmul(terms, np.ones(4, np.float32)) == 1.0
    table = terms.reshape(2, 2)
    assert numbers.sum(table, (-1, 0)).tolist() == [[1.0]]
    assert numbers.sum(table.T, (0, 1)).tolist() == [[2.0]]
    assert numbers.sum(table, (0,)).tolist() == [[0.0, 2.0]]
    assert numbers.sum(np.ones((0, 2), np.float32), (0,)).tolist() == [[0.0, 0.0]]
    assert numbers.sum(np.ones((0, 2), np.float32), (1,)).shape == (0, 1)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3,), (3,)), ((3,), (3, 2)), ((2, 3), (3,)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)),
        ((2, 3), (5, 3, 4)), ((5, 1, 2, 3), (6, 3, 1)), ((2, 0), (0, 4)), ((3,), (5, 3, 4)),
    ],
)  # fmt: skip
def test_products_are_products(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(-3, 4, a).astype(np.float32), rng.integers(-3, 4, b).astype(np.float32)
    product = InOrderDomain().matmul(x, y)
    assert product.dtype == np.float32
    np.testing.assert_array_equal(product, np.matmul(x, y), strict=True)
