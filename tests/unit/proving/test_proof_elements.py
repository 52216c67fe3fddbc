"""Of which elements a proof speaks: rules that wrap around or round are proved for floats only."""

from __future__ import annotations

import pytest

from eqsat_opt.proving.proof import prove
from eqsat_opt.proving.proof.elements import Rounded, elements_of
from eqsat_opt.rules import Rule
from eqsat_opt.rules.rule import Float, Int, Ints, Sides, Tensor, rule
from eqsat_opt.rules.term import is_float, ops

pytest.importorskip("z3", reason="proofs need z3: pip install 'eqsat-opt[verify]'")

FLOATS, ALL = "floating point elements", "elements of any type"

# Wrong of whole numbers that wrap around, or rounded ----------------------------------------------


@rule("whole/order-of-sums")
def order_of_sums(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """1 - 2 is 255 of uint8."""
    return ops.Min(x - z, y - z), ops.Min(x, y) - z


@rule("whole/magnitude")
def magnitude(x: Tensor) -> Sides:
    """|-128| is -128 of int8."""
    return ops.Relu(ops.Abs(x)), ops.Abs(x)


@rule("whole/mean-in-two-steps")
def mean_in_steps(x: Tensor) -> Sides:
    """Each step is rounded."""
    rows = ops.ReduceMean(x, axes=(0,), keepdims=1)
    both = ops.ReduceMean(x, axes=(0, 1), keepdims=1)
    return ops.ReduceMean(rows, axes=(1,), keepdims=1), both, x.rank == 2


@rule("whole/quotient")
def quotient(x: Tensor, y: Tensor) -> Sides:
    """7 / 2 * 2 = 6."""
    return x / y * y, (x * y) / y, x.shape == y.shape


@rule("whole/clip-to-a-sum")
def clip_to_sum(x: Tensor, a: Float, b: Float) -> Sides:
    """A bound that is computed may be none of the elements' type."""
    first = ops.Clip(x, min=a, max=b)
    return first, ops.Clip(x, min=a + (b - b), max=b)


ROUNDED = [one for one in list(globals().values()) if isinstance(one, Rule)]

# Right of all, or of floats -----------------------------------------------------------------------


@rule("any/ring")
def ring(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """Polynomials with whole coefficients are equal in every ring."""
    return (x + y) * z, x * z + y * z


@rule("any/order")
def order(x: Tensor, y: Tensor, lo: Float, hi: Float) -> Sides:
    """Nothing wraps."""
    first, second = (ops.Relu(ops.Clip(one, min=lo, max=hi)) for one in (x, y))
    return ops.Max(first, second), ops.Max(second, ops.Max(first, second))


@rule("any/moves")
def moves(x: Tensor, p: Ints, i: Int) -> Sides:
    """Elements are moved only."""
    turned = ops.Transpose(x, perm=p)
    repeated = ops.Repeat(x, axis=p[i], repeats=2)
    return ops.Repeat(turned, axis=i, repeats=2), ops.Transpose(repeated, perm=p)


@rule("floats/condition")
def by_condition(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """A condition says it of one operand, and typing of the others."""
    return ops.Min(x - z, y - z), ops.Min(x, y) - z, is_float(z)


@rule("floats/operator")
def by_operator(x: Tensor, y: Tensor) -> Sides:
    """An exponential has no whole operand."""
    return ops.Relu(ops.Exp(x) + ops.Exp(y)), ops.Exp(x) + ops.Exp(y)


@rule("floats/literal")
def by_literal(x: Tensor) -> Sides:
    """Nor does a sum with a floating point constant."""
    one = ops.Scalar(value=1.0, dtype="float16")
    return ops.Max(x + one, one), ops.Relu(x) + one


TOLD = {"ring": ALL, "order": ALL, "moves": ALL, "by_condition": FLOATS, "by_operator": FLOATS,
        "by_literal": FLOATS}  # fmt: skip


@pytest.mark.parametrize("one", ROUNDED, ids=lambda one: one.name)
def test_what_wraps_or_rounds_is_not_proved_of_whole_numbers(one: Rule) -> None:
    with pytest.raises(Rounded):
        elements_of(one)
    proof = prove(one)
    assert (proof.status, proof.scope) == ("unsupported", "")
    assert "add is_float(…)" in proof.reason


@pytest.mark.parametrize(("name", "elements"), TOLD.items())
def test_the_scope_says_which_elements(name: str, elements: str) -> None:
    proof = prove(globals()[name])
    assert proof.status == "proven", proof.reason
    assert proof.scope.startswith(f"all sizes, {elements}; ")


# Outputs of other element types -------------------------------------------------------------------


@rule("outputs/shares-of-elements")
def shares_of_elements(x: Tensor, y: Tensor, i: Int, k: Int) -> Sides:
    """Numbers of the operand's own type."""
    top = ops.TopK(x, axis=i, k=k, largest=1, output=0)
    return top / y / y, top / (y * y), is_float(x), is_float(y)


@rule("outputs/shares-of-places")
def shares_of_places(x: Tensor, y: Tensor, i: Int, k: Int) -> Sides:
    """Whole numbers, whose quotients are rounded, whatever the elements are."""
    top = ops.TopK(x, axis=i, k=k, largest=1, output=1)
    return top / y / y, top / (y * y), is_float(x)


def test_each_output_has_elements_of_its_own() -> None:
    assert elements_of(shares_of_elements) == FLOATS
    with pytest.raises(Rounded, match="Div of whole numbers"):
        elements_of(shares_of_places)
