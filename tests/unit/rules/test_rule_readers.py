"""The e-graph and the matcher read a rule alike: every kind of condition and of expression."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from eqsat_opt.egraph import saturate
from eqsat_opt.errors import RuleError
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.values.dims import Dim, sym
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.lab.testing import GraphMaker
from eqsat_opt.lab.testing.eclasses import check_eclasses
from eqsat_opt.lab.testing.graphs import as_dim
from eqsat_opt.rules import Rule, rule
from eqsat_opt.rules.bindings import Bindings, size
from eqsat_opt.rules.matcher import Matcher
from eqsat_opt.rules.rule import Float, Int, Ints, Sides, Tensor
from eqsat_opt.rules.term import (
    Apply,
    Condition,
    Expr,
    Term,
    distinct,
    far,
    is_float,
    near,
    ops,
    real,
    sqrt,
)
from tests.oracles.substitution import matches

FIRST = {"axes": (0,), "keepdims": 1}


@dataclass(frozen=True)
class Names:
    """The variables of the rules below."""

    x: Tensor
    y: Tensor
    a: Int
    b: Int
    f: Float
    g: Float
    p: Ints


def left(n: Names) -> tuple[Term, Term]:
    """The two operands of an addition."""
    shaped = ops.Reshape(n.x, shape=(n.a, n.b))
    scaled = ops.Scale(ops.Shift(shaped, offset=n.g), factor=n.f)
    return scaled, ops.Transpose(n.y, perm=n.p)


def with_condition(name: str, condition: Callable[[Names], Condition]) -> Rule:
    @rule(name)
    def made(x: Tensor, y: Tensor, a: Int, b: Int, f: Float, g: Float, p: Ints) -> Sides:
        n = Names(x, y, a, b, f, g, p)
        one, other = left(n)
        return one + other, other + one, condition(n)

    return made


def with_factor(name: str, number: int, factor: Callable[[Names], Expr]) -> Rule:
    @rule(name)
    def made(x: Tensor, y: Tensor, a: Int, b: Int, f: Float, g: Float, p: Ints) -> Sides:
        n = Names(x, y, a, b, f, g, p)
        one, other = left(n)
        marked = ops.Shift(n.x, offset=1000.0 + number)
        return one + other, ops.Scale(ops.Reshape(marked, shape=(n.a, n.b)), factor=factor(n))

    return made


CONDITIONS: dict[str, Callable[[Names], Condition]] = {
    "same-shape": lambda n: n.x.shape == n.y.shape,
    "distinct": lambda n: distinct(n.x, n.y),
    "is-float": lambda n: is_float(n.x),
    "rank-equal": lambda n: n.x.rank == 2,
    "rank-less": lambda n: n.x.rank < 3,
    "extent-equal": lambda n: n.x.dim(0) == n.a,
    "extent-is-three": lambda n: n.x.dim(0) == 3,
    "no-such-extent": lambda n: n.x.dim(7) == n.x.dim(7),
    "no-such-element": lambda n: n.p[2] == n.p[2],
    "before-the-first": lambda n: n.x.dim(n.a - 9) == n.x.dim(0),
    "extent-by-element": lambda n: n.y.dim(n.p[0]) == n.a,
    "extent-by-symbol": lambda n: n.x.dim(n.a - n.a) == n.x.dim(0),
    "sums-equal": lambda n: n.a + n.b - n.b == n.a,
    "products-equal": lambda n: n.a * 2 == n.a + n.a,
    "extent-differs": lambda n: n.x.dim(0) != 1,
    "extents-differ": lambda n: n.x.dim(0) != n.y.dim(0),
    "attribute-differs": lambda n: n.a != 1,
    "element-differs": lambda n: n.p[0] != n.p[1],
    "extent-less": lambda n: n.x.dim(0) < 4,
    "extent-greater": lambda n: n.x.dim(0) > 1,
    "extent-at-least": lambda n: n.x.dim(0) >= n.x.dim(0),
    "attribute-at-least": lambda n: n.a >= 2,
    "attribute-at-most": lambda n: n.a <= n.b,
    "element-less": lambda n: n.p[1] < n.p[0],
    "odd": lambda n: n.x.dim(0) - (n.x.dim(0) // 2) * 2 == 1,
    "even-attribute": lambda n: (n.a // 2) * 2 == n.a,
    "floor-below-zero": lambda n: (n.a - 4) // 2 == 0,
    "floor-is-minus-one": lambda n: (n.a - 4) // 2 == -1,
    "negative-divisor": lambda n: n.a // (n.b - 6) == -1,
    "quotient-by-zero": lambda n: n.a // (n.b - n.b) == 0,
    "quotient-times-symbol": lambda n: ((n.p[0] + 2) // 2) * (n.x.dim(0) - n.x.dim(0)) == 0,
    "ratio": lambda n: n.a / n.b == 1.5,
    "float-equal": lambda n: n.f == n.g,
    "float-differs": lambda n: n.f != 0.0,
    "floats-differ": lambda n: n.f != n.g,
    "float-less": lambda n: n.f < n.g,
    "float-greater": lambda n: n.f > 0.0,
    "float-at-most": lambda n: n.f <= n.g,
    "float-at-least": lambda n: n.f >= 0,
    "float-of-extent": lambda n: n.f == n.x.dim(0),
    "float-less-than-extent": lambda n: n.f < n.x.dim(0),
    "real-extent": lambda n: real(n.x.dim(0)) == 3.0,
    "real-greater": lambda n: real(n.a) * 0.5 > 1.0,
    "half-extent": lambda n: n.a * 0.5 == 1.5,
    "root": lambda n: sqrt(n.f) == 2.0,
    "root-exists": lambda n: sqrt(n.f) == sqrt(n.f),
    "root-of-extent": lambda n: sqrt(n.a) > 0.0,
    "reciprocal-exists": lambda n: 1.0 / n.f == 1.0 / n.f,
    "overflows": lambda n: n.f * 1e300 == n.f * 1e300,
    "overflows-below": lambda n: 1.0 / (n.f * 1e300) < 1.0,
    "difference": lambda n: n.f - n.g == 0.0,
    "near": lambda n: near(n.f, 4.0),
    "near-each-other": lambda n: near(n.f, n.g),
    "far": lambda n: far(n.f, 4.0),
    "far-from-infinite": lambda n: far(n.f, math.inf),
    "near-extent": lambda n: near(real(n.a), 3.0),
    "near-symbol": lambda n: near(n.a, 3.0),
    "far-from-symbol": lambda n: far(n.f, n.x.dim(0)),
}
FACTORS: dict[str, Callable[[Names], Expr]] = {
    "whole": lambda n: n.f * 0 + 3,
    "infinite": lambda n: n.f * 0 + math.inf,
    "extent": lambda n: real(n.x.dim(0)),
    "extent-as-it-is": lambda n: n.x.dim(0),
    "attribute": lambda n: n.a,
    "plus-nothing": lambda n: n.f + n.x.dim(0) * 0.0,
    "ratio": lambda n: n.a / n.b,
    "floor": lambda n: (n.a - 5) // 2,
    "negative-divisor": lambda n: n.a // -2,
    "mixed": lambda n: n.a * 2 + n.f,
    "sum": lambda n: n.f + n.g,
    "quotient": lambda n: n.f / n.g,
    "reciprocal": lambda n: 1 / n.f,
    "root": lambda n: sqrt(n.f),
    "root-of-sum": lambda n: n.g + 0.0 * sqrt(n.f + n.g),
    "overflow": lambda n: n.f * 1e300 / 1e300,
    "overflow-below": lambda n: 1.0 / (n.f * 1e300),
    "element": lambda n: n.p[0] * 1.0,
    "rank": lambda n: n.x.rank * n.f,
}
MODELS: dict[str, tuple[tuple[int | str, ...], tuple[int | str, int], float, float]] = {
    "three-rows": ((3, 2), (3, 2), 4.0, 4.0),
    "one-row": ((1, 4), (1, 4), 0.0, -0.0),
    "four-rows": ((2, 4), (4, 2), -2.0, 1.0),
    "rank-three": ((1, 3, 5), (3, 5), 4.0000001, 4.0),
    "large": ((6, 2), (2, 6), 1e10, -1e300),
    "infinite": ((3, 2), (3, 2), math.inf, 1.0),
    "minus-infinite-left": ((3, 2), (3, 2), -math.inf, 1.0),
    "minus-infinite": ((3, 2), (3, 2), 1.0, -math.inf),
    "both-infinite": ((3, 2), (3, 2), math.inf, math.inf),
    "no-number": ((3, 2), (3, 2), math.nan, math.nan),
    "no-number-right": ((3, 2), (3, 2), 1.0, math.nan),
    "symbolic": (("N", 3), ("N", 3), 4.0, 1.0),
    "symbolic-behind": ((3, "N"), ("N", 3), 3.0, 3.0),
}  # fmt: skip


def model(name: str) -> tuple[Graph, Bindings]:
    shape, (rows, columns), f, g = MODELS[name]
    maker = GraphMaker()
    x, y = maker.input("x", *shape), maker.input("y", columns, rows)
    target = maker.input("target", rows, columns)
    attrs = maker.type(target).shape
    shaped = maker("Reshape", x, shape=attrs)
    scaled = maker("Scale", maker("Shift", shaped, offset=g), factor=f)
    total = maker("Add", scaled, maker("Transpose", y, perm=(1, 0)))
    types = {"x": maker.type(x), "y": maker.type(y)}
    values = {"a": attrs[0], "b": attrs[1], "f": f, "g": g, "p": (1, 0)}
    return maker.graph(total), Bindings(types, values)


RULES = [with_condition(f"condition/{name}", make) for name, make in CONDITIONS.items()]
MAKING = [with_factor(f"factor/{name}", i, make) for i, (name, make) in enumerate(FACTORS.items())]


@pytest.mark.parametrize("name", MODELS)
def test_conditions_are_read_alike(name: str) -> None:
    graph, _ = model(name)
    matcher = Matcher(graph)
    expected = {one.name for one in RULES if any(True for _ in matches(matcher, one))}
    assert set(saturate(graph, RULES).report.matches) == expected


@pytest.mark.parametrize("name", MODELS)
def test_attributes_are_read_alike(name: str) -> None:
    graph, bindings = model(name)
    eclasses = saturate(graph, MAKING).eclasses
    made = {
        eclasses.rule_of(node): dict(eclasses.attrs[node])["factor"]
        for node in range(eclasses.n_nodes)
        if eclasses.op[node] == "Scale" and eclasses.origin[node]
    }
    matcher = Matcher(graph)
    expected: dict[str | None, Any] = {}
    for one in MAKING:
        (root,) = one.rhs
        assert isinstance(root, Apply)
        if any(True for _ in matches(matcher, one)):
            expected[one.name] = size(root.attrs["factor"], bindings)
    assert set(made) == set(expected)
    for rule_name, value in expected.items():
        assert float(str(made[rule_name])) == pytest.approx(value, rel=1e-15), rule_name


def test_every_condition_tells_models_apart() -> None:
    """One that never holds would test nothing; neither would one that fails nowhere."""
    held: dict[str, Sequence[bool]] = {}
    for one in RULES:
        held[one.name] = [any(True for _ in matches(model(m)[0], one)) for m in MODELS]
    never = {name.split("/")[1] for name, found in held.items() if not any(found)}
    assert never == {
        "no-such-extent", "no-such-element", "before-the-first", "quotient-by-zero",
        "far-from-infinite",
    }  # fmt: skip


# Rules that were right for one reader and wrong for the other -------------------------------------


def rows_of(x: Tensor) -> Term:
    """The number of rows, as a tensor."""
    return ops.ReduceSum(ops.HardSigmoid(x, alpha=0.0, beta=1.0), **FIRST)


def mean_over(x: Tensor, least: float) -> tuple[Term, Term]:
    """A mean, and what is one if there are ``least`` rows or more."""
    total = ops.ReduceSum(x, **FIRST) / ops.Clip(rows_of(x), min=least, max=1e6)
    return ops.ReduceMean(x, **FIRST), total


@rule("wrong-if-read-loosely/not-one")
def not_one(x: Tensor) -> Sides:
    one, other = mean_over(x, 2.0)
    return one, other, x.dim(0) != 1


@rule("wrong-if-read-loosely/two-or-more")
def two_or_more(x: Tensor, a: Int, b: Int) -> Sides:
    y = ops.Reshape(x, shape=(a, b))
    total = ops.ReduceSum(ops.HardSigmoid(y, alpha=0.0, beta=1.0), **FIRST)
    right = ops.ReduceSum(y, **FIRST) / ops.Clip(total, min=2.0, max=1e6)
    return ops.ReduceMean(y, **FIRST), right, a >= 2


@rule("wrong-if-read-loosely/odd")
def odd(x: Tensor) -> Sides:
    one, other = mean_over(x, 3.0)
    return one, other, x.dim(0) - (x.dim(0) // 2) * 2 == 1


@rule("wrong-if-read-loosely/floor")
def floor(x: Tensor) -> Sides:
    one, other = mean_over(x, 4.0)
    return one, other, (x.dim(0) - 4) // 2 == 0


@rule("wrong-if-read-loosely/root")
def root(x: Tensor, a: Float, b: Float) -> Sides:
    return ops.Clip(x, min=a, max=b), ops.Clip(x, min=a, max=b + 0.0 * sqrt(b))


@rule("wrong-if-read-loosely/two-roots")
def two_roots(x: Tensor, y: Tensor) -> Sides:
    """The second equation holds where the first one types: as many rows."""
    ones = ops.Fill(shape=(x.dim(0), 1), value=1.0, dtype="float32")
    reshaped = ops.Relu(ops.Reshape(x, shape=(y.dim(0), x.dim(1))))
    mean = ops.ReduceSum(y, **FIRST) / ops.ReduceSum(ones, **FIRST)
    return (ops.Relu(x), ops.ReduceMean(y, **FIRST)), (reshaped, mean), x.rank == 2, y.rank == 2


def mean_of(*shape: int | str, reshaped: tuple[int | str, ...] = ()) -> Graph:
    g = GraphMaker()
    x = g.input("x", *shape)
    if reshaped:
        x = g("Reshape", x, shape=tuple(map(as_dim, reshaped)))
    return g.graph(g("ReduceMean", x, axes=(0,), keepdims=1))


def clip(low: float, high: float) -> Graph:
    g = GraphMaker()
    return g.graph(g("Clip", g.input("x", 6), min=low, max=high))


def relu_and_mean(rows_of_x: int, rows_of_y: int) -> Graph:
    g = GraphMaker()
    x, y = g.input("x", rows_of_x, 4), g.input("y", rows_of_y, 4)
    return g.graph(g("Relu", x), g("ReduceMean", y, axes=(0,), keepdims=1))


@pytest.mark.parametrize(
    ("one", "wrong", "right", "rows_of_n"),
    [
        (not_one, mean_of("N", 4), mean_of(2, 4), 1),
        (two_or_more, mean_of("N", 2, 2, reshaped=("N", 4)), mean_of(2, 2, reshaped=(2, 2)), 1),
        (odd, mean_of("N", 4), mean_of(5, 4), 2),
        (floor, mean_of(3, 4), mean_of(5, 4), 0),
        (root, clip(-3.0, -1.0), clip(-3.0, 1.0), 0),
        (two_roots, relu_and_mean(5, 3), relu_and_mean(5, 5), 0),
    ],
    ids=lambda value: value.name if isinstance(value, Rule) else "",
)  # fmt: skip
def test_a_rule_is_applied_where_it_holds_alone(
    one: Rule, wrong: Graph, right: Graph, rows_of_n: int
) -> None:
    for graph in (wrong, right):
        saturation = saturate(graph, [one])
        assert not check_eclasses(saturation, dims={"N": rows_of_n}).bad
        assert bool(saturation.eclasses.united_by) is (graph is right)
        assert any(True for _ in matches(graph, one)) is (graph is right)


def test_a_difference_of_symbols_is_no_number() -> None:
    difference: Dim = sym("total") - sym("past")
    g = GraphMaker()
    (made,) = g.opaque("Trim", g.input("x", 3), outputs=(TensorType("float32", (difference, 4)),))
    saturation = saturate(g.graph(g("ReduceMean", made, axes=(0,), keepdims=1)), [not_one])
    assert not saturation.eclasses.united_by
    assert TensorType("float32", (difference, 4)) in saturation.eclasses.types


# Numbers ------------------------------------------------------------------------------------------


def test_an_infinite_bound_is_read_back() -> None:
    @rule("test/bound")
    def bound(x: Tensor) -> Sides:
        return ops.Relu(x), ops.Clip(x, min=0, max=math.inf)

    g = GraphMaker()
    eclasses = saturate(g.graph(g("Relu", g.input("x", 3))), [bound]).eclasses
    attrs = [eclasses.attrs[n] for n in range(eclasses.n_nodes) if eclasses.op[n] == "Clip"]
    assert attrs == [(("max", math.inf), ("min", 0.0))]


def test_whole_literals_meet_the_models_floats() -> None:
    """A rule may say 6 where the model says 6.0."""

    @rule("test/six")
    def six(x: Tensor) -> Sides:
        return ops.Clip(x, min=0, max=6), ops.Relu(x)

    assert saturate(clip(0.0, 6.0), [six]).report.matches == {"test/six": 1}


def test_a_float_is_no_axis() -> None:
    @rule("test/axis")
    def axis(x: Tensor, f: Float) -> Sides:
        return ops.Scale(x, factor=f), ops.Softmax(x, axis=f)

    g = GraphMaker()
    with pytest.raises(RuleError, match="test/axis: f is of kind float, where int is wanted"):
        saturate(g.graph(g("Scale", g.input("x", 3), factor=2.0)), [axis])


def test_a_list_is_compared_by_its_elements() -> None:
    @rule("test/list")
    def whole(x: Tensor, p: Ints, q: Ints) -> Sides:
        return ops.Reshape(ops.Reshape(x, shape=p), shape=q), ops.Reshape(x, shape=q), p != q

    g = GraphMaker()
    value = g("Reshape", g("Reshape", g.input("x", 3, 2), shape=(2, 3)), shape=(6,))
    with pytest.raises(RuleError, match="test/list: compare the elements of"):
        saturate(g.graph(value), [whole])


def test_a_single_integer_is_no_symbol() -> None:
    """It would be read back as the large number that stands for one."""

    @rule("test/kernel")
    def kernel(x: Tensor) -> Sides:
        made = ops.IdentityKernel(channels=x.dim(0), height=1, width=1, dtype="float32")
        nothing = ops.Scale(ops.ReduceSum(made, axes=(0, 1, 2), keepdims=1), factor=0.0)
        return ops.Relu(x), ops.Relu(x + nothing)

    for rows in (3, "N"):
        g = GraphMaker()
        graph = g.graph(g("Relu", g.input("x", rows, 4, 4, 1)))
        assert bool(saturate(graph, [kernel]).report.matches) is (rows == 3)
