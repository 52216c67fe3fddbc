"""Other forms of convolutions, pools and products: where they are found, that they are equal."""

from __future__ import annotations

import pytest

from eqsat_opt.egraph import Budget, saturate
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.values.dims import Dim
from eqsat_opt.lab.testing import GraphMaker
from eqsat_opt.lab.testing.eclasses import check_eclasses
from eqsat_opt.proving.selection import load_rules
from eqsat_opt.rules.rule import Numerics

FOUND_WITH = "form,reshape,transpose"


def united(graph: Graph) -> set[str]:
    """The rules of the family that united two terms; every e-node has the value of its class."""
    rules = load_rules(FOUND_WITH, Numerics.REASSOCIATE)
    saturation = saturate(normalise(graph), rules, Budget(nodes=2_000))
    report = check_eclasses(saturation, dims={"n": 7})
    assert not report.bad, str(report)
    names = {name for names in saturation.eclasses.united_by.values() for name in names}
    return {name for name in names if name.startswith("form/")}


def sequence(
    length: Dim | str = 12, *, kernel: int = 3, stride: int = 1, pads: tuple[int, int] = (1, 1),
    dilation: int = 1, group: int = 1,
) -> Graph:  # fmt: skip
    g = GraphMaker()
    y = g(
        "Conv", g.input("x", 2, 4, length), g.weight(6, 4 // group, kernel),
        strides=(stride,), pads=pads, dilations=(dilation,), group=group,
    )  # fmt: skip
    return g.graph(g("Relu", g("Add", y, g.weight(1, 6, 1))))


def pool(op: str, ceil: int = 0) -> Graph:
    g = GraphMaker()
    more = {"count_include_pad": 0} if op == "AveragePool" else {}
    y = g(
        op, g.input("x", 2, 4, 11), kernel=(3,), strides=(2,), pads=(1, 1), dilations=(1,),
        ceil=ceil, **more,
    )  # fmt: skip
    return g.graph(y)


def strided(kernel: int = 1, stride: int = 2) -> Graph:
    g = GraphMaker()
    return g.graph(g.conv(g.input("x", 1, 3, 5, 6), g.weight(4, 3, kernel, kernel), stride=stride))


def product(*kept: Dim | str, features: int, bias: bool) -> Graph:
    g = GraphMaker()
    y = g("MatMul", g.input("x", *kept, 2048), g.weight(2048, features))
    return g.graph(g("Add", y, g.weight(*(1 for _ in kept), features)) if bias else y)


@pytest.mark.parametrize(
    ("graph", "rules"),
    [
        (sequence(), {"form/sequence-as-row", "form/add-before-reshape-3d"}),
        (sequence("n"), {"form/sequence-as-row", "form/add-before-reshape-3d"}),
        (sequence(stride=2, group=2), {"form/strided-sequence-as-row"}),
        (pool("MaxPool"), {"form/max-of-sequence-as-row"}),
        (pool("AveragePool"), {"form/average-of-sequence-as-row"}),
        (sequence(dilation=3, pads=(3, 3)), {"form/sequence-as-row", "form/fold-dilation"}),
        (sequence(dilation=5, pads=(5, 4)), {"form/sequence-as-row", "form/fold-dilation-padded"}),
        (strided(), {"form/points-before-product"}),
        (product(1, features=2048, bias=False), {"form/product-as-pixel-2d"}),
        (product(1, 1, features=2048, bias=True), {"form/sum-as-pixel-3d"}),
        (product(3, features=2048, bias=True), {"form/sum-as-pixels-2d"}),
        (product(2, 2, features=2048, bias=False), {"form/product-as-pixels-3d"}),
    ],
)
def test_a_form_is_found(graph: Graph, rules: set[str]) -> None:
    assert rules <= united(graph)


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(sequence("n", stride=2), id="the quotient of a symbolic length"),
        pytest.param(pool("MaxPool", ceil=1), id="windows beyond the pads"),
        pytest.param(strided(kernel=3), id="a kernel of many pixels"),
        pytest.param(strided(stride=1), id="no stride"),
        pytest.param(product(33, features=2048, bias=True), id="many rows"),
        pytest.param(product(11, 3, features=2048, bias=True), id="many rows of sequences"),
        pytest.param(product("n", features=2048, bias=False), id="rows that are not known"),
        pytest.param(product(2, features=2047, bias=False), id="a small weight"),
    ],
)
def test_a_form_is_not_looked_for(graph: Graph) -> None:
    assert not united(graph)


def test_a_dilation_needs_a_row() -> None:
    g = GraphMaker()
    y = g(
        "Conv", g.input("x", 1, 2, 2, 8), g.weight(3, 2, 1, 3),
        strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 2), group=1,
    )  # fmt: skip
    assert not united(g.graph(y))


def test_a_bias_moves_with_its_channels_only() -> None:
    g = GraphMaker()
    flat = g("Reshape", g("Relu", g.input("x", 1, 4, 2, 3)), shape=(1, 8, 3))
    assert not united(g.graph(g("Add", flat, g.weight(1, 8, 1))))


def test_one_row_is_not_transposed() -> None:
    """One row has a form without transposes, so the one with them is not looked for."""
    assert united(product(1, features=2048, bias=False)) == {"form/product-as-pixel-2d"}
