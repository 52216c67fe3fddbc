"""Proofs for all sizes: the book is proved, wrong rules and mutants are not."""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eqsat_opt.errors import RuleError
from eqsat_opt.ir.ops.domains import FLOAT, FieldDomain
from eqsat_opt.ir.ops.index_eval import evaluate, formula_value, poly_value
from eqsat_opt.ir.ops.integers import Atom, atom, broadcast, choose, less, pick, quotient
from eqsat_opt.ir.ops.scalars import Unindexed
from eqsat_opt.rules import Rule, families
from eqsat_opt.rules.rule import Float, Func, Int, Ints, Sides, Tensor, Weight, directed, rule
from eqsat_opt.rules.term import Apply, Expr, Term, Var, concat, expr, is_float, ops, slice_
from eqsat_opt.rules.verify.proof import prove
from eqsat_opt.rules.verify.proof.integers_z3 import definition, products_facts
from eqsat_opt.rules.verify.proof.scenario import Scenario, scenarios

pytest.importorskip("z3", reason="proofs need z3: pip install 'eqsat-opt[verify]'")

BOOK = {one.name: one for rules in families().values() for one in rules}
PLAIN: dict[str, Any] = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
SWAP = (1, 0)

# The book ----------------------------------------------------------------------------------------

SAMPLE = [
    "elementwise/add-commute", "elementwise/gate", "elementwise/relu-idempotent",
    "elementwise/relu-scale", "matmul/assoc", "matmul/merge-weights", "matmul/block-sum",
    "matmul/merge-operands", "conv/merge-siblings", "conv/use-padded-kernel",
    "conv/enlarge-kernel", "conv/residual-identity", "conv/linear-in-data", "conv/block-sum",
    "conv/fold-scale", "concat/slice-of-slice", "concat/adjacent-slices", "concat/map",
    "concat/add-row-slice", "pool/average-conv", "lrn/three-quarters", "lrn/power",
    "transpose/compose-3d", "transpose/identity-5d", "transpose/matmul", "transpose/map",
]  # fmt: skip


@pytest.mark.parametrize("name", SAMPLE)
def test_rule_of_the_book_is_proved(name: str) -> None:
    proof = prove(BOOK[name])
    assert (proof.status, proof.reason) == ("proven", "")
    assert proof.scenarios > 0
    assert proof.scope.startswith("all sizes over the real numbers; rank")


@pytest.mark.slow
def test_most_of_the_book_is_proved() -> None:
    proofs = {name: prove(one) for name, one in BOOK.items()}
    for name, proof in proofs.items():
        print(f"{name:34} {proof.status:11} {proof.time_s:5.2f} s  {proof.reason}")
    proved = sum(proof.status == "proven" for proof in proofs.values())
    print(f"{proved} of {len(proofs)} in {sum(p.time_s for p in proofs.values()):.0f} s")
    assert proved >= 0.8 * len(proofs)


def test_both_directions_are_one_proof() -> None:
    for one in directed([BOOK["matmul/distribute-right"]]):
        assert prove(one).status == "proven"


# Rules that are right beyond the book ------------------------------------------------------------


@rule("right/grouped-merge")
def grouped_merge(
    x: Tensor, y: Tensor, w: Weight, v: Weight, g: Int, h: Int, s: Ints, p: Ints, d: Ints
) -> Sides:
    """Groups of equal size are put side by side."""
    attrs = {"strides": s, "pads": p, "dilations": d}
    left = concat(ops.Conv(x, w, **attrs, group=g), ops.Conv(y, v, **attrs, group=h), 1)
    right = ops.Conv(concat(x, y, 1), concat(w, v, 0), **attrs, group=g + h)
    return left, right, w.rank == 4, w.dim(0) * h == v.dim(0) * g


@rule("right/fold-normalisation")
def fold_normalisation(
    x: Tensor, w: Weight, g: Weight, b: Weight, m: Weight, v: Weight, e: Float, s: Ints, p: Ints,
    d: Ints, n: Int,
) -> Sides:  # fmt: skip
    """Batch normalisation goes into the weight, with any groups."""
    attrs = {"strides": s, "pads": p, "dilations": d, "group": n}
    factor = g / ops.Sqrt(v + ops.Scalar(value=e, dtype="float32"))
    scaled = w * ops.Reshape(factor, shape=(g.dim(0), 1, 1, 1))
    shift = ops.Reshape(b - m * factor, shape=(1, g.dim(0), 1, 1))
    left = ops.BatchNormalization(ops.Conv(x, w, **attrs), g, b, m, v, epsilon=e)
    return left, ops.Conv(x, scaled, **attrs) + shift, w.rank == 4


