"""What is drawn reaches wherever a rule may change its course: wrong rules that hide there."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat_opt.errors import RuleRefuted
from eqsat_opt.ir.values.types import TensorType, require_static
from eqsat_opt.proving.gate import THOROUGH_POINTS, certify_exact
from eqsat_opt.proving.instances.search import USUAL_POINTS, Found, find_instances
from eqsat_opt.proving.numbers.evaluation import IntegerNumbers
from eqsat_opt.proving.typing.choices import orders
from eqsat_opt.proving.typing.landmarks import landmarks
from eqsat_opt.rules.bindings import Bindings
from eqsat_opt.rules.library import families
from eqsat_opt.rules.rule import (
    Float,
    Int,
    Ints,
    Numerics,
    Rule,
    Sides,
    Tensor,
    Weight,
    directed,
    rule,
)
from eqsat_opt.rules.term import Expr, is_float, near, ops, real, slice_
from tests.sampling import sampled

WRONG: dict[str, Rule] = {}


def wrong(made: Rule) -> Rule:
    WRONG[made.name] = made
    return made


@wrong
@rule("drawn/two-epsilons", numerics=Numerics.REFACTOR)
def _two_epsilons(x: Tensor, w: Weight, v: Weight, e: Float, f: Float) -> Sides:
    """The second normalisation takes the epsilon of the first."""
    first = ops.RMSNormalization(x, w, axis=1, epsilon=e)
    return (
        ops.RMSNormalization(first, v, axis=1, epsilon=f),
        ops.RMSNormalization(first, v, axis=1, epsilon=e),
    )


@wrong
@rule("drawn/exchanged-strides")
def _exchanged_strides(x: Tensor, k: Ints, s: Ints) -> Sides:
    """Strides of both axes are taken for one."""
    rest = {"pads": (0, 0, 0, 0), "dilations": (1, 1), "ceil": 0, "kernel": k}
    return (
        ops.MaxPool(x, strides=s, **rest),
        ops.MaxPool(x, strides=(s[0], s[0] + (s[1] - s[0]) // 100 * 100), **rest),
        x.rank == 4,
    )


@wrong
@rule("drawn/thirteen-rows")
def _thirteen_rows(x: Tensor) -> Sides:
    """From thirteen rows on another row comes first."""
    return slice_(x, 0, 0, 1), slice_(x, 0, x.dim(0) // 13, x.dim(0) // 13 + 1), x.rank == 2


@wrong
@rule("drawn/hundred-columns")
def _hundred_columns(x: Tensor) -> Sides:
    """The same far beyond usual extents."""
    at = x.dim(1) // 150
    return slice_(x, 0, 0, 1), slice_(x, 0, at, at + 1), x.rank == 2, x.dim(0) >= 3


@wrong
@rule("drawn/vanishing-polynomial")
def _vanishing_polynomial(x: Tensor, s: Ints) -> Sides:
    """The pad moves only at strides that are none of the usual ones."""
    n = s[0]
    off = (n - 1) * (n - 2) * (n - 3) * (n - 4) * (n - 5)
    one = off // (off + 1 + (1 - off) // (off * off + 1))
    rest = {"kernel": (3,), "strides": s, "dilations": (1,), "ceil": 0}
    return (
        ops.MaxPool(x, pads=(1, 1), **rest),
        ops.MaxPool(x, pads=(1 + one, 1 - one), **rest),
        (x.rank == 3),
    )


@wrong
@rule("drawn/seventh-axis")
def _seventh_axis(x: Tensor, i: Int) -> Sides:
    """Axes from the seventh on are taken for the first."""
    return ops.Softmax(x, axis=i), ops.Softmax(x, axis=i - i // 6 * i)


@wrong
@rule("drawn/order-of-seven")
def _order_of_seven(x: Tensor, p: Ints, i: Int) -> Sides:
    """Sixty steps lead back in all permutations of up to six axes."""
    j: Expr = i
    for _ in range(60):
        j = p[j]
    moved = ops.Transpose(x, perm=p)
    return ops.ReduceMax(moved, axes=(i,), keepdims=1), ops.ReduceMax(moved, axes=(j,), keepdims=1)


@wrong
@rule("drawn/unsigned")
def _unsigned(x: Tensor, y: Tensor) -> Sides:
    """No unsigned number is less than 0."""
    return ops.Max(x - y, y - x), ops.Abs(x - y)


@wrong
@rule("drawn/narrow-sum")
def _narrow_sum(x: Tensor, y: Tensor) -> Sides:
    """Halves of sums, where sums wrap."""
    return ops.Relu(x) * ops.Relu(y), ops.Relu(ops.Relu(x) * ops.Relu(y))


@wrong
@rule("drawn/group-of-five")
def _group_of_five(x: Tensor, w: Weight, g: Int) -> Sides:
    """Five groups are computed as one, whose weights have other channels."""
    rest = {"strides": (1,), "pads": (0, 0), "dilations": (1,)}
    shift = g // 5
    return (
        slice_(ops.Conv(x, w, group=g, **rest), 1, 0, 1),
        slice_(ops.Conv(x, w, group=g, **rest), 1, shift, shift + 1),
        x.rank == 3,
        w.dim(0) >= 2,
    )


@wrong
@rule("drawn/large-factor", numerics=Numerics.REFACTOR)
def _large_factor(x: Tensor, a: Float) -> Sides:
    """A bound that no usual factor reaches."""
    return (
        ops.Clip(ops.Scale(x, factor=a), min=0.0, max=1e6),
        ops.Scale(ops.Clip(x, min=0.0, max=1e6), factor=a),
        a > 0.0,
        is_float(x),
    )


@wrong
@rule("drawn/nested-quotient")
def _nested_quotient(x: Tensor) -> Sides:
    """A threshold that no literal names: nine times nine."""
    at = x.dim(0) // 9 // 9
    return slice_(x, 0, 0, 1), slice_(x, 0, at, at + 1), x.rank == 1


@wrong
@rule("drawn/drift-of-sums", numerics=Numerics.REASSOCIATE)
def _drift_of_sums(x: Tensor, a: Float) -> Sides:
    """What is nearly 0 is added as often as there are rows."""
    sums = ops.ReduceSum(ops.Scale(x, factor=a), axes=(0,), keepdims=0)
    other = ops.ReduceSum(ops.Shift(x, offset=2.0 - 2.0 * a), axes=(0,), keepdims=0)
    return sums, other, near(a, 1.0, 1e-5), x.rank == 2


@wrong
@rule("drawn/drift-of-products", numerics=Numerics.REASSOCIATE)
def _drift_of_products(x: Tensor, a: Float) -> Sides:
    """What is nearly 1 is multiplied as often as there are rows."""
    scaled = ops.ReduceProd(ops.Scale(x, factor=a), axes=(0,), keepdims=0)
    return scaled, ops.ReduceProd(x, axes=(0,), keepdims=0), near(a, 1.0, 1e-5), x.rank == 1


@wrong
@rule("drawn/overflowing-sum")
def _overflowing_sum(x: Tensor, y: Tensor) -> Sides:
    """Quarters are exact, and the sum of the wholes leaves the range."""
    return (
        ops.Scale(x, factor=0.25) + ops.Scale(y, factor=0.25),
        ops.Scale(x + y, factor=0.25),
        is_float(x),
    )


@wrong
@rule("drawn/far-threshold")
def _far_threshold(x: Tensor) -> Sides:
    """Rows beyond all that can be tried."""
    at = x.dim(0) // 3_000_000
    return slice_(x, 0, 0, 1), slice_(x, 0, at, at + 1), x.rank == 1


# Where wrong rules were once let through ----------------------------------------------------------


@wrong
@rule("drawn/opposite-of-quotient")
def _opposite_of_quotient(x: Tensor, y: Tensor) -> Sides:
    """The least integer is its own opposite."""
    return ops.Neg(x) / y, ops.Neg(x / y)


@wrong
@rule("drawn/variance-in-one-pass", numerics=Numerics.REASSOCIATE)
def _variance_in_one_pass(x: Tensor, i: Int) -> Sides:
    """The difference of two large numbers that are almost the same."""
    mean = ops.ReduceMean(x, axes=(i,), keepdims=1)
    centred = ops.ReduceMean(ops.Square(x - mean), axes=(i,), keepdims=1)
    return centred, ops.ReduceMean(ops.Square(x), axes=(i,), keepdims=1) - ops.Square(mean)


@wrong
@rule("drawn/tail-of-softplus", numerics=Numerics.REASSOCIATE)
def _tail_of_softplus(x: Tensor) -> Sides:
    """What is small beside 1 is lost, at numbers far from 1 and near the literal."""
    inner = ops.Scale(ops.Reciprocal(x), factor=-5e-5)
    return ops.Softplus(inner), ops.Log(ops.Shift(ops.Exp(inner), offset=1.0))


@pytest.mark.parametrize("name", sampled(WRONG, 3))
@pytest.mark.parametrize("points", [USUAL_POINTS])
def test_a_rule_that_is_wrong_where_few_look_is_refused(name: str, points: int) -> None:
    with pytest.raises(RuleRefuted) as refused:
        certify_exact(WRONG[name], max_points=points)
    assert "\n" not in str(refused.value)


def test_a_wrong_rule_is_shown_at_a_small_instance() -> None:
    with pytest.raises(RuleRefuted, match=r"x: \w+\[13,\d\]"):
        certify_exact(WRONG["drawn/thirteen-rows"], max_points=USUAL_POINTS)


# What occurs among the instances -----------------------------------------------------------------

BOOK = {one.name: one for rules in families().values() for one in rules}


def points(name: str) -> tuple[Found, ...]:
    return find_instances(directed([BOOK[name]])[0], limit=USUAL_POINTS).points


@pytest.mark.parametrize("name", ["elementwise/add-commute", "transpose/add", "concat/take-across"])
def test_ranks_reach_seven_and_no_type_is_missing(name: str) -> None:
    drawn = points(name)
    ranks = {type_.rank for point in drawn for type_ in point.types.values()}
    assert {2, 3, 4, 6, 7} <= ranks
    dtypes = Counter(type_.dtype for point in drawn for type_ in point.types.values())
    assert {"float32", "float64", "int64", "int32", "uint8", "int8"} <= dtypes.keys()


def test_strides_kernels_and_groups_differ_and_go_beyond_the_usual() -> None:
    convolutions = points("conv/linear-in-data")
    seen = [point.attrs for point in convolutions]
    strides = [attrs["s"] for attrs in seen]
    assert any(len(set(s)) > 1 for s in strides)
    assert max(step for s in strides for step in s) > 5
    assert any(max(a["s"]) > 1 and max(a["d"]) > 1 for a in seen)
    assert any(p.attrs["g"] > 1 and require_static(p.types["w"]).shape[1] > 1 for p in convolutions)
    assert max(attrs["g"] for attrs in seen) > 4
    long = [max(require_static(t).shape, default=0) for p in convolutions for t in p.types.values()]
    assert max(long) > 12


def test_windows_meet_with_all_that_they_may_have() -> None:
    drawn = points("pool/average-linear")
    pairs = {
        (name, value, other)
        for point in drawn
        for name, value in (("c", point.attrs["c"]), ("i", point.attrs["i"]))
        for other, holds in (
            ("asymmetric pads", len(set(point.attrs["p"])) > 1),
            ("unlike kernels", len(set(point.attrs["k"])) > 1),
            ("dilations beside strides", max(point.attrs["d"]) > 1 < max(point.attrs["s"])),
            ("an extent of 1", 1 in require_static(point.types["x"]).shape),
        )
        if holds
    }
    assert len(pairs) == 16, pairs


def test_epsilons_are_seldom_equal() -> None:
    drawn = find_instances(WRONG["drawn/two-epsilons"], limit=USUAL_POINTS).points
    unequal = sum(point.attrs["e"] != point.attrs["f"] for point in drawn)
    assert unequal > len(drawn) / 3
    assert len({point.attrs["e"] for point in drawn}) > 4


def test_numbers_of_a_rule_are_met_from_both_sides() -> None:
    marks = landmarks(WRONG["drawn/nested-quotient"])
    assert {8, 9, 10, 80, 81, 82} <= set(marks.counts)
    assert landmarks(WRONG["drawn/far-threshold"]).unseen
    assert landmarks(WRONG["drawn/large-factor"]).reals


@given(st.integers(6, 9), st.data())
def test_orders_of_many_axes_are_orders(axes: int, data: st.DataObject) -> None:
    many, likely = orders(axes)
    index = data.draw(st.integers(0, len(many) - 1))
    order = many[index]
    assert sorted(order) == list(range(axes))
    if index < likely:
        place, steps = order[0], 1
        while place:
            place, steps = order[place], steps + 1
        assert steps == axes


def test_windows_and_what_they_are_taken_from_are_large_together() -> None:
    @rule("drawn/odd-kernel")
    def odd_kernel(x: Tensor, k: Int) -> Sides:
        """Odd windows from fourteen on."""
        rest = {"strides": (1,), "pads": (0, 0), "dilations": (1,), "ceil": 0}
        pooled = ops.MaxPool(x, kernel=(k,), **rest)
        return pooled, ops.Shift(pooled, offset=real(k % 2 * (k // 14)))

    drawn = find_instances(odd_kernel, limit=THOROUGH_POINTS).points
    assert any(point.attrs["k"] >= 14 and point.attrs["k"] % 2 for point in drawn)


def test_the_least_integer_is_drawn() -> None:
    point = next(p for p in find_instances(WRONG["drawn/unsigned"], limit=40).points if p.whole)
    types = {name: TensorType("int8", (200,)) for name in point.types}
    values = IntegerNumbers(2).draw(Bindings(types, {}), 0)
    assert all(v.min() == -128 and v.max() == 127 for v in values.values())
