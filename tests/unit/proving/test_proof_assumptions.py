"""What a proof may take for granted: nothing where a side has no value that is not asked for.

Every wrong rule here agrees with the truth over the real numbers, at the ranks that are tried, or
wherever all quotients and roots are defined, and nowhere else.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest

from eqsat_opt.errors import RuleRefuted
from eqsat_opt.proving.certificates.semantics import fingerprint, rule_text
from eqsat_opt.proving.gate import certify_exact
from eqsat_opt.proving.proof import prove
from eqsat_opt.rules import Rule
from eqsat_opt.rules.rule import Float, Int, Ints, Sides, Tensor, Weight, rule
from eqsat_opt.rules.term import Condition, Expr, Term, far, is_float, near, ops, real

pytest.importorskip("z3", reason="proofs need z3: pip install 'eqsat-opt[verify]'")

OVER_ROWS: dict[str, Any] = {"axes": (0,), "keepdims": 1}


def _scalar(value: float) -> Term:
    return ops.Scalar(value=value, dtype="float32")


def _inverse(x: Term) -> Term:
    """1 / relu(x), which has no value for half of all x."""
    return ops.Reciprocal(ops.Relu(x))


# Wrong: an operation of the left side that need not have a value ---------------------------------


@rule("guarded/pole-not-taken")
def pole_not_taken(x: Tensor, w: Tensor) -> Sides:
    """With x = -2, w = 7 it is 7 and 5: behind a condition the inverse says nothing of x."""
    q = ops.Where(ops.Greater(x, _scalar(0.0)), _inverse(x), w)
    return q + ops.Relu(x), q + x, x.shape == w.shape


@rule("guarded/unknown-condition")
def unknown_condition(c: Tensor, x: Tensor, y: Tensor, w: Tensor) -> Sides:
    """The other branch of any condition."""
    q = ops.Where(c, y / ops.Relu(x), w)
    return q + ops.Relu(x) * y, q + x * y, x.shape == y.shape, x.shape == w.shape


@rule("guarded/two-terms")
def two_terms(c: Tensor, x: Tensor, z: Tensor, w: Tensor) -> Sides:
    """A sum of two rectified terms is 0 for a quarter of all operands."""
    q = ops.Where(c, ops.Reciprocal(ops.Relu(x) + ops.Relu(z)), w)
    return q + ops.Relu(ops.Relu(x) + ops.Relu(z)), q + (ops.Relu(x) + ops.Relu(z))


@rule("guarded/clip")
def under_clip(x: Tensor) -> Sides:
    """The bound of a clip takes the place of an infinity."""
    q = ops.Clip(_inverse(x), min=0.0, max=100.0)
    return q + ops.Relu(x), q + x


@rule("guarded/maximum")
def under_maximum(x: Tensor, w: Tensor) -> Sides:
    """Minus infinity is no maximum."""
    q = ops.Max(ops.Neg(_inverse(x)), w)
    return q + ops.Relu(x), q + x, x.shape == w.shape


@rule("guarded/maximum-of-rows")
def under_maximum_of_rows(x: Tensor, w: Tensor) -> Sides:
    """The same over an axis."""
    q = ops.ReduceMax(ops.Max(ops.Neg(_inverse(x)), w), **OVER_ROWS)
    return q + ops.Relu(x), q + x, x.shape == w.shape


@rule("guarded/exponential")
def under_exponential(x: Tensor) -> Sides:
    """exp(-1/0) = 0."""
    q = ops.Exp(ops.Neg(_inverse(x)))
    return q + ops.Relu(x), q + x


@rule("guarded/sigmoid")
def under_sigmoid(x: Tensor) -> Sides:
    """1 / (1 + exp(1/0)) = 0."""
    q = ops.Sigmoid(ops.Neg(_inverse(x)))
    return q + ops.Relu(x), q + x


@rule("guarded/inverse-of-inverse")
def inverse_of_inverse(x: Tensor) -> Sides:
    """1 / (1 / 0) = 0."""
    q = ops.Reciprocal(_inverse(x))
    return q + ops.Relu(x), q + x


@rule("guarded/root-not-taken")
def root_not_taken(c: Tensor, x: Tensor) -> Sides:
    """A root in one branch says nothing about the other."""
    root = ops.Pow(x, _scalar(1.5))
    return ops.Where(c, root, ops.Relu(x)), ops.Where(c, x * ops.Sqrt(x), ops.Relu(x))


@rule("guarded/no-number")
def no_number(x: Tensor, w: Tensor) -> Sides:
    """The logarithm of a negative number is not a number, which the condition asks for."""
    return ops.Where(ops.IsNaN(ops.Log(x)), w, x), x, x.shape == w.shape


GUARDED = [value for value in list(globals().values()) if isinstance(value, Rule)]

# Wrong: an operation of the right side without a value where the left side has one ---------------


@rule("new/zero-by-zero")
def zero_by_zero(x: Tensor, w: Tensor) -> Sides:
    """0 / 0 at every input."""
    return x * w, x * w + (w - w) / (w - w), x.shape == w.shape, is_float(x)


@rule("new/half-of-all")
def half_of_all(x: Tensor) -> Sides:
    """0 / 0 for every x <= 0."""
    return ops.Relu(x), ops.Relu(x) * ops.Relu(x) / ops.Relu(x), is_float(x)


@rule("new/times-nothing")
def times_nothing(x: Tensor) -> Sides:
    """0 times 1/0 is not a number."""
    return ops.Relu(x), ops.Relu(x) + ops.Scale(_inverse(x), factor=0.0)


@rule("new/operand-that-may-be-rectified")
def operand(x: Tensor, y: Tensor) -> Sides:
    """A pole at a single y is one at half of all z where y = relu(z)."""
    return x + y, x * y / y + y, x.shape == y.shape, is_float(x)


@rule("new/root-of-what-is-negative-far-out")
def far_out(x: Tensor) -> Sides:
    """No number for |x| > 10."""
    d = ops.Shift(ops.Scale(x * x, factor=-1.0), offset=100.0)
    return x + x, ops.Scale(x, factor=2.0) * ops.Sqrt(d) / ops.Sqrt(d)


@rule("new/roots-cancel")
def roots_cancel(x: Tensor, w: Tensor) -> Sides:
    """No number less itself."""
    return x + w, x + w + (ops.Sqrt(x) - ops.Sqrt(x)), x.shape == w.shape


@rule("new/logarithms-cancel")
def logarithms_cancel(x: Tensor) -> Sides:
    """Minus infinity less itself where x = 0, of which a root says nothing."""
    return ops.Sqrt(x), ops.Sqrt(x) + (ops.Log(x) - ops.Log(x))


@rule("new/inverse-root")
def inverse_root(x: Tensor) -> Sides:
    """A root is defined at 0, an inverse root is not."""
    return ops.Sqrt(x), x * ops.Rsqrt(x)


@rule("new/in-a-branch")
def in_a_branch(c: Tensor, x: Tensor, y: Tensor) -> Sides:
    """The condition does not keep y from being 0."""
    return ops.Where(c, x, y), ops.Where(c, x * y / y, y), x.shape == y.shape


@rule("new/other-branch")
def other_branch(c: Tensor, x: Tensor, y: Tensor) -> Sides:
    """What is divided in one branch is not divided in the other."""
    left = ops.Where(c, x / y, y)
    return left, ops.Where(c, x / y, y * y * ops.Reciprocal(y)), x.shape == y.shape


@rule("new/reverse", bidirectional=True)
def reverse(x: Tensor, y: Tensor) -> Sides:
    """Right from left to right only."""
    return x * y / y + y, x + y, x.shape == y.shape, is_float(x)


@rule("new/empty-windows")
def empty_windows(x: Tensor, k: Ints, s: Ints, d: Ints, p: Ints) -> Sides:
    """A window that lies in the padding counts nothing."""
    at = {"kernel": k, "strides": s, "dilations": d, "pads": p, "ceil": 0}
    counted = ops.AveragePool(x, **at, count_include_pad=0)
    pooled = ops.AveragePool(x, **at, count_include_pad=1)
    return pooled, pooled + (counted - counted), x.rank == 3


NEW = [one for one in list(globals().values()) if isinstance(one, Rule) and one not in GUARDED]

# Wrong: whole numbers are rounded ----------------------------------------------------------------


@rule("whole/quotient")
def quotient(x: Tensor, y: Tensor) -> Sides:
    """7 / 2 * 2 = 6."""
    i, j = ops.Cast(x, to="int32"), ops.Cast(y, to="int32")
    return i / j * j, i * ops.Cast(_scalar(1.0), to="int32"), x.shape == y.shape


@rule("whole/mean")
def mean(x: Tensor) -> Sides:
    """Two means are rounded twice."""
    i = ops.Cast(x, to="int64")
    half = ops.ReduceMean(i, **OVER_ROWS)
    return half + half, ops.ReduceMean(i + i, **OVER_ROWS)


@rule("whole/factor")
def factor(x: Tensor) -> Sides:
    """A factor of whole numbers is one."""
    i = ops.Cast(x, to="int32")
    return ops.Scale(ops.Scale(i, factor=0.5), factor=2.0), ops.Scale(i, factor=1.0)


@rule("whole/literals")
def literals(x: Tensor) -> Sides:
    """7 / 2 * 2 = 6 without any cast."""
    seven, two = (ops.Scalar(value=value, dtype="int64") for value in (7.0, 2.0))
    return seven / two * two + x, seven + x


@rule("whole/half")
def half(x: Tensor) -> Sides:
    """There is no half among whole numbers."""
    part = ops.Scalar(value=0.5, dtype="int64")
    return x + (part + part), x + ops.Scalar(value=1.0, dtype="int64")


@rule("whole/truth")
def truth(x: Tensor) -> Sides:
    """True and true is true."""
    c = ops.Cast(x, to="bool")
    return ops.Cast(c + c, to="float32"), ops.Cast(c, to="float32") + ops.Cast(c, to="float32")


WHOLE = [quotient, mean, factor, literals, half, truth]

# Wrong: ranks above those that are tried ---------------------------------------------------------


@rule("ranks/six")
def rank_six(x: Tensor, a: Int) -> Sides:
    """From rank 6 on another axis."""
    return ops.Softmax(x, axis=a), ops.Softmax(x, axis=a + x.rank // 6), a < 1


@rule("ranks/axis-five")
def axis_five(x: Tensor, a: Int) -> Sides:
    """The same of an axis."""
    return ops.Softmax(x, axis=a), ops.Softmax(x, axis=a - a // 5)


@rule("ranks/polynomial")
def polynomial(x: Tensor, a: Int) -> Sides:
    """A polynomial with all zeros at the axes that are tried."""
    zero = a * (a - 1) * (a - 2) * (a - 3) * (a - 4)
    return ops.Softmax(x, axis=a), ops.Softmax(x, axis=a + zero)


@rule("ranks/five-or-more")
def five_or_more(x: Tensor, a: Int) -> Sides:
    """The last axis at rank 5 only."""
    return ops.Softmax(x, axis=a), ops.Softmax(x, axis=x.rank - 1), a == 4


@rule("ranks/far-apart")
def far_apart(x: Tensor, a: Int, b: Int) -> Sides:
    """So far apart that rank 5 leaves one choice."""
    total = ops.ReduceSum(x, axes=(b,), keepdims=1)
    return ops.Softmax(total, axis=a), ops.Softmax(total, axis=0), a + 2 < b, b + 1 < x.rank


@rule("ranks/as-a-number")
def as_a_number(x: Tensor) -> Sides:
    """As many rows as axes."""
    total = ops.ReduceSum(x, **OVER_ROWS)
    mean_ = ops.ReduceMean(x, **OVER_ROWS)
    return total, ops.Scale(mean_, factor=real(x.rank)), x.dim(0) == x.rank


@rule("ranks/no-six")
def no_six(x: Tensor) -> Sides:
    """All ranks that are tried differ from 6."""
    return ops.Softmax(x, axis=0), ops.Softmax(x, axis=x.rank - x.rank), x.rank != 6


@rule("ranks/period")
def period(x: Tensor, p: Ints, i: Int) -> Sides:
    """The sixtieth power of a permutation is the identity up to rank 6."""
    place: Expr = i
    for _ in range(60):
        place = p[place]
    turned = ops.ReduceSum(ops.Transpose(x, perm=p), axes=(i,), keepdims=1)
    return turned, ops.ReduceSum(ops.Transpose(x, perm=p), axes=(place,), keepdims=1)


RANKS = [period, rank_six, axis_five, polynomial, five_or_more, far_apart, as_a_number, no_six]

# Wrong: strides above those of any list ----------------------------------------------------------


def _moved(x: Term, s: Expr, step: int) -> tuple[Term, Term]:
    """Windows of three, and the same moved by a step where the stride is at least ``step``."""
    window: dict[str, Any] = {"kernel": (3,), "strides": s, "dilations": (1,), "ceil": 0}
    shift = s[0] // step
    return ops.MaxPool(x, pads=(1, 1), **window), ops.MaxPool(
        x, pads=(1 + shift, 1 - shift), **window
    )


@rule("strides/seven")
def stride_seven(x: Tensor, s: Ints) -> Sides:
    """Strides up to 6 tell nothing of 7."""
    return *_moved(x, s, 7), x.rank == 3


@rule("strides/unequal")
def strides_unequal(x: Tensor, s: Ints) -> Sides:
    """Strides that are all equal tell nothing of others."""
    window: dict[str, Any] = {"kernel": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
    left = ops.MaxPool(x, strides=s, ceil=0, **window)
    return left, ops.MaxPool(x, strides=(s[1], s[0]), ceil=0, **window), x.rank == 4


# Wrong: other -------------------------------------------------------------------------------------


@rule("name/constant")
def name_of_a_constant(x: Tensor, π: Float) -> Sides:
    """A variable that has the name of a constant."""
    return ops.Scale(x, factor=π), ops.Scale(x, factor=math.pi)


@rule("order/axes")
def order_of_axes(x: Tensor, s: Ints) -> Sides:
    """Axes (1, 0) are both axes, of which the first is 1."""
    both: dict[str, Any] = {"axes": (0, 1), "keepdims": 1}
    left = ops.ReduceMax(ops.ReduceSum(x, axes=s, keepdims=1), **both)
    right = ops.ReduceMax(ops.ReduceSum(x, axes=(1,), keepdims=1), **both)
    return left, right, s[0] == 1, x.rank == 2, is_float(x)


@pytest.mark.parametrize("wrong", [*GUARDED, *NEW, *WHOLE, *RANKS], ids=lambda one: one.name)
def test_what_is_not_shown_is_not_taken_for_granted(wrong: Rule) -> None:
    proof = prove(wrong)
    assert proof.status in ("unknown", "unsupported"), proof.scope
    reasons = {
        "guarded": "the left side",
        "new": "the right side",
        "whole": "whole number",
        "ranks": "rank",
    }
    assert reasons[wrong.family] in proof.reason


@pytest.mark.parametrize("wrong", [period, rank_six, polynomial, no_six], ids=lambda one: one.name)
def test_no_certificate_comes_of_ranks_that_show_nothing(wrong: Rule) -> None:
    with pytest.raises(RuleRefuted, match=r"cannot be verified: .* up to 5|is wrong: x"):
        certify_exact(wrong, max_points=64)


@pytest.mark.parametrize(
    "wrong",
    [name_of_a_constant, order_of_axes, stride_seven, strides_unequal],
    ids=lambda one: one.name,
)
def test_other_wrong_rule_is_not_proved(wrong: Rule) -> None:
    assert prove(wrong).status == "unknown"


# Right -------------------------------------------------------------------------------------------


@rule("right/quotient-under-a-relu")
def quotient_under_relu(x: Tensor, c: Tensor) -> Sides:
    """The same division, whatever becomes of it."""
    return ops.Relu(x / c), ops.Relu(x * ops.Reciprocal(c)), x.shape == c.shape


@rule("right/quotient-in-a-branch")
def quotient_in_branch(m: Tensor, x: Tensor, c: Tensor) -> Sides:
    """The same division behind the same condition."""
    left = ops.Where(m, x / c, x)
    return left, ops.Where(m, x * ops.Reciprocal(c), x), x.shape == c.shape


@rule("right/norm-under-a-relu")
def norm_under_relu(x: Tensor, e: Float) -> Sides:
    """A mean of squares and a positive number is positive."""
    normal = ops.RmsN(x, axes=(0,), epsilon=e)
    return ops.Relu(normal), ops.Max(normal, _scalar(0.0)), e > 0.0


@rule("right/positive-denominator")
def positive_denominator(x: Tensor, w: Tensor) -> Sides:
    """|x| + exp(x) is positive, so it may stand in any branch."""
    d = ops.Abs(x) + ops.Exp(x)
    first, second = (ops.Where(ops.Greater(x, w), q, w) for q in (w / d, w * ops.Reciprocal(d)))
    return first, second, x.shape == w.shape


@rule("right/root-of-absolute-value")
def root_of_absolute(x: Tensor) -> Sides:
    """An absolute value has a root."""
    return ops.Exp(ops.Sqrt(ops.Abs(x))), ops.Exp(ops.Pow(ops.Abs(x), _scalar(0.5)))


@rule("right/cancelled")
def cancelled(x: Tensor) -> Sides:
    """Where relu(x) is 0 the left side has no value."""
    return ops.Relu(x) * x / ops.Relu(x) + ops.Relu(x), x + ops.Relu(x), is_float(x)


@rule("right/inverse-in-a-sum", bidirectional=True)
def inverse_in_sum(x: Tensor, w: Tensor) -> Sides:
    """Each addend is divided on both sides."""
    inverse = ops.Reciprocal(w)
    left = ops.ReduceSum(x / w, **OVER_ROWS)
    return left, ops.ReduceSum(inverse * x, **OVER_ROWS), x.shape == w.shape


@rule("right/whole-numbers")
def whole_numbers(x: Tensor, y: Tensor) -> Sides:
    """Sums and products of whole numbers are exact."""
    i, j = ops.Cast(x, to="int32"), ops.Cast(y, to="int32")
    return i * (j + j), i * j + i * j, x.shape == y.shape


@rule("right/truth-as-condition")
def truth_as_condition(x: Tensor, a: Tensor) -> Sides:
    """A cast may choose."""
    c = ops.Cast(x, to="bool")
    return ops.Where(c, a + a, a + a), ops.Scale(a, factor=2.0), x.shape == a.shape


RIGHT = [
    quotient_under_relu, quotient_in_branch, norm_under_relu, positive_denominator,
    root_of_absolute, cancelled, inverse_in_sum, whole_numbers, truth_as_condition,
]  # fmt: skip


@pytest.mark.parametrize("right", RIGHT, ids=lambda one: one.name)
def test_what_is_shown_is_proved(right: Rule) -> None:
    proof = prove(right)
    assert (proof.status, proof.reason) == ("proven", "")


# Keys --------------------------------------------------------------------------------------------


@rule("key/same")
def a_string(x: Tensor, tanh: Int) -> Sides:
    """The string, not the variable of that name."""
    return ops.Gelu(x, approximate="tanh"), ops.Gelu(ops.Neg(x), approximate="tanh")


@rule("key/same")
def a_variable(x: Tensor, tanh: Int) -> Sides:
    """The variable, not the string."""
    return ops.Gelu(x, approximate=tanh), ops.Gelu(ops.Neg(x), approximate="tanh")


def _scaled(factor: object, *, weight: bool = False) -> Rule:
    def of_tensor(x: Tensor, a: Float, b: Float) -> Sides:
        return ops.Scale(ops.Shift(x, offset=a), factor=factor), x

    def of_weight(x: Weight, a: Float, b: Float) -> Sides:
        return ops.Scale(ops.Shift(x, offset=a), factor=factor), x

    return rule("key/same")(of_weight if weight else of_tensor)


def _when(*conditions: Condition) -> Rule:
    return replace(_scaled(2.0), when=conditions)


A, B = Expr("attr", ("a",)), Expr("attr", ("b",))
KEYS = {
    "string": a_string,
    "variable": a_variable,
    "integer": _scaled(1),
    "float": _scaled(1.0),
    "truth": _scaled(True),
    "text": _scaled("1"),
    "negative zero": _scaled(-0.0),
    "zero": _scaled(0.0),
    "list": _scaled((1.0,)),
    "of a weight": _scaled(1.0, weight=True),
    "extent": _scaled(A),
    "extent as a number": _scaled(real(A)),
    "sum": _scaled(A + B - 1.0),
    "sum elsewhere": _scaled(A + (B - 1.0)),
    "a before b": _when(A < 1.0, B < 1.0),
    "b before a": _when(B < 1.0, A < 1.0),
    "not more": _when(A <= 1.0, B < 1.0),
    "near": _when(near(A, 1.0, 1e-6)),
    "nearer": _when(near(A, 1.0, 1e-7)),
    "far": _when(far(A, 1.0, 1e-6)),
    "one text": _when(Condition("distinct", ("x, y",))),
    "two texts": _when(Condition("distinct", ("x", "y"))),
    "attribute as tensor": _when(Condition("distinct", (A, "y"))),
    "tensor as attribute": _when(Condition("distinct", ("a", "y"))),
}


def test_no_two_rules_share_a_key() -> None:
    keys = {name: (rule_text(one), fingerprint(one)) for name, one in KEYS.items()}
    for (name, key), (other, another) in itertools.combinations(keys.items(), 2):
        assert key[0] != another[0], f"{name} and {other}"
        assert key[1] != another[1], f"{name} and {other}"


def test_a_reason_is_no_part_of_the_key() -> None:
    assert rule_text(_when(A < 1.0)) == rule_text(_when((A < 1.0).because("it is small")))