@rule("right/average-as-convolution")
def average_as_convolution(x: Tensor, w: Weight) -> Sides:
    """The mean of three places, where the padding counts."""
    third = ops.AveragePool(
        x, kernel=(3,), strides=(2,), pads=(1, 1), dilations=(1,), ceil=0, count_include_pad=1
    )
    kernel = w - w + ops.Reciprocal(ops.Scalar(value=3.0, dtype="float32"))
    conv = {"strides": (2,), "pads": (1, 1), "dilations": (1,), "group": x.dim(1)}
    return (
        third + x * (ops.ReduceSum(w - w, axes=(0, 1, 2), keepdims=0)),
        (ops.Conv(x, kernel, **conv)),
        w.dim(0) == x.dim(1),
        w.dim(1) == 1,
        w.dim(2) == 3,
        x.dim(2) == 1,
    )


@rule("right/max-of-rectified")
def max_of_rectified(x: Tensor) -> Sides:
    """The greatest rectified element is the rectified greatest."""
    greatest = ops.ReduceMax(x, axes=(0, 1), keepdims=1)
    return ops.ReduceMax(ops.Relu(x), axes=(0, 1), keepdims=1), ops.Relu(greatest), x.rank == 2


@rule("right/pools-compose")
def max_pools_split(x: Tensor) -> Sides:
    """A pool over both axes is one over each in turn."""
    both = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "ceil": 0}
    rows = ops.MaxPool(x, kernel=(3, 1), **both)
    return ops.MaxPool(rows, kernel=(1, 3), **both), ops.MaxPool(x, kernel=(3, 3), **both)


@rule("right/split-inner")
def split_inner(x: Tensor, w: Tensor, n: Int, k: Int) -> Sides:
    """A product over an inner axis that was cut at a seam."""
    left = slice_(x, 1, 0, n) @ slice_(w, 0, 0, n) + slice_(x, 1, n, k) @ slice_(w, 0, n, k)
    return left, x @ w, x.rank == 2, w.rank == 2, x.dim(1) == k


@rule("right/softmax-of-slice")
def softmax_of_slice(x: Tensor, lo: Int, hi: Int) -> Sides:
    """A softmax along another axis does not mind a slice."""
    left = ops.Softmax(slice_(x, 0, lo, hi), axis=1)
    return left, slice_(ops.Softmax(x, axis=1), 0, lo, hi), x.rank == 2


@rule("right/softmax-shift")
def softmax_shift(x: Tensor, c: Tensor) -> Sides:
    """What is added to a whole row cancels."""
    return (
        ops.Softmax(x + c, axis=1),
        ops.Softmax(x, axis=1),
        x.rank == 2,
        c.rank == 2,
        (c.dim(1) == 1),
    )


@rule("right/softmax-spelled-out")
def softmax_spelled_out(x: Tensor) -> Sides:
    """The definition with the greatest element taken off."""
    raised = ops.Exp(x - ops.ReduceMax(x, axes=(1,), keepdims=1))
    return (
        raised / ops.ReduceSum(raised, axes=(1,), keepdims=1),
        ops.Softmax(x, axis=1),
        (x.rank == 2),
    )


@rule("right/normalise-after-product")
def normalise_after_product(x: Tensor, v: Tensor) -> Sides:
    """Attention may divide by the sum of exponentials last."""
    raised = ops.Exp(x)
    after = (raised @ v) / ops.ReduceSum(raised, axes=(1,), keepdims=1)
    return ops.Softmax(x, axis=1) @ v, after, x.rank == 2, v.rank == 2


