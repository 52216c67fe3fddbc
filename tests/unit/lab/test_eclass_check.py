"""The numeric e-class check finds wrong unions, names their rule, and none of the book's."""

from __future__ import annotations

import numpy as np
import onnx_ir
import pytest

from eqsat_opt.egraph import Budget, Saturation, saturate
from eqsat_opt.ir.graph.graph import OPAQUE, Graph
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.values.types import OtherType, TensorType
from eqsat_opt.lab import zoo
from eqsat_opt.lab.testing import GraphMaker
from eqsat_opt.lab.testing.eclasses import check_eclasses
from eqsat_opt.proving.selection import default_rules
from eqsat_opt.rules import Rule, rule
from eqsat_opt.rules.rule import Int, Ints, Sides, Tensor, Weight
from eqsat_opt.rules.term import concat, ops
from tests.unit.zoo_models import each_model


def network() -> Graph:
    """Two branches of a convolutional network and a chain of products."""
    g = GraphMaker()
    x = g.input("x", 1, 8, 6, 6)
    branches = [
        g("Relu", g.conv(x, g.weight(4, 8, k, k), g.weight(4), pad=k // 2)) for k in (1, 3, 3)
    ]
    joined = g("Concat", *branches, axis=1)
    pool = {
        "kernel": (3, 3),
        "strides": (1, 1),
        "pads": (1, 1, 1, 1),
        "dilations": (1, 1),
        "ceil": 0,
    }
    pooled = g("AveragePool", joined, **pool, count_include_pad=0)
    chain = g.input("m", 4, 5)
    for _ in range(2):
        chain = g("MatMul", chain, g.weight(5, 5))
    return g.graph(g("Add", pooled, joined), chain)


def checked(graph: Graph, *extra: Rule, iterations: int = 6) -> tuple[Saturation, tuple[str, ...]]:
    """The saturation with the book and ``extra``, and the rules that the check suspects."""
    saturation = saturate(
        graph, [*default_rules(), *extra], Budget(nodes=5_000, iterations=iterations)
    )
    report = check_eclasses(saturation)
    assert bool(report.bad) == bool(report.suspects)
    return saturation, report.suspects


def test_the_book_makes_no_bad_class() -> None:
    saturation, blamed = checked(network())
    assert not blamed
    report = check_eclasses(saturation)
    assert report.equalities >= 10
    assert report.skipped == 0
    assert str(report).endswith("none bad")


@rule("wrong/relu-of-sum")
def relu_of_sum(x: Tensor, y: Tensor) -> Sides:
    return ops.Relu(x + y), ops.Relu(x) + ops.Relu(y)


@rule("wrong/concat-commute")
def concat_commute(x: Tensor, y: Tensor, axis: Int) -> Sides:
    return concat(x, y, axis), concat(y, x, axis)


@rule("wrong/transposed-weight")
def transposed_weight(x: Tensor, w: Weight) -> Sides:
    return x @ w, x @ ops.Transpose(w, perm=(1, 0))


@rule("wrong/include-pad")
def include_pad(x: Tensor, k: Ints, s: Ints, p: Ints, d: Ints) -> Sides:
    attrs = {"kernel": k, "strides": s, "pads": p, "dilations": d, "ceil": 0}
    pools = (ops.AveragePool(x, **attrs, count_include_pad=i) for i in (0, 1))
    return tuple(pools)


@pytest.mark.parametrize(
    "wrong", [relu_of_sum, concat_commute, transposed_weight, include_pad], ids=lambda one: one.name
)
def test_a_wrong_rule_is_found_and_named(wrong: Rule) -> None:
    # One round: in more of them the damage spreads, and ever more rules look faulty.
    _, blamed = checked(network(), wrong, iterations=1)
    assert blamed[0] == wrong.name
    assert wrong.name in checked(network(), wrong)[1]


def test_a_rule_that_drops_an_operand_is_found() -> None:
    """Its class takes in its own operand: a loop, which still has to agree."""

    @rule("wrong/drop-addend")
    def drop(x: Tensor, y: Tensor) -> Sides:
        return x + y, x

    _, blamed = checked(network(), drop)
    assert "wrong/drop-addend" in blamed


def test_a_tiny_addend_is_found() -> None:
    @rule("wrong/tiny")
    def tiny(x: Tensor) -> Sides:
        return ops.Relu(x), ops.Relu(x) + ops.Scalar(value=1e-5, dtype="float32")

    # It applies to its own right side, so each round makes more of it.
    _, blamed = checked(network(), tiny, iterations=2)
    assert blamed[0] == "wrong/tiny"


def test_values_depend_on_the_seed_only() -> None:
    saturation, _ = checked(network(), relu_of_sum)
    assert check_eclasses(saturation, seed=5) == check_eclasses(saturation, seed=5)
    assert check_eclasses(saturation, seed=5).bad != check_eclasses(saturation, seed=6).bad


def test_weights_are_never_read() -> None:
    g = GraphMaker()
    x = g.input("x", 2, 200)
    big = g.weight(200, 200)
    graph = g.graph(g("MatMul", g("MatMul", x, big), g.weight(200, 200)))

    def refuse() -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        raise AssertionError("a weight was loaded")

    for handle in graph.constants.values():
        object.__setattr__(handle, "load", refuse)
    saturation = saturate(graph, default_rules())
    assert not check_eclasses(saturation).bad


def test_indices_are_real_and_fit() -> None:
    g = GraphMaker()
    table = g.weight(5, 4)
    tokens = g.input("tokens", 2, 3, dtype="int64")
    rows = g("Gather", table, tokens, axis=0)
    picked = g("Gather", rows, g.constant(np.array([3, 0])), axis=2)
    saturation, blamed = checked(g.graph(g("Relu", picked)))
    assert not blamed
    assert check_eclasses(saturation).skipped == 0


def test_symbolic_sizes_get_numbers() -> None:
    g = GraphMaker()
    x = g.input("x", "N", 8, "H", "H")
    w = g.weight(4, 8, 3, 3)
    y = g("Relu", g.conv(x, w, stride=2))
    flat = g("Reshape", y, shape=(g.type(y).shape[0], g.type(y).shape[2] * g.type(y).shape[3] * 4))
    saturation, blamed = checked(g.graph(flat))
    assert not blamed
    for dims in ({}, {"N": 2, "H": 9}):
        assert check_eclasses(saturation, dims=dims).skipped == 0


def test_opaque_outputs_are_drawn() -> None:
    g = GraphMaker()
    x = g.input("x", 2, 4)
    kinds = (TensorType("float32", (2, 4)), OtherType("sequence"))
    value, sequence = g.opaque("Custom", x, outputs=kinds)
    twice = g("Relu", g("Relu", value))
    _, blamed = checked(g.graph(g("MatMul", twice, g.weight(4, 4)), sequence))
    assert not blamed


def test_drawn_values_that_were_united_are_bad() -> None:
    @rule("wrong/forget")
    def forget(x: Tensor, y: Tensor) -> Sides:
        return (x - y, y - x), (x, y)

    g = GraphMaker()
    x, y = g.input("x", 3), g.input("y", 3)
    graph = g.graph(g("Sub", x, y), g("Sub", y, x))
    assert checked(graph, forget)[1]


@each_model
def test_the_zoo_has_no_bad_class(name: str) -> None:
    graph = import_model(onnx_ir.from_proto(zoo.build(name, scale="tiny")))
    saturation = saturate(graph, default_rules(), Budget(nodes=3_000))
    report = check_eclasses(saturation)
    assert not report.bad, str(report)
    assert not report.skipped or any(node.op == OPAQUE for node in graph.nodes)
    assert report.equalities
