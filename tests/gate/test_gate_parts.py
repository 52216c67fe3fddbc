"""The parts of level 1 one by one: what is drawn, what is computed, what is compared."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eqsat_opt.errors import CertificateError, RuleRefuted
from eqsat_opt.ir.ops import IllTyped, get_op
from eqsat_opt.ir.ops.domains import FieldDomain
from eqsat_opt.ir.ops.index.integers import (
    atom,
    broadcast,
    negate,
    pick,
    poly,
    quotient,
    substitute,
)
from eqsat_opt.ir.ops.index.integers import less as below
from eqsat_opt.ir.ops.index.polynomials import divide, multiple_of
from eqsat_opt.ir.values.types import TensorType, require_static
from eqsat_opt.proving.certificates.cache import keep, kept
from eqsat_opt.proving.certificates.certificate import (
    Certificate,
    Direction,
    read_certificates,
    why_invalid,
    write_certificates,
)
from eqsat_opt.proving.certificates.plain import check_fields
from eqsat_opt.proving.certificates.semantics import fingerprint
from eqsat_opt.proving.checks.bounds import bounded_results
from eqsat_opt.proving.checks.classes import breach
from eqsat_opt.proving.checks.degrees import Degrees, degree_of, false_acceptance
from eqsat_opt.proving.checks.differences import first_wrong
from eqsat_opt.proving.checks.empties import empty_difference
from eqsat_opt.proving.checks.exact import check_rule, first_mistyped
from eqsat_opt.proving.checks.margins import first_moved
from eqsat_opt.proving.checks.methods import exact_methods
from eqsat_opt.proving.checks.precision import measured
from eqsat_opt.proving.checks.rounding import InOrderDomain, rounding_difference
from eqsat_opt.proving.gate import certify_exact
from eqsat_opt.proving.instances import left_side
from eqsat_opt.proving.instances.models_z3 import models
from eqsat_opt.proving.instances.search import empty_instances, find_instances, shrunk_instances
from eqsat_opt.proving.numbers.angles import AngleDomain
from eqsat_opt.proving.numbers.casts import casts_of
from eqsat_opt.proving.numbers.designed import designed_values
from eqsat_opt.proving.numbers.draws import beside, drawn, generator
from eqsat_opt.proving.numbers.evaluation import (
    FloatNumbers,
    IntegerNumbers,
    OrderedNumbers,
    RationalNumbers,
    normal_values,
    program,
)
from eqsat_opt.proving.numbers.rationals import RationalDomain
from eqsat_opt.proving.numbers.reals import DRAWS, RealNumbers, literals
from eqsat_opt.proving.numbers.shapes import SHAPED
from eqsat_opt.proving.numbers.terms import computes_alike
from eqsat_opt.proving.numbers.twofield import TwoFieldDomain
from eqsat_opt.proving.typing.closure import closure, tolerance
from eqsat_opt.proving.typing.derived_schemes import derived
from eqsat_opt.proving.typing.element_types import demanded, literal_types
from eqsat_opt.proving.typing.extents import Extents, apply, resolve
from eqsat_opt.proving.typing.hints import Hints
from eqsat_opt.proving.typing.landmarks import landmarks
from eqsat_opt.rules import (
    Float,
    Int,
    Ints,
    Numerics,
    Rule,
    Sides,
    Tensor,
    near,
    ops,
    real,
    rule,
)
from eqsat_opt.rules.bindings import Bindings, Undefined, bind_attr, holds, size
from eqsat_opt.rules.term import Term, distinct, expr, far, is_float

_FLOAT = TensorType("float32", (2, 3))


def _numbers(*values: Any) -> Any:
    return np.array(values, dtype=object)


@rule("right/sum")
def _sum(x: Tensor, y: Tensor) -> Sides:
    """For its operands."""
    return x + y, y + x, x.shape == y.shape


@rule("wrong/sum")
def _difference(x: Tensor, y: Tensor) -> Sides:
    """Another operation."""
    return x + y, x - y, x.shape == y.shape


@rule("wrong/shape")
def _wider(x: Tensor, y: Tensor) -> Sides:
    """Another type."""
    return x + y, x, x.rank == y.rank


# Numbers -----------------------------------------------------------------------------------------


def test_rationals_are_exact_and_piecewise_functions_the_real_ones() -> None:
    domain = RationalDomain()
    values = _numbers(-3, 0, Fraction(5, 2))

    def of(name: str, **attrs: Any) -> list[Any]:
        return list(domain.apply(name, attrs, values))

    assert of("Relu") == [0, 0, Fraction(5, 2)]
    assert of("Abs") == [3, 0, Fraction(5, 2)]
    assert of("Sign") == [-1, 0, 1]
    assert of("Floor") == [-3, 0, 2]
    assert of("Ceil") == [-3, 0, 3]
    assert of("Clip", min=-1.0, max=2.0) == [-1, 0, 2]
    assert of("LeakyRelu", alpha=0.5) == [Fraction(-3, 2), 0, Fraction(5, 2)]
    # An attribute is the number that it was rounded from.
    assert of("LeakyRelu", alpha=0.1) == [Fraction(-3, 10), 0, Fraction(5, 2)]
    assert of("Clip", min=-math.inf, max=0.1) == [-3, 0, Fraction(1, 10)]
    assert of("ThresholdedRelu", alpha=1.0) == [0, 0, Fraction(5, 2)]
    assert list(domain.apply("Less", {}, values, _numbers(0, 0, 0))) == [True, False, False]
    assert list(domain.apply("Max", {}, values, _numbers(1, 1, 1))) == [1, 1, Fraction(5, 2)]
    assert list(domain.div(_numbers(1), _numbers(3))) == [Fraction(1, 3)]
    with pytest.raises(ZeroDivisionError):
        domain.div(_numbers(1), _numbers(0))


@rule("right/greatest")
def _greatest(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """Orders and moves elements."""
    left, right = ops.Max(x, ops.Max(y, z)), ops.Max(ops.Max(x, y), z)
    return ops.Relu(ops.Transpose(left, perm=(1, 0))), ops.Relu(ops.Transpose(right, perm=(1, 0)))


@rule("right/clipped")
def _clipped(x: Tensor) -> Sides:
    """The same with numbers of its own."""
    one = ops.Clip(ops.Relu(x), min=-1.0, max=2.0)
    return one, one


@rule("right/summed")
def _summed(x: Tensor) -> Sides:
    """The same with arithmetic."""
    return ops.Relu(x) + ops.Relu(x), ops.Relu(x) + ops.Relu(x)


def _exact(one: Rule) -> type:
    return {type(kind(0)) for kind in exact_methods(one)}.intersection(_RATIONAL).pop()


_RATIONAL = (RationalNumbers, OrderedNumbers)


@pytest.mark.parametrize("seed", range(3))
def test_orders_are_those_of_the_rationals_over_a_common_denominator(seed: int) -> None:
    rationals, ordered = RationalNumbers(seed), OrderedNumbers(seed)
    assert ordered.name == rationals.name
    for found in (*_points(_greatest, 20)[::4], Bindings({"x": TensorType("float32", ())})):
        drawn, whole = rationals.draw(found, seed), ordered.draw(found, seed)
        factors = {w / Fraction(d) for n in drawn for d, w in _pairs(drawn[n], whole[n]) if d}
        assert len(factors) <= 1
        if len(found.types) < 3:
            continue
        sides = program(_greatest, found, "float64")
        exact, fast = sides.run(drawn, rationals.domain), sides.run(whole, ordered.domain)
        for (left, right), (one, other) in zip(exact, fast, strict=True):
            assert not rationals.wrong(left, right).any()
            assert {w / Fraction(d) for d, w in _pairs(left, one) if d} <= factors
            assert np.array_equal(one, other)


def _pairs(drawn: Any, whole: Any) -> list[tuple[Any, int]]:
    assert whole.dtype == np.int64
    return list(zip(drawn.flat, whole.ravel().tolist(), strict=True))


def test_orders_stand_for_rationals_where_nothing_is_computed() -> None:
    assert _exact(_greatest) is OrderedNumbers
    assert _exact(_clipped) is RationalNumbers
    assert _exact(_summed) is RationalNumbers


def test_a_function_of_a_field_is_one_of_elements_that_broadcast() -> None:
    domain = FieldDomain(seed=5)
    x, y = (domain.random(generator(7), shape) for shape in ((3, 1), (4,)))
    value = domain.apply("PRelu", {}, x, y)
    assert np.array_equal(value, domain.apply("PRelu", {}, *np.broadcast_arrays(x, y)))
    assert len(np.unique(value)) == 12
    assert domain.apply("PRelu", {}, x[0, 0], y[0]) == value[0, 0]
    assert not np.array_equal(value, FieldDomain(seed=6).apply("PRelu", {}, x, y))


def _alike(left: Any, right: Any, name: str = "float", dtype: str = "float32") -> bool:
    """Whether two terms over some 2×3 operands are one computation."""

    @rule("right/alike", numerics=Numerics.RELAXED)
    def one(x: Tensor, y: Tensor, z: Tensor) -> Sides:
        """The two, in which all operands occur."""
        every = ops.Concat(x, y, z, axis=0)
        return (left(x, y, z), every), (right(x, y, z), every)

    bindings = Bindings({n: TensorType("float32", (2, 3)) for n in "xy"})
    bindings.types["z"] = TensorType(dtype, (2, 3))
    return computes_alike(program(one, bindings, "float32"), bindings, name)


def _columns(x: Any, y: Any) -> Any:
    return ops.ReduceSum(ops.Concat(x, y, axis=1), axes=(1,), keepdims=1)


def _across(x: Any) -> Any:
    return ops.Transpose(x, perm=(1, 0))


def _products(x: Any, y: Any) -> Any:
    """The matrix product with a transposed operand, as a sum of products."""
    across = ops.Reshape(x, shape=(2, 1, 3)) * ops.Reshape(y, shape=(1, 2, 3))
    return ops.ReduceSum(across, axes=(2,), keepdims=0)


def test_one_computation_is_told_from_another() -> None:
    for same in (
        (lambda x, y, _: x + y, lambda x, y, _: y + x),
        (lambda x, y, _: x * y, lambda x, y, _: y * x),
        (lambda x, *_: ops.Relu(_across(x)), lambda x, *_: _across(ops.Relu(x))),
        (lambda x, y, _: ops.Max(x, y), lambda x, y, _: ops.Max(y, x)),
        (lambda x, y, _: ops.MatMul(x, _across(y)), lambda x, y, _: _products(x, y)),
        (lambda x, y, z: ops.Slice(ops.Concat(x + y, z, axis=0), axis=0, lo=0, hi=2),
         lambda x, y, _: x + y),
        (lambda x, *_: ops.Scale(x, factor=2.0),
         lambda x, *_: x * ops.Scalar(value=2.0, dtype="float32")),
    ):  # fmt: skip
        assert _alike(*same)
    for other in (
        (lambda x, y, _: x - y, lambda x, y, _: y - x),
        (lambda x, y, _: ops.Div(x, y), lambda x, y, _: ops.Div(y, x)),
        (lambda x, y, z: (x + y) + z, lambda x, y, z: x + (y + z)),
        (lambda x, y, z: (x * y) * z, lambda x, y, z: x * (y * z)),
        (lambda x, y, _: x + y, lambda x, y, _: x * y),
        (lambda x, y, _: _columns(x, y), lambda x, y, _: _columns(y, x)),
        (lambda x, y, _: ops.Pow(x, y), lambda x, y, _: ops.Pow(y, x)),
        (lambda x, *_: ops.LeakyRelu(x, alpha=0.5), lambda x, *_: ops.LeakyRelu(x, alpha=0.25)),
        (lambda x, *_: ops.Scale(x, factor=0.0), lambda x, *_: ops.Scale(x, factor=-0.0)),
        (lambda x, *_: ops.Scale(x, factor=0.5), lambda x, *_: ops.Scale(x, factor=1.5)),
        (lambda x, *_: ops.Shift(x, offset=0.0), lambda x, *_: x),
        (lambda x, *_: ops.ReduceMin(x, axes=(1,), keepdims=1),
         lambda x, *_: ops.ReduceMin(x, axes=(1,), keepdims=1)),
        (lambda x, *_: ops.ReduceSum(x, axes=(0,), keepdims=0),
         lambda x, *_: ops.Reshape(ops.ReduceSum(_across(x), axes=(1,), keepdims=1), shape=(1, 3))),
        (lambda x, y, _: ops.Where(ops.Greater(x, y), x, y),
         lambda x, y, _: ops.Where(ops.Greater(x, y), y, x)),
    ):  # fmt: skip
        assert not _alike(*other)


def test_a_field_knows_no_order_and_softmax_has_two_ways() -> None:
    assert not _alike(lambda x, y, _: ops.Max(x, y), lambda x, y, _: ops.Max(y, x), name="exact")

    def spelt(x: Any, *_: Any) -> Any:
        powers = ops.Exp(x)
        return ops.Div(powers, ops.ReduceSum(powers, axes=(1,), keepdims=1))

    # In floating point the greatest element is subtracted first.
    assert _alike(lambda x, *_: ops.Softmax(x, axis=1), spelt, name="exact")
    assert not _alike(lambda x, *_: ops.Softmax(x, axis=1), spelt)


def test_nothing_is_told_where_numbers_of_two_types_meet() -> None:
    assert _alike(lambda x, *_: ops.Relu(x), lambda x, *_: ops.Relu(x))
    assert not _alike(lambda x, *_: ops.Relu(x), lambda x, *_: ops.Relu(x), dtype="int32")
    assert not _alike(
        lambda x, *_: ops.Cast(x, to="float16"), lambda x, *_: ops.Cast(x, to="float16")
    )


def test_an_instance_remembers_the_program_of_its_last_rule() -> None:
    (found, *_), (same, *_) = _points(_sum, 4), _points(_difference, 4)
    assert program(_sum, found, "float64") is program(_sum, found, "float64")
    assert program(_sum, found, "float64") is program(_sum, found, "float16")  # no literal in it
    kept = program(_sum, same, "float64")
    other = program(_difference, same, "float64")
    assert kept.steps[-1].op == "Add"
    assert other.steps[-1].op == "Sub"
    assert computes_alike(kept, same, "float")
    assert not computes_alike(other, same, "float")


@rule("wrong/other-order", numerics=Numerics.BITEXACT)
def _other_order(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """Bitexact it is not."""
    return (x + y) + z, x + (y + z), x.shape == y.shape, x.shape == z.shape


@dataclass(frozen=True)
class _Watched(FloatNumbers):
    """Numbers that note what is drawn."""

    drawn: list[Bindings]
    comparable: bool = True

    def draw(self, bindings: Bindings, seed: int) -> Any:
        self.drawn.append(bindings)
        return super().draw(bindings, seed)

    def wrong(self, left: Any, right: Any) -> Any:
        if not self.comparable:
            raise ZeroDivisionError
        return super().wrong(left, right)


def _drawn_for(one: Rule, comparable: bool = True) -> tuple[int, bool]:
    """For how many of 40 instances numbers are drawn, and whether enough was compared."""
    drawn: list[Bindings] = []
    points = _points(one, 60)[:40]
    enough = first_wrong(one, points, partial(_Watched, drawn=drawn, comparable=comparable), (0,))
    assert isinstance(enough, bool)
    return len({id(bindings) for bindings in drawn}), enough


def test_little_is_drawn_for_one_computation() -> None:
    kept = replace(_sum, numerics=Numerics.BITEXACT)
    assert _drawn_for(kept) == (3, True)
    assert _drawn_for(kept, comparable=False) == (40, False)
    assert _drawn_for(replace(_sum, numerics=Numerics.REASSOCIATE)) == (40, True)
    assert rounding_difference(_other_order, max_points=8) is not None
    assert breach(_other_order, Numerics.BITEXACT, max_points=8) is not None


def test_two_fields_hold_the_laws_of_exponentials_and_roots() -> None:
    domain = TwoFieldDomain(seed=3)
    rng = np.random.default_rng(0)
    x, y = domain.random(rng, (40,)), domain.random(rng, (40,))

    def exp(of: Any) -> Any:
        return domain.apply("Exp", {}, of)

    assert domain.same(exp(domain.add(x, y)), domain.mul(exp(x), exp(y))).all()
    assert not domain.same(exp(domain.sub(x, y)), domain.mul(exp(x), exp(y))).any()
    root = domain.apply("Sqrt", {}, x)
    assert domain.same(domain.mul(root, root), x).all()
    known = domain.comparable(root, root)
    assert known.any()
    assert not known.all()  # half of the elements stand for negative numbers
    nothing = domain.div(x, domain.sub(y, y))
    assert not domain.comparable(nothing, nothing).any()
    half = domain.div(domain.constant(1, x), domain.constant(2, x))
    assert domain.same(domain.constant(0.5, x), half).all()
    assert not domain.same(x, y).any()


def test_angles_hold_the_addition_theorems() -> None:
    domain = AngleDomain(seed=3)
    rng = np.random.default_rng(0)
    x, y = domain.random(rng, (40,)), domain.random(rng, (40,))

    def sine(of: Any) -> Any:
        return domain.apply("Sin", {}, of)

    def cosine(of: Any) -> Any:
        return domain.apply("Cos", {}, of)

    crossed = domain.mul(sine(x), cosine(y)), domain.mul(cosine(x), sine(y))
    assert domain.same(sine(domain.add(x, y)), domain.add(*crossed)).all()
    assert not domain.same(sine(domain.add(x, y)), domain.sub(*crossed)).any()
    squares = [domain.mul(of(x), of(x)) for of in (sine, cosine)]
    assert domain.same(domain.add(*squares), domain.constant(1, x)).all()
    opposite = domain.sub(domain.sub(x, x), x)
    assert not domain.same(sine(opposite), sine(x)).any()
    assert domain.same(cosine(opposite), cosine(x)).all()
    assert not domain.same(domain.apply("Exp", {}, x), domain.add(sine(x), cosine(x))).any()
    inner = sine(x)  # known modulo p only, where sines are odd and nothing else
    turned = domain.sub(domain.sub(x, x), inner)
    assert domain.same(sine(turned), domain.sub(domain.sub(x, x), sine(inner))).all()
    assert domain.same(*(domain.apply("Abs", {}, of) for of in (inner, turned))).all()


@pytest.mark.parametrize(
    ("dtype", "through", "does"),
    [
        ("float16", ("float32", "float16"), [None, None]),
        ("float16", ("bfloat16", "float32"), ["bfloat16", None]),
        ("bfloat16", ("float16",), ["float16"]),
        ("float32", ("float16", "float64", "float16"), ["float16", None, None]),
        ("float64", ("float32", "float16"), ["float32", "float16"]),
        ("int32", ("float32", "float64"), ["float32", None]),
        ("int8", ("float16", "float32"), [None]),
        ("float32", ("int32", "float32"), ["float32"]),
    ],
)
def test_casts_that_do_nothing_and_casts_that_round(
    dtype: str, through: Sequence[str], does: Sequence[str | None]
) -> None:
    @rule("right/cast", numerics=Numerics.RELAXED)
    def one(x: Tensor) -> Sides:
        """Casts one after the other."""
        cast: Term = x
        for to in through:
            cast = ops.Cast(cast, to=to)
        return ops.Transpose(cast, perm=(0,)), ops.Transpose(cast, perm=(0,))

    found = casts_of(one, Bindings({"x": TensorType(dtype, (3,))}))
    assert [*found.values()] == does


def test_roundings_to_different_types_differ() -> None:
    @rule("wrong/other-rounding", numerics=Numerics.RELAXED)
    def one(x: Tensor) -> Sides:
        """Two narrow types."""
        narrow = [ops.Cast(x, to=to) for to in ("float16", "bfloat16")]
        return ops.Cast(narrow[0], to="float32"), ops.Cast(narrow[1], to="float32")

    both = program(one, Bindings({"x": TensorType("float32", (3,))}), "float64")
    assert [step.attrs["rounds"] for step in both.steps] == ["float16", "bfloat16"]
    assert {step.attrs["to"] for step in both.steps} == {"float64"}


def test_degrees_are_those_of_polynomials() -> None:
    domain = Degrees()
    x, y = domain.variable((2,)), domain.variable((2,))
    assert degree_of(domain.mul(x, domain.mul(y, y))) == 3
    assert degree_of(domain.add(x, domain.mul(x, y))) == 2
    assert domain.is_polynomial
    assert degree_of(domain.div(domain.mul(x, x), y)) == 2
    assert not domain.is_polynomial
    bound = false_acceptance(4, 3, -50.0, 1)
    assert bound.trials == 2
    assert bound.log2 == pytest.approx(2 * np.log2(4 * 4 / bound.prime))


def _error(side: Any, **values: float) -> float:
    """Bound of the rounding of a term at single numbers."""

    @rule("right/bounded", numerics=Numerics.RELAXED)
    def one(x: Tensor, y: Tensor, z: Tensor) -> Sides:
        """For its left side."""
        left = side(x, y, z)
        return (left, x + y + z), (left, x + y + z)

    given = {name: np.array([values.get(name, 1.0)]) for name in "xyz"}
    bindings = Bindings({name: TensorType("float32", (1,)) for name in given})
    sides = program(one, bindings, "float32")
    (((left, _), _),) = bounded_results(sides, [given], "float32", roundoffs=[_UNIT])
    return float(left.error[0, 0])


_UNIT = 2.0**-24


def test_errors_of_sums_and_products_are_bounded() -> None:
    assert _error(lambda x, y, _: x + y, x=1.0, y=2.0) == pytest.approx(3 * _UNIT)
    assert _error(lambda x, y, _: x - y) == 0.0
    longer = _error(lambda x, y, z: (x + y) - z, x=1.0, y=2.0, z=3.0)
    assert longer == pytest.approx(2 * 6 * _UNIT)
    assert _error(lambda x, y, _: x * y, x=3.0, y=5.0) == pytest.approx(15 * _UNIT)
    inherited = _error(lambda x, y, z: (x + y) * z, x=1.0, y=2.0, z=4.0)
    assert inherited == pytest.approx(2 * 12 * _UNIT, rel=1e-3)
    absorbed = _error(lambda x, y, z: (x + y) + z, x=1e30, y=1.0, z=1.0)
    assert absorbed == 0.0


def test_bounds_of_several_roundoffs_are_those_of_each() -> None:
    bindings = Bindings({n: TensorType("float32", (30, 20)) for n in "xy"})
    sides = program(_sum, bindings, "float32")
    draws = [normal_values(bindings, seed) for seed in range(3)]
    both = bounded_results(sides, draws, "float32", roundoffs=[_UNIT, 0.0])
    for roots, roundoff in zip(both, (_UNIT, 0.0), strict=True):
        (alone,) = bounded_results(sides, draws, "float32", roundoffs=[roundoff])
        for side, other in zip(roots[0], alone[0], strict=True):
            assert side.error.shape == (30, 20, 3)
            assert side.error.any() == (roundoff > 0)
            assert all(map(np.array_equal, side.parts, other.parts))


def test_sums_in_order_differ_by_their_order() -> None:
    domain = InOrderDomain()
    values = np.array([1e8, 1.0, -1e8, 1.0], np.float32)
    assert domain.sum(values, (0,))[0] == 1.0
    assert domain.matmul(values, np.ones((4, 1), np.float32))[0] == 1.0
    many = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    in_order = np.float32(0.0)
    for value in many:
        in_order += value
    assert domain.sum(many, (0,))[0] == in_order


# What is drawn -----------------------------------------------------------------------------------


def test_a_generator_starts_again_as_a_new_one() -> None:
    for seed in (3, 5, 3):
        # Numbers of half a word leave the other half behind, which is part of the state.
        half = generator(seed).integers(0, 9, 3, np.int32)
        assert np.array_equal(half, np.random.default_rng(seed).integers(0, 9, 3, np.int32))
        normal = generator(seed).standard_normal(4)
        assert np.array_equal(normal, np.random.default_rng(seed).standard_normal(4))


def test_operands_are_drawn_by_type() -> None:
    bindings = Bindings({"c": TensorType("bool", (200,)), "x": TensorType("float32", (200,))})
    values = drawn(bindings, 0, lambda rng, shape: rng.standard_normal(shape))
    assert set(values["c"].tolist()) == {0, 1}
    assert values["x"].std() > 0.5
    assert {1.0, 1.5, 2.0, 2.5, 3.0, 4.0, -2.0} <= set(beside([2.0]))


def test_designed_operands_hold_what_the_classes_promise_of() -> None:
    bindings = Bindings({"x": TensorType("float32", (4, 5)), "y": TensorType("float32", (4, 5))})
    found = list(designed_values(bindings, "float32"))
    kinds = {one.kind for one in found}
    assert {"gates of 0 and 1", "an infinity", "a NaN", "subnormal numbers", "large terms that "
            "cancel", "a mask of -inf", "one large operand"} <= kinds  # fmt: skip
    gates = next(one for one in found if one.kind == "gates of 0 and 1")
    assert set(np.unique(gates.values["x"])) == {0.0, 1.0}
    cancel = next(one for one in found if one.kind == "large terms that cancel")
    assert abs(cancel.values["x"]).min() > 1e8
    masks = [one for one in found if one.kind == "a mask of -inf"]
    assert any(np.isneginf(one.values["x"]).any() for one in masks)
    tiny = next(one for one in found if one.kind == "subnormal numbers")
    assert 0 < np.abs(tiny.values["x"]).max() < np.finfo(np.float32).tiny


@rule("right/product")
def _product(x: Tensor, y: Tensor) -> Sides:
    """For an operator with an extent that both operands have."""
    return ops.MatMul(x, y), ops.MatMul(x, y)


@rule("right/joined")
def _joined(x: Tensor, y: Tensor, i: Int) -> Sides:
    """For one whose operands have equal ranks."""
    return ops.Concat(x, y, axis=i), ops.Concat(x, y, axis=i)


@pytest.mark.parametrize("one", [_product, _joined], ids=lambda one: one.name)
def test_an_index_function_says_how_operands_are_typed(
    one: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_side, "scheme_of", lambda _op: derived)
    side = left_side.LeftSide(one.lhs, one.when, landmarks(one))
    found = [*itertools.islice(side.drawn(7, left_side.Sizes(3, 5)), 100)]
    assert None not in found
    ranks = {type_.rank for instance in found if instance for type_ in instance.types.values()}
    assert ranks == {1, 2, 3, 4}


def test_extents_are_unified_and_never_contain_themselves() -> None:
    extents = Extents()
    a, b = extents.new(), extents.new(low=2)
    assert extents.unify(a, b)
    assert resolve(a) is resolve(b)
    assert not extents.unify(a, 1)  # b is at least 2
    assert extents.unify(a, 4)
    assert resolve(b) == 4
    assert not extents.unify(3, 4)
    c = extents.new()
    assert extents.unify(c, apply(lambda n: n + 1, c))
    assert len(extents.equations) == 1
    assert apply(lambda n, m: n * m, 3, 4) == 12


def test_conditions_hint_at_ranks_and_types() -> None:
    x, y = Tensor("x"), Tensor("y")
    hints = Hints((x + y,), (x.rank == 3, x.rank == y.rank, is_float(x)))
    assert hints.options("y", (1, 2), {}) == [3]
    assert set(hints.dtypes) <= {"float32", "float64"}
    least = Hints((x + y,), (x.rank >= 2, y.dim(3) == 1))
    assert least.options("x", (1, 2, 3), {}) == [2, 3]
    assert least.options("y", (1, 2), {}) == [4]
    assert least.same == {}
    assert {"uint8", "int8", "int32", "int64", "float32"} <= set(least.dtypes)
    assert Hints((x + y,), (x.shape == y.shape,)).same == {"x": ["y"], "y": ["x"]}


@rule("right/thresholds")
def _thresholds(x: Tensor, r: Int, a: Float) -> Sides:
    """Literals to look beyond."""
    left = ops.Repeat(ops.Scale(x, factor=a), axis=0, repeats=r)
    return left, left, x.dim(0) // 23 <= 1, r != 31, a < 19.0


def test_landmarks_lie_at_and_beyond_the_literals() -> None:
    marks = landmarks(_thresholds)
    assert {22, 23, 24, 46, 30, 31, 32} <= set(marks.counts)
    assert max(marks.counts) > 62
    assert max(marks.reals) > 19.0
    assert min(marks.reals) < -19.0
    assert all(5 < number < 16 for number in marks.drawn)
    assert literals(_thresholds) == ()


def _points(one: Rule, limit: int = 120) -> tuple[Any, ...]:
    return find_instances(one, limit=limit).points


@rule("right/turned")
def _turned(x: Tensor, p: Ints, i: Int) -> Sides:
    """Any permutation and any axis."""
    turned = ops.Transpose(ops.Softmax(x, axis=i), perm=p)
    return turned, turned


@rule("right/cut")
def _cut(x: Tensor, y: Tensor, i: Int, a: Int, b: Int) -> Sides:
    """Any slice of any concatenation."""
    cut = ops.Slice(ops.Concat(x, y, axis=i), axis=i, lo=a, hi=b)
    return cut, cut


@rule("right/windows")
def _windows(x: Tensor, w: Tensor, s: Ints, p: Ints, d: Ints, g: Int) -> Sides:
    """Any convolution."""
    attrs = {"strides": s, "pads": p, "dilations": d, "group": g}
    return ops.Conv(x, w, **attrs), ops.Conv(x, w, **attrs)


@rule("right/normal")
def _normal(x: Tensor, w: Tensor, i: Int, e: Float, f: Float) -> Sides:
    """Any two epsilons."""
    left = ops.RMSNormalization(ops.RMSNormalization(x, w, axis=i, epsilon=e), w, axis=i, epsilon=f)
    return left, left


@rule("right/reduced")
def _reduced(x: Tensor, k: Ints, d: Int) -> Sides:
    """Any axes, kept or not."""
    total = ops.ReduceSum(x, axes=k, keepdims=d)
    return total, total


def test_instances_have_every_form() -> None:
    reduced = _points(_reduced)
    assert {one.attrs["d"] for one in reduced} == {0, 1}
    assert {len(one.attrs["k"]) for one in reduced} >= {1, 2, 3}
    turned = _points(_turned)
    assert {one.types["x"].rank for one in turned} >= {2, 3, 4, 7}
    cycles = {one.attrs["p"] for one in turned if len(one.attrs["p"]) == 3}
    assert cycles == set(itertools.permutations(range(3)))
    cut = _points(_cut)
    assert {one.attrs["a"] == 0 for one in cut} == {True, False}
    assert any(one.attrs["a"] > one.types["x"].shape[one.attrs["i"]] for one in cut)
    assert any(one.types["x"] != one.types["y"] for one in cut)
    assert any(t.dtype == "uint8" for one in cut for t in one.types.values())


@rule("right/first")
def _first(x: Tensor) -> Sides:
    """The right side has a type for long tensors only, the left one for oblong ones."""
    return ops.Relu(x), ops.Slice(ops.Relu(x), axis=0, lo=0, hi=3), x.dim(0) != x.dim(1)


def test_both_sides_type_and_conditions_hold_at_instances() -> None:
    found = find_instances(_first, limit=60)
    shapes = [require_static(one.types["x"]).shape for one in found.points]
    assert shapes
    assert found.guarded > 0
    assert all(shape[0] >= 3 and shape[0] != shape[1] for shape in shapes)
    sizes = [one.origin.elements for one in found.points]
    assert sizes == sorted(sizes)


@rule("right/pooled")
def _pooled(x: Tensor, c: Int, i: Int) -> Sides:
    """Any flags."""
    attrs = {"kernel": (2,), "strides": (2,), "pads": (1, 0), "dilations": (1,)}
    pool = ops.AveragePool(x, ceil=c, count_include_pad=i, **attrs)
    return pool, pool


def test_windows_are_uneven() -> None:
    flags = {(one.attrs["c"], one.attrs["i"]) for one in _points(_pooled)}
    assert flags == set(itertools.product((0, 1), repeat=2))
    found = _points(_windows)
    assert {one.attrs["g"] for one in found} >= {1, 2, 3}
    assert any(len(set(one.attrs["s"])) > 1 for one in found)
    assert any(max(one.attrs["s"]) >= 4 for one in found)
    assert any(max(one.attrs["d"]) >= 2 for one in found)
    assert any(
        one.attrs["p"][: len(one.attrs["s"])] != one.attrs["p"][len(one.attrs["s"]) :]
        for one in found
    )


def test_attributes_differ_from_each_other() -> None:
    found = [(one.attrs["e"], one.attrs["f"]) for one in _points(_normal)]
    assert any(e != f for e, f in found)
    assert len({e for e, _ in found}) >= 4


def test_instances_shrink_and_are_emptied() -> None:
    point = max(_points(_sum), key=lambda one: one.origin.elements)
    smaller = list(shrunk_instances(_sum, point))
    assert smaller
    assert all(one.origin.elements < point.origin.elements for one in smaller)
    assert all(one.types["x"] == one.types["y"] for one in smaller)
    empty = list(empty_instances(_sum, [point]))
    assert empty
    assert all(one.types["x"].size == 0 for one in empty)


def test_operands_have_the_types_that_operators_demand() -> None:
    c, x, y = Tensor("c"), Tensor("x"), Tensor("y")
    assert demanded([ops.Where(c, x, y)]) == {"c": "bool"}
    assert demanded([ops.Gather(x, y, axis=0)]) == {"y": "int64"}
    assert demanded([ops.Where(c, ops.Not(x), y)]) == dict.fromkeys("cxy", "bool")
    assert demanded([x + y]) == {}
    one = ops.Scalar(value=1.0, dtype="int8")
    assert literal_types([x + one]) == ("int8",)


def test_shaped_functions_have_the_shape() -> None:
    points = [Fraction(n, 4) for n in range(-12, 13)]

    def of(name: str) -> list[Any]:
        return [SHAPED[name](x, {}, 0) for x in points]

    for name in ("Exp", "Sigmoid", "Tanh", "Softplus", "Erf"):
        assert all(a < b for a, b in itertools.pairwise(of(name))), name
    assert min(of("Exp")) > 0
    assert all(a * b == 1 for a, b in zip(of("Exp"), of("Exp")[::-1], strict=True))
    assert all(a + b == 1 for a, b in zip(of("Sigmoid"), of("Sigmoid")[::-1], strict=True))
    assert all(a == -b for a, b in zip(of("Tanh"), of("Tanh")[::-1], strict=True))
    assert SHAPED["Log"](Fraction(1), {}, 0) == 0
    assert SHAPED["Exp"](Fraction(1), {}, 0) != SHAPED["Exp"](Fraction(1), {}, 1)


def test_models_of_conditions_are_instances() -> None:
    pytest.importorskip("z3", reason="finds the models")

    @rule("right/rare")
    def rare(x: Tensor, y: Tensor) -> Sides:
        """Hardly ever drawn."""
        x_size, y_size = x.dim(0) * x.dim(1), y.dim(0) * y.dim(1)
        same = x_size == y_size + 2, x.rank == 2, y.rank == 2
        return (ops.Relu(x), ops.Relu(y)), (ops.Relu(x), ops.Relu(y)), *same

    found = list(itertools.islice(models(rare, Hints(rare.lhs, rare.when)), 20))
    shapes = [(one.bindings().types["x"], one.bindings().types["y"]) for one in found]
    assert len({one.key for one in found}) >= 10
    assert all(require_static(x).size == require_static(y).size + 2 for x, y in shapes)
    smaller = [small for one in found for small in one.shrunk()]
    assert smaller
    assert all(small.elements < max(one.elements for one in found) for small in smaller)


# What is compared --------------------------------------------------------------------------------


def test_a_difference_is_found_and_no_more() -> None:
    points = _points(_sum)
    assert first_wrong(_sum, points, FloatNumbers, range(2)) is True
    wrong = first_wrong(_difference, _points(_difference), FloatNumbers, range(2))
    assert not isinstance(wrong, bool)
    assert first_mistyped(_sum, points) is None
    assert first_mistyped(_wider, _points(_wider)) is not None
    refuted = check_rule(_difference).refutation
    assert refuted is not None
    assert "elements differ" in refuted.reason
    assert max(array.size for array in refuted.values.values()) == 1
    assert {float(array.flat[0]) for array in refuted.values.values()} == {0.0, 1.0}


def test_real_numbers_are_compared_up_to_rounding() -> None:
    numbers = RealNumbers(0)
    numbers.draw(Bindings({"x": _FLOAT}), 0)
    left = np.array([1.0, 2.0, np.nan, np.inf, 3.0])
    right = np.array([1.0 + 1e-9, 2.1, 1.0, 5.0, np.nan])
    assert numbers.wrong(left, right).tolist() == [False, True, False, False, True]


def test_exponents_are_among_real_numbers() -> None:
    many = Bindings({"x": TensorType("float32", (20, 20))})
    drawn_ = [RealNumbers(seed).draw(many, 0)["x"] for seed in range(DRAWS)]
    assert {0.5, 2.0} <= {float(value) for values in drawn_ for value in values.flat}


@rule("right/listed")
def _listed(x: Tensor, s: Ints) -> Sides:
    """A number is computed from entries of a list."""
    attrs = {"kernel": (2, 2), "pads": (0, 0, 0, 0), "dilations": (1, 1), "ceil": 0}
    pool = ops.MaxPool(x, strides=s, **attrs)
    return ops.Relu(pool), ops.Shift(ops.Relu(pool), offset=real(s[0] - s[1])), s[0] == s[1]


def test_numbers_that_are_computed_from_lists_round_as_they_are() -> None:
    assert rounding_difference(_listed, max_points=10) is None


def test_integers_are_compared_exactly_and_wrap() -> None:
    numbers = IntegerNumbers(0)
    assert numbers.wrong(np.array([1, 2]), np.array([1, 3])).tolist() == [False, True]
    byte = TensorType("uint8", (1,))
    sides = program(_sum, Bindings({"x": byte, "y": byte}), "float64")
    values = {"x": np.array([200], np.uint8), "y": np.array([100], np.uint8)}
    ((left, right),) = sides.run(values, numbers.domain)
    assert left.tolist() == right.tolist() == [44]


def test_the_error_of_the_right_side_is_measured() -> None:
    @rule("right/large", numerics=Numerics.RELAXED)
    def large(x: Tensor) -> Sides:
        """Adds and takes away what absorbs everything."""
        shifted = ops.Shift(ops.Abs(x), offset=1e9)
        return ops.Abs(x), ops.Shift(shifted, offset=-1e9)

    def worst(one: Rule) -> float:
        errors = measured(one, find_instances(one, limit=20).points)
        assert {error.dtype for error in errors} == {"float32", "float16"}
        return max(error.right for error in errors if error.dtype == "float32")

    assert worst(large) > 0.5
    assert worst(_sum) < 1e-6


@rule("wrong/moved", numerics=Numerics.REASSOCIATE)
def _moved(x: Tensor, a: Float) -> Sides:
    """What a rounding moves is magnified."""
    moved = ops.Shift(x, offset=(a - 1.0) * 1e6)
    return ops.Scale(x, factor=a), moved, near(a, 1.0)


def test_what_is_near_a_target_is_taken_for_it_and_moved() -> None:
    assert tolerance(_moved) == 1e-6
    assert [str(one) for one in closure(_moved).when] == ["a == 1.0"]
    points = [one for one in _points(_moved) if not one.whole]
    assert first_moved(_moved, points, 0) is not None

    @rule("right/moved", numerics=Numerics.REASSOCIATE)
    def kept(x: Tensor, a: Float) -> Sides:
        """Moves as little as the constant."""
        return ops.Scale(x, factor=a), x, near(a, 1.0)

    assert first_moved(kept, [one for one in _points(kept) if not one.whole], 0) is None


def test_the_widest_tolerance_counts() -> None:
    @rule("right/two", numerics=Numerics.REASSOCIATE)
    def two(x: Tensor, a: Float, b: Float) -> Sides:
        """Two constants."""
        both = ops.Scale(ops.Scale(x, factor=a), factor=b)
        return both, x, near(a, 1.0, 1e-8), near(b, 1.0, 1e-6)

    assert tolerance(two) == 1e-6


def test_methods_without_assumptions_come_first() -> None:
    assert [kind(0).name for kind in exact_methods(_sum)] == ["random functions over a prime field"]

    @rule("right/chosen")
    def chosen(x: Tensor, y: Tensor) -> Sides:
        """A field has no order, so it tells nothing of what is chosen by one."""
        least = ops.Where(ops.Less(x, y), x, y)
        return least, least

    assert next(kind(0).name for kind in exact_methods(chosen)) == "exact rationals"


@rule("wrong/order")
def _order(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """Declared bitexact."""
    return (x + y) + z, x + (y + z), x.shape == y.shape, y.shape == z.shape, is_float(x)


@rule("wrong/blend", numerics=Numerics.REASSOCIATE)
def _blend(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """At z = 1 the digits of x are lost beside y."""
    one = ops.Scalar(value=1.0, dtype="float32")
    same = x.shape == y.shape, y.shape == z.shape, is_float(x)
    return z * x + (one - z) * y, y + z * (x - y), *same


@rule("wrong/empty", numerics=Numerics.REASSOCIATE)
def _empty(x: Tensor, i: Int) -> Sides:
    """Ones sum to their number, of which the mean is 1 unless there are none."""
    ones = ops.Sigmoid(ops.Scale(x, factor=0.0))
    mean = ops.ReduceMean(ones, axes=(i,), keepdims=1)
    return mean, ops.Sigmoid(ops.ReduceSum(ops.Scale(x, factor=0.0), axes=(i,), keepdims=1))


def test_promises_are_measured() -> None:
    assert rounding_difference(_order, max_points=20) is not None
    assert rounding_difference(_sum, max_points=20) is None
    assert breach(_blend, Numerics.REASSOCIATE) is not None
    assert breach(_blend, Numerics.REFACTOR) is None
    assert breach(_sum, Numerics.BITEXACT) is None
    assert empty_difference(_empty) is not None
    assert empty_difference(_sum) is None


@pytest.mark.parametrize(
    ("one", "said"),
    [(_difference, "is wrong"), (_order, "not computed by the same operations"),
     (_blend, "moves results further"), (_empty, "empty")],
    ids=lambda one: getattr(one, "name", ""),
)  # fmt: skip
def test_each_check_of_the_gate_refuses(one: Rule, said: str) -> None:
    with pytest.raises(RuleRefuted, match=said):
        certify_exact(one, max_points=40)


def test_the_gate_accepts_what_is_right() -> None:
    certificate = certify_exact(_sum, max_points=40)
    assert certificate.level == 1
    assert certificate.float32 < 1e-6


# What it rests on --------------------------------------------------------------------------------


def test_conditions_of_rules_are_read_as_they_say() -> None:
    x, y, a = Tensor("x"), Tensor("y"), Float("attr", ("a",))
    bindings = Bindings({"x": _FLOAT, "y": TensorType("int64", (2, 4))}, {"a": 1.0000001})

    def true(condition: Any) -> bool:
        return holds(condition, bindings, lambda *_: True)

    for condition in (
        x.dim(0) == y.dim(0), x.dim(1) != y.dim(1), x.dim(1) < y.dim(1), x.dim(0) <= y.dim(0),
        x.rank == 2, is_float(x), near(a, 1.0), far(a, 2.0), distinct(x, y), x.dim(1) // 2 == 1,
        x.dim(1) - 4 < 0, near(expr(1000000.5), 1e6),
    ):  # fmt: skip
        assert true(condition), condition
    for condition in (
        x.dim(0) != y.dim(0), x.dim(1) == y.dim(1), x.dim(0) < y.dim(0), y.dim(1) <= x.dim(1),
        x.shape == y.shape, is_float(y), near(a, 1.1), far(a, 1.0), x.dim(5) == 1,
        x.dim(0) // (x.rank - 2) == 1, x.dim(x.rank - 3) == 3,
    ):  # fmt: skip
        assert not true(condition), condition
    assert size(x.dim(1) - x.dim(0) * 2, bindings) == -1
    with pytest.raises(Undefined):
        size(x.dim(0) / (x.rank - 2), bindings)
    bound = Bindings()
    assert bind_attr((expr(1), Int("attr", ("i",))), (1, 2), bound)
    assert bound.attrs == {"i": 2}
    assert not bind_attr(Int("attr", ("i",)), 3, bound)


def test_sizes_are_computed_exactly() -> None:
    n, m, i = (atom(name) for name in "nmi")
    assert quotient(n * m, m) == n
    assert quotient(poly(7), poly(2)) == poly(3)
    assert quotient(poly(-7), poly(2)) == poly(-4)
    assert divide(n * n - m * m, n + m) == n - m
    assert divide(n * n + m * m, n + m) is None
    assert divide(3 * n, 2 * n) is None
    assert divide(n * n, m) is None
    one, other = (next(iter(symbol.atoms())) for symbol in (n, m))
    assert multiple_of((one, other), (other,)) == (one,)
    assert multiple_of((one,), (other,)) is None
    assert (n - m) * (n + m) == n * n - m * m
    assert substitute(n * m, {next(iter(n.atoms())): poly(3)}) == 3 * m
    assert pick(i, poly(1)) == poly(0)
    assert pick(i, poly(4)) == i
    assert broadcast(n, poly(1)) == n
    assert negate(negate(below(n, m))) == below(n, m)
    assert negate(below(n, m)) != below(m, n)


def test_types_are_those_of_the_operators() -> None:
    image = TensorType("float32", (1, 4, 7, 9))
    attrs = {"strides": (2, 3), "pads": (1, 0, 0, 2), "dilations": (1, 2), "group": 2}
    kernel = TensorType("float32", (6, 2, 3, 2))
    assert get_op("Conv").type_fn([image, kernel], attrs).shape == (1, 6, 3, 3)
    with pytest.raises(IllTyped):
        get_op("Conv").type_fn([image, kernel], {**attrs, "group": 1})
    pool = {"kernel": (2, 2), "strides": (2, 2), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
    assert get_op("MaxPool").type_fn([image], {**pool, "ceil": 0}).shape == (1, 4, 3, 4)
    assert get_op("MaxPool").type_fn([image], {**pool, "ceil": 1}).shape == (1, 4, 4, 5)
    turned = get_op("Transpose").type_fn([image], {"perm": (2, 0, 3, 1)})
    assert turned.shape == (7, 1, 9, 4)
    kept, gone = ({"axes": (1, 3), "keepdims": keep} for keep in (1, 0))
    assert get_op("ReduceSum").type_fn([image], kept).shape == (1, 1, 7, 1)
    assert get_op("ReduceSum").type_fn([image], gone).shape == (1, 7)
    wide = TensorType("float32", (3, 1)), TensorType("float32", (2, 1, 5))
    assert get_op("Add").type_fn(list(wide), {}).shape == (2, 3, 5)
    both = get_op("Concat").type_fn([_FLOAT, _FLOAT], {"axis": 1})
    assert both.shape == (2, 6)
    with pytest.raises(IllTyped):
        get_op("Slice").type_fn([_FLOAT], {"axis": 1, "lo": 1, "hi": 4})
    with pytest.raises(IllTyped):
        get_op("MatMul").type_fn([_FLOAT, _FLOAT], {})


# What is kept of it ------------------------------------------------------------------------------


@rule("right/sums")
def _broadcast(x: Tensor, y: Tensor) -> Sides:
    """Of any shapes that fit."""
    return x + y, y + x


def test_operands_are_broadcast_in_every_way() -> None:
    shapes = [(one.types["x"].shape, one.types["y"].shape) for one in _points(_broadcast)]
    assert any(a == b and len(a) > 1 for a, b in shapes)
    assert any(len(a) < len(b) for a, b in shapes)
    assert any(len(a) > len(b) for a, b in shapes)
    ones = [(i, j) for a, b in shapes for i, j in zip(a[::-1], b[::-1], strict=False) if i != j]
    assert any(i == 1 for i, _ in ones)
    assert any(j == 1 for _, j in ones)
    assert all(1 in pair for pair in ones)


def _certificate(level: int = 1) -> Certificate:
    direction = Direction("right/sum", "exact", 40, 0, 2, 5, 3, 0)
    mark = fingerprint(_sum)
    assert mark is not None
    return Certificate("right/sum", level, mark, (direction,), 0.0, 0.0).sealed()


def test_certificates_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "certificates.json"
    write_certificates(path, [_certificate()])
    assert read_certificates(path) == {"right/sum": _certificate()}
    text = path.read_text()
    path.write_text(text.replace('"instances": 40', '"instances": 41'))
    with pytest.raises(CertificateError, match="edited by hand"):
        read_certificates(path)
    assert read_certificates(path, strict=False) == {}
    path.write_text(text.replace('"level": 1', '"level": 9'))
    with pytest.raises(CertificateError, match="level 9"):
        read_certificates(path)


def test_certificates_hold_for_their_rule_alone() -> None:
    assert why_invalid(_sum, _certificate()) == ""
    assert "sampled" in why_invalid(_sum, _certificate(0))
    assert "stale" in why_invalid(_difference, _certificate())
    assert "no certificate" in why_invalid(_sum, None)


def test_fingerprints_tell_rules_apart() -> None:
    x = Tensor("x")
    others = [
        replace(_sum, numerics=Numerics.REFACTOR),
        replace(_sum, bidirectional=True),
        replace(_sum, when=()),
        replace(_sum, when=(x.rank == 1,)),
        replace(_sum, when=(x.rank == 2,)),
        replace(_sum, when=(x.rank <= 1,)),
        replace(_sum, rhs=(x + x,)),
        replace(_sum, rhs=_difference.rhs),
        replace(_sum, rhs=(ops.Shift(x, offset=1.0),)),
        replace(_sum, rhs=(ops.Shift(x, offset=2.0),)),
    ]
    marks = {fingerprint(one) for one in [_sum, *others]}
    assert len(marks) == 1 + len(others)
    assert fingerprint(replace(_sum, doc="other words")) == fingerprint(_sum)


@dataclass(frozen=True)
class _Fields:
    """Of all kinds."""

    level: int
    name: str
    size: float
    parts: tuple[Direction, ...]


def test_fields_are_of_their_kinds() -> None:
    good: dict[str, Any] = {"level": 1, "name": "a", "size": 0.5, "parts": []}
    check_fields(good, _Fields, "it")
    spoilt: tuple[Any, ...] = (
        {**good, "level": True}, {**good, "level": -1}, {**good, "level": 1.0},
        {**good, "name": "a\nb"}, {**good, "size": float("inf")}, {**good, "parts": {}},
        {**good, "more": 1}, {key: good[key] for key in ("level", "name", "size")}, [], None,
    )  # fmt: skip
    for bad in spoilt:
        with pytest.raises(ValueError, match="it"):
            check_fields(bad, _Fields, "it")


def test_what_was_earned_is_kept_here_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EQSAT_OPT_CACHE", str(tmp_path))
    assert kept(_sum, 1) is None
    keep(_sum, _certificate())
    assert kept(_sum, 1) == _certificate()
    assert kept(_sum, 2) is None
    assert kept(_difference, 1) is None
    (entry,) = (tmp_path / "certificates").glob("*.json")
    text = entry.read_text()
    forged = replace(_certificate(), float32=0.5).sealed()
    entry.write_text(text.replace('"float32": 0.0', '"float32": 0.5').replace(
        _certificate().digest, forged.digest
    ))  # fmt: skip
    assert kept(_sum, 1) is None
    entry.write_text(text)
    assert kept(_sum, 1) == _certificate()
    readable = tmp_path / "readable"
    (readable / "certificates").mkdir(parents=True)
    (readable / "certificates" / "key").write_bytes(bytes(32))
    (readable / "certificates" / "key").chmod(0o644)
    monkeypatch.setenv("EQSAT_OPT_CACHE", str(readable))
    keep(_sum, _certificate())
    assert kept(_sum, 1) is None