@rule("right/pad-into-convolution")
def pad_into_convolution(
    x: Tensor, w: Weight, a: Int, b: Int, p: Int, q: Int, s: Ints, d: Ints, g: Int
) -> Sides:
    """A frame of zeros is the padding of the convolution."""
    framed = ops.Pad(x, pads=(0, 0, a, b, 0, 0, p, q), value=0.0)
    attrs = {"strides": s, "dilations": d, "group": g}
    left = ops.Conv(framed, w, pads=(0, 0, 0, 0), **attrs)
    positive = [one >= 0 for one in (a, b, p, q)]
    return left, ops.Conv(x, w, pads=(a, b, p, q), **attrs), w.rank == 4, *positive


@rule("right/pointwise-convolution")
def pointwise_convolution(x: Tensor, w: Weight) -> Sides:
    """A 1 x 1 convolution is a matrix product of reshaped operands."""
    conv = ops.Conv(x, w, **PLAIN, group=1)
    flat = ops.Reshape(x, shape=(x.dim(0), x.dim(1), x.dim(2) * x.dim(3)))
    product = ops.Reshape(w, shape=(w.dim(0), w.dim(1))) @ flat
    shaped = ops.Reshape(product, shape=(x.dim(0), w.dim(0), x.dim(2), x.dim(3)))
    return conv, shaped, w.rank == 4, w.dim(2) == 1, w.dim(3) == 1


@rule("right/reshape-twice")
def reshape_twice(x: Tensor, s: Ints, t: Ints) -> Sides:
    """Only the last shape counts."""
    return ops.Reshape(ops.Reshape(x, shape=s), shape=t), ops.Reshape(x, shape=t), x.rank == 3


@rule("right/sum-of-flattened")
def sum_of_flattened(x: Tensor) -> Sides:
    """A sum over a flattened axis is one over both axes."""
    flat = ops.Reshape(x, shape=(x.dim(0), x.dim(1) * x.dim(2)))
    return (
        ops.ReduceSum(flat, axes=(1,), keepdims=0),
        (ops.ReduceSum(x, axes=(1, 2), keepdims=0)),
        x.rank == 3,
    )


@rule("right/where-of-equals")
def where_of_equals(c: Tensor, x: Tensor) -> Sides:
    """A choice between equals is none."""
    return ops.Where(c, x, x), x, c.shape == x.shape


@rule("right/layer-norm-spelled-out")
def layer_norm(x: Tensor, g: Weight, b: Weight, e: Float) -> Sides:
    """The definition of layer normalisation over the last axis."""
    mean = ops.ReduceMean(x, axes=(1,), keepdims=1)
    centred = x - mean
    variance = ops.ReduceMean(centred * centred, axes=(1,), keepdims=1)
    deviation = ops.Sqrt(variance + ops.Scalar(value=e, dtype="float32"))
    fused = ops.LayerNormalization(x, g, b, axis=1, epsilon=e)
    return centred / deviation * g + b, fused, x.rank == 2, g.rank == 1, b.rank == 1


RIGHT = [value for value in list(globals().values()) if isinstance(value, Rule)]


@pytest.mark.parametrize("right", RIGHT, ids=lambda one: one.name)
def test_right_rule_is_proved(right: Rule) -> None:
    assert prove(right).status == "proven"


# Rules that are wrong: what other optimisers hold, and planted errors ----------------------------


@rule("wrong/grouped-merge-of-both")
def grouped_both(x: Tensor, y: Tensor, w: Weight, v: Weight, g: Int, h: Int) -> Sides:
    """U1: right only where the outputs per group agree."""
    left = concat(ops.Conv(x, w, **PLAIN, group=g), ops.Conv(y, v, **PLAIN, group=h), 1)
    return left, ops.Conv(concat(x, y, 1), concat(w, v, 0), **PLAIN, group=g + h)


@rule("wrong/grouped-siblings")
def grouped_siblings(x: Tensor, w: Weight, v: Weight, g: Int) -> Sides:
    """U2: groups interleave the filters."""
    left = concat(ops.Conv(x, w, **PLAIN, group=g), ops.Conv(x, v, **PLAIN, group=g), 1)
    return left, ops.Conv(x, concat(w, v, 0), **PLAIN, group=g)


@rule("wrong/grouped-block-sum")
def grouped_block_sum(x: Tensor, y: Tensor, w: Weight, v: Weight, g: Int) -> Sides:
    """U3."""
    left = ops.Conv(x, w, **PLAIN, group=g) + ops.Conv(y, v, **PLAIN, group=g)
    return left, ops.Conv(concat(x, y, 1), concat(w, v, 1), **PLAIN, group=g)


