"""Transposes: composition, and moving them through what does not care."""

from __future__ import annotations

from eqsat_opt.rules.rule import Func, Ints, Phase, Rule, Sides, Tensor, rule
from eqsat_opt.rules.term import ops

__all__: list[str] = []

_RANKS = (2, 3, 4, 5)


def _compose(rank: int) -> Rule:
    @rule(f"transpose/compose-{rank}d", phase=Phase.SIMPLIFY)
    def compose(x: Tensor, p: Ints, q: Ints) -> Sides:
        """Two transposes are one."""
        inner = ops.Transpose(x, perm=p)
        return (
            ops.Transpose(inner, perm=q),
            ops.Transpose(x, perm=tuple(p[q[i]] for i in range(rank))),
            x.rank == rank,
        )

    return compose


def _identity(rank: int) -> Rule:
    @rule(f"transpose/identity-{rank}d", phase=Phase.SIMPLIFY)
    def identity(x: Tensor) -> Sides:
        """A transpose that keeps the order is nothing."""
        return ops.Transpose(x, perm=tuple(range(rank))), x

    return identity


compose_2d, compose_3d, compose_4d, compose_5d = (_compose(rank) for rank in _RANKS)
identity_2d, identity_3d, identity_4d, identity_5d = (_identity(rank) for rank in _RANKS)


@rule("transpose/matmul", bidirectional=True)
def matmul(x: Tensor, y: Tensor) -> Sides:
    """The transpose of a product is the product of the transposes, exchanged."""
    swap = (1, 0)
    product = ops.Transpose(y, perm=swap) @ ops.Transpose(x, perm=swap)
    return ops.Transpose(x @ y, perm=swap), product, x.rank == 2, y.rank == 2


@rule("transpose/map", bidirectional=True)
def map_(f: Func, x: Tensor, p: Ints) -> Sides:
    """Elementwise functions do not care about the order of axes."""
    return f(ops.Transpose(x, perm=p)), ops.Transpose(f(x), perm=p)


@rule("transpose/add", bidirectional=False)
def add(x: Tensor, y: Tensor, p: Ints) -> Sides:
    """Two transposed addends are added first."""
    return (
        ops.Transpose(x, perm=p) + ops.Transpose(y, perm=p),
        ops.Transpose(x + y, perm=p),
        x.shape == y.shape,
    )


@rule("transpose/mul", bidirectional=False)
def mul(x: Tensor, y: Tensor, p: Ints) -> Sides:
    """Two transposed factors are multiplied first."""
    return (
        ops.Transpose(x, perm=p) * ops.Transpose(y, perm=p),
        ops.Transpose(x * y, perm=p),
        x.shape == y.shape,
    )
