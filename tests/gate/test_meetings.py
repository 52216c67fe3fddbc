"""Sizes that meet, operands beyond the range, and tolerances inside functions."""

from __future__ import annotations

import math
from collections import Counter
from operator import mul

import numpy as np
import pytest

from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.proving.checks.bounds import bounded_results
from eqsat_opt.proving.checks.classes import breach
from eqsat_opt.proving.checks.margins import first_moved
from eqsat_opt.proving.instances.courses import Courses, courses
from eqsat_opt.proving.instances.left_side import left_side
from eqsat_opt.proving.instances.search import find_instances
from eqsat_opt.proving.numbers.designed import values_beyond
from eqsat_opt.proving.numbers.evaluation import program
from eqsat_opt.proving.typing.extents import Extents, apply, resolve
from eqsat_opt.proving.typing.landmarks import landmarks
from eqsat_opt.rules import Float, Numerics, Sides, Tensor, near, ops, real, rule
from eqsat_opt.rules.bindings import Bindings
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import Expr
from tests.gate.cases import Case
from tests.gate.wrong_rules import edges

X, Y, Z = Tensor("x"), Tensor("y"), Tensor("z")
LEVELS = (Numerics.REASSOCIATE, Numerics.REFACTOR, Numerics.RELAXED)


def _rule(*sides: object, numerics: Numerics = Numerics.REASSOCIATE) -> Rule:
    @rule("test/one", numerics=numerics)
    def one(x: Tensor, y: Tensor, z: Tensor) -> Sides:
        """For the test."""
        return sides

    return one


def _moved(off: Expr) -> Rule:
    @rule("test/moved")
    def moved(x: Tensor, a: Float) -> Sides:
        """An offset that is 0 at most sizes."""
        return ops.Elu(ops.Abs(x), alpha=a), ops.Shift(ops.Abs(x), offset=real(off) * a)

    return moved


def _at(*shape: int, a: float = 0.5) -> Bindings:
    return Bindings({"x": TensorType("float64", shape)}, {"a": a})


# Courses ----------------------------------------------------------------------------------------


def _only(one: Rule) -> Courses:
    (group,) = courses(one)
    return group


