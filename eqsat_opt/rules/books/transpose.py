"""Transposes: composition, and moving them through other operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eqsat_opt.rules.blockwise import gathered, inward
from eqsat_opt.rules.declare import declared
from eqsat_opt.rules.forms import TRANSPOSED
from eqsat_opt.rules.rule import Func, Int, Ints, Phase, Rule, Sides, Tensor, rule
from eqsat_opt.rules.term import Apply, ops, slice_

__all__: list[str] = []

_RANKS = (2, 3, 4, 5)


def _compose(rank: int) -> Rule:
    @rule(f"transpose/compose-{rank}d", phase=Phase.SIMPLIFY)
    def compose(x: Tensor, p: Ints, q: Ints) -> Sides:
        """Two transposes in a row are one with the composed permutation."""
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
        """A transpose that keeps the order of the axes changes nothing."""
        return ops.Transpose(x, perm=tuple(range(rank))), x

    return identity


compose_2d, compose_3d, compose_4d, compose_5d = (_compose(rank) for rank in _RANKS)
identity_2d, identity_3d, identity_4d, identity_5d = (_identity(rank) for rank in _RANKS)


@rule("transpose/matmul", bidirectional=True)
def matmul(x: Tensor, y: Tensor) -> Sides:
    """The transpose of a matrix product is the product of the transposes in reverse order."""
    swap = (1, 0)
    product = ops.Transpose(y, perm=swap) @ ops.Transpose(x, perm=swap)
    return ops.Transpose(x @ y, perm=swap), product, x.rank == 2, y.rank == 2


@rule("transpose/map", bidirectional=True)
def map_(f: Func, x: Tensor, p: Ints) -> Sides:
    """An elementwise function commutes with a transpose, so transposes can meet and cancel."""
    return f(ops.Transpose(x, perm=p)), ops.Transpose(f(x), perm=p)


@rule("transpose/add", bidirectional=False)
def add(x: Tensor, y: Tensor, p: Ints) -> Sides:
    """Two tensors that are transposed alike are added first and transposed once."""
    return (
        ops.Transpose(x, perm=p) + ops.Transpose(y, perm=p),
        ops.Transpose(x + y, perm=p),
        x.rank == y.rank,
    )


@rule("transpose/mul", bidirectional=False)
def mul(x: Tensor, y: Tensor, p: Ints) -> Sides:
    """Two tensors that are transposed alike are multiplied first and transposed once."""
    return (
        ops.Transpose(x, perm=p) * ops.Transpose(y, perm=p),
        ops.Transpose(x * y, perm=p),
        x.rank == y.rank,
    )


def _batched(rank: int) -> tuple[Rule, Rule]:
    swap = (*range(rank - 2), rank - 1, rank - 2)

    def outside(v: Mapping[str, Any]) -> Sides:
        x, y = v["x"], v["y"]
        product = ops.Transpose(y, perm=swap) @ ops.Transpose(x, perm=swap)
        return ops.Transpose(x @ y, perm=swap), product, x.rank == rank, y.rank == rank

    def inside(v: Mapping[str, Any]) -> Sides:
        x, y, p = v["x"], v["y"], v["p"]
        swapped = [p[i] == axis for i, axis in enumerate(swap)]
        return (
            ops.Transpose(y, perm=p) @ ops.Transpose(x, perm=p),
            ops.Transpose(x @ y, perm=p),
            x.rank == rank,
            y.rank == rank,
            *swapped,
        )

    return (
        declared(
            f"transpose/matmul-{rank}d",
            "The transpose of a batched matrix product is the product of the transposes in reverse "
            "order.",
            {"x": "Tensor", "y": "Tensor"},
            outside,
        ),
        declared(
            f"transpose/matmul-of-transposes-{rank}d",
            "A batched product of two transposed operands is the transpose of their product in "
            "reverse order: one transpose instead of two.",
            {"x": "Tensor", "y": "Tensor", "p": "Ints"},
            inside,
            phase=Phase.DERIVATION,
        ),
    )


matmul_3d, of_transposes_3d = _batched(3)
matmul_4d, of_transposes_4d = _batched(4)


def _by_scalar(op: str, word: str) -> Rule:
    def sides(v: Mapping[str, Any]) -> Sides:
        x, c, p = v["x"], v["c"], v["p"]
        moved = ops.Transpose(Apply(op, (x, c), {}), perm=p)
        return Apply(op, (ops.Transpose(x, perm=p), c), {}), moved, c.rank == 0

    return declared(
        f"transpose/{op.lower()}-scalar",
        f"A scalar {word} commutes with a transpose, so it can move to a constant that absorbs it.",
        {"x": "Tensor", "c": "Tensor", "p": "Ints"},
        sides,
        bidirectional=True,
    )


add_scalar, mul_scalar = _by_scalar("Add", "addend"), _by_scalar("Mul", "factor")


def _by_constant(op: str, word: str) -> Rule:
    def sides(v: Mapping[str, Any]) -> Sides:
        x, c, p = v["x"], v["c"], v["p"]
        right = ops.Transpose(x, perm=p), ops.Transpose(c, perm=p)
        return ops.Transpose(Apply(op, (x, c), {}), perm=p), Apply(op, right, {}), x.rank == c.rank

    return declared(
        f"transpose/{op.lower()}-constant",
        f"A constant {word} is transposed ahead of time and applied after the transpose, where it "
        "can meet other constants.",
        {"x": "Tensor", "c": "Weight", "p": "Ints"},
        sides,
        phase=Phase.DERIVATION,
    )


add_constant, mul_constant = _by_constant("Add", "addend"), _by_constant("Mul", "factor")

stacked = gathered(
    "transpose/concat",
    "Two tensors that are transposed alike are concatenated first and transposed once.",
    TRANSPOSED,
)
take = inward(
    "transpose/take",
    "A slice of a transposed tensor is the transpose of a slice, so only what is read is moved.",
    TRANSPOSED,
)


def _channels_last(op: str, rank: int, word: str) -> Rule:
    last, first = (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))

    def sides(v: Mapping[str, Any]) -> Sides:
        x, c = v["x"], v["c"]
        inside = Apply(op, (x, ops.Transpose(c, perm=first)), {})
        outside = Apply(op, (ops.Transpose(x, perm=last), c), {})
        return outside, ops.Transpose(inside, perm=last), x.rank == rank, c.rank == rank

    return declared(
        f"transpose/{op.lower()}-channels-last-{rank}d",
        f"A constant {word} for channels that lie last is applied while they lie first, as "
        "convolutions have them: the transposes around what is between two of them meet.",
        {"x": "Tensor", "c": "Weight"},
        sides,
    )


channels_last = [
    _channels_last(op, rank, word)
    for op, word in (("Add", "addend"), ("Mul", "factor"))
    for rank in (3, 4, 5)
]


def _padded_last(rank: int) -> Rule:
    last, first = (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))
    names = [f"{end}{axis}" for end in "ab" for axis in range(rank)]

    def sides(v: Mapping[str, Any]) -> Sides:
        x, pads = v["x"], [v[name] for name in names]
        moved = tuple(pads[start + axis] for start in (0, rank) for axis in first)
        return (
            ops.Pad(ops.Transpose(x, perm=last), pads=tuple(pads), value=v["value"]),
            ops.Transpose(ops.Pad(x, pads=moved, value=v["value"]), perm=last),
            x.rank == rank,
        )

    return declared(
        f"transpose/pad-channels-last-{rank}d",
        "A border around channels that lie last is added while they lie first, as convolutions "
        "have them.",
        {"x": "Tensor", **dict.fromkeys(names, "Int"), "value": "Float"},
        sides,
    )


padded_last_3d, padded_last_4d = _padded_last(3), _padded_last(4)


@rule("transpose/heads-of-part")
def heads_of_part(x: Tensor, lo: Int, hi: Int) -> Sides:
    """Some heads are taken after all of them are transposed, as of stacked query, key and value."""
    perm = (0, 2, 1, 3)
    return (
        ops.Transpose(slice_(x, 2, lo, hi), perm=perm),
        slice_(ops.Transpose(x, perm=perm), 1, lo, hi),
        x.rank == 4,
    )


@rule("transpose/columns-of-part")
def columns_of_part(x: Tensor, lo: Int, hi: Int) -> Sides:
    """Heads of keys are transposed as those of queries are, and then once more by themselves."""
    heads = slice_(ops.Transpose(x, perm=(0, 2, 1, 3)), 1, lo, hi)
    return (
        ops.Transpose(slice_(x, 2, lo, hi), perm=(0, 2, 3, 1)),
        ops.Transpose(heads, perm=(0, 1, 3, 2)),
        x.rank == 4,
    )