@rule("wrong/drop-factor")
def drop_factor(x: Tensor, w: Weight, y: Tensor, s: Ints, p: Ints, d: Ints, g: Int) -> Sides:
    """U4."""
    conv = ops.Conv(x, w, strides=s, pads=p, dilations=d, group=g)
    return conv * y, conv, y.rank == 0


@rule("wrong/drop-addend")
def drop_addend(x: Tensor, w: Weight, y: Tensor, s: Ints, p: Ints, d: Ints, g: Int) -> Sides:
    """U5."""
    conv = ops.Conv(x, w, strides=s, pads=p, dilations=d, group=g)
    return conv + y, conv, y.rank == 0


@rule("wrong/enlarge-off-centre")
def enlarge_off_centre(x: Tensor, w: Weight, s: Ints) -> Sides:
    """U6, U17: a kernel that grows off its centre; the shapes agree, the values do not."""
    padded = ops.Pad(w, pads=(0, 0, 0, 0, 0, 0, 2, 2), value=0.0)
    left = ops.Conv(x, w, strides=s, pads=(0, 0, 0, 0), dilations=(1, 1), group=1)
    right = ops.Conv(x, padded, strides=s, pads=(1, 1, 1, 1), dilations=(1, 1), group=1)
    return left, right, w.dim(2) == 1, w.dim(3) == 1


@rule("wrong/enlarge-at-stride-two")
def enlarge_at_stride_two(x: Tensor, w: Weight) -> Sides:
    """U6: SAME_UPPER pads of an even extent at stride 2 are 0 and 1 for a 3 x 3 kernel."""
    padded = ops.Pad(w, pads=(0, 0, 1, 1, 0, 0, 1, 1), value=0.0)
    attrs = {"strides": (2, 2), "dilations": (1, 1), "group": 1}
    left = ops.Conv(x, w, pads=(0, 0, 0, 0), **attrs)
    right = ops.Conv(x, padded, pads=(0, 0, 1, 1), **attrs)
    return left, right, w.dim(2) == 1, w.dim(3) == 1


@rule("wrong/average-include-pad")
def include_pad(x: Tensor, k: Ints, s: Ints, p: Ints, c: Int) -> Sides:
    """U7: the border differs."""
    attrs = {"kernel": k, "strides": s, "pads": p, "dilations": (1, 1), "ceil": c}
    left = ops.AveragePool(x, **attrs, count_include_pad=0)
    return left, ops.AveragePool(x, **attrs, count_include_pad=1)


@rule("wrong/split-without-bounds")
def split_without_bounds(x: Tensor, y: Tensor, z: Tensor, axis: Int) -> Sides:
    """U9: a split that remembers the parts of another concatenation."""
    whole = concat(x, concat(y, z, axis), axis)
    return slice_(whole, axis, 0, y.dim(axis)), y, x.rank == y.rank


