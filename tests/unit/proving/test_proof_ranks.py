"""Which ranks tell of all others: what may be told apart is counted, what cannot be is refused.

The argument is in :mod:`eqsat_opt.proving.proof.axes.reach`; here it is tried on instances, too.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from eqsat_opt.errors import RuleError
from eqsat_opt.ir.ops import OPS
from eqsat_opt.ir.ops.domains import FieldDomain
from eqsat_opt.ir.ops.index.evaluation import evaluate, formula_value, poly_value
from eqsat_opt.ir.ops.index.integers import Atom
from eqsat_opt.ir.ops.index.scalars import Unindexed
from eqsat_opt.proving.proof import prove
from eqsat_opt.proving.proof.axes.reach import MOST_RANKS, Uneven, reach_of
from eqsat_opt.proving.typing.scenario import Scenario, scenarios
from eqsat_opt.rules import Rule, families
from eqsat_opt.rules.rule import Int, Ints, Sides, Tensor, rule
from eqsat_opt.rules.term import Expr, Term, Var, concat, ops, real, slice_

pytest.importorskip("z3", reason="proofs need z3: pip install 'eqsat-opt[verify]'")

KEPT: dict[str, Any] = {"keepdims": 1}
GUESSES, MANY = 240, 700
"""Rules that are guessed in every run, and with `--slow`."""

# Refused -----------------------------------------------------------------------------------------


@rule("uneven/period-of-transpositions")
def period(x: Tensor, p: Ints) -> Sides:
    """Sixty times the same permutation is none up to rank 6."""
    turned: Term = x
    for _ in range(60):
        turned = ops.Transpose(turned, perm=p)
    return turned, ops.Relu(turned)


@rule("uneven/meets-itself")
def meets_itself(x: Tensor, p: Ints) -> Sides:
    """A column goes through several axes of x."""
    return ops.Transpose(x, perm=p) - x, x - ops.Transpose(x, perm=p)


@rule("uneven/place-of-another")
def place_of_another(x: Tensor, p: Ints, q: Ints, i: Int) -> Sides:
    """The permutations in the wrong order."""
    turned = ops.Transpose(ops.Transpose(x, perm=p), perm=q)
    right = ops.Transpose(ops.Transpose(ops.Softmax(x, axis=q[p[i]]), perm=p), perm=q)
    return ops.Softmax(turned, axis=i), right


@rule("uneven/vector")
def with_vector(x: Tensor, v: Tensor) -> Sides:
    """A product with a vector has one axis less, at which it meets its operand."""
    return (x @ v) + x, x + (x @ v), v.rank == 1


@rule("uneven/dropped-axis")
def dropped(x: Tensor, i: Int) -> Sides:
    """The same for a reduction."""
    total = ops.ReduceSum(x, axes=(i,), keepdims=0)
    return total + x, x + total


@rule("uneven/one-of-a-set")
def one_of_set(x: Tensor, k: Ints) -> Sides:
    """Sets of one axis are summed over the first."""
    return ops.ReduceSum(x, axes=k, **KEPT), ops.ReduceSum(x, axes=(k[0],), **KEPT)


@rule("uneven/set-over-shapes")
def set_over_shapes(x: Tensor, y: Tensor, k: Ints) -> Sides:
    """Which of both has extent 1 may differ from axis to axis."""
    total = ops.ReduceSum(x * y, axes=k, **KEPT)
    return total + total, ops.ReduceSum((x + x) * y, axes=k, **KEPT), x.rank == y.rank


@rule("uneven/set-over-an-expansion")
def set_over_expansion(x: Tensor, s: Ints, k: Ints) -> Sides:
    """Which axes are expanded differs from those that are summed."""
    wide = ops.Expand(x, shape=s)
    return ops.ReduceSum(wide + wide, axes=k, **KEPT), ops.ReduceSum(wide, axes=k, **KEPT)


@rule("uneven/set-over-pads")
def set_over_pads(x: Tensor, p: Ints, k: Ints) -> Sides:
    """An element may be outside along any of the axes that are summed."""
    framed = ops.Pad(x, pads=p, value=1.0)
    return ops.ReduceSum(framed, axes=k, **KEPT), ops.ReduceSum(framed + framed, axes=k, **KEPT)


@rule("uneven/number-into-a-permutation")
def number_into_permutation(x: Tensor, p: Ints, a: Int, i: Int) -> Sides:
    """An entry of the permutation at a number that is no axis."""
    part = slice_(ops.Transpose(x, perm=p), i, 0, a)
    return part, slice_(ops.Transpose(x, perm=p), i, 0, a), p[a] < p[i]


@rule("uneven/axis-as-number")
def axis_as_number(x: Tensor, i: Int) -> Sides:
    """An axis that is an extent."""
    return ops.Softmax(x, axis=i), ops.Softmax(x, axis=i), x.dim(i) == i + 7


@rule("uneven/rank-as-number")
def rank_as_number(x: Tensor) -> Sides:
    """A rank that is a factor."""
    return ops.Relu(x), ops.Relu(ops.Scale(x, factor=real(x.rank))), x.dim(0) == 1


@rule("uneven/axis-of-two-ranks")
def axis_of_two(x: Tensor, y: Tensor, i: Int) -> Sides:
    """One number for axes that need not meet."""
    return ops.Softmax(x, axis=i) * ops.Softmax(y, axis=i), (
        ops.Softmax(y, axis=i) * ops.Softmax(x, axis=i)
    )


@rule("uneven/axis-of-a-few-ranks")
def axis_of_few(x: Tensor, y: Tensor, i: Int) -> Sides:
    """One of them of a fixed rank."""
    return ops.Softmax(x, axis=i) * y, y * ops.Softmax(x, axis=i), y.rank == 4, y.dim(i) == 1


@rule("uneven/number-of-ranks")
def number_of_ranks(x: Tensor, y: Tensor) -> Sides:
    """Twice as many axes."""
    return x * y, y * x, x.rank * 2 == y.rank


@rule("uneven/order-of-elements")
def order_of_elements(x: Tensor, p: Ints, s: Ints) -> Sides:
    """A transposition changes the order in which a reshape takes elements."""
    return ops.Reshape(ops.Transpose(x, perm=p), shape=s), ops.Reshape(x, shape=s)


@rule("uneven/order-of-shapes")
def order_of_shapes(x: Tensor, y: Tensor, s: Ints) -> Sides:
    """Columns of two shapes cannot be joined."""
    return ops.Reshape(x * y, shape=s), ops.Reshape(y * x, shape=s)


@rule("uneven/windows-after-windows")
def windows_twice(x: Tensor, k: Ints, s: Ints, d: Ints, p: Ints) -> Sides:
    """A window over windows is no sum over the taps of one."""
    at = {"kernel": k, "strides": s, "dilations": d, "pads": p, "ceil": 0}
    return ops.MaxPool(ops.MaxPool(x, **at), **at), ops.MaxPool(ops.MaxPool(x, **at), **at)


@rule("uneven/relu-of-sums")
def relu_of_sums(x: Tensor, w: Tensor, s: Ints, p: Ints, d: Ints, g: Int) -> Sides:
    """The rectified sum is no sum of rectified taps."""
    at = {"strides": s, "pads": p, "dilations": d, "group": g}
    return ops.Relu(ops.Conv(x, w, **at)), ops.Relu(ops.Relu(ops.Conv(x, w, **at)))


@rule("uneven/nine-axes")
def nine_axes(x: Tensor, a: Int, b: Int, c: Int, d: Int) -> Sides:
    """Four axes with one between each two, and one more at each end."""
    total: Term = x
    for axis in (a, b, c, d):
        total = ops.ReduceSum(total, axes=(axis,), **KEPT)
    apart = [a + 1 < b, b + 1 < c, c + 1 < d]
    return total, total + total - total, a >= 1, d + 1 < x.rank, *apart


UNEVEN = [one for one in list(globals().values()) if isinstance(one, Rule)]

# Told --------------------------------------------------------------------------------------------


@rule("told/two-permutations")
def two_permutations(x: Tensor, p: Ints, q: Ints, i: Int) -> Sides:
    """An axis goes with its column."""
    turned = ops.Transpose(ops.Transpose(x, perm=p), perm=q)
    right = ops.Transpose(ops.Transpose(ops.Softmax(x, axis=p[q[i]]), perm=p), perm=q)
    return ops.Softmax(turned, axis=i), right


@rule("told/sets")
def sets(x: Tensor, y: Tensor, k: Ints, d: Int) -> Sides:
    """Columns of a set are joined, kept or dropped."""
    left = ops.ReduceSum(x, axes=k, keepdims=d) + ops.ReduceSum(y, axes=k, keepdims=d)
    return left, ops.ReduceSum(x + y, axes=k, keepdims=d), x.shape == y.shape


@rule("told/order-of-elements")
def order_kept(x: Tensor, y: Tensor, s: Ints, t: Ints) -> Sides:
    """Columns of one shape are joined in order."""
    left = ops.Reshape(ops.Reshape(x, shape=s) * ops.Reshape(y, shape=s), shape=t)
    return left, ops.Reshape(x * y, shape=t), x.shape == y.shape


@rule("told/pads")
def pads(x: Tensor, p: Ints) -> Sides:
    """An element is outside along one column."""
    return ops.Relu(ops.Pad(x, pads=p, value=0.0)), ops.Pad(ops.Relu(x), pads=p, value=0.0)


@rule("told/windows")
def windows(x: Tensor, y: Tensor, w: Tensor, s: Ints, p: Ints, d: Ints, g: Int) -> Sides:
    """A convolution is a sum over taps."""
    at = {"strides": s, "pads": p, "dilations": d, "group": g}
    return ops.Conv(x, w, **at) - ops.Conv(y, w, **at), ops.Conv(x - y, w, **at), x.shape == y.shape


@rule("told/transposed-windows")
def transposed(
    x: Tensor, y: Tensor, w: Tensor, s: Ints, p: Ints, d: Ints, g: Int, o: Ints
) -> Sides:
    """A transposed convolution is one over pairs of an element and a tap."""
    at = {"strides": s, "pads": p, "dilations": d, "group": g, "output_padding": o}
    left = ops.ConvTranspose(x, w, **at) + ops.ConvTranspose(y, w, **at)
    return left, ops.ConvTranspose(x + y, w, **at), x.shape == y.shape


@rule("told/bounded")
def bounded(x: Tensor, p: Ints) -> Sides:
    """What is refused otherwise is tried at all of a few ranks."""
    turned = ops.Transpose(x, perm=p)
    return turned + x, x + turned, x.rank <= 3


TOLD = {
    "two_permutations": 1,
    "sets": 1,
    "order_kept": 1,
    "pads": 2,
    "windows": 4,
    "transposed": 4,
    "bounded": 3,
}


@pytest.mark.parametrize("one", UNEVEN, ids=lambda one: one.name)
def test_what_low_ranks_do_not_tell_is_not_proved(one: Rule) -> None:
    with pytest.raises(Uneven):
        reach_of(one)
    proof = prove(one)
    assert proof.status == "unsupported"
    assert proof.reason.startswith(("higher ranks may differ", "Re"))


@pytest.mark.parametrize(("name", "highest"), TOLD.items())
def test_what_low_ranks_tell_is_proved_for_any(name: str, highest: int) -> None:
    one = globals()[name]
    assert reach_of(one).highest == highest
    proof = prove(one)
    assert proof.status == "proven", proof.reason
    assert ("any rank of" in proof.scope) == (name != "bounded")


def test_what_is_called_pointwise_is_elementwise() -> None:
    """The argument leaves out axes of these; some operators name axes of their own."""
    own = ("BatchNormalization", "Clamp")
    for name, op in OPS.items():
        if op.kind == "pointwise" and name not in own and op.index_fn is not None:
            assert op.index_fn.__qualname__.startswith("elementwise."), name


def test_all_ranks_of_the_book_are_told() -> None:
    for rules in families().values():
        for one in rules:
            assert reach_of(one).highest <= MOST_RANKS


# On instances ------------------------------------------------------------------------------------


A, B = Expr("attr", ("i",)), Expr("attr", ("j",))
K, P = Expr("attr", ("k",)), Expr("attr", ("p",))
X, Y = Var("x"), Var("y")
AXES = (A, B, P[A], A + 1, 0, 1, X.rank - 1, A, B)
CONDITIONS = (
    A != B, A < B, X.rank == A + 1, X.rank == Y.rank, X.shape == Y.shape, A + 1 < B, Y.rank == 0,
)  # fmt: skip


class Choices:
    """Numbers that choose a term; one that differs chooses a neighbour."""

    def __init__(self, numbers: list[int]) -> None:
        self.numbers, self.at = numbers, 0

    def of(self, options: tuple[Any, ...]) -> Any:
        self.at += 1
        return options[self.numbers[self.at - 1] % len(options)]

    def term(self, depth: int) -> Term:
        if not depth:
            leaf: Term = self.of((X, X, Y))
            return leaf
        inner, axis = self.term(depth - 1), self.of(AXES)
        made: Term = self.of((
            ops.Transpose(inner, perm=P),
            ops.ReduceSum(inner, axes=(axis,), **KEPT),
            ops.ReduceSum(inner, axes=K, **KEPT),
            slice_(inner, axis, 0, 1),
            concat(inner, inner, axis),
            inner * (self.term(depth - 1) if depth > 1 else Y),
            ops.ReduceSum(inner, axes=(axis,), keepdims=0),
            ops.ReduceSum(inner, axes=(axis,), **KEPT) + inner,
        ))  # fmt: skip
        return made


def _guess(draw: random.Random) -> Rule | None:
    """Two neighbours over the same axes, permutations and sets, equal or not."""
    numbers = [draw.randrange(1000) for _ in range(40)]
    other = list(numbers)
    other[draw.randrange(8)] = draw.randrange(1000)
    left, right = Choices(numbers).term(3), Choices(other).term(3)
    when = draw.sample(CONDITIONS, draw.randrange(3))

    def guess(x: Tensor, y: Tensor, i: Int, j: Int, k: Ints, p: Ints) -> Sides:
        return left, right, *when

    try:
        return rule("guess/one")(guess)
    except RuleError:
        return None  # the left side does not bind all variables


def _sizes(scenario: Scenario, draw: random.Random) -> dict[Atom, int] | None:
    symbols = {s for premise in scenario.premises for s in premise.symbols()}
    symbols |= {s for shape in scenario.shapes.values() for e in shape for s in e.symbols()}
    for _ in range(20):
        sizes = {s: draw.choice((1, 2, 2, 3)) for s in sorted(symbols)}
        if all(formula_value(premise, sizes) for premise in scenario.premises):
            return sizes
    return None


def _differs(scenario: Scenario, draw: random.Random) -> bool:
    sizes = _sizes(scenario, draw)
    if sizes is None:
        return False
    shapes = {
        name: tuple(int(poly_value(extent, sizes)) for extent in shape)
        for name, shape in scenario.shapes.items()
    }
    rng, field = np.random.default_rng(draw.randrange(10**6)), FieldDomain(seed=0)
    values = {name: field.random(rng, shape) for name, shape in shapes.items()}
    elements = (
        (evaluate(left, field, values, sizes, {}), evaluate(right, field, values, sizes, {}))
        for left, right in scenario.sides
    )
    return any(not np.array_equal(left, right) for left, right in elements)


def _found(one: Rule, highest: int, draw: random.Random, most: int) -> Iterator[Scenario]:
    found = list(scenarios(one, highest))
    yield from draw.sample(found, min(most, len(found)))


@pytest.mark.parametrize("guesses", [GUESSES, pytest.param(MANY, marks=pytest.mark.slow)])
def test_what_is_wrong_at_a_high_rank_is_wrong_at_one_that_is_tried(guesses: int) -> None:
    """Of rules that are wrong at rank 4 or 5, each is wrong at the ranks that it must be tried."""
    wrong = 0
    for seed in range(guesses):
        draw = random.Random(seed)
        one = _guess(draw)
        if one is None:
            continue
        try:
            highest = reach_of(one).highest
            high = list(_found(one, 4, draw, 12)) if highest < 4 else []
        except (Uneven, Unindexed):
            continue
        if not any(_differs(s, draw) for s in high):
            continue
        wrong += 1
        low = list(_found(one, highest, draw, 10**6))
        assert any(_differs(s, draw) for _ in range(6) for s in low), f"{one} up to {highest}"
    assert wrong > guesses // 120
