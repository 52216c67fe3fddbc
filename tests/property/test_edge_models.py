"""Random models at the edges keep their outputs, as far as each numerics class says.

More of them, each in all classes: `python -m benchmarks.edge_models --examples 2000`.
"""

from __future__ import annotations

from random import Random

import numpy as np
import onnx
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from tests.property.edges.allowed import NUMERICS, differences
from tests.property.edges.draft import Impossible, runs
from tests.property.edges.models import draw_model, draw_operator
from tests.property.edges.optimised import wrong_in, wrong_in_mappings

_EXAMPLES = 20


@settings(max_examples=max(_EXAMPLES, settings().max_examples))
@given(st.randoms(use_true_random=False), st.sampled_from(NUMERICS), st.integers(0, 9))
def test_models_at_the_edges_keep_their_outputs(random: Random, numerics: str, seed: int) -> None:
    try:
        edge = draw_model(random)
    except Impossible:
        assume(False)
        raise
    event(f"{len(edge.model.functions)} functions")
    wrong = wrong_in(edge, numerics, seed)
    assert not wrong, "\n".join(wrong)


@settings(max_examples=max(_EXAMPLES, settings().max_examples))
@given(st.randoms(use_true_random=False))
def test_operators_at_the_edges_are_read_and_written_as_they_are(random: Random) -> None:
    try:
        edge = draw_operator(random)
    except Impossible:
        assume(False)
        raise
    for numerics in NUMERICS[:2]:
        wrong = wrong_in_mappings(edge, numerics)
        assert not wrong, "\n".join((numerics, *wrong))


def test_nearly_every_model_is_drawn_and_of_every_kind() -> None:
    drawn = 0
    kinds: set[str] = set()
    for number in range(60):
        try:
            edge = draw_model(Random(number))
        except Impossible:
            continue
        drawn += 1
        kinds.update(node.op_type for node in edge.model.graph.node)
        kinds.update({f"opset {edge.model.opset_import[0].version}"})
        kinds.update(str(array.dtype) for feed in edge.feeds for array in feed.values())
    assert drawn >= 55
    assert len(kinds) >= 70
    assert {"If", "Loop", "Cast", "float16", "float64", "opset 9", "opset 24"} <= kinds


FEEDS = [
    {"x": np.array(values, np.float32)}
    for values in ([1.0, -2.5, 3e8, np.inf, np.nan], [0.5, 1.1, -2.2, 3.3, 4.4])
]


@pytest.mark.parametrize(
    ("node", "allowed"),
    [
        (helper.make_node("Identity", ["x"], ["y"]), NUMERICS),
        (helper.make_node("Mul", ["x", "nearly"], ["y"]), NUMERICS[1:]),
        (helper.make_node("Mul", ["x", "half"], ["y"]), ()),
        (helper.make_node("Clip", ["x"], ["y"]), NUMERICS[2:]),
    ],
    ids=["same", "rounded", "wrong", "finite"],
)
def test_the_judge(node: onnx.NodeProto, allowed: tuple[str, ...]) -> None:
    """A change of rounding is a change of bits; infinities stay but where they may spread."""
    weights = {"nearly": np.float32(1 + 2**-22), "half": np.float32(0.5)}
    value = [helper.make_tensor_value_info(n, 1, [5]) for n in "xy"]
    initializers = [helper.make_tensor(n, 1, [], [float(v)]) for n, v in weights.items()]

    def model_of(one: onnx.NodeProto) -> onnx.ModelProto:
        graph = helper.make_graph([one], "g", value[:1], value[1:], initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)

    before, after = model_of(helper.make_node("Identity", ["x"], ["y"])), model_of(node)
    for numerics in NUMERICS:
        found = differences(before, after, FEEDS, numerics)
        assert (not found) == (numerics in allowed), (numerics, found)


def _chain(identities: int) -> onnx.ModelProto:
    """Two float16 products in a row, with so many Identities between them."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal((8, 8)).astype(np.float16), name)
        for name in ("v", "w")
    ]
    nodes = [helper.make_node("MatMul", ["x", "v"], ["t0"])]
    nodes += [helper.make_node("Identity", [f"t{i}"], [f"t{i + 1}"]) for i in range(identities)]
    nodes.append(helper.make_node("MatMul", [f"t{identities}", "w"], ["y"]))
    values = [helper.make_tensor_value_info(name, 10, [8, 8]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def test_roundings_that_the_runtime_leaves_out_are_not_judged() -> None:
    feed = {"x": np.random.default_rng(1).standard_normal((8, 8)).astype(np.float16)}
    plain, apart = _chain(0), _chain(2)
    assert not np.array_equal(runs(plain, feed)[0], runs(apart, feed)[0])
    assert not differences(plain, apart, [feed], "bitexact")


def test_what_onnx_leaves_open_is_not_judged() -> None:
    """A Concat of operands that do not fit, one of which is empty."""
    values = [
        helper.make_tensor_value_info("x", 1, ["N", 4]),
        helper.make_empty_tensor_value_info("y"),
    ]
    empty = helper.make_tensor("empty", 1, [2, 0], [])
    size = helper.make_tensor("size", 7, [2], [2, 4])
    nodes = [helper.make_node("Concat", ["x", "empty"], ["c"], axis=1),
             helper.make_node("Shape", ["c"], ["y"])]  # fmt: skip
    before, after = (
        helper.make_model(
            helper.make_graph(one, "g", values[:1], values[1:], [empty, size]),
            opset_imports=[helper.make_opsetid("", 13)],
            ir_version=8,
        )
        for one in (nodes, [helper.make_node("Identity", ["size"], ["y"])])
    )
    feeds = [{"x": np.ones((n, 4), np.float32)} for n in (2, 3)]
    assert runs(before, feeds[1])[0].tolist() == [3, 4]
    assert not differences(before, after, feeds, "bitexact")
    wrong = [{"x": np.ones((3, 4), np.float32)}]
    joined = onnx.ModelProto.FromString(before.SerializeToString())
    del joined.graph.node[0]
    joined.graph.node[0].input[0] = "x"
    assert differences(joined, after, wrong, "bitexact")