@rule("wrong/distribute-broadcast")
def distribute_broadcast(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """U10: with a vector among the addends the product means something else."""
    return x @ (y + z), x @ y + x @ z, x.rank == 2


@rule("wrong/concat-shuffle")
def concat_shuffle(a: Tensor, b: Tensor, c: Tensor, d: Tensor, axis: Int) -> Sides:
    """U11, with the parts exchanged on one side only."""
    return concat(a, b, axis) + concat(c, d, axis), concat(a, c, axis) + concat(b, d, axis)


@rule("wrong/fold-normalisation")
def fold_without_factor(x: Tensor, g: Weight, b: Weight, m: Weight, v: Weight, e: Float) -> Sides:
    """U12: forgets the factor in the shift."""
    one = (1, g.dim(0), 1, 1)
    deviation = ops.Sqrt(v + ops.Scalar(value=e, dtype="float32"))
    scale, shift = ops.Reshape(g / deviation, shape=one), ops.Reshape(b - m / deviation, shape=one)
    return ops.BatchNormalization(x, g, b, m, v, epsilon=e), x * scale + shift, x.rank == 4


def _shifted(x: Tensor, b: Weight, w: Weight, pad: int) -> Sides:
    attrs = {"strides": (1, 1), "pads": (pad,) * 4, "dilations": (1, 1), "group": 1}
    per_filter = ops.ReduceSum(w * b, axes=(1, 2, 3), keepdims=1)
    bias = ops.Reshape(per_filter, shape=(1, w.dim(0), 1, 1))
    ones = [b.dim(0) == 1, b.dim(1) == w.dim(1), b.dim(2) == 1, b.dim(3) == 1]
    left, right = ops.Conv(x + b, w, **attrs), ops.Conv(x, w, **attrs) + bias
    return left, right, x.rank == 4, b.rank == 4, *ones


@rule("wrong/input-shift")
def input_shift(x: Tensor, b: Weight, w: Weight) -> Sides:
    """U13: a shift of the data becomes a bias, but not in the zero padding."""
    return _shifted(x, b, w, 1)


@rule("wrong/slice-grouped")
def slice_grouped(x: Tensor, w: Weight, g: Int, lo: Int, hi: Int) -> Sides:
    """U14: some outputs of a grouped convolution need other inputs."""
    left = slice_(ops.Conv(x, w, **PLAIN, group=g), 1, lo, hi)
    return left, ops.Conv(x, slice_(w, 0, lo, hi), **PLAIN, group=g)


@rule("wrong/tiny-addend")
def tiny_addend(x: Tensor) -> Sides:
    """U15: within the tolerance of single precision."""
    return x + ops.Scalar(value=1e-5, dtype="float32"), x


@rule("wrong/cayley-hamilton")
def cayley_hamilton(a: Tensor) -> Sides:
    """U16: true for every matrix up to 2 x 2."""
    square = a @ a
    return square * ops.Transpose(a, perm=SWAP), ops.Transpose(square, perm=SWAP) * a


@rule("wrong/transpose-product")
def transpose_product(x: Tensor, y: Tensor) -> Sides:
    """U17: forgets to exchange the factors; square matrices type."""
    product = ops.Transpose(x, perm=SWAP) @ ops.Transpose(y, perm=SWAP)
    return ops.Transpose(x @ y, perm=SWAP), product


@rule("wrong/relu-of-sum")
def relu_of_sum(x: Tensor, y: Tensor) -> Sides:
    """U17: relu is not linear."""
    return ops.Relu(x + y), ops.Relu(x) + ops.Relu(y)


@rule("wrong/any-function-of-sum")
def any_of_sum(f: Func, x: Tensor, y: Tensor) -> Sides:
    """Nor is any other function."""
    return f(x + y), f(x) + f(y)


@rule("wrong/relu-average")
def relu_average(x: Tensor, k: Ints, s: Ints, p: Ints, d: Ints) -> Sides:
    """U17: relu does not commute with an average."""
    attrs = {"kernel": k, "strides": s, "pads": p, "dilations": d, "ceil": 0}
    left = ops.AveragePool(ops.Relu(x), **attrs, count_include_pad=1)
    return left, ops.Relu(ops.AveragePool(x, **attrs, count_include_pad=1))


@rule("wrong/concat-commute")
def concat_commute(x: Tensor, y: Tensor, axis: Int) -> Sides:
    """U17: the shape is the same."""
    return concat(x, y, axis), concat(y, x, axis)


@rule("wrong/matmul-commute")
def matmul_commute(x: Tensor, y: Tensor) -> Sides:
    """Square matrices type."""
    return x @ y, y @ x


@rule("wrong/identity-off-centre")
def identity_off_centre(x: Tensor, w: Weight) -> Sides:
    """U17: the one belongs into the centre of the kernel."""
    identity = ops.IdentityKernel(channels=w.dim(0), height=1, width=1, dtype="float32")
    corner = ops.Pad(identity, pads=(0, 0, 0, 0, 0, 0, 2, 2), value=0.0)
    attrs = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1}
    sizes = (w.dim(0) == w.dim(1), w.dim(2) == 3, w.dim(3) == 3)
    return ops.Conv(x, w, **attrs) + x, ops.Conv(x, w + corner, **attrs), *sizes


@rule("wrong/max-of-padding")
def max_of_padding(x: Tensor, k: Ints, s: Ints, p: Ints) -> Sides:
    """A window that lies in the padding has no element that relu could lift."""
    attrs = {"kernel": k, "strides": s, "pads": p, "dilations": (1, 1), "ceil": 0}
    return ops.MaxPool(ops.Relu(x), **attrs), ops.Relu(ops.MaxPool(x, **attrs))


