"""Elementwise algebra: commutativity, associativity, distribution, gates.

Both operands may broadcast; the typing guard refuses a side whose shape differs.
"""

from __future__ import annotations

from eqsat_opt.rules.rule import Numerics, Phase, Sides, Tensor, rule
from eqsat_opt.rules.term import is_float, ops

__all__: list[str] = []


@rule("elementwise/add-commute", phase=Phase.ALGEBRA)
def add_commute(x: Tensor, y: Tensor) -> Sides:
    """Addition commutes."""
    return x + y, y + x


@rule("elementwise/mul-commute", phase=Phase.ALGEBRA)
def mul_commute(x: Tensor, y: Tensor) -> Sides:
    """Multiplication commutes."""
    return x * y, y * x


@rule(
    "elementwise/add-assoc", phase=Phase.ALGEBRA, bidirectional=True, numerics=Numerics.REASSOCIATE
)
def add_assoc(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """Sums reassociate; small operands meet first when broadcasting makes that cheaper."""
    return (x + y) + z, x + (y + z)


@rule(
    "elementwise/mul-assoc", phase=Phase.ALGEBRA, bidirectional=True, numerics=Numerics.REASSOCIATE
)
def mul_assoc(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """Products reassociate; constants meet and fold."""
    return (x * y) * z, x * (y * z)


@rule("elementwise/factor", phase=Phase.ALGEBRA, bidirectional=True, numerics=Numerics.REASSOCIATE)
def factor(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """One product instead of two."""
    return x * y + x * z, x * (y + z)


@rule("elementwise/gate", phase=Phase.ALGEBRA, numerics=Numerics.REASSOCIATE)
def gate(f: Tensor, c: Tensor, x: Tensor) -> Sides:
    """A gated mixture needs one product: the recurrent cells spell it with two."""
    one = ops.Scalar(value=1.0, dtype="float32")
    return f * c + (one - f) * x, x + f * (c - x), f.shape == c.shape, f.shape == x.shape


@rule("elementwise/relu-idempotent", phase=Phase.SIMPLIFY)
def relu_idempotent(x: Tensor) -> Sides:
    """A second relu changes nothing."""
    return ops.Relu(ops.Relu(x)), ops.Relu(x)


@rule("elementwise/relu-scale", bidirectional=True, numerics=Numerics.RELAXED)
def relu_square(x: Tensor) -> Sides:
    """relu(x) * relu(x) = relu(x) * x, which needs one relu less where x is at hand (NaN aside)."""
    return ops.Relu(x) * ops.Relu(x), ops.Relu(x) * x, is_float(x)
