"""Narrow groups on blocked buffers: which are found, with which reorders, and what they compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.runtime.backends.native.groups import (
    GROUPED,
    WIDER_GROUPS,
    grouped_convolutions,
    joined,
)
from eqsat_opt.runtime.backends.native.library import missing, with_kernels
from eqsat_opt.runtime.backends.native.sites import Site, with_names, with_ways
from eqsat_opt.runtime.backends.native.tuning import output_error
from eqsat_opt.runtime.backends.ort.block import nchwc_block
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession, ort_optimized

ONE = OrtOptions(1)
BLOCK = nchwc_block()

needs_blocks = pytest.mark.skipif(
    BLOCK == 1 or bool(missing()), reason=missing() or "onnxruntime has no blocks here"
)


def model_of(
    groups: int, per_group: int = 4, *, outputs: int | None = None, ends: str = "both", **attrs: Any
) -> onnx.ModelProto:
    """A grouped convolution with a Relu; before and behind it one by one, unless an end is bare."""
    rng = np.random.default_rng(0)
    inner, outer = groups * per_group, groups * (outputs or per_group)
    shapes = {"v": (inner, inner, 1, 1), "w": (outer, per_group, 3, 3), "u": (32, outer, 1, 1)}
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["a"]),
        helper.make_node(
            "Conv", ["a", "w", "b"], ["c"], group=groups, **{"pads": [1, 1, 1, 1], **attrs}
        ),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "u"], ["y"]),
    ]
    if ends == "bare":
        nodes = [nodes[1], nodes[2]]
        nodes[0].input[0], nodes[1].output[0] = "x", "y"
    constants = {
        name: rng.standard_normal(shape).astype(np.float32) / 8
        for name, shape in {**shapes, "b": (outer,)}.items()
    }
    results = ["y"] if ends != "read twice" else ["y", "r"]
    if ends == "captured":
        nodes.append(choice_of("a", "r"))
        results.append("z")
    graph = helper.make_graph(
        nodes,
        "groups",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, inner, 10, 9]),
            helper.make_tensor_value_info("first", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results],
        [
            numpy_helper.from_array(value, name)
            for name, value in constants.items()
            if any(name in node.input for node in nodes)
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def choice_of(first: str, second: str) -> onnx.NodeProto:
    """An If that captures two values and returns one of them."""
    branches = {}
    for key, name in (("then_branch", first), ("else_branch", second)):
        value = helper.make_tensor_value_info(f"{key}_result", TensorProto.FLOAT, None)
        node = helper.make_node("Neg", [name], [value.name])
        branches[key] = helper.make_graph([node], key, [], [value])
    return helper.make_node("If", ["first"], ["z"], **branches)


def found_in(model: onnx.ModelProto) -> tuple[onnx.ModelProto, list[Site]]:
    named = with_names(ort_optimized(model, ONE))
    return named, list(grouped_convolutions(named, BLOCK))


@pytest.mark.parametrize(
    ("groups", "weights", "n"),
    [
        (32, (128, 4, 3, 3), 4),
        (32, (512, 16, 3, 3), 1),  # fills blocks
        (32, (32, 1, 3, 3), 16),
        (2, (8, 4, 3, 3), 1),  # too few to fill one
        (16, (64, 2, 3, 3), 8),
        (16, (256, 5, 3, 3), 16),
        (1, (16, 16, 3, 3), 1),
        (0, (16, 16, 3, 3), 1),
        (3, (16, 4, 3, 3), 1),  # no convolution
    ],
)
def test_how_many_groups_become_one(groups: int, weights: tuple[int, ...], n: int) -> None:
    assert joined(groups, weights, 16) == n


@needs_blocks
@pytest.mark.parametrize("ends", ["both", "bare", "read twice", "captured"])
@pytest.mark.parametrize(
    "case",
    [
        {"groups": 16, "per_group": 4},
        {"groups": 8, "per_group": 4, "strides": [2, 2], "pads": [0, 1, 2, 1]},
        {"groups": 32, "per_group": 2, "strides": [1, 2]},
        {"groups": 16, "per_group": 4, "outputs": 2},
        {"groups": 16, "per_group": 3, "dilations": [2, 1]},
    ],
)
def test_every_way_computes_the_same(case: dict[str, Any], ends: str) -> None:
    model = model_of(**case, ends=ends)
    x = np.random.default_rng(1).standard_normal((1, case["groups"] * case["per_group"], 10, 9))
    feeds = {"x": x.astype(np.float32), "first": np.array(True)}
    expected = OrtSession(model, ONE).run(feeds)
    named, (site,) = found_in(model)
    is_ours = "outputs" not in case and "dilations" not in case
    assert [way.name for way in site.ways] == [WIDER_GROUPS, *[GROUPED] * is_ours]
    for way in site.ways:
        replaced = with_ways(named, [(site, way)])
        found = OrtSession(replaced, with_kernels(ONE)).run(feeds)
        assert output_error(found, expected) < 1e-6
        kinds = [node.op_type for node in replaced.graph.node]
        before = [node.op_type for node in named.graph.node]
        reorders = kinds.count("ReorderInput") + kinds.count("ReorderOutput")
        # Those around it are gone; what others read is still made.
        spared = {"both": 2, "bare": -2, "read twice": 1, "captured": 0}[ends]
        assert reorders == before.count("ReorderInput") + before.count("ReorderOutput") - spared


@needs_blocks
@pytest.mark.parametrize(
    "case",
    [
        {"groups": 64, "per_group": 1},  # depthwise is in blocks already
        {"groups": 3, "per_group": 4},
        {"groups": 2, "per_group": BLOCK // 4, "outputs": BLOCK // 4},  # half a block
    ],
)
def test_others_keep_their_kernels(case: dict[str, Any]) -> None:
    assert not found_in(model_of(**case))[1]


@needs_blocks
def test_weights_that_may_be_given_are_no_constants() -> None:
    named, (site,) = found_in(model_of(16))
    weights = next(n.input[1] for n in named.graph.node if n.name in site.nodes and n.input[1:])
    named.graph.input.add().CopyFrom(
        helper.make_tensor_value_info(weights, TensorProto.FLOAT, [64, 4, 3, 3])
    )
    assert not list(grouped_convolutions(named, BLOCK))
