"""A rule's numerics class is measured, and who claims a stronger one is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eqsat_opt.errors import RuleError, RuleRefuted
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.proving.checks.bounds import bounded_results
from eqsat_opt.proving.checks.classes import breach
from eqsat_opt.proving.checks.counterexample import Refutation
from eqsat_opt.proving.checks.empties import empty_difference
from eqsat_opt.proving.describe import certificate_text, describe
from eqsat_opt.proving.gate import certify_exact
from eqsat_opt.proving.numbers.designed import designed_values
from eqsat_opt.proving.numbers.evaluation import Program, Step
from eqsat_opt.proving.selection import load_rules
from eqsat_opt.rules import is_float, rule
from eqsat_opt.rules.bindings import Bindings
from eqsat_opt.rules.library import named_rules
from eqsat_opt.rules.rule import Float, Int, Numerics, Rule, Sides, Tensor, directed
from eqsat_opt.rules.term import ops

REASSOCIATE = Numerics.REASSOCIATE
ZERO = ops.Scalar(value=0.0, dtype="float32")


@rule("test/gate", numerics=REASSOCIATE)
def gate(f: Tensor, s: Tensor, t: Tensor) -> Sides:
    one = ops.Scalar(value=1.0, dtype="float32")
    return f * s + (one - f) * t, f * (s - t) + t, f.shape == s.shape, f.shape == t.shape


@rule("test/multiplied-out", numerics=REASSOCIATE)
def multiplied_out(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    return x @ (y + z), x @ y + x @ z, y.shape == z.shape


@rule("test/padded-kernel", numerics=REASSOCIATE)
def padded_kernel(x: Tensor, w: Tensor) -> Sides:
    attrs = {"strides": (1, 1), "dilations": (1, 1), "group": 1}
    padded = ops.Pad(w, pads=(0, 0, 1, 1, 0, 0, 1, 1), value=0.0)
    small = ops.Conv(x, w, pads=(0, 0, 0, 0), **attrs)
    return small, ops.Conv(x, padded, pads=(1, 1, 1, 1), **attrs), w.rank == 4


@rule("test/dropped-mask", numerics=REASSOCIATE)
def dropped_mask(x: Tensor, m: Tensor, i: Int) -> Sides:
    """Over the reals a mask of a whole row changes nothing."""
    conditions = (x.rank == 2, m.rank == 2, m.dim(1) == 1, m.dim(0) == x.dim(0), i == 1)
    return ops.Softmax(x + m, axis=i), ops.Softmax(x, axis=i), *conditions


@rule("test/dropped-guard", numerics=REASSOCIATE)
def dropped_guard(x: Tensor, i: Int) -> Sides:
    p = ops.Softmax(x, axis=i)
    return ops.Where(ops.IsNaN(p), ZERO, p), p


@rule("test/dropped-relu", numerics=REASSOCIATE)
def dropped_relu(x: Tensor) -> Sides:
    return ops.Relu(x) * ops.Relu(x), ops.Relu(x) * x, is_float(x)


@rule("test/difference-of-sigmoids", numerics=REASSOCIATE)
def difference_of_sigmoids(u: Tensor) -> Sides:
    """The value of a small u is what rounding leaves of 1/2 - 1/2."""
    two = ops.Sigmoid(ops.Scale(u, factor=2.0))
    return ops.Tanh(u), ops.Scale(ops.Shift(two, offset=-0.5), factor=2.0)


@rule("test/absorbed", numerics=Numerics.BITEXACT)
def absorbed(x: Tensor, y: Tensor) -> Sides:
    return ops.Max(x, ops.Min(x, y)), x, x.shape == y.shape


@rule("test/far-off", numerics=Numerics.REFACTOR)
def far_off(x: Tensor) -> Sides:
    """Of an ordinary number a million leaves single precision some digits, half precision none."""
    return ops.Scale(x, factor=1.0), ops.Shift(ops.Shift(x, offset=1e9), offset=-1e9)


WRONG = [
    (gate, "gates beside large operands", "REFACTOR"),
    (multiplied_out, "large terms that cancel", "REFACTOR"),
    (padded_kernel, "becomes nan", "FINITE"),
    (dropped_mask, "a mask of", "FINITE"),
    (dropped_guard, "becomes nan", "FINITE"),
    (dropped_relu, "becomes nan", "FINITE"),
    (difference_of_sigmoids, "subnormal numbers", "REFACTOR"),
    (absorbed, "becomes", "FINITE"),
]


def _name(parameter: object) -> str | None:
    return getattr(parameter, "name", None)


@pytest.mark.parametrize(("wrong", "kind", "weaker"), WRONG, ids=_name)
def test_who_claims_too_strong_a_class_is_refused(wrong: Rule, kind: str, weaker: str) -> None:
    with pytest.raises(RuleRefuted, match=f"moves results further.*declare Numerics.{weaker}") as e:
        certify_exact(wrong, max_points=24)
    refutation = e.value.refutation
    assert isinstance(refutation, Refutation)
    assert kind in refutation.line
    with pytest.raises(AssertionError), np.errstate(all="ignore"):
        exec(refutation.code, {})


@pytest.mark.parametrize(("honest", "kind", "weaker"), WRONG, ids=_name)
def test_who_admits_it_is_certified_with_the_reason(honest: Rule, kind: str, weaker: str) -> None:
    certificate = certify_exact(replace(honest, numerics=Numerics[weaker]), max_points=24)
    assert certificate.level == 1
    (direction,) = certificate.directions
    assert kind in direction.reason
    assert f"not reassociate: {direction.reason}" in certificate_text(certificate)


def test_finite_values_are_held_to_the_default_class() -> None:
    """Zeros beside an infinity are forgiven, digits that are lost are not."""
    assert breach(padded_kernel, REASSOCIATE) is not None
    assert breach(padded_kernel, Numerics.FINITE) is None
    found = breach(multiplied_out, Numerics.FINITE)
    assert found is not None
    assert all(np.isfinite(value).all() for value in found.designed.values.values())
    refactored = certify_exact(replace(multiplied_out, numerics=Numerics.REFACTOR), max_points=24)
    assert "large terms that cancel" in refactored.directions[0].reason


def test_even_a_weak_class_keeps_ordinary_numbers() -> None:
    found = breach(far_off, Numerics.REFACTOR)
    assert found is not None
    assert found.designed.kind == "ordinary numbers"


# Right ones ---------------------------------------------------------------------------------------


@rule("test/regrouped", numerics=REASSOCIATE)
def regrouped(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    return (x + y) + z, x + (y + z)


@rule("test/factored", numerics=REASSOCIATE)
def factored(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    return x * y + x * z, x * (y + z)


@rule("test/regrouped-products", numerics=REASSOCIATE)
def regrouped_products(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    return (x @ y) @ z, x @ (y @ z), x.rank >= 2, y.rank >= 2, z.rank >= 2


@rule("test/scaled-mask", numerics=REASSOCIATE)
def scaled_mask(x: Tensor, m: Tensor, a: Float, i: Int) -> Sides:
    """Rows in which everything is masked stay as they were."""
    left = ops.Softmax(ops.Scale(x + m, factor=a), axis=i)
    return left, ops.Softmax(ops.Scale(x, factor=a) + ops.Scale(m, factor=a), axis=i), a > 0.0


@rule("test/naive-softmax", numerics=REASSOCIATE)
def naive_softmax(x: Tensor, i: Int) -> Sides:
    """Where its exponentials overflow the original promises nothing."""
    e = ops.Exp(x)
    return e / ops.ReduceSum(e, axes=(i,), keepdims=1), ops.Softmax(x, axis=i), is_float(x)


@pytest.mark.parametrize(
    "right", [regrouped, factored, regrouped_products, scaled_mask, naive_softmax],
    ids=lambda one: one.name,
)  # fmt: skip
def test_another_order_of_sums_and_products_is_accepted(right: Rule) -> None:
    assert certify_exact(right, max_points=24).level == 1


# Directions ---------------------------------------------------------------------------------------


@rule("test/both-ways", numerics=REASSOCIATE, bidirectional=True)
def both_ways(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    return x * y + x * z, x * (y + z)


def test_each_direction_has_its_class() -> None:
    with pytest.raises(RuleRefuted, match="both-ways-reversed is declared reassociate"):
        certify_exact(both_ways, max_points=24)
    honest = replace(both_ways, backward=Numerics.REFACTOR)
    assert certify_exact(honest, max_points=24).directions[1].reason
    assert [one.numerics for one in directed([honest])] == [REASSOCIATE, Numerics.REFACTOR]
    assert honest.admitted(Numerics.BITEXACT) is None
    assert honest.admitted(Numerics.REFACTOR) is honest
    (only,) = directed([honest.admitted(REASSOCIATE)])  # type: ignore[list-item]
    assert only.name == both_ways.name
    assert "numerics reassociate forward, refactor backward" in describe(honest)


def test_a_class_of_a_direction_that_is_not_read_is_an_error() -> None:
    with pytest.raises(RuleError, match="not read backward"):
        rule("test/one-way", backward=Numerics.REFACTOR)(lambda: ())


def test_a_selection_brings_the_directions_that_its_class_admits() -> None:
    name = "matmul/distribute-right"
    (whole,) = named_rules(name)
    assert [r.name for r in load_rules("matmul", REASSOCIATE) if r.base == name] == [
        f"{name}-reversed"
    ]
    assert whole in load_rules("matmul", Numerics.REFACTOR)
    assert [r for r in load_rules(f"matmul,{name}", REASSOCIATE) if r.base == name] == [whole]
    assert not [r for r in load_rules(f"matmul,-{name}", REASSOCIATE) if r.base == name]


# Empty tensors -----------------------------------------------------------------------------------


@rule("test/mean-of-copies", numerics=Numerics.REFACTOR)
def mean_of_copies(x: Tensor, n: Int, m: Int) -> Sides:
    """The mean of no copies at all is not a number."""
    copies = ops.Expand(x, shape=(n, m))
    left = ops.ReduceMean(copies, axes=(0,), keepdims=1)
    return left, x, x.rank == 2, x.dim(0) == 1, x.dim(1) == m, is_float(x)


def test_what_fails_on_empty_tensors_is_refused() -> None:
    with pytest.raises(RuleRefuted, match=r"wrong on empty tensors.*add the condition"):
        certify_exact(mean_of_copies, max_points=24)


def test_sums_over_nothing_are_reassociated() -> None:
    assert empty_difference(regrouped_products) is None


# The bound ----------------------------------------------------------------------------------------


def _bound(terms: tuple[float, ...], *more: Step) -> float:
    """Of the sum of ``terms`` one after the other, and what follows."""
    names = [f"x{i}" for i in range(len(terms))]
    steps: list[Step] = []
    last: str | int = names[0]
    for name in names[1:]:
        steps.append(Step("Add", {}, (last, name)))
        last = len(steps) - 1
    steps += more
    place = len(steps) - 1
    values = {name: np.array([term], np.float32) for name, term in zip(names, terms, strict=True)}
    program = Program(tuple(steps), len(steps), ((place, place),))
    (((left, _),),) = bounded_results(program, [values], "float32", roundoffs=[2.0**-24])
    return float(left.error[0, 0]) / 2.0**-24


def test_a_sum_of_two_has_one_order() -> None:
    assert _bound((1e9, -1e9 + 64)) == pytest.approx(64)


def test_a_longer_sum_may_take_any() -> None:
    assert _bound((1e9, -1e9, 1.0)) == pytest.approx(2 * (2e9 + 1))


def test_what_absorbs_all_others_does_so_in_any_order() -> None:
    lowest = float(np.finfo(np.float32).min)
    assert _bound((lowest, 3.0, -5.0)) == 0
    assert _bound((-1e9, 3.0, -5.0)) == 0
    assert _bound((-1e9, 300.0, -5.0)) > 1e9


def test_functions_pass_errors_on() -> None:
    assert _bound((1e4, 1e-3, 1e4), Step("Relu", {}, (1,))) == pytest.approx(4e4, rel=1e-3)
    assert _bound((-1e4, 1e-3, -1e4), Step("Relu", {}, (1,))) == 0


def test_operands_are_designed_for_the_type() -> None:
    bindings = Bindings({"x": TensorType("float32", (3, 4)), "m": TensorType("bool", (3, 4))}, {})
    for dtype in ("float32", "float16"):
        kinds: dict[str, np.ndarray] = {}
        for one in designed_values(bindings, dtype):
            assert one.values["x"].dtype == dtype
            assert one.values["m"].dtype == bool
            kinds.setdefault(one.kind, one.values["x"])
        assert (kinds["a mask of the lowest number"] == np.finfo(dtype).min).any()
        assert np.isneginf(kinds["a mask of -inf"]).any()
        assert np.isnan(kinds["a NaN"]).sum() == 1
        size = np.abs(kinds["subnormal numbers"])
        assert ((size > 0) & (size < np.finfo(dtype).tiny)).any()
        assert len(kinds) >= 9