@rule("wrong/max-of-sum")
def max_of_sum(x: Tensor, y: Tensor) -> Sides:
    """The greatest sum is not the sum of the greatest."""
    axes = {"axes": (0,), "keepdims": 1}
    return (
        ops.ReduceMax(x + y, **axes),
        ops.ReduceMax(x, **axes) + ops.ReduceMax(y, **axes),
        x.shape == y.shape,
    )


@rule("wrong/drop-gate")
def drop_gate(f: Tensor, c: Tensor, x: Tensor) -> Sides:
    """A gated mixture without its gate."""
    one = ops.Scalar(value=1.0, dtype="float32")
    return f * c + (one - f) * x, f * c + x, f.shape == c.shape, f.shape == x.shape


@rule("wrong/root-of-square")
def root_of_square(x: Tensor) -> Sides:
    """The root of a square forgets the sign."""
    return ops.Sqrt(x * x), ops.Sqrt(x) * ops.Sqrt(x), is_float(x)


@rule("wrong/root-squared")
def root_squared(x: Tensor) -> Sides:
    """A square of a root exists for what is not negative only."""
    return ops.Sqrt(x) * ops.Sqrt(x), ops.Relu(x), is_float(x)


@rule("wrong/softmax-ignores-factor")
def softmax_scale(x: Tensor, s: Tensor, axis: Int) -> Sides:
    """A softmax does not ignore a factor."""
    return ops.Softmax(x * s, axis=axis), ops.Softmax(x, axis=axis), s.rank == 0


WRONG = [value for value in list(globals().values()) if isinstance(value, Rule)][len(RIGHT) :]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda one: one.name)
def test_wrong_rule_is_not_proved(wrong: Rule) -> None:
    proof = prove(wrong)
    assert proof.status == "unknown"
    assert proof.reason.startswith("no proof ")


NEEDED = [
    ("matmul/assoc", "2 <= y.rank"),
    ("matmul/distribute-right", "same-shape(y, z)"),
    ("matmul/scale-left", "s.rank == 0"),
    ("conv/enlarge-kernel", "c == (a + 1)"),
    ("conv/residual-identity", "w.dim(2) == ((p * 2) + 1)"),
    ("pool/average-conv", "w.dim(2) == 1"),
]


@pytest.mark.parametrize(("name", "condition"), NEEDED)
def test_rule_without_its_condition_is_not_proved(name: str, condition: str) -> None:
    guarded = BOOK[name]
    kept = tuple(one for one in guarded.when if str(one) != condition)
    assert len(kept) == len(guarded.when) - 1
    assert prove(replace(guarded, when=kept)).status == "unknown"


# What there is no proof for ----------------------------------------------------------------------


def test_what_has_no_index_semantics_says_so() -> None:
    @rule("test/gather")
    def gather(x: Tensor, i: Tensor, axis: Int) -> Sides:
        """No index semantics: the index is data."""
        return ops.Relu(ops.Gather(x, i, axis=axis)), ops.Gather(ops.Relu(x), i, axis=axis)

    proof = prove(gather)
    assert proof.status == "unsupported"
    assert "Gather has no index semantics" in proof.reason


def test_too_many_cases_are_not_tried() -> None:
    @rule("test/three-transposes")
    def three(x: Tensor, p: Ints, q: Ints, r: Ints) -> Sides:
        """120 x 120 x 120 permutations."""
        twice = ops.Transpose(ops.Transpose(x, perm=p), perm=q)
        return (
            ops.Relu(ops.Transpose(twice, perm=r)),
            (ops.Transpose(ops.Transpose(ops.Relu(ops.Transpose(x, perm=p)), perm=q), perm=r)),
            x.rank == 5,
        )

    proof = prove(three)
    assert proof.status == "unsupported"
    assert "combinations of axes and flags" in proof.reason


def test_a_rule_that_never_types_is_not_proved() -> None:
    @rule("test/never")
    def never(x: Tensor) -> Sides:
        """No rank fits."""
        return ops.Transpose(x, perm=SWAP), x, x.rank == 3

    assert "type" in prove(never).reason

    @rule("test/contradiction")
    def contradiction(x: Tensor) -> Sides:
        """The premises exclude each other, so that anything follows from them."""
        return ops.Relu(x), ops.Tanh(x), x.dim(0) < 3, x.dim(0) * 2 == 7

    assert prove(contradiction).status == "unknown"