def test_a_course_is_the_signs_of_all_that_is_computed() -> None:
    m, n = X.dim(0), X.dim(1)
    group = _only(_moved((m // 5) * (n // 3)))
    several = ((2, 2), (7, 2), (2, 4), (9, 4))
    found = {shape: [*group.of(_at(*shape))] for shape in (*several, (4, 2), (1, 2), (1,))}
    assert found[2, 2][0] == found[4, 2][0]
    assert len({found[shape][0] for shape in several}) == len(several)
    assert [len(found[shape]) for shape in ((1, 2), (2, 2), (4, 2), (1,))] == [1, 2, 3, 0]
    assert {one.key[0] for one in group.wanted} == {found[shape][0][0] for shape in several}


def test_conditions_leave_courses_out() -> None:
    @rule("test/guarded")
    def guarded(x: Tensor) -> Sides:
        """Few rows."""
        off = (X.dim(0) // 5) * (X.dim(1) // 3)
        return ops.Relu(ops.Abs(x)), ops.Shift(ops.Abs(x), offset=real(off)), X.dim(0) < 5

    group = _only(guarded)
    assert [*group.of(_at(7, 4))] == []
    assert len({one.key[0] for one in group.wanted}) == 2


def test_sizes_are_proposed_that_divide_each_other() -> None:
    m, n = X.dim(0), X.dim(1)
    rest = m - m // 5 * 5
    group = _only(_moved((rest // 4) * (n // 6)))
    assert any(max(one) % min(one) == 0 for one in group.wanted[0].values)


def test_all_of_many_courses_are_wanted_and_the_rarest_first() -> None:
    m, n = X.dim(0), X.dim(1)
    group = _only(_moved(1 // (1 + (m * n - 91) * (m * n - 91))))
    assert math.prod(group.wanted[0].values[0]) == 91


@pytest.mark.parametrize("sizes", [(7, 13), (6, 2)])
def test_instances_take_every_course(sizes: tuple[int, int]) -> None:
    m, n = X.dim(0), X.dim(1)
    one = _moved(1 // (1 + (m - sizes[0]) * (m - sizes[0]) + (n - sizes[1]) * (n - sizes[1])))
    shapes = Counter(p.types["x"].shape[:2] for p in find_instances(one, limit=48).points)
    assert shapes[sizes] >= 3


def test_courses_are_met_that_an_operator_orders() -> None:
    found = find_instances(edges.nearly_adjacent_slices.rule, limit=32).points
    assert sum(one.attrs["b"] < one.attrs["c"] for one in found) >= 3


def test_no_instance_is_too_large_to_evaluate() -> None:
    found = find_instances(edges.dilation_of_fifth_degree.rule, limit=32).points
    assert 0 < max(one.attrs["d"] for one in found) < 40


def test_floats_lie_just_within_conditions() -> None:
    inside = [a for a in landmarks(edges.leaky_as_maximum.rule).reals if 0 > a * (1 - a) >= -0.01]
    assert max(inside) > 1.0
    assert min(inside) < 0.0


def test_given_sizes_are_kept_and_others_made_of_them() -> None:
    one = _rule(ops.Relu(X @ Y), ops.Relu(ops.Relu(X @ Y)), X.rank == 2, Y.rank == 2)
    pins = (X.dim(0) == 30, X.dim(1) == 5)
    found = [*left_side(one).pinned(pins, {"x": 2, "y": 2}, 40)]
    assert found
    assert all(p.types["x"].shape == (30, 5) for p in found)
    assert {p.types["y"].shape[1] for p in found} & {25, 35, 150, 6}


def test_products_with_numbers_are_solved() -> None:
    extents = Extents()
    one, other, third = extents.new(), extents.new(), extents.new()
    assert extents.unify(apply(mul, 4, one), 24)
    assert resolve(one) == 6
    assert not extents.unify(apply(mul, 4, other), 26)
    assert extents.unify(apply(mul, 3, other), apply(mul, 3, third))
    assert resolve(other) is resolve(third)
    fourth = extents.new()
    assert extents.unify(apply(mul, 2, fourth), apply(mul, 5, third))
    assert resolve(fourth) is not resolve(third)
    assert extents.equations


# Infinities ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("one", [edges.equal_by_difference, edges.nan_of_sum])
def test_infinities_meet(one: Case) -> None:
    assert breach(one.rule, Numerics.BITEXACT, max_points=8) is not None


# Beyond the range ---------------------------------------------------------------------------------


def test_operands_lie_beyond_the_ends_of_functions() -> None:
    shapes = {name: TensorType("float32", (40,)) for name in "xy"}
    drawn = [*values_beyond(Bindings(shapes, {}), "float32", frozenset({"Exp", "Relu"}))]
    with np.errstate(all="ignore"):
        values = [np.asarray(one.values["x"]) for one in drawn]
        assert any(np.isinf(np.exp(x)).any() and not np.isinf(np.exp(x - 3)).any() for x in values)
        assert any((np.exp(x) == 0).any() and (x > -150).all() for x in values)
        assert any(np.isinf(np.square(x)).any() and (np.abs(x) < 1e20).all() for x in values)
        pairs = [one.values for one in drawn]
        assert any(np.isinf(v["x"] / v["y"]).any() and not np.isinf(v["x"] * v["y"]).any()
                   for v in pairs)  # fmt: skip
    plain = [*values_beyond(Bindings(shapes, {}), "float32", frozenset({"Relu"}))]
    assert len(plain) < len(drawn)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (ops.Abs(X), ops.Sqrt(ops.Square(X))),
        (ops.Tanh(X), (ops.Exp(X) - ops.Exp(ops.Neg(X))) / (ops.Exp(X) + ops.Exp(ops.Neg(X)))),
        (ops.LogSoftmax(X, axis=0), ops.Log(ops.Softmax(X, axis=0))),
        (ops.Exp(X + Y), ops.Exp(X) * ops.Exp(Y)),
    ],
)
def test_what_leaves_the_range_is_relaxed(left: object, right: object) -> None:
    one = _rule(left, right)
    assert [breach(one, level, max_points=32) is not None for level in LEVELS] == [
        True, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((X * Y) * Z, X * (Y * Z)),
        (X * (Y / Z), (X * Y) / Z),
        (ops.Exp(X) * ops.Exp(Y), ops.Exp(X + Y)),
    ],
)
def test_factors_in_another_order_may_leave_it(left: object, right: object) -> None:
    assert breach(_rule(left, right), Numerics.REASSOCIATE, max_points=32) is None


def test_products_of_some_factors_are_bounded() -> None:
    sides = program(
        _rule(X * (Y / Z), X * Y), Bindings({n: TensorType("float32", ()) for n in "xyz"}), ""
    )
    given = [{"x": 1e30, "y": 1e10, "z": 1e10}, {"x": 1e-30, "y": 1.0, "z": 1e10},
             {"x": 1e30, "y": 1.0, "z": 1e-10}, {"x": 1e3, "y": 1e3, "z": 1e-3}]  # fmt: skip
    draws = [{n: np.asarray(v) for n, v in one.items()} for one in given]
    (((left, right),),) = bounded_results(sides, draws, "float32", roundoffs=[2.0**-24])
    assert left.strained.tolist() == [True, True, True, False]
    assert right.strained.tolist() == [True, False, False, False]


def test_functions_pass_errors_on_unless_told_not_to() -> None:
    sides = program(
        _rule(ops.Exp(X - Y), X - Y), Bindings({n: TensorType("float64", ()) for n in "xy"}), ""
    )
    draws = [{"x": np.asarray(1e4), "y": np.asarray(1e4)}]
    found = [bounded_results(sides, draws, "float64", roundoffs=[1e-5], sensitive=s)[0][0]
             for s in (True, False)]  # fmt: skip
    assert [float(left.error[0]) for left, _ in found] == pytest.approx([4e-5, 4e-5])
    assert [float(right.error[0]) for _, right in found] == pytest.approx([0.0, 0.2])


# Tolerances ---------------------------------------------------------------------------------------


def _near(function: object) -> Rule:
    @rule("test/near", numerics=Numerics.REASSOCIATE)
    def one(x: Tensor, y: Tensor, a: Float) -> Sides:
        """A factor near 1."""
        of = function
        return of(ops.Scale(x, factor=a) - y), of(x - y), near(a, 1.0, 1e-5)  # type: ignore[operator]

    return one


@pytest.mark.parametrize(
    ("function", "moves"), [(ops.Sigmoid, True), (ops.Sin, True), (ops.Neg, False)]
)
def test_a_tolerance_is_not_magnified(function: object, moves: bool) -> None:
    one = _near(function)
    points = [p for p in find_instances(one, limit=32).points if not p.whole]
    with np.errstate(all="ignore"):
        assert (first_moved(one, points, 0) is not None) is moves
