"""Rules applied to graphs one place at a time."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat_opt.ir.graph.graph import OPAQUE, Graph, Node
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.lab.testing import GraphMaker, evaluate, random_inputs
from eqsat_opt.rules import families
from eqsat_opt.rules.matcher import Match, Matcher
from eqsat_opt.rules.rule import Func, Int, Rule, Sides, Tensor, directed, rule
from eqsat_opt.rules.term import ops
from tests.oracles.substitution import apply, matches

BOOK = {one.name: one for one in directed([r for rules in families().values() for r in rules])}


def only(graph: Graph, name: str) -> Match:
    (match,) = matches(graph, BOOK[name])
    return match


def rewritten(graph: Graph, one: Rule, index: int = 0) -> Graph:
    """``graph`` after the ``index``-th match, verified."""
    match = list(matches(graph, one))[index]
    result = apply(graph, match)
    result.check()
    assert [result.types[n] for n in result.outputs] == [graph.types[n] for n in graph.outputs]
    assert result.inputs == graph.inputs
    inputs = random_inputs(graph)
    for before, after in zip(evaluate(graph, inputs), evaluate(result, inputs), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-9, atol=1e-9)
    return result


def shape(graph: Graph, name: str) -> tuple[object, ...]:
    type_ = graph.tensor_type(name)
    assert type_ is not None
    return type_.shape


def operators(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def test_weight_chain_folds() -> None:
    g = GraphMaker()
    first = g("MatMul", g.input("x", 2, 4), g.weight(4, 5))
    graph = g.graph(g("MatMul", first, g.weight(5, 3)))
    result = rewritten(graph, BOOK["matmul/assoc"])
    assert result.outputs == graph.outputs
    product, root = result.nodes
    assert product.inputs == ("c0", "c1")
    assert root.inputs == ("x", product.output)
    assert root.rules == ("matmul/assoc",)
    assert root.sources == product.sources == ("v1", "v0")
    assert first not in result.types


def test_siblings_are_replaced_together_and_in_one_order() -> None:
    g = GraphMaker()
    x = g.input("x", 2, 4)
    query, key = (g("MatMul", x, g.weight(4, 3)) for _ in range(2))
    graph = g.graph(g("Relu", query), g("Tanh", key))
    match = only(graph, "matmul/merge-weights")
    assert match.roots == (query, key)
    assert (match.values["w"], match.values["v"]) == ("c0", "c1")
    result = rewritten(graph, BOOK["matmul/merge-weights"])
    assert operators(result).count("MatMul") == 1
    assert operators(result).count("Slice") == 2


def test_products_that_depend_on_each_other_are_not_stacked() -> None:
    g = GraphMaker()
    w = g.weight(4, 4)
    first = g("MatMul", g.input("x", 2, 4), w)
    second = g("MatMul", g("Tanh", first), w)
    graph = g.graph(second)
    assert not list(matches(graph, BOOK["matmul/batch-steps"]))
    apart = GraphMaker()
    w = apart.weight(4, 4)
    steps = [apart("MatMul", apart.input(f"x{i}", 2, 4), w) for i in range(2)]
    assert rewritten(apart.graph(*steps), BOOK["matmul/batch-steps"]).outputs == tuple(steps)


def test_new_nodes_are_sorted_in() -> None:
    """The merged operator needs a value that is defined between the two it replaces."""
    g = GraphMaker()
    w = g.weight(4, 4)
    first = g("MatMul", g.input("x", 2, 4), w)
    late = g("Tanh", g.input("y", 2, 4))
    second = g("MatMul", late, w)
    result = rewritten(g.graph(first, second), BOOK["matmul/batch-steps"])
    assert [n.op for n in result.nodes][:2] == ["Tanh", "Concat"]


def test_enlarging_keeps_the_sibling_as_it_is() -> None:
    g = GraphMaker()
    x = g.input("x", 1, 2, 4, 4)
    small = g.conv(x, g.weight(3, 2, 1, 1))
    large = g.conv(x, g.weight(5, 2, 3, 3), pad=1)
    graph = g.graph(small, large)
    result = rewritten(graph, BOOK["conv/enlarge-kernel"])
    assert result.producers[large] is graph.producers[large]
    assert result.producers[small].attr("pads") == (1, 1, 1, 1)


def test_crossed_kernels_meet_in_a_square() -> None:
    g = GraphMaker()
    x = g.input("x", 1, 2, 4, 4)
    attrs = {"strides": (1, 1), "dilations": (1, 1), "group": 1}
    wide = g("Conv", x, g.weight(3, 2, 1, 3), pads=(0, 1, 0, 1), **attrs)
    tall = g("Conv", x, g.weight(5, 2, 3, 1), pads=(1, 0, 1, 0), **attrs)
    result = rewritten(g.graph(wide, tall), BOOK["conv/enlarge-crossed-kernels"])
    for name in (wide, tall):
        made = result.producers[name]
        assert made.attr("pads") == (1, 1, 1, 1)
        assert shape(result, made.inputs[1])[2:] == (3, 3)


def _residual(first: bool, *, channels: int = 3) -> Graph:
    g = GraphMaker()
    x, y = g.input("x", 1, 2, 4, 4), g.input("y", 1, channels, 4, 4)
    conv = g.conv(x, g.weight(3, 2, 3, 3), pad=1)
    return g.graph(g("Add", conv if first else g("Add", conv, g.weight(1, 3, 1, 1)), y))


@pytest.mark.parametrize("bare", [True, False])
def test_an_addend_becomes_part_of_the_input(bare: bool) -> None:
    name = "conv/absorb-addend" if bare else "conv/absorb-addend-after-bias"
    result = rewritten(_residual(bare), BOOK[name])
    assert [node.op for node in result.nodes if node.op in ("Conv", "Add")] == (
        ["Conv"] if bare else ["Conv", "Add"]
    )
    (conv,) = (node for node in result.nodes if node.op == "Conv")
    assert shape(result, conv.inputs[0]) == (1, 5, 4, 4)


def test_an_addend_of_another_shape_stays() -> None:
    assert not list(matches(_residual(True, channels=1), BOOK["conv/absorb-addend"]))


def test_biased_and_grouped_convolutions_do_not_match() -> None:
    g = GraphMaker()
    x = g.input("x", 1, 4, 4, 4)
    biased = [g.conv(x, g.weight(4, 4, 1, 1), g.weight(4)) for _ in range(2)]
    grouped = [g.conv(x, g.weight(4, 2, 1, 1), group=2) for _ in range(2)]
    graph = g.graph(*biased, *grouped)
    assert not list(matches(graph, BOOK["conv/merge-siblings"]))


@pytest.mark.parametrize("groups", [4, 6])
def test_every_two_groups_become_one(groups: int) -> None:
    g = GraphMaker()
    wide = g.conv(g.input("x", 1, 2 * groups, 3, 3), g.weight(3 * groups, 2, 2, 2), group=groups)
    result = rewritten(g.graph(wide), BOOK["folding/pairs-of-groups"])
    assert result.producers[wide].attr("group") == groups // 2


@pytest.mark.parametrize(
    ("groups", "depth", "rank"), [(2, 2, 4), (3, 2, 4), (4, 1, 4), (4, 16, 4), (4, 2, 3)]
)
def test_other_groups_stay(groups: int, depth: int, rank: int) -> None:
    """Two of them, an odd number, single channels, whole blocks, one spatial axis."""
    g = GraphMaker()
    x = g.input("x", 1, groups * depth, *[3] * (rank - 2))
    y = g.conv(x, g.weight(groups, depth, *[2] * (rank - 2)), group=groups)
    assert not list(matches(g.graph(y), BOOK["folding/pairs-of-groups"]))


def test_weights_must_be_known_at_compile_time() -> None:
    g = GraphMaker()
    x = g.input("x", 2, 4)
    folded = g("Add", g.weight(4, 3), g.weight(4, 3))
    data = g.input("y", 4, 3)
    graph = g.graph(*(g("MatMul", x, w) for w in (folded, data)))
    assert not list(matches(graph, BOOK["matmul/merge-weights"]))
    constant = g("MatMul", x, g.weight(4, 3))
    match = only(g.graph(constant, *graph.outputs), "matmul/merge-weights")
    assert set(match.values.values()) == {x, folded, "c2"}


def test_functions_bind_by_operator_and_attributes() -> None:
    g = GraphMaker()
    x, y = g.input("x", 2, 4), g.input("y", 2, 4)
    alike = [g("LeakyRelu", v, alpha=0.25) for v in (x, y)]
    other = g("LeakyRelu", y, alpha=0.5)
    good = g("Concat", *alike, axis=1)
    bad = g("Concat", alike[0], other, axis=1)
    graph = g.graph(good, bad)
    assert only(graph, "concat/map").roots == (good,)
    result = rewritten(graph, BOOK["concat/map"])
    assert result.producers[good].attr("alpha") == 0.25


def test_a_nested_concatenation_is_binary() -> None:
    g = GraphMaker()
    parts = [g("Relu", g.input(f"x{i}", 2, 2)) for i in range(3)]
    graph = g.graph(g("Concat", *parts, axis=0))
    assert not list(matches(graph, BOOK["concat/map"]))


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_literals_meet_uniform_constants(shape: tuple[int, ...]) -> None:
    g = GraphMaker()
    f, c, x = (g.input(name, 2, 3) for name in "fcx")
    one = g.constant(np.ones(shape, np.float32))
    mixed = g("Add", g("Mul", f, c), g("Mul", g("Sub", one, f), x))
    result = rewritten(g.graph(mixed), BOOK["elementwise/gate"])
    assert operators(result).count("Mul") == 1


def test_a_constant_that_is_no_literal_does_not_match() -> None:
    g = GraphMaker()
    f, c, x = (g.input(name, 2, 3) for name in "fcx")
    almost = np.ones((2, 3), np.float32)
    almost[1, 1] = 2
    mixed = g("Add", g("Mul", f, c), g("Mul", g("Sub", g.constant(almost), f), x))
    assert not list(matches(g.graph(mixed), BOOK["elementwise/gate"]))


def test_an_output_keeps_its_name_when_it_becomes_an_inner_value() -> None:
    g = GraphMaker()
    inner = g("Relu", g.input("x", 2, 3))
    whole = g("Slice", inner, axis=1, lo=0, hi=3)
    result = rewritten(g.graph(whole), BOOK["concat/whole-slice"])
    assert result.outputs == (whole,)
    assert [node.op for node in result.nodes] == ["Relu"]


def test_an_output_may_become_an_input() -> None:
    g = GraphMaker()
    x = g.input("x", 2, 3)
    graph = g.graph(g("Slice", x, axis=1, lo=0, hi=3))
    result = rewritten(graph, BOOK["concat/whole-slice"])
    assert result.outputs == ("x",)
    assert not result.nodes


def test_inner_values_are_replaced_everywhere() -> None:
    g = GraphMaker()
    x = g.input("x", 2, 3)
    whole = g("Slice", x, axis=1, lo=0, hi=3)
    graph = g.graph(g("Relu", whole), g("Add", whole, x))
    result = rewritten(graph, BOOK["concat/whole-slice"])
    assert [node.inputs for node in result.nodes] == [("x",), ("x", "x")]


def test_captured_values_keep_their_names() -> None:
    g = GraphMaker()
    x = g.input("x", 2, 3)
    whole = g("Slice", x, axis=1, lo=0, hi=3)
    graph = g.graph(g("Relu", x))
    types = {**graph.types, "branch": TensorType("float32", (2, 3))}
    loop = Node(OPAQUE, (x,), ("branch",), captures=(whole,))
    captured = Graph(
        graph.inputs, (*graph.outputs, "branch"), (*graph.nodes, loop), graph.constants, types
    )
    captured.check()
    assert not list(matches(captured, BOOK["concat/whole-slice"]))


def test_equal_nodes_are_shared() -> None:
    g = GraphMaker()
    x, y = g.input("x", 2, 3), g.input("y", 2, 3)
    total = g("Add", x, y)
    w = g.weight(3, 3)
    products = [g("MatMul", v, w) for v in (x, y)]
    graph = g.graph(g("Add", *products), total)
    result = rewritten(graph, BOOK["matmul/distribute-left-reversed"])
    assert operators(result) == ["Add", "MatMul"]


def test_symbolic_sizes_match_as_polynomials() -> None:
    g = GraphMaker()
    x = g.input("x", "N", 4)
    whole = g("Slice", x, axis=1, lo=0, hi=4)
    graph = g.graph(g("MatMul", g("MatMul", whole, g.weight(4, 4)), g.weight(4, 2)))
    assert only(graph, "matmul/assoc").values["x"] == g_output(graph, "MatMul", 0).inputs[0]
    assert apply(graph, only(graph, "concat/whole-slice")).nodes[0].inputs[0] == "x"
    stacked = GraphMaker()
    w = stacked.weight(4, 4)
    steps = [stacked("MatMul", stacked.input(n, n.upper(), 4), w) for n in "ab"]
    # Slices at symbolic bounds do not type, so steps of unknown length are not stacked.
    assert not list(matches(stacked.graph(*steps), BOOK["matmul/batch-steps"]))


def g_output(graph: Graph, op: str, index: int) -> Node:
    return [node for node in graph.nodes if node.op == op][index]


def test_the_right_side_must_have_the_type_of_the_left() -> None:
    @rule("test/lift")
    def lift(x: Tensor, axis: Int) -> Sides:
        return ops.Softmax(x, axis=axis), ops.ReduceMax(x, axes=(axis,), keepdims=1)

    g = GraphMaker()
    softmax = g("Softmax", g.input("x", 2, 3), axis=1)
    assert not list(matches(g.graph(softmax), lift))


def test_repeated_variables_must_be_one_value() -> None:
    @rule("test/twice")
    def twice(f: Func, x: Tensor) -> Sides:
        return f(x) + f(x), f(x) * ops.Scalar(value=2.0, dtype="float32")

    g = GraphMaker()
    x, y = g.input("x", 2), g.input("y", 2)
    same, mixed = (g("Add", g("Relu", a), g("Relu", b)) for a, b in ((x, x), (x, y)))
    graph = g.graph(same, mixed)
    (match,) = matches(graph, twice)
    assert match.roots == (same,)
    rewritten(graph, twice)


def test_one_matcher_serves_many_rules() -> None:
    g = GraphMaker()
    x = g.input("x", 2, 4)
    graph = g.graph(g("MatMul", g("MatMul", x, g.weight(4, 4)), g.weight(4, 4)))
    matcher = Matcher(graph)
    found = {name: len(list(matches(matcher, one))) for name, one in BOOK.items()}
    assert {name for name, count in found.items() if count} == {
        "matmul/assoc",
        "form/product-as-pixels-2d",
    }
    assert list(matches(matcher, BOOK["matmul/assoc"])) == list(
        matches(graph, BOOK["matmul/assoc"])
    )
