"""Elementwise algebra: commutativity, associativity, distribution, gates.

Both operands may broadcast; the typing guard refuses a side whose shape differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eqsat_opt.rules.declare import declared
from eqsat_opt.rules.parameters import scalar
from eqsat_opt.rules.rule import Float, Numerics, Phase, Rule, Sides, Tensor, Weight, rule
from eqsat_opt.rules.term import Apply, is_float, ops

__all__: list[str] = []


@rule("elementwise/add-commute", phase=Phase.ALGEBRA)
def add_commute(x: Tensor, y: Tensor) -> Sides:
    """Addition commutes, so other rules find its operands in either order."""
    return x + y, y + x


@rule("elementwise/mul-commute", phase=Phase.ALGEBRA)
def mul_commute(x: Tensor, y: Tensor) -> Sides:
    """Multiplication commutes, so other rules find its operands in either order."""
    return x * y, y * x


@rule("elementwise/add-orders", phase=Phase.SIMPLIFY)
def add_orders(x: Tensor, y: Tensor) -> Sides:
    """Where the graph holds both x + y and y + x, they become one; no node is added."""
    return (x + y, y + x), (x + y, x + y)


@rule("elementwise/mul-orders", phase=Phase.SIMPLIFY)
def mul_orders(x: Tensor, y: Tensor) -> Sides:
    """Where the graph holds both x * y and y * x, they become one; no node is added."""
    return (x * y, y * x), (x * y, x * y)


@rule(
    "elementwise/add-assoc", phase=Phase.ALGEBRA, bidirectional=True, numerics=Numerics.REASSOCIATE
)
def add_assoc(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """Addition is associative; adding small operands first is cheaper where they broadcast."""
    return (x + y) + z, x + (y + z)


@rule(
    "elementwise/mul-assoc", phase=Phase.ALGEBRA, bidirectional=True, numerics=Numerics.REASSOCIATE
)
def mul_assoc(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """Multiplication is associative; in one of the orders constants meet and fold."""
    return (x * y) * z, x * (y * z)


@rule("elementwise/add-constants", phase=Phase.ALGEBRA, numerics=Numerics.REASSOCIATE)
def add_constants(x: Tensor, b: Weight, y: Tensor, c: Weight) -> Sides:
    """Constants of two added sums meet and fold, and the sum x + y is free to merge further."""
    return (x + b) + (y + c), (x + y) + (b + c)


@rule(
    "elementwise/factor", phase=Phase.ALGEBRA, bidirectional=True, numerics=Numerics.REASSOCIATE,
    backward=Numerics.REFACTOR,
)  # fmt: skip
def factor(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """A common factor is taken out of a sum: one product instead of two.

    Read backwards it multiplies out a sum whose terms may have cancelled exactly.
    """
    return x * y + x * z, x * (y + z)


@rule("elementwise/gate", phase=Phase.ALGEBRA, numerics=Numerics.REFACTOR)
def gate(f: Tensor, c: Tensor, x: Tensor) -> Sides:
    """A gated mixture f * c + (1 - f) * x, as in recurrent cells, needs one product, not two.

    A gate of exactly 1 yields c as it was on the left only; on the right x has to cancel.
    """
    return f * c + (scalar(1.0, f) - f) * x, x + f * (c - x), f.shape == c.shape, f.shape == x.shape


@rule("elementwise/relu-idempotent", phase=Phase.SIMPLIFY)
def relu_idempotent(x: Tensor) -> Sides:
    """A relu after a relu changes nothing."""
    return ops.Relu(ops.Relu(x)), ops.Relu(x)


@rule("elementwise/relu-scale", bidirectional=True, numerics=Numerics.RELAXED)
def relu_square(x: Tensor) -> Sides:
    """relu(x) * relu(x) = relu(x) * x, as relu(x) is 0 where x < 0 (NaN and infinities aside)."""
    return ops.Relu(x) * ops.Relu(x), ops.Relu(x) * x, is_float(x)


@rule("elementwise/relu-of-scaled", bidirectional=True, numerics=Numerics.REASSOCIATE)
def relu_of_scaled(x: Tensor, a: Float) -> Sides:
    """A positive constant factor moves through a relu, often on its way into a weight."""
    factor = scalar(a, x)
    return ops.Relu(x * factor), ops.Relu(x) * factor, a > 0.0, is_float(x)


@rule("elementwise/factor-difference", numerics=Numerics.REASSOCIATE)
def factor_difference(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """A common factor is taken out of a difference: one product instead of two."""
    return x * y - x * z, x * (y - z)


# Signs --------------------------------------------------------------------------------------------


@rule("elementwise/negate-twice", phase=Phase.SIMPLIFY)
def negate_twice(x: Tensor) -> Sides:
    """Two negations cancel."""
    return ops.Neg(ops.Neg(x)), x


@rule("elementwise/subtract-negative", phase=Phase.SIMPLIFY)
def subtract_negative(x: Tensor, y: Tensor) -> Sides:
    """Subtracting a negated tensor is adding the tensor."""
    return x - ops.Neg(y), x + y


@rule("elementwise/add-negative", phase=Phase.SIMPLIFY)
def add_negative(x: Tensor, y: Tensor) -> Sides:
    """Adding a negated tensor is subtracting the tensor."""
    return x + ops.Neg(y), x - y


@rule("elementwise/relu-difference", phase=Phase.SIMPLIFY, numerics=Numerics.RELAXED)
def relu_difference(x: Tensor) -> Sides:
    """relu(x) - relu(-x) = x, positive less negative part (NaN and the sign of zero aside)."""
    return ops.Relu(x) - ops.Relu(ops.Neg(x)), x, is_float(x)


@rule("elementwise/relu-sum", phase=Phase.SIMPLIFY, numerics=Numerics.RELAXED)
def relu_sum(x: Tensor) -> Sides:
    """relu(x) + relu(-x) = |x|, positive plus negative part (NaN aside)."""
    return ops.Relu(x) + ops.Relu(ops.Neg(x)), ops.Abs(x), is_float(x)


@rule("elementwise/mask-as-sign", numerics=Numerics.FINITE)
def mask_as_sign(x: Tensor) -> Sides:
    """The number 1 where x is positive, else 0, is the sign of relu(x) (NaN aside).

    It is the derivative of a relu in steps of training, and joins kernels of floats.
    """
    mask = ops.Cast(ops.Greater(x, scalar(0.0, x)), to=x.dtype)
    return mask, ops.Sign(ops.Relu(x)), is_float(x)


# Maxima and minima are a lattice ------------------------------------------------------------------

_OTHER = {"Max": "Min", "Min": "Max"}
_WORD = {"Max": "maximum", "Min": "minimum"}


def _lattice(
    law: str,
    doc: str,
    phase: Phase,
    *,
    numerics: Numerics = Numerics.BITEXACT,
    bidirectional: bool = False,
) -> tuple[Rule, Rule]:
    """Declare a law for maxima and, as its dual, for minima; ``doc`` has places for both words."""

    def of(op: str) -> Rule:
        kinds = dict.fromkeys(_LAWS[law][0], "Tensor")

        def sides(v: Mapping[str, Any]) -> Sides:
            return _LAWS[law][1](op, _OTHER[op], **v)  # type: ignore[no-any-return]

        return declared(
            f"elementwise/{op.lower()}-{law}",
            doc.format(this=_WORD[op], other=_WORD[_OTHER[op]]), kinds, sides, phase=phase,
            numerics=numerics, bidirectional=bidirectional,
        )  # fmt: skip

    return of("Max"), of("Min")


def _of(op: str, x: Any, y: Any) -> Apply:
    return Apply(op, (x, y), {})


_LAWS: Mapping[str, tuple[str, Any]] = {
    "commute": ("xy", lambda op, _, x, y: (_of(op, x, y), _of(op, y, x))),
    "assoc": ("xyz", lambda op, _, x, y, z: (_of(op, _of(op, x, y), z), _of(op, x, _of(op, y, z)))),
    "idempotent": ("x", lambda op, _, x: (_of(op, x, x), x)),
    "absorb": ("xy", lambda op, other, x, y: (
        _of(op, x, _of(other, x, y)), x, x.shape == y.shape,
    )),
    "factor": ("xyz", lambda op, other, x, y, z: (
        _of(op, _of(other, x, y), _of(other, x, z)), _of(other, x, _of(op, y, z)),
    )),
    "of-relu": ("xy", lambda op, _, x, y: (
        _of(op, ops.Relu(x), ops.Relu(y)), ops.Relu(_of(op, x, y)),
    )),
}  # fmt: skip

max_commute, min_commute = _lattice(
    "commute", "The {this} of two tensors does not depend on their order.", Phase.ALGEBRA
)
max_assoc, min_assoc = _lattice(
    "assoc",
    "The {this} is associative; small operands first is cheaper where they broadcast.",
    Phase.ALGEBRA,
    bidirectional=True,
)
max_idempotent, min_idempotent = _lattice(
    "idempotent", "The {this} of a tensor with itself is the tensor.", Phase.SIMPLIFY
)
max_absorb, min_absorb = _lattice(
    "absorb",
    "The {this} of x with the {other} of x and y is x (NaN in y aside).",
    Phase.SIMPLIFY,
    numerics=Numerics.RELAXED,
)
max_factor, min_factor = _lattice(
    "factor",
    "Where both operands of a {this} are a {other} with x, one {other} with x is enough.",
    Phase.EXPLORE,
)
max_of_relu, min_of_relu = _lattice(
    "of-relu",
    "Relu is monotone, so one relu after the {this} replaces one for each operand.",
    Phase.EXPLORE,
)


def _translated(op: str) -> Rule:
    def sides(v: Mapping[str, Any]) -> Sides:
        x, y, z = v["x"], v["y"], v["z"]
        return _of(op, x + z, y + z), _of(op, x, y) + z, is_float(x)

    return declared(
        f"elementwise/{op.lower()}-translated",
        f"An addend of both operands of a {_WORD[op]} is added once, after the {_WORD[op]} "
        "(infinities aside, which make NaN where they meet).",
        dict.fromkeys("xyz", "Tensor"),
        sides,
        numerics=Numerics.RELAXED,
    )


max_translated, min_translated = _translated("Max"), _translated("Min")


@rule("elementwise/max-plus-min", phase=Phase.SIMPLIFY, numerics=Numerics.REASSOCIATE)
def max_plus_min(x: Tensor, y: Tensor) -> Sides:
    """The maximum and the minimum of two tensors add up to the sum of the tensors."""
    return ops.Max(x, y) + ops.Min(x, y), x + y, is_float(x)


@rule("elementwise/max-of-zero", phase=Phase.SIMPLIFY, numerics=Numerics.RELAXED)
def max_of_zero(x: Tensor) -> Sides:
    """A maximum with 0 is a relu, which runtimes can fuse (NaN and the sign of zero aside)."""
    is_fusible = is_float(x).because("runtimes have a relu of floats only")
    return ops.Max(x, scalar(0.0, x)), ops.Relu(x), is_fusible


# Exponentials -------------------------------------------------------------------------------------


@rule("elementwise/exp-product", numerics=Numerics.RELAXED)
def exp_product(x: Tensor, y: Tensor) -> Sides:
    """exp(x) * exp(y) = exp(x + y), except where exp(x) or exp(y) over- or underflows."""
    return ops.Exp(x) * ops.Exp(y), ops.Exp(x + y)
