"""Reshapes and expansions: composition, and moving them through other operators."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from math import prod
from typing import Any

from eqsat_opt.rules.declare import declared, extents
from eqsat_opt.rules.rule import (
    Func,
    Int,
    Ints,
    Numerics,
    Phase,
    Rule,
    Sides,
    Tensor,
    Weight,
    rule,
)
from eqsat_opt.rules.term import Apply, Condition, Expr, Term, Var, concat, ops, slice_

__all__: list[str] = []


def _reshape(x: Term, shape: object) -> Term:
    return ops.Reshape(x, shape=shape)


# Composition --------------------------------------------------------------------------------------


@rule("reshape/compose", phase=Phase.SIMPLIFY)
def compose(x: Tensor, s: Ints, t: Ints) -> Sides:
    """A reshape of a reshape is one reshape to the last shape."""
    return _reshape(_reshape(x, s), t), _reshape(x, t)


@rule("reshape/expand-compose", phase=Phase.SIMPLIFY)
def expand_compose(x: Tensor, s: Ints, t: Ints) -> Sides:
    """An expansion of an expansion is one expansion to the last shape."""
    return ops.Expand(ops.Expand(x, shape=s), shape=t), ops.Expand(x, shape=t)


@rule("reshape/identity-2d", phase=Phase.SIMPLIFY)
def identity_2d(x: Tensor, a: Int, b: Int) -> Sides:
    """A reshape to the shape that the tensor already has changes nothing."""
    return _reshape(x, (a, b)), x, x.rank == 2, a == x.dim(0), b == x.dim(1)


@rule("reshape/identity-3d", phase=Phase.SIMPLIFY)
def identity_3d(x: Tensor, a: Int, b: Int, c: Int) -> Sides:
    """A reshape to the shape that the tensor already has changes nothing."""
    return _reshape(x, (a, b, c)), x, x.rank == 3, a == x.dim(0), b == x.dim(1), c == x.dim(2)


@rule("reshape/identity-4d", phase=Phase.SIMPLIFY)
def identity_4d(x: Tensor, a: Int, b: Int, c: Int, d: Int) -> Sides:
    """A reshape to the shape that the tensor already has changes nothing."""
    same = (a == x.dim(0), b == x.dim(1), c == x.dim(2), d == x.dim(3))
    return _reshape(x, (a, b, c, d)), x, x.rank == 4, *same


def _moves_ones(x: Var, p: Expr, rank: int) -> tuple[Condition, ...]:
    """Return the conditions that a permutation moves only axes of extent 1.

    A pair of axes whose order is reversed must contain an axis of extent 1.
    ``(p[i] - p[j] + rank) // rank`` is 1 where the order of two axes is reversed, else 0.
    """
    return tuple(
        (((p[i] - p[j] + rank) // rank) * ((x.dim(p[i]) - 1) * (x.dim(p[j]) - 1)) == 0).because(
            "only axes of extent 1 move"
        )
        for j in range(rank)
        for i in range(j)
    )


def _transpose_of_ones(rank: int) -> Rule:
    @rule(f"reshape/transpose-of-ones-{rank}d", phase=Phase.SIMPLIFY)
    def transpose_of_ones(x: Tensor, p: Ints) -> Sides:
        """A transpose that moves only axes of extent 1 is a reshape, which copies no data."""
        shape = tuple(x.dim(p[i]) for i in range(rank))
        conditions = _moves_ones(x, p, rank)
        return ops.Transpose(x, perm=p), _reshape(x, shape), x.rank == rank, *conditions

    return transpose_of_ones


transpose_of_ones_2d, transpose_of_ones_3d, transpose_of_ones_4d = map(
    _transpose_of_ones, (2, 3, 4)
)


# Elementwise operators ----------------------------------------------------------------------------


@rule("reshape/map", bidirectional=True)
def map_(f: Func, x: Tensor, s: Ints) -> Sides:
    """An elementwise function commutes with a reshape: reshapes meet, functions fuse."""
    return f(_reshape(x, s)), _reshape(f(x), s)


@rule("reshape/expand-map")
def expand_map(f: Func, x: Tensor, s: Ints) -> Sides:
    """An elementwise function of an expanded tensor is computed before it is expanded."""
    return f(ops.Expand(x, shape=s)), ops.Expand(f(x), shape=s)


def _together(op: str, name: str) -> Rule:
    @rule(f"reshape/{name}")
    def together(x: Tensor, y: Tensor, s: Ints) -> Sides:
        """Two operands of one shape that are reshaped alike meet first and are reshaped once."""
        return (
            Apply(op, (_reshape(x, s), _reshape(y, s)), {}),
            _reshape(Apply(op, (x, y), {}), s),
            x.shape == y.shape,
        )

    return together


def _by_scalar(op: str, name: str) -> Rule:
    @rule(f"reshape/{name}", bidirectional=True)
    def by_scalar(x: Tensor, c: Tensor, s: Ints) -> Sides:
        """A scalar operand commutes with a reshape and can move to a constant that absorbs it."""
        return (
            Apply(op, (_reshape(x, s), c), {}),
            _reshape(Apply(op, (x, c), {}), s),
            c.rank == 0,
        )

    return by_scalar


add, mul = _together("Add", "add"), _together("Mul", "mul")
add_scalar, mul_scalar = _by_scalar("Add", "add-scalar"), _by_scalar("Mul", "mul-scalar")


def _bias(rank: int) -> Rule:
    def sides(v: Mapping[str, Any]) -> Sides:
        x, bias, shape = v["x"], v["v"], tuple(v[n] for n in extents(rank))
        row = _reshape(bias, (*(1,) * (rank - 1), shape[-1]))
        return (
            _reshape(x + bias, shape),
            _reshape(x, shape) + row,
            x.rank >= 1,
            bias.rank >= 1,
            x.dim(x.rank - 1) == shape[-1],
            bias.dim(bias.rank - 1) == shape[-1],
        )

    return declared(
        f"reshape/bias-{rank}d",
        "A bias along the last axis is added after a reshape that keeps this axis.",
        {"x": "Tensor", "v": "Weight", **extents(rank)},
        sides,
    )


bias_2d, bias_3d = _bias(2), _bias(3)


@rule("reshape/bias-of-heads", phase=Phase.DERIVATION)
def bias_of_heads(x: Tensor, v: Weight, a: Int, b: Int, h: Int, d: Int) -> Sides:
    """A bias along the last axis is added after a reshape that splits this axis into heads."""
    shape = (a, b, h, d)
    return (
        _reshape(x + v, shape),
        _reshape(x, shape) + _reshape(v, (1, 1, h, d)),
        x.rank >= 1,
        v.rank >= 1,
        x.dim(x.rank - 1) == h * d,
        v.dim(v.rank - 1) == h * d,
    )


# Products, parts ----------------------------------------------------------------------------------


@rule("reshape/matmul-unflatten-3d", phase=Phase.SIMPLIFY)
def unflatten_3d(x: Tensor, w: Tensor, p: Int, a: Int, b: Int, k: Int, n: Int) -> Sides:
    """Flattening a batch for a product with one matrix, as some exporters do, is unneeded."""
    return (
        _reshape(_reshape(x, (p, k)) @ w, (a, b, n)),
        x @ w,
        x.rank == 3,
        w.rank == 2,
        a == x.dim(0),
        b == x.dim(1),
        k == x.dim(2),
        n == w.dim(1),
    )


@rule("reshape/matmul-unflatten-4d", phase=Phase.SIMPLIFY)
def unflatten_4d(x: Tensor, w: Tensor, p: Int, a: Int, b: Int, c: Int, k: Int, n: Int) -> Sides:
    """Flattening two axes of a batch for a product with one matrix is unneeded."""
    return (
        _reshape(_reshape(x, (p, k)) @ w, (a, b, c, n)),
        x @ w,
        x.rank == 4,
        w.rank == 2,
        a == x.dim(0),
        b == x.dim(1),
        c == x.dim(2),
        k == x.dim(3),
        n == w.dim(1),
    )


@rule("reshape/matmul-flatten", phase=Phase.DERIVATION)
def flatten(x: Tensor, w: Tensor) -> Sides:
    """A batched product with one matrix is a plain product of all rows, stacked."""
    flat = _reshape(x, (x.dim(0) * x.dim(1), x.dim(2)))
    shape = (x.dim(0), x.dim(1), w.dim(1))
    return x @ w, _reshape(flat @ w, shape), x.rank == 3, w.rank == 2


def _flatten_sum(rank: int) -> Rule:
    def sides(v: Mapping[str, Any]) -> Sides:
        x, w, bias = v["x"], v["w"], v["v"]
        kept = [x.dim(i) for i in range(rank - 1)]
        rows, columns = prod(kept[1:], start=kept[0]), w.dim(1)
        flat = _reshape(x, (rows, x.dim(rank - 1))) @ w + _reshape(bias, (1, columns))
        is_row = reduce(Expr.__mul__, [bias.dim(i) for i in range(rank - 1)]) == 1
        return (
            x @ w + bias,
            _reshape(flat, (*kept, columns)),
            x.rank == rank,
            w.rank == 2,
            bias.rank == rank,
            is_row,
            bias.dim(rank - 1) == columns,
        )

    return declared(
        f"reshape/flatten-sum-{rank}d",
        "A batched product with one matrix and its bias are a product and a sum of matrices, which "
        "runtimes compute at once; reshapes copy no data.",
        {"x": "Tensor", "w": "Weight", "v": "Weight"},
        sides,
        # Within one kernel the bias is the first addend, not the last.
        numerics=Numerics.REASSOCIATE,
    )


flatten_sum_3d, flatten_sum_4d, flatten_sum_5d = map(_flatten_sum, (3, 4, 5))


def _stack(rank: int) -> Rule:
    def sides(v: Mapping[str, Any]) -> Sides:
        x, y, m, n, rest = v["x"], v["y"], v["m"], v["n"], tuple(v[e] for e in extents(rank - 1))
        kept = [one.dim(i) == rest[i] for one in (x, y) for i in range(1, rank - 1)]
        return (
            concat(_reshape(x, (m, *rest)), _reshape(y, (n, *rest)), 0),
            _reshape(concat(x, y, 0), (m + n, *rest)),
            x.rank == rank - 1,
            y.rank == rank - 1,
            x.dim(0) == m * rest[0],
            y.dim(0) == n * rest[0],
            *kept,
        )

    return declared(
        f"reshape/stack-{rank}d",
        "Two tensors whose first axis is split in two, and which are then concatenated along the "
        "outer part, are concatenated first and reshaped once.",
        {"x": "Tensor", "y": "Tensor", "m": "Int", "n": "Int", **extents(rank - 1)},
        sides,
    )


stack_2d, stack_3d, stack_4d = map(_stack, (2, 3, 4))


def _take_first(rank: int) -> Rule:
    def sides(v: Mapping[str, Any]) -> Sides:
        x, m, lo, hi, rest = v["x"], v["m"], v["lo"], v["hi"], [v[e] for e in extents(rank - 1)]
        return (
            slice_(_reshape(x, (m, *rest)), 0, lo, hi),
            _reshape(slice_(x, 0, lo, hi), (hi - lo, *rest)),
            x.rank >= 1,
            m == x.dim(0),
        )

    return declared(
        f"reshape/take-first-{rank}d",
        "A slice along the first axis is taken before a reshape that keeps this axis, and can move "
        "on towards the inputs.",
        {"x": "Tensor", "m": "Int", **extents(rank - 1), "lo": "Int", "hi": "Int"},
        sides,
    )


def _take_last(rank: int) -> Rule:
    def sides(v: Mapping[str, Any]) -> Sides:
        x, m, lo, hi, rest = v["x"], v["m"], v["lo"], v["hi"], [v[e] for e in extents(rank - 1)]
        return (
            slice_(_reshape(x, (*rest, m)), rank - 1, lo, hi),
            _reshape(slice_(x, x.rank - 1, lo, hi), (*rest, hi - lo)),
            x.rank >= 1 if rank == 2 else x.rank == 2,
            m == x.dim(x.rank - 1),
        )

    return declared(
        f"reshape/take-last-{rank}d",
        "A slice along the last axis is taken before a reshape that keeps this axis, and can move "
        "on towards the inputs.",
        {"x": "Tensor", "m": "Int", **extents(rank - 1), "lo": "Int", "hi": "Int"},
        sides,
    )


take_first_2d, take_first_3d, take_first_4d = map(_take_first, (2, 3, 4))
take_last_2d, take_last_3d, take_last_4d = map(_take_last, (2, 3, 4))


@rule("reshape/heads-of-part")
def heads_of_part(x: Tensor, axis: Int, lo: Int, hi: Int, a: Int, b: Int, h: Int, d: Int) -> Sides:
    """Heads of some columns are some heads of all columns, as of stacked query, key and value."""
    size = x.dim(axis)
    return (
        _reshape(slice_(x, axis, lo, hi), (a, b, h, d)),
        slice_(_reshape(x, (a, b, size // d, d)), 2, lo // d, hi // d),
        (axis + 1 == x.rank).because("heads divide the last axis"),
        d >= 1,
        (size // d) * d == size,
        (lo // d) * d == lo,
        (hi // d) * d == hi,
        hi - lo == h * d,
    )