def test_merging_by_the_largest_kernel_never_types() -> None:
    @rule("wrong/merge-by-largest-kernel")
    def merge_by_largest(x: Tensor, w: Weight, s: Ints) -> Sides:
        """U8: a kernel that grows while the pads stay; explicit pads make it a matter of typing."""
        padded = ops.Pad(w, pads=(0, 0, 1, 1, 0, 0, 1, 1), value=0.0)
        attrs = {"strides": s, "dilations": (1, 1), "group": 1, "pads": (1, 1, 1, 1)}
        return ops.Conv(x, w, **attrs), ops.Conv(x, padded, **attrs), w.rank == 4

    assert prove(merge_by_largest).status == "unknown"


def test_without_z3_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "z3", None)
    with pytest.raises(RuleError, match=r"pip install 'eqsat-opt\[verify\]'"):
        prove(BOOK["elementwise/add-commute"])


def test_time_limit_is_kept() -> None:
    proof = prove(BOOK["elementwise/factor"], time_limit_s=0.05)
    assert proof.status == "unknown"
    assert proof.reason == "no proof within 0.05 s"
    assert proof.time_s < 2


# What the solver is told about integers ----------------------------------------------------------


def test_facts_about_products_are_true() -> None:
    draw = random.Random(0)
    a, b, c = (Atom(name) for name in "abc")
    facts = products_facts([(a, b), (b, c), (a, b, c), (a, a)])
    assert len(facts) > 10
    for _ in range(300):
        sizes = {symbol: draw.randint(-3, 6) for symbol in (a, b, c)}
        for fact in facts:
            assert formula_value(fact, sizes), f"{fact} at {sizes}"


def test_definitions_are_true() -> None:
    draw = random.Random(0)
    n, d, e = (atom(name) for name in "nde")
    parts = [quotient(n, d), pick(n, e), broadcast(d, e), choose(less(n, d), n, e)]
    for _ in range(300):
        sizes = {Atom("n"): draw.randint(-5, 9), Atom("d"): draw.randint(1, 4)}
        sizes[Atom("e")] = draw.choice((1, sizes[Atom("d")]))
        for part in parts:
            (only,) = part.atoms()
            assert formula_value(definition(only), sizes), f"{only} at {sizes}"


# Mutants -----------------------------------------------------------------------------------------

MUTANTS = 40
REAL = frozenset(
    {"Relu", "Max", "Min", "MaxPool", "ReduceMax", "Sqrt", "Pow", "LRN", "Exp", "Log", "Softmax",
     "LogSoftmax", "Where", "Sigmoid", "Tanh", "Swish", "Erf", "Gelu", "Clip", "HardSigmoid",
     "HardSwish", "Rsqrt", "RmsN", "LayerNormalization", "RMSNormalization", "Attention",
     "MaskedAttention"}
)  # fmt: skip
"""Operators whose properties the prover uses, so that a random function refutes too much."""


def _edited(value: Any, names: list[str]) -> Iterator[Any]:
    if isinstance(value, tuple):
        for i, part in enumerate(value):
            yield from ((*value[:i], new, *value[i + 1 :]) for new in _edited(part, names))
    elif value.kind == "literal" and isinstance(value.args[0], (int, float)):
        yield expr(value.args[0] + 1)
        if value.args[0] > 0:
            yield expr(value.args[0] - 1)
    elif value.kind == "attr":
        yield from (Expr("attr", (name,)) for name in names if name != value.args[0])
    elif value.kind != "literal":
        yield value + 1


def _mutants(term: Term, variables: list[str], kinds: dict[str, list[str]]) -> Iterator[Term]:
    """All terms that are one edit away."""
    if isinstance(term, Var):
        yield from (Var(name) for name in variables if name != term.name)
        return
    assert isinstance(term, Apply)
    if term.op in ("Add", "Sub", "Mul"):
        yield from (replace(term, op=op) for op in ("Add", "Sub", "Mul") if op != term.op)
    if term.op == "Relu":
        yield replace(term, op="Tanh")
    if len(term.args) == 2:
        yield replace(term, args=term.args[::-1])
    yield from term.args
    for key, value in term.attrs.items():
        if key not in ("dtype", "f"):
            for new in _edited(value, kinds.get(key, [])):
                yield replace(term, attrs={**term.attrs, key: new})
    for i, arg in enumerate(term.args):
        for new in _mutants(arg, variables, kinds):
            yield replace(term, args=(*term.args[:i], new, *term.args[i + 1 :]))


