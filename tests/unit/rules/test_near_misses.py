"""Where a rule would have applied, and what kept it: conditions with their values and reasons."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from eqsat_opt.cli.app import run
from eqsat_opt.lab.testing import GraphMaker
from eqsat_opt.rules import (
    Int,
    Ints,
    Rule,
    Sides,
    Tensor,
    Weight,
    distinct,
    families,
    follows,
    is_float,
    near_misses,
    ops,
    rule,
)
from eqsat_opt.rules.near_misses import NearMiss

BOOK = {one.name: one for rules in families().values() for one in rules}


def misses(graph: GraphMaker, result: str, *rules: Rule) -> tuple[NearMiss, ...]:
    return near_misses.near_misses([graph.graph(result)], rules)


def wide(*conditions: Callable[[Tensor, Int], object], name: str = "test/wide") -> Rule:
    def made(x: Tensor, i: Int) -> Sides:
        left = ops.ReduceSum(ops.Relu(x), axes=(i,), keepdims=1)
        return (
            left,
            ops.ReduceSum(ops.Relu(x), axes=(i,), keepdims=1),
            *(c(x, i) for c in conditions),
        )

    return rule(name)(made)


def summed(axis: int, *shape: int, dtype: str = "float32") -> tuple[GraphMaker, str]:
    g = GraphMaker()
    x = g.input("x", *shape, dtype=dtype)
    return g, g("ReduceSum", g("Relu", x), axes=(axis,), keepdims=1)


def test_a_condition_with_its_values_and_its_reason() -> None:
    one = wide(lambda x, i: (x.dim(i) == 8).because("the kernel is 8 wide"))
    (miss,) = misses(*summed(1, 4, 16), one)
    assert (miss.rule, miss.count) == ("test/wide", 1)
    assert miss.condition == "x.dim(i) == 8"
    assert miss.reason == "the kernel is 8 wide"
    assert miss.places[0].node == "v1"
    assert dict(miss.places[0].values) == {"i": "1", "x.dim(i)": "16"}
    assert str(miss) == "x.dim(i) == 8 (i = 1, x.dim(i) = 16): the kernel is 8 wide"
    assert misses(*summed(1, 4, 8), one) == ()


def test_the_first_condition_that_fails_is_named() -> None:
    one = wide(lambda x, _: x.rank == 2, lambda x, _: x.dim(0) == 5, lambda x, _: x.dim(1) == 8)
    (miss,) = misses(*summed(1, 4, 16), one)
    assert str(miss) == "x.dim(0) == 5 (x.dim(0) = 4)"


def test_an_extent_that_is_not_there() -> None:
    (miss,) = misses(*summed(1, 4, 16), wide(lambda x, _: x.dim(3) == 5))
    assert str(miss) == "x.dim(3) == 5 (x.dim(3) = undefined)"


def test_types_of_operands() -> None:
    (miss,) = misses(*summed(0, 4, dtype="int64"), wide(lambda x, _: is_float(x)))
    assert str(miss) == "x is floating point (x = int64[4])"

    def twin(x: Tensor, y: Tensor) -> Sides:
        return x * y, y * x, x.shape == y.shape

    g = GraphMaker()
    (miss,) = misses(g, g("Mul", g.input("x", 2, 3), g.input("y", 3)), rule("test/twin")(twin))
    assert str(miss) == "same-shape(x, y) (x = float32[2,3], y = float32[3])"


def test_operands_that_are_one_value() -> None:
    def two(x: Tensor, y: Tensor) -> Sides:
        return x - y, x - y, distinct(x, y)

    g = GraphMaker()
    x = g.input("x", 2)
    (miss,) = misses(g, g("Sub", x, x), rule("test/two")(two))
    assert str(miss) == "distinct(x, y)"


def test_the_other_order_of_siblings_is_no_miss() -> None:
    def siblings(x: Tensor, a: Weight, b: Weight) -> Sides:
        return (x @ a, x @ b), (x @ a, x @ b), follows(a, b)

    g = GraphMaker()
    x = g.input("x", 2, 3)
    total = g("Add", g("MatMul", x, g.weight(3, 3)), g("MatMul", x, g.weight(3, 3)))
    assert misses(g, total, rule("test/siblings")(siblings)) == ()


def test_right_sides_without_a_type_or_of_another() -> None:
    def flattened(x: Tensor, p: Ints) -> Sides:
        return ops.Transpose(x, perm=p), ops.MatMul(x, x)

    def dropped(x: Tensor) -> Sides:
        return ops.ReduceSum(x, axes=(0,), keepdims=1), x

    g = GraphMaker()
    turned = g("Transpose", g.input("x", 2, 3), perm=(1, 0))
    (miss,) = misses(g, turned, rule("test/flat")(flattened))
    assert miss.condition.startswith("the right side has no type: ")
    g = GraphMaker()
    total = g("ReduceSum", g.input("x", 2, 3), axes=(0,), keepdims=1)
    (miss,) = misses(g, total, rule("test/dropped")(dropped))
    assert miss.condition == "the right side is float32[2,3], the left side float32[1,3]"
    assert miss.places[0].values == ()


def test_places_are_counted_and_some_are_named() -> None:
    g = GraphMaker()
    value = g.input("x", 4)
    for _ in range(5):
        value = g("ReduceSum", g("Relu", value), axes=(0,), keepdims=1)
    more = wide(lambda x, _: x.rank > 1, name="test/more")
    first, rest = misses(g, value, wide(lambda x, _: x.dim(0) == 8), more)
    for miss in (first, rest):
        assert miss.count == 5
        assert [place.node for place in miss.places] == ["v1", "v3", "v5"]
    assert [dict(place.values) for place in first.places] == [{"x.dim(0)": n} for n in "411"]


def test_operands_in_the_other_order() -> None:
    """The e-graph commutes sums, so a miss is one in whatever order the model has."""

    def scaled(x: Tensor, y: Tensor) -> Sides:
        return ops.Relu(x) + y, ops.Relu(x) + y, x.rank == 3

    g = GraphMaker()
    y, x = g.input("y", 2), g.input("x", 2)
    (miss,) = misses(g, g("Add", y, g("Relu", x)), rule("test/scaled")(scaled))
    assert (miss.count, str(miss)) == (1, "x.rank == 3 (x.rank = 1)")


def test_the_nearest_of_several_ways_counts() -> None:
    def product(x: Tensor, y: Tensor) -> Sides:
        return x * y, y * x, x.rank == 2, x.dim(0) == 7

    g = GraphMaker()
    small, large = g.input("a", 3), g.input("b", 5, 3)
    (miss,) = misses(g, g("Mul", small, large), rule("test/product")(product))
    assert str(miss) == "x.dim(0) == 7 (x.dim(0) = 5)"
    # Where it applies in one way there is no miss.
    g = GraphMaker()
    small, large = g.input("a", 3), g.input("b", 7, 3)
    assert misses(g, g("Mul", small, large), rule("test/product")(product)) == ()


def test_both_directions() -> None:
    def both(x: Tensor) -> Sides:
        return ops.Relu(ops.Abs(x)), ops.Abs(x), x.rank == 2

    g = GraphMaker()
    found = misses(g, g("Abs", g.input("x", 3)), rule("test/both", bidirectional=True)(both))
    assert [miss.rule for miss in found] == ["test/both-reversed"]


def test_rules_of_the_book_come_last() -> None:
    g = GraphMaker()
    x = g.input("x", 2, 1, 4, 4)
    pooled = g("GlobalAveragePool", g("Relu", x))
    one = BOOK["pool/global-average-1d"]

    def mine(x: Tensor) -> Sides:
        return ops.Relu(x), ops.Relu(x), x.rank == 9

    found = misses(g, pooled, one, rule("test/mine")(mine))
    assert [(miss.rule, str(miss)) for miss in found] == [
        ("test/mine", "x.rank == 9 (x.rank = 4)"),
        ("pool/global-average-1d", "x.rank == 3 (x.rank = 4)"),
    ]


def test_time_and_size_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    def pair(x: Tensor, y: Tensor) -> Sides:
        return (ops.Relu(x), ops.Relu(y)), (ops.Relu(x), ops.Relu(y)), x.rank == 2

    g = GraphMaker()
    x = g.input("x", 3)
    total = g("Relu", x)
    for _ in range(40):
        total = g("Add", total, g("Relu", total))
    graph, one = g.graph(total), rule("test/pair")(pair)
    assert near_misses.near_misses([graph], [one], time_limit_s=-1.0) == ()
    (whole,) = near_misses.near_misses([graph], [one])
    monkeypatch.setattr(near_misses, "_TRIES", 50)
    (part,) = near_misses.near_misses([graph], [one])
    assert part.count < 51 < whole.count


# explain -----------------------------------------------------------------------------------------

OWN = """
from eqsat_opt.rules import *

