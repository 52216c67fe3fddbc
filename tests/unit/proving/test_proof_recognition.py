"""Proofs of recognition: every law of constants, gates, norms and attention, and what it is not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.ir.ops.index.evaluation import evaluate
from eqsat_opt.ir.ops.index.integers import Atom, atom
from eqsat_opt.ir.ops.index.scalars import Call, Constant, IndexTensor, Read, Scalar
from eqsat_opt.proving.numbers.definitions import PI, defined
from eqsat_opt.proving.proof import prove
from eqsat_opt.rules import Rule, families
from eqsat_opt.rules.rule import Float, Int, Ints, Sides, Tensor, rule
from eqsat_opt.rules.term import Expr, Term, concat, far, is_float, near, ops, real, slice_, sqrt
from tests.sampling import sampled

pytest.importorskip("z3", reason="proofs need z3: pip install 'eqsat-opt[verify]'")

RECOGNITION = ("affine", "activation", "normalisation", "attention")
BOOK = {one.name: one for family in RECOGNITION for one in families()[family]}
SAMPLE = [
    "affine/scale-of-scale", "affine/scale-cancels", "affine/scale-same", "affine/shift-cancels",
    "affine/shift-of-scale", "affine/difference-of-scales", "affine/root-of-scale",
    "affine/inverse-root-of-scale", "affine/root-reciprocal", "affine/sum-over-two-axes",
    "affine/expand-of-scale", "affine/power-minus-half", "activation/sigmoid-of-exponential",
    "activation/sigmoid-of-two-exponentials", "activation/tanh-is-sigmoid",
    "activation/sigmoid-of-negative", "activation/erf-of-negative", "activation/factor-both",
    "activation/gelu", "activation/gelu-tanh", "activation/swish-scaled",
    "activation/clip-min-max", "activation/clip-relu", "activation/hard-sigmoid-is-clip",
    "activation/clip-of-scale", "activation/clip-of-negative-scale", "activation/clip-of-shift",
    "activation/hard-swish", "normalisation/center", "normalisation/center-twice",
    "normalisation/root-mean-square", "normalisation/layer-uniform",
    "normalisation/variance-of-squares", "attention/softmax", "attention/softmax-of-logarithm",
    "attention/softmax-less-maximum", "attention/exponential-less-scaled-logarithm",
    "attention/transpose-with-merged-heads", "attention/scaled-masked", "attention/masked-scaled",
    "attention/guarded-softmax", "attention/merged-scaled-masked", "attention/repeated-heads",
    "attention/repeated-merged-heads", "attention/grouped", "attention/grouped-masked",
]  # fmt: skip


@pytest.mark.parametrize("name", sampled(SAMPLE, 2))
def test_rule_of_the_book_is_proved(name: str) -> None:
    proof = prove(BOOK[name])
    assert (proof.status, proof.reason) == ("proven", "")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(BOOK) - set(SAMPLE)))
def test_every_other_rule_is_proved(name: str) -> None:
    proof = prove(BOOK[name], time_limit_s=60.0)
    assert (proof.status, proof.reason) == ("proven", "")


def test_scope_tells_what_near_means() -> None:
    near_targets = prove(BOOK["activation/gelu"])
    assert "constants within a tolerance are taken for their target" in near_targets.scope
    assert "tolerance" not in prove(BOOK["activation/swish"]).scope


# Definitions -------------------------------------------------------------------------------------

DEFINED: list[tuple[str, Mapping[str, Any]]] = [
    ("Sigmoid", {}), ("Tanh", {}), ("HardSwish", {}), ("IsNaN", {}), ("Abs", {}),
    ("Swish", {"alpha": 1.5}), ("Clip", {"min": -0.5, "max": 0.75}),
    ("HardSigmoid", {"alpha": 0.25, "beta": 0.375}),
    ("Gelu", {"approximate": "none"}), ("Gelu", {"approximate": "tanh"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "attrs"), DEFINED)
def test_definition_is_what_the_operator_computes(name: str, attrs: Mapping[str, Any]) -> None:
    x = np.linspace(-5.0, 5.0, 81)
    size = Atom("n")
    terms = {k: Constant(Fraction(v)) if isinstance(v, float) else v for k, v in attrs.items()}

    def at(index: Any) -> Scalar:
        call = Call(name, tuple(sorted(terms.items())), (Read("x", tuple(index)),))
        meaning = defined(call)
        assert meaning is not None
        return meaning

    tensor = IndexTensor((atom(size),), at)
    found = evaluate(tensor, FLOAT, {"x": x}, {size: len(x)}, {PI.name: math.pi})
    np.testing.assert_allclose(found, FLOAT.apply(name, attrs, x), rtol=1e-12, atol=1e-14)


# Rules that are right beyond the book ------------------------------------------------------------


def _scale(x: Term, factor: Expr | float) -> Term:
    return ops.Scale(x, factor=factor)


def _shift(x: Term, offset: Expr | float) -> Term:
    return ops.Shift(x, offset=offset)


def _mean(x: Term, axes: object) -> Term:
    return ops.ReduceMean(x, axes=axes, keepdims=1)


def _sum(x: Term, axes: object) -> Term:
    return ops.ReduceSum(x, axes=axes, keepdims=1)


@rule("right/roots-multiply")
def roots_multiply(x: Tensor) -> Sides:
    """√(1/2) √6 = √3."""
    return _scale(_scale(x, math.sqrt(0.5)), math.sqrt(6.0)), _scale(x, math.sqrt(3.0))


@rule("right/pi-cancels")
def pi_cancels(x: Tensor) -> Sides:
    """√(2/π) √(2π) = 2."""
    once = _scale(x, math.sqrt(2.0 / math.pi))
    return _scale(once, math.sqrt(2.0 * math.pi)), _scale(x, 2.0)


@rule("right/decimals-add")
def decimals_add(x: Tensor) -> Sides:
    """0.1 + 0.2 = 0.3, as people read it."""
    return _shift(_shift(x, 0.1), 0.2), _shift(x, 0.3)


@rule("right/shares-add-up")
def shares_add_up(x: Tensor, y: Tensor) -> Sides:
    """x/(x + y) + y/(x + y) = 1."""
    return x / (x + y) + y / (x + y), (x + y) / (x + y), x.shape == y.shape, is_float(x)


@rule("right/repeats-compose")
def repeats_compose(x: Tensor, i: Int, n: Int, k: Int) -> Sides:
    """Twice three times is six times."""
    twice = ops.Repeat(ops.Repeat(x, axis=i, repeats=n), axis=i, repeats=k)
    return twice, ops.Repeat(x, axis=i, repeats=n * k)


@rule("right/clips-intersect")
def clips_intersect(x: Tensor, a: Float, b: Float) -> Sides:
    """A ceiling below another is the only one."""
    low, high = ops.Scalar(value=a, dtype="float32"), ops.Scalar(value=b, dtype="float32")
    return ops.Min(ops.Min(x, low), high), ops.Min(x, low), a <= b


@rule("right/scale-of-norm")
def scale_of_norm(x: Tensor, a: Float, e: Float) -> Sides:
    """A positive factor before a normalisation changes its epsilon only."""
    left = ops.RmsN(_scale(x, a), axes=(0,), epsilon=e)
    return left, ops.RmsN(x, axes=(0,), epsilon=e / (a * a)), a > 0.0


@rule("right/absolute-value")
def absolute_value(x: Tensor) -> Sides:
    """Both halves are the absolute value."""
    return ops.Relu(x) + ops.Relu(ops.Neg(x)), ops.Abs(x), is_float(x)


@rule("right/root-of-exponential")
def root_of_exponential(x: Tensor) -> Sides:
    """√exp(x) = exp(x/2)."""
    return ops.Sqrt(ops.Exp(x)), ops.Exp(_scale(x, 0.5))


@rule("right/negative-factor-of-root")
def negative_factor(x: Tensor, a: Float, b: Float) -> Sides:
    """Near conditions define attributes wherever they stand in a product."""
    return _scale(_scale(x, a), b), _scale(x, -2.0), near(a * b, -2.0)


@rule("right/layer-over-two-axes")
def layer_over_two(x: Tensor, e: Float) -> Sides:
    """A normalisation over two axes is one over both as one."""
    flat = ops.Reshape(x, shape=(x.dim(0), x.dim(1) * x.dim(2)))
    normal = ops.RmsN(ops.Center(flat, axes=(1,)), axes=(1,), epsilon=e)
    both = ops.RmsN(ops.Center(x, axes=(1, 2)), axes=(1, 2), epsilon=e)
    shape = (x.dim(0), x.dim(1), x.dim(2))
    return ops.Reshape(normal, shape=shape), both, x.rank == 3


RIGHT = [value for value in list(globals().values()) if isinstance(value, Rule)]


@pytest.mark.parametrize("right", RIGHT, ids=lambda one: one.name)
def test_right_rule_is_proved(right: Rule) -> None:
    assert prove(right).status == "proven"


# Near misses -------------------------------------------------------------------------------------


@rule("wrong/root-read-too-widely")
def root_read(x: Tensor) -> Sides:
    """√2 as single precision has it is not √2."""
    return _scale(_scale(x, 1.4142135381698608), math.sqrt(2.0)), _scale(x, 2.0)


@rule("wrong/roots-multiply")
def roots_add(x: Tensor) -> Sides:
    """√2 √3 is not √5."""
    return _scale(_scale(x, math.sqrt(2.0)), math.sqrt(3.0)), _scale(x, math.sqrt(5.0))


@rule("wrong/pi")
def pi_stays(x: Tensor) -> Sides:
    """√(2/π) √(2/π) keeps its π."""
    gate = math.sqrt(2.0 / math.pi)
    return _scale(_scale(x, gate), gate), _scale(x, 2.0)


@rule("wrong/near-another-target")
def near_another(x: Tensor, k: Ints, c: Float) -> Sides:
    """The mean is taken off once, not 1.1 times."""
    return x + _scale(_mean(x, k), c), ops.Center(x, axes=k), near(c, -1.1)


@rule("wrong/far-is-not-near")
def far_is_not_near(x: Tensor, a: Float, b: Float) -> Sides:
    """What is far from a target says nothing."""
    return _scale(_scale(x, b), a), x, far(a * b, 1.0)


@rule("wrong/product-that-may-vanish")
def product_may_vanish(x: Tensor, a: Float, b: Float) -> Sides:
    """That a b = 0 does not make b zero."""
    return _scale(_shift(x, b), a), _scale(x, a), near(a * b, 0.0), a + b == 1.0


@rule("wrong/shift-of-scale")
def shift_of_scale(x: Tensor, a: Float, s: Float) -> Sides:
    """The addend is divided, not multiplied."""
    return _shift(_scale(x, a), s), _scale(_shift(x, s * a), a), a != 0.0


@rule("wrong/root-of-scale")
def root_of_scale(x: Tensor, a: Float) -> Sides:
    """The factor leaves as its root."""
    return ops.Sqrt(_scale(x, a)), _scale(ops.Sqrt(x), a), a > 0.0


@rule("wrong/root-of-negative-scale")
def root_of_negative(x: Tensor, a: Float) -> Sides:
    """No root of a negative factor leaves."""
    return ops.Sqrt(_scale(x, a)), _scale(ops.Sqrt(x), sqrt(a)), a < 0.0


@rule("wrong/inverse-root-of-scale")
def inverse_root(x: Tensor, a: Float) -> Sides:
    """It leaves as its inverse root."""
    return ops.Rsqrt(_scale(x, a)), _scale(ops.Rsqrt(x), sqrt(a)), a > 0.0


@rule("wrong/root-of-even-power")
def root_of_even_power(x: Tensor) -> Sides:
    """√(1/x²) forgets the sign."""
    return ops.Sqrt(ops.Square(ops.Reciprocal(x))), ops.Reciprocal(x)


@rule("wrong/sum-over-two-axes")
def sum_over_two(x: Tensor, i: Int, j: Int) -> Sides:
    """As many addends as the product of the extents, not their sum."""
    return _sum(x, (i, j)), _scale(_mean(x, (i, j)), real(x.dim(i) + x.dim(j)))


@rule("wrong/sum-over-axis")
def sum_over_another(x: Tensor, i: Int, j: Int) -> Sides:
    """The extent of another axis."""
    return _sum(x, (i,)) + _scale(_mean(x, (j,)), 0.0), _scale(_mean(x, (i,)), real(x.dim(j)))


@rule("wrong/sigmoid-of-exponential")
def sigmoid_sign(u: Tensor, s: Float) -> Sides:
    """1/(1 + exp(u)) is the sigmoid of -u."""
    return ops.Reciprocal(_shift(ops.Exp(u), s)), ops.Sigmoid(u), near(s, 1.0)


@rule("wrong/sigmoid-of-two-exponentials")
def sigmoid_two(u: Tensor) -> Sides:
    """A denominator may not be forgotten."""
    e = ops.Exp(u)
    return e * ops.Reciprocal(_shift(e, 1.0)), ops.Reciprocal(_shift(e, 1.0))


@rule("wrong/shares-add-up")
def shares(x: Tensor, y: Tensor) -> Sides:
    """Two denominators are two."""
    return x / (x + y) + y / (x - y), (x + y) / (x + y), x.shape == y.shape, is_float(x)


@rule("wrong/tanh-is-sigmoid")
def tanh_factor(u: Tensor) -> Sides:
    """The sigmoid is of twice the operand."""
    return ops.Tanh(u), _scale(_shift(ops.Sigmoid(u), -0.5), 2.0)


@rule("wrong/sigmoid-of-negative")
def sigmoid_odd(x: Tensor, c: Float) -> Sides:
    """A sigmoid is not odd."""
    return ops.Sigmoid(_scale(x, c)), _scale(ops.Sigmoid(_scale(x, c * -1.0)), -1.0), c < 0.0


@rule("wrong/erf-is-even")
def erf_even(x: Tensor, c: Float) -> Sides:
    """The error function is odd."""
    return ops.Erf(_scale(x, c)), ops.Erf(_scale(x, c * -1.0)), c < 0.0


@rule("wrong/factor-left")
def factor_left(x: Tensor, e: Tensor, a: Float) -> Sides:
    """The addend belongs into the shift."""
    return _scale(x, a) + x * e, x * _shift(e, 1.0), x.shape == e.shape


@rule("wrong/gelu-constant")
def gelu_constant(x: Tensor, c: Float, s: Float) -> Sides:
    """0.7071 is not near enough to √(1/2)."""
    left = x * _shift(ops.Erf(_scale(x, c)), s)
    return left, _scale(ops.Gelu(x, approximate="none"), 2.0), near(c, 0.7071), near(s, 1.0)


@rule("wrong/gelu-forms")
def gelu_forms(x: Tensor) -> Sides:
    """The cubic form approximates only."""
    return ops.Gelu(x, approximate="none"), ops.Gelu(x, approximate="tanh")


@rule("wrong/gelu-tanh")
def gelu_tanh(x: Tensor, c: Float, s: Float) -> Sides:
    """Another cubic coefficient."""
    gate = math.sqrt(2.0 / math.pi)
    inner = x * _shift(ops.Square(x), s)
    return (
        x * ops.Sigmoid(_scale(inner, c)),
        ops.Gelu(x, approximate="tanh"),
        near(c, 2.0 * gate * 0.044715),
        near(s, 1.0 / 0.0447),
    )


@rule("wrong/swish-scaled")
def swish_scaled(x: Tensor, k: Float) -> Sides:
    """The factor is part of it."""
    return x * ops.Sigmoid(_scale(x, k)), ops.Swish(x, alpha=1.0), k > 0.0


@rule("wrong/clip-of-negative-scale")
def clip_negative(x: Tensor, a: Float, lo: Float, hi: Float) -> Sides:
    """A negative factor exchanges the bounds."""
    inner = ops.Clip(x, min=lo / a, max=hi / a)
    return ops.Clip(_scale(x, a), min=lo, max=hi), _scale(inner, a), a < 0.0, lo <= hi


@rule("wrong/clip-of-scale")
def clip_scaled(x: Tensor, a: Float, lo: Float, hi: Float) -> Sides:
    """The bounds are divided."""
    inner = ops.Clip(x, min=lo * a, max=hi * a)
    return ops.Clip(_scale(x, a), min=lo, max=hi), _scale(inner, a), a > 0.0, lo <= hi


@rule("wrong/clip-of-shift")
def clip_shifted(x: Tensor, s: Float, lo: Float, hi: Float) -> Sides:
    """The addend comes back."""
    inner = ops.Clip(x, min=lo - s, max=hi - s)
    return ops.Clip(_shift(x, s), min=lo, max=hi), inner, lo <= hi


@rule("wrong/clip-relu")
def clip_relu(x: Tensor, hi: Float) -> Sides:
    """A relu has the floor 0."""
    left = ops.Min(ops.Relu(x), ops.Scalar(value=hi, dtype="float32"))
    return left, ops.Clip(x, min=-1.0, max=hi), hi > 0.0


@rule("wrong/hard-swish")
def hard_swish(x: Tensor, s: Float, lo: Float, hi: Float) -> Sides:
    """The bounds are -3 and 3."""
    left = x * _shift(ops.Clip(x, min=lo, max=hi), s)
    return left, _scale(ops.HardSwish(x), 6.0), near(s, 3.0), near(lo, -3.0), near(hi, 2.0)


@rule("wrong/order-of-floors")
def order_of_floors(x: Tensor, a: Float, b: Float) -> Sides:
    """The higher ceiling is not the only one."""
    low, high = ops.Scalar(value=a, dtype="float32"), ops.Scalar(value=b, dtype="float32")
    return ops.Min(ops.Min(x, low), high), ops.Min(x, high), a <= b


@rule("wrong/center-another-axis")
def center_another(x: Tensor) -> Sides:
    """The mean is over the other axis."""
    return x + _scale(_mean(x, (0,)), -1.0), ops.Center(x, axes=(1,)), x.rank == 2


@rule("wrong/variance")
def variance(x: Tensor, k: Ints) -> Sides:
    """The mean is squared."""
    left = _mean(ops.Square(x), k) + _scale(_mean(x, k), -1.0)
    return left, _mean(ops.Square(ops.Center(x, axes=k)), k)


@rule("wrong/center-of-shift")
def center_of_product(x: Tensor, y: Tensor, k: Ints) -> Sides:
    """A tensor that is added is not removed."""
    return ops.Center(x + y, axes=k), ops.Center(x, axes=k), x.shape == y.shape, x.rank == 2


def _normalised(d: Term, axes: tuple[int, ...], e: Expr, *, inside: bool) -> Term:
    square = _mean(ops.Square(d), axes)
    if inside:
        return d * ops.Rsqrt(_shift(square, e))
    return d * ops.Reciprocal(_shift(ops.Sqrt(square), e))


@rule("wrong/misplaced-epsilon")
def misplaced_epsilon(d: Tensor, e: Float) -> Sides:
    """Epsilon stands under the root."""
    left = _normalised(d, (1,), e, inside=False)
    return left, ops.RmsN(d, axes=(1,), epsilon=e), e > 0.0, d.rank == 2


@rule("wrong/another-epsilon")
def another_epsilon(d: Tensor, e: Float, f: Float) -> Sides:
    """It is not any number."""
    both = _normalised(d, (1,), e, inside=True) + _scale(_shift(d, f), 0.0)
    return both, ops.RmsN(d, axes=(1,), epsilon=f), e > 0.0, d.rank == 2


@rule("wrong/norm-over-another-axis")
def norm_axis(d: Tensor, e: Float) -> Sides:
    """It is over the axis of its mean."""
    left = _normalised(d, (0,), e, inside=True)
    return left, ops.RmsN(d, axes=(1,), epsilon=e), e > 0.0, d.rank == 2


def _filled(x: Tensor, value: float | Expr) -> Term:
    return ops.Fill(shape=(x.dim(1),), value=value, dtype="float32")


@rule("wrong/layer-without-centre")
def layer_uncentred(x: Tensor, e: Float) -> Sides:
    """Layer normalisation centres."""
    fused = ops.LayerNormalization(x, _filled(x, 1.0), _filled(x, 0.0), axis=1, epsilon=e)
    return ops.RmsN(x, axes=(1,), epsilon=e), fused, x.rank == 2


@rule("wrong/layer-shift")
def layer_shift(x: Tensor, e: Float, s: Float) -> Sides:
    """The shift is not the scale."""
    fused = ops.LayerNormalization(x, _filled(x, s), _filled(x, 1.0), axis=1, epsilon=e)
    core = ops.RmsN(ops.Center(x, axes=(1,)), axes=(1,), epsilon=e)
    return _shift(core, s), fused, x.rank == 2


@rule("wrong/scale-of-norm")
def scale_of_norm_keeps(x: Tensor, a: Float, e: Float) -> Sides:
    """Epsilon is divided by the square of the factor."""
    left = ops.RmsN(_scale(x, a), axes=(0,), epsilon=e)
    return left, ops.RmsN(x, axes=(0,), epsilon=e / a), a > 0.0


@rule("wrong/negative-scale-of-norm")
def negative_scale_of_norm(x: Tensor, a: Float, e: Float) -> Sides:
    """A negative factor leaves its sign."""
    left = ops.RmsN(_scale(x, a), axes=(0,), epsilon=e)
    return left, ops.RmsN(x, axes=(0,), epsilon=e / (a * a)), a < 0.0


@rule("wrong/absolute-value")
def absolute_difference(x: Tensor) -> Sides:
    """The difference of both halves is the operand."""
    return ops.Relu(x) - ops.Relu(ops.Neg(x)), ops.Abs(x), is_float(x)


@rule("wrong/softmax-count")
def softmax_count(u: Tensor) -> Sides:
    """A mean is not a sum."""
    left = ops.Exp(u) * ops.Reciprocal(_mean(ops.Exp(u), (1,)))
    return left, ops.Softmax(u, axis=1), u.rank == 2


@rule("wrong/softmax-axis")
def softmax_axis(u: Tensor) -> Sides:
    """The sum is over the axis of the softmax."""
    left = ops.Exp(u) * ops.Reciprocal(_sum(ops.Exp(u), (0,)))
    return left, ops.Softmax(u, axis=1), u.rank == 2


@rule("wrong/softmax-less-maximum")
def softmax_less_other(x: Tensor) -> Sides:
    """What is added varies along the axis."""
    top = ops.ReduceMax(x, axes=(0,), keepdims=1)
    return ops.Softmax(x - top, axis=1), ops.Softmax(x, axis=1), x.rank == 2


@rule("wrong/exponential-of-logarithm")
def exponential_of_logarithm(x: Tensor) -> Sides:
    """Only where the operand is positive."""
    return ops.Exp(ops.Log(x)), x


@rule("wrong/exponential-less-logarithm")
def exponential_plus_logarithm(x: Tensor, u: Tensor, c: Float) -> Sides:
    """A sum of logarithms is a product."""
    s = _mean(ops.Exp(u), (0,))
    left = ops.Exp(x + _scale(ops.Log(s), c))
    return left, ops.Exp(x) * ops.Reciprocal(s), near(c, 1.0), u.rank == 1, x.rank == 1


@rule("wrong/logarithm-of-any-sign")
def logarithm_sign(u: Tensor, a: Float) -> Sides:
    """A factor of unknown sign has no logarithm."""
    s = _scale(_mean(ops.Exp(u), (0,)), a)
    return ops.Exp(ops.Log(s)), s, u.rank == 1


@rule("wrong/where-of-nan")
def where_of_nan(x: Tensor) -> Sides:
    """The branches are exchanged."""
    zero = ops.Scalar(value=0.0, dtype="float32")
    return ops.Where(ops.IsNaN(x), x, zero), x


SWAP = (0, 1, 3, 2)


def _attended(q: Tensor, k: Tensor, v: Tensor, scale: float | Expr, *mask: Term) -> Term:
    op = ops.MaskedAttention if mask else ops.Attention
    return op(q, ops.Transpose(k, perm=SWAP), v, *mask, scale=scale)


@rule("wrong/attention-scale")
def attention_scale(q: Tensor, k: Tensor, v: Tensor, s: Float) -> Sides:
    """The factor may not get lost."""
    left = ops.Softmax(_scale(q @ k, s), axis=3) @ v
    return left, _attended(q, k, v, 1.0), q.rank == 4, k.rank == 4, v.rank == 4


@rule("wrong/attention-mask-scale")
def attention_mask(q: Tensor, k: Tensor, v: Tensor, m: Tensor, s: Float) -> Sides:
    """The mask is scaled as well."""
    left = ops.Softmax(_scale(q @ k + m, s), axis=3) @ v
    ranks = [t.rank == 4 for t in (q, k, v, m)]
    return left, _attended(q, k, v, s, m), *ranks


@rule("wrong/attention-axis")
def attention_axis(q: Tensor, k: Tensor, v: Tensor) -> Sides:
    """The softmax is over the keys."""
    left = ops.Softmax(q @ k, axis=2) @ v
    return left, _attended(q, k, v, 1.0), q.rank == 4, k.rank == 4, v.rank == 4


@rule("wrong/attention-keys")
def attention_keys(q: Tensor, k: Tensor, v: Tensor) -> Sides:
    """Keys that are transposed already; square ones type."""
    left = ops.Softmax(q @ k, axis=3) @ v
    ranks = [t.rank == 4 for t in (q, k, v)]
    return left, ops.Attention(q, k, v, scale=1.0), *ranks, k.dim(2) == k.dim(3)


def _expanded(k: Tensor, shapes: tuple[tuple[Any, ...], ...]) -> Term:
    narrow, wide, flat = shapes
    term = ops.Expand(ops.Reshape(k, shape=narrow), shape=wide)
    return ops.Reshape(term, shape=flat)


@rule("wrong/repeated-heads")
def repeated_heads(k: Tensor, g: Int) -> Sides:
    """Heads one after the other, again and again, are other heads."""
    b, h, s, d = (k.dim(axis) for axis in range(4))
    left = _expanded(k, ((b, 1, h, s, d), (b, g, h, s, d), (b, h * g, s, d)))
    return left, ops.Repeat(k, axis=1, repeats=g), k.rank == 4


@rule("wrong/grouped-keys")
def grouped_keys(q: Tensor, k: Tensor, v: Tensor, g: Int) -> Sides:
    """Heads that repeat in another order meet other queries."""
    b, h, s, d = (k.dim(axis) for axis in range(4))
    keys = _expanded(k, ((b, 1, h, s, d), (b, g, h, s, d), (b, h * g, s, d)))
    left = ops.Attention(q, keys, ops.Repeat(v, axis=1, repeats=g), scale=1.0)
    right = ops.Attention(q, k, v, scale=1.0)
    return left, right, q.rank == 4, k.rank == 4, v.rank == 4


@rule("wrong/repeat-whole")
def repeats_differ(x: Tensor) -> Sides:
    """Elements repeat, not the whole."""
    return ops.Repeat(x, axis=0, repeats=2), concat(x, x, 0), x.rank == 2


@rule("wrong/bound-of-another-axis")
def bound_of_another(x: Tensor, y: Tensor, i: Int) -> Sides:
    """Along the first axis it is right, and looks the same as along the others."""
    left, right = (slice_(concat(x, part, i), i, 0, 2) for part in (y, x))
    return left, right, x.rank >= 1, x.dim(0) >= 2


@rule("wrong/logarithm-of-negative")
def logarithm_negative(u: Tensor) -> Sides:
    """What is negative has none."""
    negative = _scale(ops.Exp(u), -1.0)
    return ops.Exp(ops.Log(negative)), negative


@rule("wrong/root-of-quotient")
def root_of_quotient(x: Tensor, y: Tensor) -> Sides:
    """Two negative numbers have a quotient with a root."""
    return ops.Sqrt(y / x), ops.Sqrt(y) * ops.Rsqrt(x), x.shape == y.shape


@rule("wrong/root-times-itself")
def root_times_itself(x: Tensor) -> Sides:
    """A root forgets that its operand may be negative."""
    return ops.Sqrt(x) * ops.Sqrt(x), x


WRONG = [value for value in list(globals().values()) if isinstance(value, Rule)][len(RIGHT) :]


@pytest.mark.parametrize("wrong", sampled(WRONG, 2), ids=lambda one: one.name)
def test_near_miss_is_not_proved(wrong: Rule) -> None:
    proof = prove(wrong, time_limit_s=4.0)
    assert proof.status in ("unknown", "unsupported")
    assert proof.reason


NEEDED = [
    ("affine/scale-cancels", "≈"), ("affine/scale-one", "≈"), ("affine/scale-same", "≈"),
    ("affine/shift-cancels", "=="), ("affine/difference-of-scales", "≈"),
    ("affine/root-of-scale", "0.0 < a"), ("affine/inverse-root-of-scale", "0.0 < a"),
    ("activation/sigmoid-of-exponential", "≈"), ("activation/gelu", "c ≈"),
    ("activation/gelu", "s ≈"), ("activation/gelu-tanh", "c ≈"), ("activation/gelu-tanh", "s ≈"),
    ("activation/clip-min-max", "lo <= hi"), ("activation/clip-of-scale", "0.0 < a"),
    ("activation/clip-of-negative-scale", "a < 0.0"),
    ("activation/clip-of-negative-scale", "lo <= hi"), ("activation/hard-swish", "s ≈"),
    ("activation/hard-swish", "lo ≈"), ("activation/hard-swish", "hi ≈"),
    ("normalisation/center", "≈"), ("normalisation/variance-of-squares", "≈"),
    ("normalisation/difference-with-mean", "≈"),
    ("attention/exponential-less-logarithm", "=="),
    ("attention/exponential-less-scaled-logarithm", "0.0 < a"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "condition"), NEEDED)
def test_rule_without_its_condition_is_not_proved(name: str, condition: str) -> None:
    guarded = BOOK[name]
    kept = tuple(one for one in guarded.when if condition not in str(one))
    assert len(kept) == len(guarded.when) - 1
    assert prove(replace(guarded, when=kept), time_limit_s=4.0).status == "unknown"