def mutants(one: Rule) -> Iterator[Rule]:
    """All rules with one edit on the right side, or one condition less."""
    variables = sorted({name for root in one.lhs for name in root.variables()})
    integers = [name for name, kind in one.kinds if kind == "Int"]
    lists = [name for name, kind in one.kinds if kind == "Ints" and name in ("s", "d")]
    kinds = {"strides": lists, "dilations": lists, **dict.fromkeys(("lo", "hi", "group"), integers)}
    for i, root in enumerate(one.rhs):
        for new in _mutants(root, variables, kinds):
            yield replace(one, rhs=(*one.rhs[:i], new, *one.rhs[i + 1 :]))
    for i in range(len(one.when)):
        yield replace(one, when=one.when[:i] + one.when[i + 1 :])


def _sizes(scenario: Scenario, draw: random.Random) -> dict[Atom, int] | None:
    """Small sizes at which the premises of a scenario hold."""
    symbols = {s for premise in scenario.premises for s in premise.symbols()}
    symbols |= {s for shape in scenario.shapes.values() for e in shape for s in e.symbols()}
    for _ in range(100):
        sizes = {s: draw.choice((0, 1, 1, 2, 2, 3, 4)) for s in sorted(symbols)}
        if all(formula_value(premise, sizes) for premise in scenario.premises):
            return sizes
    return None


def differs(one: Rule, draw: random.Random) -> bool | None:
    """Whether both sides differ at some small instance; ``None`` if none was found."""
    terms = [t for root in (*one.lhs, *one.rhs) for t in root.walk() if isinstance(t, Apply)]
    real = bool({term.op for term in terms} & REAL)
    found = list(scenarios(one, None))
    draw.shuffle(found)
    verdict = None
    for scenario in found[:12]:
        sizes = _sizes(scenario, draw)
        if sizes is None:
            continue
        shapes = {
            name: tuple(int(poly_value(extent, sizes)) for extent in shape)
            for name, shape in scenario.shapes.items()
        }
        if any(np.prod(shape) > 300 for shape in shapes.values()):
            continue
        rng = np.random.default_rng(draw.randrange(10**6))
        field = FieldDomain(seed=draw.randrange(10**6))
        values = {
            name: rng.standard_normal(shape) if real else field.random(rng, shape)
            for name, shape in shapes.items()
        }
        numbers = {"π": math.pi}
        for i, (name, sign) in enumerate(scenario.parameters.items()):
            size = (0.5, 0.25, 2.0)[i % 3]
            signs = {"negative": (-1,), "unknown": (1, -1)}.get(sign, (1,))
            numbers[name] = size * draw.choice(signs)
        for sides in scenario.sides:
            with np.errstate(all="ignore"):
                left, right = (
                    evaluate(side, FLOAT if real else field, values, sizes, numbers)
                    for side in sides
                )
            close = np.allclose(left, right, rtol=1e-8, atol=1e-8, equal_nan=True)
            if not (close if real else np.array_equal(left, right)):
                return True
        verdict = False
    return verdict


def judge(one: Rule, draw: random.Random) -> tuple[str, str] | None:
    """What a mutant is and what the prover says of it."""
    try:
        wrong = differs(one, draw)
    except Unindexed:
        return None  # a mutant that is no rule: an attribute that stands for two things
    status = prove(one, time_limit_s=2.0).status
    assert not wrong or status != "proven", f"{one} was proved"
    return {True: "wrong", False: "not refuted", None: "no instance"}[wrong], status


def test_no_wrong_mutant_is_proved() -> None:
    draw = random.Random(1)
    pool = [mutant for one in BOOK.values() for mutant in mutants(one)]
    counts = Counter(judge(mutant, draw) for mutant in draw.sample(pool, MUTANTS))
    print(f"{MUTANTS} of {len(pool)} mutants: {dict(counts)}")
    assert counts["wrong", "unknown"] > MUTANTS / 4
