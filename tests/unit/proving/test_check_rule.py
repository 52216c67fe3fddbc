"""Level 1 of verification: on the book, on planted rules, and what a report says."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from eqsat_opt.ir.values.types import require_static
from eqsat_opt.proving import MIN_POINTS, CheckReport, Refutation, check_rule
from eqsat_opt.proving.gate import THOROUGH_POINTS
from eqsat_opt.rules import Rule, families
from eqsat_opt.rules.rule import Float, Sides, Tensor, directed, rule
from eqsat_opt.rules.term import is_float, near, ops
from tests.sampling import sampled
from tests.unit.planted_rules import REFUTED, RIGHT, WRONG, published

BOOK = {one.name: one for one in directed([r for rules in families().values() for r in rules])}

# The book ----------------------------------------------------------------------------------------

FEW = 24
"""Instances in tests; certificates are made with more."""


@pytest.mark.parametrize("name", list(BOOK)[::36])
def test_some_rules_hold(name: str) -> None:
    """Valid certificates say so of all; this is a look whether the verifier still does."""
    assert check_rule(BOOK[name], max_points=FEW).passed


@pytest.mark.slow
@pytest.mark.parametrize("name", BOOK)
def test_rule_holds(name: str) -> None:
    report = check_rule(BOOK[name])
    assert report.passed, str(report)


NEEDED = [
    ("matmul/assoc", "2 <= y.rank"),
    ("matmul/distribute-right", "same-shape(y, z)"),
    ("matmul/scale-left", "s.rank == 0"),
    ("matmul/scale-right-reversed", "s.rank == 0"),
    ("conv/enlarge-kernel", "c == (a + 1)"),
    ("conv/residual-identity", "w.dim(2) == ((p * 2) + 1)"),
    ("conv/linear-in-weight", "same-shape(w, v)"),
    ("conv/linear-in-data", "same-shape(x, y)"),
    ("concat/whole-slice", "x.dim(axis) == hi"),
    ("pool/max-relu", "p[0] < k[0]"),
    ("pool/max-relu-reversed", "p[3] < k[1]"),
    ("pool/average-linear", "same-shape(x, y)"),
    ("pool/average-conv", "w.dim(2) == 1"),
]


@pytest.mark.parametrize(("name", "condition"), NEEDED)
def test_rule_without_its_condition_is_refuted(name: str, condition: str) -> None:
    guarded = BOOK[name]
    kept = tuple(one for one in guarded.when if str(one) != condition)
    assert len(kept) == len(guarded.when) - 1
    report = check_rule(replace(guarded, when=kept), max_points=80, minimise=False)
    assert report.refutation is not None


# Planted rules -----------------------------------------------------------------------------------


def test_planted_rules_have_names_of_their_own() -> None:
    names = [one.name for one in (*WRONG, *REFUTED, *RIGHT)]
    assert len(names) == len(set(names))


_REPORTS: dict[str, CheckReport] = {}


def reports(one: Rule) -> CheckReport:
    if one.name not in _REPORTS:
        _REPORTS[one.name] = check_rule(one, max_points=THOROUGH_POINTS if one in REFUTED else 60)
    return _REPORTS[one.name]


def fails(refutation: Refutation) -> bool:
    """Whether the code of a counterexample fails when it is run, as it should."""
    try:
        exec(compile(refutation.code, "counterexample", "exec"), {})
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("wrong", sampled([*WRONG, *REFUTED], 6), ids=lambda one: one.name)
def test_wrong_rule_is_refuted(wrong: Rule) -> None:
    report = reports(wrong)
    assert not report.passed
    assert report.refutation is not None, str(report)
    assert fails(report.refutation), report.refutation.code


LARGEST = {
    "U1": (published.grouped_merge_of_both, 36),
    "U2": (published.grouped_siblings, 6),
    "U3": (published.grouped_block_sum, 44),
    "U4": (published.drop_factor, 4),
    "U5": (published.drop_addend, 4),
    "U6": (published.enlarge_same_upper, 13),
    "U7": (published.average_as_convolution, 32),
    "U8": (published.merge_by_greatest_pads, 19),
    "U10": (published.distribute_broadcast, 16),
    "U12": (published.fold_without_factor, 12),
    "U13": (published.input_shift, 49),
    "U14": (published.slice_grouped, 60),
    "U15": (published.tiny_addend, 1),
    "U16": (published.cayley_hamilton, 9),
    "U17 transpose": (published.transpose_product, 8),
    "U17 relu of a sum": (published.relu_of_sum, 2),
    "U17 relu and average": (published.relu_average, 4),
    "U17 concat": (published.concat_commute, 2),
    "U17 identity": (published.identity_off_centre, 13),
}
"""Rule and elements of the operands of a counterexample that others or we have found."""


@pytest.mark.parametrize("number", sampled(LARGEST, 4))
def test_counterexample_is_as_small_as_known_ones(number: str) -> None:
    wrong, most = LARGEST[number]
    refutation = reports(wrong).refutation
    assert refutation is not None
    sizes = [require_static(type_).size for type_ in refutation.types.values()]
    assert sum(sizes) <= most, str(refutation)


@pytest.mark.parametrize("right", sampled(RIGHT, 4), ids=lambda one: one.name)
def test_right_rule_is_accepted(right: Rule) -> None:
    report = reports(right)
    assert report.passed, str(report)


def test_typing_guards_the_concat_shuffle() -> None:
    assert reports(published.typed_concat_shuffle).guarded > 0


# Where numbers end -------------------------------------------------------------------------------


def exponential_of_log(x: Tensor, y: Tensor) -> Sides:
    return x + y, ops.Exp(ops.Log(x + y)), is_float(x)


def root_of_product(x: Tensor, y: Tensor) -> Sides:
    return ops.Sqrt(x * y), ops.Sqrt(x) * ops.Sqrt(y)


def square_of_root(x: Tensor, y: Tensor) -> Sides:
    return x * y, ops.Sqrt(x * y) * ops.Sqrt(x * y), is_float(x)


@pytest.mark.parametrize("sides", [exponential_of_log, root_of_product, square_of_root])
def test_a_side_that_is_undefined_where_the_other_is_not_is_refused(
    sides: Callable[..., Sides],
) -> None:
    """These are equations wherever both sides are real numbers, and NaN elsewhere."""
    refutation = reports(rule(f"wrong/{sides.__name__.replace('_', '-')}")(sides)).refutation
    assert refutation is not None
    assert refutation.right is not None
    assert np.isnan(refutation.right).any()
    assert fails(refutation)


def test_a_left_side_may_be_undefined() -> None:
    def product_of_roots(x: Tensor, y: Tensor) -> Sides:
        return ops.Sqrt(x) * ops.Sqrt(y), ops.Sqrt(x * y)

    assert reports(rule("right/product-of-roots")(product_of_roots)).passed


def test_integers_truncate() -> None:
    def halves(x: Tensor, y: Tensor, z: Tensor) -> Sides:
        return x / z + y / z, (x + y) / z

    refutation = reports(rule("wrong/integer-quotient")(halves)).refutation
    assert refutation is not None
    assert refutation.method == "integers"

    def halves_of_floats(x: Tensor, y: Tensor, z: Tensor) -> Sides:
        return x / z + y / z, (x + y) / z, is_float(x)

    assert reports(rule("right/quotient")(halves_of_floats)).passed


def test_a_guard_against_what_is_seldom_tried_is_enough() -> None:
    def guarded(x: Tensor, a: Float) -> Sides:
        return ops.Relu(ops.LeakyRelu(x, alpha=a)), ops.Relu(x), a >= 0.0

    assert reports(rule("right/relu-of-leaky")(guarded)).passed


def test_what_is_never_a_number_is_never_compared() -> None:
    def nowhere(x: Tensor, y: Tensor) -> Sides:
        never = ops.Log(ops.Neg(ops.Abs(x)))
        return never + y, y + never, is_float(x)

    report = reports(rule("test/nowhere")(nowhere))
    assert (report.refutation, report.passed) == (None, False)


def test_a_target_may_come_first() -> None:
    def unscaled(x: Tensor, a: Float) -> Sides:
        return ops.Scale(x, factor=a), x, near(1.0, a)

    assert reports(rule("right/unscaled")(unscaled)).passed


def test_an_exponential_may_overflow() -> None:
    def apart(x: Tensor, y: Tensor) -> Sides:
        return ops.Exp(x + y), ops.Exp(x) * ops.Exp(y), is_float(x)

    with np.errstate(over="ignore", invalid="ignore"):
        assert np.isnan(np.exp(-800.0) * np.exp(np.float64(800.0)))
    assert reports(rule("right/exponentials-apart")(apart)).passed


# What a report says ------------------------------------------------------------------------------


def test_one_number_is_enough_for_a_counterexample() -> None:
    def absolute(x: Tensor) -> Sides:
        return ops.Abs(x), ops.Relu(x)

    refutation = reports(rule("wrong/absolute")(absolute)).refutation
    assert refutation is not None
    assert [require_static(type_).size for type_ in refutation.types.values()] == [1]


def test_counterexample_is_small_and_readable() -> None:
    refutation = reports(published.grouped_siblings).refutation
    assert refutation is not None
    assert sum(require_static(type_).size for type_ in refutation.types.values()) <= 24
    text = str(refutation)
    assert re.search(r"x: float32\[.*g=\d", text)
    assert "elements differ" in text
    assert "left  [" in text


def test_type_mismatch_is_a_refutation() -> None:
    def squeeze(x: Tensor) -> Sides:
        return ops.Transpose(x, perm=(1, 0)), ops.Relu(x)

    report = check_rule(rule("wrong/type")(squeeze))
    assert report.refutation is not None
    assert "the left side is float32[" in report.refutation.reason


def test_rule_that_never_types_is_not_exercised() -> None:
    def never(x: Tensor) -> Sides:
        return ops.Transpose(x, perm=(1, 0)), x, x.rank == 7

    report = check_rule(rule("test/never")(never))
    assert report.refutation is None
    assert report.points < MIN_POINTS
    assert not report.passed
    assert "not exercised" in str(report)


def test_method_follows_from_the_properties_that_a_rule_needs() -> None:
    methods = {
        "concat/map": "random functions over a prime field",
        "elementwise/relu-idempotent": "exact rationals",
        "lrn/three-quarters": "two prime fields",
    }
    for name, method in methods.items():
        assert check_rule(BOOK[name], max_points=FEW).method == method


def test_floating_point_alone_is_not_enough() -> None:
    """The squares of sine and cosine add up to 1, which no exact method knows of sines of sines."""

    def circle(x: Tensor) -> Sides:
        one = ops.Shift(ops.Scale(x, factor=0.0), offset=1.0)
        y = ops.Sin(x)
        return ops.Square(ops.Sin(y)) + ops.Square(ops.Cos(y)), one, is_float(x)

    report = reports(rule("test/circle")(circle))
    assert (report.refutation, report.method, report.passed) == (None, "float64", False)
    assert "no exact method confirms" in str(report)


def test_bound_of_a_false_acceptance() -> None:
    sums = check_rule(BOOK["elementwise/mul-assoc"], max_points=FEW).bound
    functions = check_rule(BOOK["concat/map"], max_points=FEW).bound
    assert sums is not None
    assert functions is not None
    assert (sums.degree, sums.argument_pairs, sums.trials) == (3, 0, 2)
    assert functions.argument_pairs > 0
    assert functions.trials > 2
    assert max(sums.log2, functions.log2) < -50


def test_small_instances_are_complete() -> None:
    report = check_rule(BOOK["elementwise/add-commute"])
    assert report.complete_to >= 2
    assert report.largest_extent >= 3


def test_equal_seeds_give_equal_reports() -> None:
    first, second = (check_rule(BOOK["conv/block-sum"], seed=3, max_points=30) for _ in range(2))
    assert first == second
