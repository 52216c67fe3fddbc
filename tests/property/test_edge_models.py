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
from onnx import helper

from tests.property.edges.allowed import NUMERICS, differences
from tests.property.edges.draft import Impossible
from tests.property.edges.models import draw_model, draw_operator
from tests.property.edges.optimised import wrong_in, wrong_in_mappings

_EXAMPLES = 150


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