@rule("mine/twice", phase=Phase.SIMPLIFY)
def twice(x: Tensor):
    return ops.Relu(ops.Relu(x)), ops.Relu(x), (x.dim(1) == 8).because("[bold] is no markup")
"""


def test_explain_tells_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EQSAT_OPT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "mine.py").write_text(OWN)
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="second"),
        helper.make_node("GlobalAveragePool", ["b"], ["y"], name="pool"),
    ]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", (2, 16, 4, 4)), ("y", (2, 16, 1, 1)))
    ]
    model = helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:]))
    onnx.save(model, tmp_path / "m.onnx")
    command = [
        "explain", str(tmp_path / "m.onnx"), "--rules", f"pool,{tmp_path / 'mine.py'}",
        "--no-measure", "--store", "", "--objective", "launches",
        "--json", str(tmp_path / "e.json"),
    ]  # fmt: skip
    assert run(command) == 0
    text = capsys.readouterr().out
    assert "x.dim(1) == 8 (x.dim(1) = 16): [bold] is no markup" in text
    assert "x.rank == 3 (x.rank = 4)" in text
    told = json.loads((tmp_path / "e.json").read_text())["near_misses"]
    assert told[0] == {
        "rule": "mine/twice",
        "condition": "x.dim(1) == 8",
        "reason": "[bold] is no markup",
        "count": 1,
        "places": [{"node": "second", "values": {"x.dim(1)": "16"}}],
    }
    assert {one["rule"] for one in told[1:]} >= {"pool/global-average-1d"}
