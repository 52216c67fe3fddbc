"""Depthwise convolutions on blocked buffers: which are found, their SiLUs, what they compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.runtime.backends.native.depthwise import DEPTHWISE, depthwise_convolutions
from eqsat_opt.runtime.backends.native.library import missing, with_kernels
from eqsat_opt.runtime.backends.native.sites import Site, with_names, with_ways
from eqsat_opt.runtime.backends.native.tuning import output_error, sites
from eqsat_opt.runtime.backends.ort.block import nchwc_block
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession, ort_optimized

ONE = OrtOptions(1)
BLOCK = nchwc_block()

pytestmark = pytest.mark.skipif(
    BLOCK == 1 or bool(missing()), reason=missing() or "onnxruntime has no blocks here"
)


def model_of(
    kinds: Sequence[str], outputs: Sequence[str] = ("y",), window: int = 3, **attrs: Any
) -> onnx.ModelProto:
    """A chain of convolutions and activations: one by one, "depthwise", "SiLU" or an operator.

    The n-th value of the chain is called v and n.
    """
    rng = np.random.default_rng(0)
    channels = 2 * BLOCK
    attrs = {"pads": [window // 2] * 4, **attrs}
    shapes = {"pointwise": (channels, channels, 1, 1), "depthwise": (channels, 1, window, window)}
    nodes, value = [], "x"
    constants: dict[str, Any] = {"low": np.float32(-0.2), "high": np.float32(0.4)}
    for i, kind in enumerate(kinds, 1):
        result = "y" if i == len(kinds) else f"v{i}"
        if kind in shapes:
            names = [f"w{i}", f"b{i}"]
            constants |= {
                names[0]: rng.standard_normal(shapes[kind]).astype(np.float32) / 4,
                names[1]: rng.standard_normal(channels).astype(np.float32) / 4,
            }
            own = {"group": channels, **attrs} if kind == "depthwise" else {}
            nodes.append(helper.make_node("Conv", [value, *names], [result], **own))
        elif kind == "SiLU":
            nodes.append(helper.make_node("Sigmoid", [value], [f"s{i}"]))
            nodes.append(helper.make_node("Mul", [value, f"s{i}"], [result]))
        else:
            bounds = ["low", "high"] if kind == "Clip" else []
            nodes.append(helper.make_node(kind, [value, *bounds], [result]))
        value = result
    read = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "depthwise",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", channels, 9, 10])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items() if k in read],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def found_in(model: onnx.ModelProto) -> tuple[onnx.ModelProto, list[Site]]:
    named = with_names(ort_optimized(model, ONE))
    return named, list(depthwise_convolutions(named, BLOCK))


AMONG = ["pointwise", "SiLU", "depthwise", "SiLU", "pointwise"]


@pytest.mark.parametrize(
    ("kinds", "outputs", "replaced"),
    [
        (["pointwise", "depthwise", "pointwise"], ["y"], [1]),
        (["pointwise", "depthwise", "Clip", "pointwise"], ["y"], [1]),
        (["pointwise", "depthwise", "HardSwish", "pointwise"], ["y"], [1]),
        (AMONG, ["y"], [3]),
        (AMONG, ["y", "v2"], [2]),  # the first SiLU is read outside too
        (["pointwise", "SiLU", "depthwise", "SiLU", "depthwise", "pointwise"], ["y"], [3, 1]),
        (["depthwise"], ["y"], [1]),
    ],
)
@pytest.mark.parametrize("window", [3, 5])
@pytest.mark.parametrize("strides", [[1, 1], [2, 2], [1, 2]])
def test_every_site_computes_the_same(
    kinds: Sequence[str], outputs: Sequence[str], replaced: Sequence[int], *,
    window: int, strides: Sequence[int],
) -> None:  # fmt: skip
    model = model_of(kinds, outputs, window, strides=strides)
    feeds = {"x": np.random.default_rng(1).standard_normal((2, 2 * BLOCK, 9, 10), np.float32)}
    expected = OrtSession(model, ONE).run(feeds)
    named, found = found_in(model)
    assert [len(site.nodes) for site in found] == replaced
    made = with_ways(named, [(site, site.ways[0]) for site in found])
    assert output_error(OrtSession(made, with_kernels(ONE)).run(feeds), expected) < 1e-6
    kept = {node.name for node in made.graph.node}
    assert all(name not in kept or name.endswith("Conv") for site in found for name in site.nodes)


@pytest.mark.parametrize(
    "attrs", [{"dilations": [2, 2]}, {"strides": [3, 3]}, {"window": 9}, {"group": 2}]
)
def test_others_keep_their_kernels(attrs: dict[str, Any]) -> None:
    if "group" in attrs:  # convolutions of all channels
        model = model_of(["pointwise", "pointwise"])
    else:
        model = model_of(["pointwise", "depthwise", "pointwise"], **attrs)
    assert not found_in(model)[1]


def test_a_silu_belongs_to_one_site() -> None:
    model = with_names(ort_optimized(model_of(AMONG), ONE))
    silu = next(node.name for node in model.graph.node if node.op_type == "QuickGelu")
    (alone,) = depthwise_convolutions(model, BLOCK, {silu})
    assert silu not in alone.nodes
    every = [name for site in sites(model, with_kernels(ONE)) for name in site.nodes]
    assert len(every) == len(set(every))
    (way,) = {w.name for s in sites(model, with_kernels(ONE)) for w in s.ways if silu in s.nodes}
    assert way == DEPTHWISE
