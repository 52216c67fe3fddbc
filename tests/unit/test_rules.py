"""The rule language, and level 1 of verification on the book and on rules known to be wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from eqsat_opt.errors import RuleError
from eqsat_opt.rules import Numerics, Rule, default_rules, families, load_rules
from eqsat_opt.rules.describe import describe, rulebook_markdown
from eqsat_opt.rules.rule import (
    Float,
    Func,
    Int,
    Ints,
    Phase,
    Sides,
    Tensor,
    Weight,
    directed,
    rule,
)
from eqsat_opt.rules.term import concat, is_float, near, ops, slice_
from eqsat_opt.rules.verify import MIN_POINTS, CheckReport, Refutation, check_rule, check_rules

BOOK = {one.name: one for one in directed([r for rules in families().values() for r in rules])}
SWAP = (1, 0)


# The language ------------------------------------------------------------------------------------


def test_names_are_family_slash_kebab_case() -> None:
    with pytest.raises(RuleError, match="kebab-case"):
        rule("Wrong Name")


def test_every_parameter_needs_a_known_annotation() -> None:
    def untyped(x: int) -> Sides:
        return ops.Relu(x), x

    with pytest.raises(RuleError, match="'x' needs an annotation"):
        rule("test/untyped")(untyped)


def test_both_sides_must_be_returned() -> None:
    def one_side(x: Tensor) -> Sides:
        return (ops.Relu(x),)

    with pytest.raises(RuleError, match="returns lhs, rhs"):
        rule("test/one-side")(one_side)


def test_the_left_side_must_bind_every_variable() -> None:
    def unbound(x: Tensor, y: Tensor) -> Sides:
        return ops.Relu(x), x + y

    with pytest.raises(RuleError, match="y is not bound"):
        rule("test/unbound")(unbound)


def test_both_directions_must_bind() -> None:
    def forgets(x: Tensor, y: Tensor) -> Sides:
        return x - y + y, ops.Relu(x)

    with pytest.raises(RuleError, match="test/forgets-reversed: y is not bound"):
        rule("test/forgets", bidirectional=True)(forgets)


def test_the_left_side_is_no_bare_variable() -> None:
    def everything(x: Tensor) -> Sides:
        return x, ops.Relu(x)

    with pytest.raises(RuleError, match="match everything"):
        rule("test/everything")(everything)


def test_a_wide_tolerance_is_refused() -> None:
    """The rule is verified at the target alone, where it is nothing; 5 is near 1 by its word."""

    def anything(x: Tensor, c: Float) -> Sides:
        return x * ops.Scalar(value=c, dtype="float32"), x, near(c, 1.0, 10.0)

    with pytest.raises(RuleError, match="give a tolerance from 0 to 1e-05"):
        rule("test/anything")(anything)


def test_as_many_roots_right_as_left() -> None:
    def roots(x: Tensor) -> Sides:
        return (ops.Relu(x), ops.Tanh(x)), x

    with pytest.raises(RuleError, match="2 roots on the left, 1 on the right"):
        rule("test/roots")(roots)


def test_patterns_are_checked_against_the_registry() -> None:
    with pytest.raises(RuleError, match="unknown operator 'Convolve'"):
        ops.Convolve  # noqa: B018
    with pytest.raises(RuleError, match="takes 2 to 2 operands"):
        ops.Add(BOOK["elementwise/add-commute"].lhs[0])
    with pytest.raises(RuleError, match=r"exactly the attributes \['perm'\]"):
        ops.Transpose(BOOK["elementwise/add-commute"].lhs[0])


def test_conditions_are_symbolic() -> None:
    condition = BOOK["concat/slice-left"].when[0]
    with pytest.raises(RuleError, match="symbolic"):
        bool(condition)
    assert str(condition) == "hi <= x.dim(axis)"


def test_directed_names_the_reverse() -> None:
    names = [
        one.name for one in directed([r for r in families()["matmul"] if r.name == "matmul/assoc"])
    ]
    assert names == ["matmul/assoc", "matmul/assoc-reversed"]


# Selection ---------------------------------------------------------------------------------------


def test_numerics_admit_what_lies_below() -> None:
    strict = {one.name for one in default_rules(Numerics.BITEXACT)}
    assert "concat/whole-slice" in strict
    assert "matmul/assoc" not in strict
    assert strict < {one.name for one in default_rules(Numerics.RELAXED)}


def test_selection_by_family_name_and_exclusion() -> None:
    chosen = load_rules("matmul,-matmul/assoc,pool/max-relu", Numerics.RELAXED)
    names = [one.name for one in chosen]
    assert "matmul/assoc" not in names
    assert "matmul/block-sum" in names
    assert names[-1] == "pool/max-relu"
    assert load_rules("none", Numerics.RELAXED) == []
    everything = load_rules("-conv", Numerics.RELAXED)
    assert {one.family for one in everything} == {
        one.family for one in default_rules(Numerics.RELAXED)
    } - {"conv"}


def test_unknown_selection_lists_the_families() -> None:
    with pytest.raises(RuleError, match="no rule or family 'recurrence'; families: elementwise"):
        load_rules("recurrence", Numerics.RELAXED)


def test_rules_from_a_file(tmp_path: Path) -> None:
    source = tmp_path / "mine.py"
    source.write_text(
        "from eqsat_opt.rules.rule import Tensor, rule\n"
        "from eqsat_opt.rules.term import ops\n"
        "@rule('mine/abs')\n"
        "def absolute(x: Tensor):\n"
        "    'Twice is once.'\n"
        "    return ops.Abs(ops.Abs(x)), ops.Abs(x)\n"
    )
    (mine,) = load_rules(str(source), Numerics.RELAXED)
    assert mine.name == "mine/abs"
    assert check_rule(mine).passed
    source.write_text("x = 1\n")
    with pytest.raises(RuleError, match="defines no rule"):
        load_rules(str(source), Numerics.RELAXED)
    source.write_text("import nothing_of_that_name\n")
    with pytest.raises(RuleError, match="cannot be loaded"):
        load_rules(str(source), Numerics.RELAXED)
    with pytest.raises(RuleError, match="no rule file"):
        load_rules(str(tmp_path / "absent.py"), Numerics.RELAXED)


# The book ----------------------------------------------------------------------------------------


FEW = 24
"""Instances in tests; certificates are made with more."""


@pytest.mark.parametrize("name", list(BOOK)[::4])
def test_some_rules_hold(name: str) -> None:
    """Valid certificates say so of all; this is a look whether the verifier still does."""
    assert check_rule(BOOK[name], max_points=FEW).passed


@pytest.mark.slow
@pytest.mark.parametrize("name", BOOK)
def test_rule_holds(name: str) -> None:
    report = check_rule(BOOK[name])
    assert report.passed, str(report)


def test_book_is_documented() -> None:
    for one in BOOK.values():
        assert one.doc.endswith((".", ").", ")")), one.name
        assert one.name in describe(one)


def test_rulebook_page_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "rulebook.md"
    command = "python -m eqsat_opt.rules.describe docs/rulebook.md"
    assert page.read_text(encoding="utf-8") == rulebook_markdown(), f"run {command}"


def test_description_shows_reasons() -> None:
    text = describe(BOOK["conv/enlarge-kernel"])
    assert "when c == (a + 1)   (the pads must grow with the kernel)" in text
    assert "w v: Weight" in text


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


# Rules that are wrong: the list of known unsound rules of other optimisers, and planted errors ----
#
# U1 to U17 are the numbers of that list. Most carries the size of the counterexample that is known,
# in elements of the operands; ours may not be larger.


def same() -> dict[str, object]:
    return {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}


@rule("wrong/grouped-merge-of-both")
def grouped_both(x: Tensor, y: Tensor, w: Weight, v: Weight, g: Int, h: Int) -> Sides:
    """TASO 99 and 100: right only where the outputs per group agree."""
    left = concat(ops.Conv(x, w, **same(), group=g), ops.Conv(y, v, **same(), group=h), 1)
    return left, ops.Conv(concat(x, y, 1), concat(w, v, 0), **same(), group=g + h)


@rule("wrong/grouped-siblings")
def grouped_siblings(x: Tensor, w: Weight, v: Weight, g: Int) -> Sides:
    """TASO 125 to 129: groups interleave the filters."""
    left = concat(ops.Conv(x, w, **same(), group=g), ops.Conv(x, v, **same(), group=g), 1)
    return left, ops.Conv(x, concat(w, v, 0), **same(), group=g)


@rule("wrong/grouped-block-sum")
def grouped_block_sum(x: Tensor, y: Tensor, w: Weight, v: Weight, g: Int) -> Sides:
    """TASO 98 and 105."""
    left = ops.Conv(x, w, **same(), group=g) + ops.Conv(y, v, **same(), group=g)
    return left, ops.Conv(concat(x, y, 1), concat(w, v, 1), **same(), group=g)


@rule("wrong/drop-factor")
def drop_factor(x: Tensor, w: Weight, y: Tensor, s: Ints, p: Ints, d: Ints, g: Int) -> Sides:
    """The hand-written conv_mul of TASO."""
    conv = ops.Conv(x, w, strides=s, pads=p, dilations=d, group=g)
    return conv * y, conv, y.rank == 0


@rule("wrong/drop-addend")
def drop_addend(x: Tensor, w: Weight, y: Tensor, s: Ints, p: Ints, d: Ints, g: Int) -> Sides:
    """The hand-written conv_add of OCGGS."""
    conv = ops.Conv(x, w, strides=s, pads=p, dilations=d, group=g)
    return conv + y, conv, y.rank == 0


@rule("wrong/average-include-pad")
def include_pad(x: Tensor, k: Ints, s: Ints, p: Ints, c: Int) -> Sides:
    """An average pool as a sum with fixed weights: only if the padding counts."""
    attrs = {"kernel": k, "strides": s, "pads": p, "dilations": (1, 1), "ceil": c}
    return ops.AveragePool(x, **attrs, count_include_pad=0), ops.AveragePool(
        x, **attrs, count_include_pad=1
    )


@rule("wrong/enlarge-same-pads")
def enlarge_same_pads(x: Tensor, w: Weight, s: Ints) -> Sides:
    """A kernel that grows off its centre: the shapes agree, the values do not."""
    padded = ops.Pad(w, pads=(0, 0, 0, 0, 0, 0, 2, 2), value=0.0)
    left = ops.Conv(x, w, strides=s, pads=(0, 0, 0, 0), dilations=(1, 1), group=1)
    right = ops.Conv(x, padded, strides=s, pads=(1, 1, 1, 1), dilations=(1, 1), group=1)
    return left, right, w.dim(2) == 1, w.dim(3) == 1


@rule("wrong/enlarge-same-upper")
def enlarge_same_upper(x: Tensor, w: Weight) -> Sides:
    """U6: what SAME_UPPER pads make of a larger kernel at stride 2 and even extents."""
    padded = ops.Pad(w, pads=(0, 0, 1, 1, 0, 0, 1, 1), value=0.0)
    attrs = {"strides": (2, 2), "dilations": (1, 1), "group": 1}
    left = ops.Conv(x, w, **attrs, pads=(0, 0, 0, 0))
    right = ops.Conv(x, padded, **attrs, pads=(0, 0, 1, 1))
    even = (x.dim(2) // 2 * 2 == x.dim(2), x.dim(3) // 2 * 2 == x.dim(3))
    return left, right, w.dim(2) == 1, w.dim(3) == 1, *even


def _average_as_convolution(x: Tensor, include: int) -> Sides:
    window = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
    pool = ops.AveragePool(x, **window, kernel=(2, 2), ceil=0, count_include_pad=include)
    kernel = ops.Expand(ops.Scalar(value=0.25, dtype="float32"), shape=(x.dim(1), 1, 2, 2))
    return pool, ops.Conv(x, kernel, **window, group=x.dim(1)), x.rank == 4


@rule("wrong/average-as-convolution")
def average_as_convolution(x: Tensor) -> Sides:
    """U7: an average that does not count the padding is no convolution."""
    return _average_as_convolution(x, 0)


@rule("wrong/distribute-broadcast")
def distribute_broadcast(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """With a vector among the addends the product means something else."""
    return x @ (y + z), x @ y + x @ z, x.rank == 2


@rule("wrong/fold-normalisation")
def fold_normalisation(x: Tensor, g: Weight, b: Weight, m: Weight, v: Weight, e: Float) -> Sides:
    """Forgets the factor in the shift."""
    one = (1, g.dim(0), 1, 1)
    deviation = ops.Sqrt(v + ops.Scalar(value=e, dtype="float32"))
    scale, shift = ops.Reshape(g / deviation, shape=one), ops.Reshape(b - m / deviation, shape=one)
    return ops.BatchNormalization(x, g, b, m, v, epsilon=e), x * scale + shift, x.rank == 4


def _shifted(x: Tensor, b: Weight, w: Weight, pad: int) -> Sides:
    attrs = {"strides": (1, 1), "pads": (pad,) * 4, "dilations": (1, 1), "group": 1}
    per_filter = ops.ReduceSum(w * b, axes=(1, 2, 3), keepdims=1)
    bias = ops.Reshape(per_filter, shape=(1, w.dim(0), 1, 1))
    ones = [b.dim(0) == 1, b.dim(1) == w.dim(1), b.dim(2) == 1, b.dim(3) == 1]
    return (
        ops.Conv(x + b, w, **attrs),
        ops.Conv(x, w, **attrs) + bias,
        x.rank == 4,
        b.rank == 4,
        *ones,
    )


@rule("wrong/input-shift")
def input_shift(x: Tensor, b: Weight, w: Weight) -> Sides:
    """A shift of the data becomes a bias, but not in the zero padding."""
    return _shifted(x, b, w, 1)


@rule("wrong/slice-grouped")
def slice_grouped(x: Tensor, w: Weight, g: Int, lo: Int, hi: Int) -> Sides:
    """Some outputs of a grouped convolution need other inputs."""
    left = slice_(ops.Conv(x, w, **same(), group=g), 1, lo, hi)
    return left, ops.Conv(x, slice_(w, 0, lo, hi), **same(), group=g)


@rule("wrong/tiny-addend")
def tiny_addend(x: Tensor) -> Sides:
    """Within the tolerance of single precision, and wrong."""
    return x + ops.Scalar(value=1e-5, dtype="float32"), x


@rule("wrong/cayley-hamilton")
def cayley_hamilton(a: Tensor) -> Sides:
    """True for every matrix up to 2 x 2."""
    square = a @ a
    return square * ops.Transpose(a, perm=SWAP), ops.Transpose(square, perm=SWAP) * a


@rule("wrong/transpose-product")
def transpose_product(x: Tensor, y: Tensor) -> Sides:
    """Forgets to exchange the factors; square matrices type."""
    product = ops.Transpose(x, perm=SWAP) @ ops.Transpose(y, perm=SWAP)
    return ops.Transpose(x @ y, perm=SWAP), product


@rule("wrong/relu-of-sum")
def relu_of_sum(x: Tensor, y: Tensor) -> Sides:
    """Relu is not linear."""
    return ops.Relu(x + y), ops.Relu(x) + ops.Relu(y)


@rule("wrong/any-function-of-sum")
def any_of_sum(f: Func, x: Tensor, y: Tensor) -> Sides:
    """Nor is any other function."""
    return f(x + y), f(x) + f(y)


@rule("wrong/relu-average")
def relu_average(x: Tensor, k: Ints, s: Ints, p: Ints, d: Ints) -> Sides:
    """Relu does not commute with an average."""
    attrs = {
        "kernel": k,
        "strides": s,
        "pads": p,
        "dilations": d,
        "ceil": 0,
        "count_include_pad": 1,
    }
    return ops.AveragePool(ops.Relu(x), **attrs), ops.Relu(ops.AveragePool(x, **attrs))


@rule("wrong/concat-commute")
def concat_commute(x: Tensor, y: Tensor, axis: Int) -> Sides:
    """The shape is the same."""
    return concat(x, y, axis), concat(y, x, axis)


@rule("wrong/matmul-commute")
def matmul_commute(x: Tensor, y: Tensor) -> Sides:
    """Square matrices type."""
    return x @ y, y @ x


@rule("wrong/identity-off-centre")
def identity_off_centre(x: Tensor, w: Weight) -> Sides:
    """The one belongs into the centre of the kernel."""
    identity = ops.IdentityKernel(channels=w.dim(0), height=1, width=1, dtype="float32")
    corner = ops.Pad(identity, pads=(0, 0, 0, 0, 0, 0, 2, 2), value=0.0)
    attrs = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1}
    sizes = (w.dim(0) == w.dim(1), w.dim(2) == 3, w.dim(3) == 3)
    return ops.Conv(x, w, **attrs) + x, ops.Conv(x, w + corner, **attrs), *sizes


@rule("wrong/drop-gate")
def drop_gate(f: Tensor, c: Tensor, x: Tensor) -> Sides:
    """A gated mixture without its gate."""
    one = ops.Scalar(value=1.0, dtype="float32")
    return f * c + (one - f) * x, f * c + x, f.shape == c.shape, f.shape == x.shape


@rule("wrong/softmax-of-sum")
def softmax_scale(x: Tensor, s: Tensor, axis: Int) -> Sides:
    """A softmax does not ignore a factor."""
    return ops.Softmax(x * s, axis=axis), ops.Softmax(x, axis=axis), s.rank == 0


@rule("wrong/merge-by-greatest-pads")
def merge_by_greatest_pads(x: Tensor, w: Weight, v: Weight) -> Sides:
    """U8: the small kernel has the pads of the large one already, and keeps them."""
    attrs = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1}
    both = ops.Conv(x, concat(ops.Pad(w, pads=(0, 0, 1, 1, 0, 0, 1, 1), value=0.0), v, 0), **attrs)
    first = slice_(both, 1, 0, w.dim(0))
    second = slice_(both, 1, w.dim(0), w.dim(0) + v.dim(0))
    sizes = (w.dim(2) == 1, w.dim(3) == 1, v.dim(2) == 3, v.dim(3) == 3)
    return (ops.Conv(x, w, **attrs), ops.Conv(x, v, **attrs)), (first, second), *sizes


@rule("wrong/pad-kernel-only")
def pad_kernel_only(x: Tensor, w: Weight, p: Ints) -> Sides:
    """U17: a larger kernel under the old pads."""
    padded = ops.Pad(w, pads=(0, 0, 1, 1, 0, 0, 1, 1), value=0.0)
    attrs = {"strides": (1, 1), "pads": p, "dilations": (1, 1), "group": 1}
    return ops.Conv(x, w, **attrs), ops.Conv(x, padded, **attrs), w.rank == 4


WRONG = [value for value in list(globals().values()) if isinstance(value, Rule)]
UNSOUND = {
    "U1": (grouped_both, 36),
    "U2": (grouped_siblings, 6),
    "U3": (grouped_block_sum, 44),
    "U4": (drop_factor, 4),
    "U5": (drop_addend, 4),
    "U6": (enlarge_same_upper, 13),
    "U7": (average_as_convolution, 32),
    "U8": (merge_by_greatest_pads, 19),
    "U10": (distribute_broadcast, 16),
    "U12": (fold_normalisation, 12),
    "U13": (input_shift, 49),
    "U14": (slice_grouped, 60),
    "U15": (tiny_addend, 1),
    "U16": (cayley_hamilton, 9),
    "U17 transpose": (transpose_product, 8),
    "U17 relu of a sum": (relu_of_sum, 2),
    "U17 relu and average": (relu_average, 4),
    "U17 concat": (concat_commute, 2),
    "U17 identity": (identity_off_centre, 13),
}
"""Rule and elements of the operands of a counterexample that others or we have found."""


_REPORTS: dict[str, CheckReport] = {}


def reports(one: Rule) -> CheckReport:
    if one.name not in _REPORTS:
        _REPORTS[one.name] = check_rule(one, max_points=60)
    return _REPORTS[one.name]


def fails(refutation: Refutation) -> bool:
    """Whether the code of a counterexample fails when it is run, as it should."""
    try:
        exec(compile(refutation.code, "counterexample", "exec"), {})
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("wrong", WRONG, ids=lambda one: one.name)
def test_wrong_rule_is_refuted(wrong: Rule) -> None:
    report = reports(wrong)
    assert not report.passed
    assert report.refutation is not None, str(report)
    assert fails(report.refutation), report.refutation.code


@pytest.mark.parametrize("number", UNSOUND)
def test_counterexample_is_as_small_as_known_ones(number: str) -> None:
    wrong, most = UNSOUND[number]
    refutation = reports(wrong).refutation
    assert refutation is not None
    assert sum(type_.static_size() for type_ in refutation.types.values()) <= most, str(refutation)


def fold_right(x: Tensor, g: Weight, b: Weight, m: Weight, v: Weight, e: Float) -> Sides:
    """U12 as it should be."""
    one = (1, g.dim(0), 1, 1)
    scale = g / ops.Sqrt(v + ops.Scalar(value=e, dtype="float32"))
    moved = x * ops.Reshape(scale, shape=one) + ops.Reshape(b - m * scale, shape=one)
    return ops.BatchNormalization(x, g, b, m, v, epsilon=e), moved, x.rank == 4


def average_counts(x: Tensor) -> Sides:
    """U7 as it should be."""
    return _average_as_convolution(x, 1)


def drop_zero(x: Tensor) -> Sides:
    """U15 as it should be."""
    return x + ops.Scalar(value=0.0, dtype="float32"), x


def input_scale(x: Tensor, w: Weight, s: Weight, p: Ints) -> Sides:
    """A factor per input channel moves into the weight; padding stays 0."""
    attrs = {"strides": (1, 1), "pads": p, "dilations": (1, 1), "group": 1}
    ones = (s.rank == 4, s.dim(0) == 1, s.dim(1) == w.dim(1), s.dim(2) == 1, s.dim(3) == 1)
    return ops.Conv(x * s, w, **attrs), ops.Conv(x, w * s, **attrs), x.rank == 4, *ones


def softmax_shift(x: Tensor, s: Tensor, axis: Int) -> Sides:
    """A softmax ignores what is added to all of its elements."""
    return ops.Softmax(x + s, axis=axis), ops.Softmax(x, axis=axis), s.rank == 0, is_float(x)


def deferred_softmax(x: Tensor, v: Tensor) -> Sides:
    """Attention may divide by the sum after the product."""
    grown = ops.Exp(x)
    total = ops.ReduceSum(grown, axes=(1,), keepdims=1)
    return ops.Softmax(x, axis=1) @ v, (grown @ v) / total, x.rank == 2, v.rank == 2, is_float(x)


def exponential_of_sum(x: Tensor, y: Tensor) -> Sides:
    """An exponential makes a product of a sum."""
    return ops.Exp(x + y), ops.Exp(x) * ops.Exp(y), is_float(x)


def relu_scale(x: Tensor, s: Tensor) -> Sides:
    """A relu lets factors through that are not negative."""
    return ops.Relu(x * ops.Abs(s)), ops.Relu(x) * ops.Abs(s), is_float(x)


def sigmoid_of_tanh(x: Tensor) -> Sides:
    """Tanh is a sigmoid at twice the argument."""
    two, one = (ops.Scalar(value=v, dtype="float32") for v in (2.0, 1.0))
    return ops.Tanh(x), two * ops.Sigmoid(two * x) - one


def gelu_by_product(x: Tensor) -> Sides:
    """The exact gelu, with the reciprocal of the root of 2."""
    half, one, root = (ops.Scalar(value=v, dtype="float32") for v in (0.5, 1.0, math.sqrt(0.5)))
    return half * x * (one + ops.Erf(x * root)), ops.Gelu(x, approximate="none"), is_float(x)


def gelu_by_quotient(x: Tensor) -> Sides:
    """The exact gelu, divided by the root of 2."""
    two, one, root = (ops.Scalar(value=v, dtype="float32") for v in (2.0, 1.0, math.sqrt(2.0)))
    return x * (one + ops.Erf(x / root)) / two, ops.Gelu(x, approximate="none"), is_float(x)


def gelu_by_tanh(x: Tensor) -> Sides:
    """The approximate gelu, as a sigmoid."""
    root, cubic, two = (
        ops.Scalar(value=v, dtype="float32") for v in (math.sqrt(2 / math.pi), 0.044715, 2.0)
    )
    inner = two * root * (x + cubic * x * x * x)
    return x * ops.Sigmoid(inner), ops.Gelu(x, approximate="tanh"), is_float(x)


RIGHT = (
    gelu_by_product, gelu_by_quotient, gelu_by_tanh, fold_right, average_counts, drop_zero,
    input_scale, softmax_shift, deferred_softmax, exponential_of_sum, relu_scale, sigmoid_of_tanh,
)  # fmt: skip


@pytest.mark.parametrize("sides", RIGHT, ids=lambda one: one.__name__)
def test_right_rule_is_accepted(sides: Callable[..., Sides]) -> None:
    report = reports(rule(f"right/{sides.__name__.replace('_', '-')}")(sides))
    assert report.passed, str(report)


def test_exponential_of_a_product_is_refused() -> None:
    def wrong(x: Tensor, y: Tensor) -> Sides:
        return ops.Exp(x * y), ops.Exp(x) * ops.Exp(y), is_float(x)

    refutation = reports(rule("wrong/exp")(wrong)).refutation
    assert refutation is not None
    assert fails(refutation)


def test_a_gelu_with_a_wrong_constant_is_refused() -> None:
    def wrong(x: Tensor) -> Sides:
        half, one, root = (ops.Scalar(value=v, dtype="float32") for v in (0.5, 1.0, 0.7071))
        return half * x * (one + ops.Erf(x * root)), ops.Gelu(x, approximate="none"), is_float(x)

    assert reports(rule("wrong/gelu")(wrong)).refutation is not None


def test_a_root_of_a_square_is_no_identity() -> None:
    def wrong(x: Tensor) -> Sides:
        return ops.Sqrt(x * x), x, is_float(x)

    assert reports(rule("wrong/root")(wrong)).refutation is not None


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


def test_grouped_merge_holds_with_its_condition() -> None:
    report = reports(rule("right/grouped-merge")(_grouped_with_condition))
    assert report.passed, str(report)


def _grouped_with_condition(x: Tensor, y: Tensor, w: Weight, v: Weight, g: Int, h: Int) -> Sides:
    left = concat(ops.Conv(x, w, **same(), group=g), ops.Conv(y, v, **same(), group=h), 1)
    right = ops.Conv(concat(x, y, 1), concat(w, v, 0), **same(), group=g + h)
    return left, right, w.dim(0) * h == v.dim(0) * g


def test_typing_guards_the_concat_shuffle() -> None:
    """TASO 110: where the parts have other sizes the right side does not type."""

    def shuffle(a: Tensor, b: Tensor, c: Tensor, d: Tensor, axis: Int) -> Sides:
        return concat(a, b, axis) + concat(c, d, axis), concat(a, d, axis) + concat(c, b, axis)

    report = check_rule(rule("right/concat-shuffle")(shuffle), max_points=60)
    assert report.passed
    assert report.guarded > 0


def test_input_shift_holds_without_padding() -> None:
    def shift(x: Tensor, b: Weight, w: Weight) -> Sides:
        return _shifted(x, b, w, 0)

    report = reports(rule("right/input-shift")(shift))
    assert report.passed, str(report)


def test_counterexample_is_small_and_readable() -> None:
    refutation = reports(grouped_siblings).refutation
    assert refutation is not None
    assert sum(type_.static_size() for type_ in refutation.types.values()) <= 24
    text = str(refutation)
    assert re.search(r"x: float32\[.*g=\d", text)
    assert "elements differ" in text
    assert "left  [" in text


def test_type_mismatch_is_a_refutation() -> None:
    def squeeze(x: Tensor) -> Sides:
        return ops.Transpose(x, perm=SWAP), ops.Relu(x)

    report = check_rule(rule("wrong/type")(squeeze))
    assert report.refutation is not None
    assert "the left side is float32[" in report.refutation.reason


def test_rule_that_never_types_is_not_exercised() -> None:
    def never(x: Tensor) -> Sides:
        return ops.Transpose(x, perm=SWAP), x, x.rank == 7

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
    """The sine is odd, which no exact method knows."""

    def odd(x: Tensor) -> Sides:
        return ops.Sin(ops.Neg(x)), ops.Neg(ops.Sin(x)), is_float(x)

    report = reports(rule("test/odd")(odd))
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


def test_integers_truncate() -> None:
    def halves(x: Tensor, y: Tensor, z: Tensor) -> Sides:
        return x / z + y / z, (x + y) / z

    refutation = reports(rule("wrong/integer-quotient")(halves)).refutation
    assert refutation is not None
    assert refutation.method == "int64"
    assert reports(rule("right/quotient")(quotient_of_floats)).passed


def quotient_of_floats(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    return x / z + y / z, (x + y) / z, is_float(x)


def test_equal_seeds_give_equal_reports() -> None:
    first, second = (check_rule(BOOK["conv/block-sum"], seed=3, max_points=30) for _ in range(2))
    assert first == second


def test_check_rules_covers_both_directions() -> None:
    rules = [one for one in families()["matmul"] if one.bidirectional][:2]
    assert len(check_rules(rules, max_points=FEW)) == 4


def test_phases_are_rulesets() -> None:
    assert {one.phase for one in BOOK.values()} == set(Phase)
