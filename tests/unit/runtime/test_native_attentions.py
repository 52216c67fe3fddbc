"""Where onnxruntime's own operator for attention may stand, and where it may not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.runtime.backends.native.attentions import ATTENTION, attentions
from eqsat_opt.runtime.backends.native.products import PRODUCT, products
from eqsat_opt.runtime.backends.native.sites import Site, with_names, with_ways
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession, ort_optimized

node = helper.make_node
LENGTH, HEADS, SIZE = 5, 2, 4
WIDTH = HEADS * SIZE
RNG = np.random.default_rng(0)
AS_IT_STANDS = OrtOptions(1, level="disabled")


def constant(name: str, array: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def drawn(name: str, *shape: int) -> onnx.TensorProto:
    return constant(name, RNG.standard_normal(shape).astype(np.float32))


def apart(kind: str = "MatMul", key: tuple[int, ...] = (0, 2, 3, 1)) -> list[onnx.NodeProto]:
    """Queries, keys and values by a product each, their heads brought forward."""
    nodes = []
    for i, (one, perm) in enumerate(zip("qkv", ((0, 2, 1, 3), key, (0, 2, 1, 3)), strict=True)):
        if kind == "Gemm":
            nodes.append(node("Gemm", ["flat", f"w{i}", f"b{i}"], [f"{one}s"]))
        else:
            nodes.append(node("MatMul", ["x", f"w{i}"], [f"{one}p"]))
            nodes.append(node("Add", [f"{one}p", f"b{i}"], [f"{one}s"]))
        nodes.append(node("Reshape", [f"{one}s", "by_heads"], [f"{one}h"]))
        nodes.append(node("Transpose", [f"{one}h"], [one], perm=perm))
    return [node("Reshape", ["x", "rows"], ["flat"]), *nodes] if kind == "Gemm" else nodes


def stacked(
    shape: str = "by_parts", perm: tuple[int, ...] = (2, 0, 3, 1, 4)
) -> list[onnx.NodeProto]:
    """All three by one product, as timm has them; keys are transposed in the end."""
    axis = perm.index(3 if shape == "by_sizes" else 2)
    nodes = [
        node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["s"]),
        node("Reshape", ["s", shape], ["r"]), node("Transpose", ["r"], ["t"], perm=perm),
    ]  # fmt: skip
    for i, one in enumerate("qkv"):
        nodes.append(node("Gather", ["t", f"i{i}"], [f"{one}0" if one == "k" else one], axis=axis))
    return [*nodes, node("Transpose", ["k0"], ["k"], perm=[0, 1, 3, 2])]


def model(
    projected: list[onnx.NodeProto],
    scores: tuple[onnx.NodeProto, ...] = (),
    *more: onnx.NodeProto,
    outputs: tuple[str, ...] = (),
    mask: bool = False,
) -> onnx.ModelProto:
    last = scores[-1].output[0] if scores else "a"
    nodes = [
        *projected, node("MatMul", ["q", "k"], ["a"]), *scores,
        node("Softmax", [last], ["e"], axis=-1), node("MatMul", ["e", "v"], ["c"]),
        node("Transpose", ["c"], ["d"], perm=[0, 2, 1, 3]), node("Reshape", ["d", "wide"], ["y"]),
        *more,
    ]  # fmt: skip
    constants = [
        *(drawn(f"w{i}", WIDTH, WIDTH) for i in range(3)),
        *(drawn(f"b{i}", WIDTH) for i in range(3)),
        drawn("w", WIDTH, 3 * WIDTH), drawn("b", 3 * WIDTH), constant("half", np.float32(0.5)),
        drawn("bias", 1, HEADS, LENGTH, LENGTH), constant("rows", [-1, WIDTH]),
        constant("by_heads", [-1, LENGTH, HEADS, SIZE]), constant("wide", [-1, LENGTH, WIDTH]),
        constant("by_parts", [-1, LENGTH, 3, HEADS, SIZE]),
        constant("by_sizes", [-1, LENGTH, HEADS, 3, SIZE]),
        *(constant(f"i{i}", np.int64(i)) for i in range(3)),
    ]  # fmt: skip
    named = {name for one in nodes for name in one.input}
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", LENGTH, WIDTH])]
    if mask:
        shape: list[str | int | None] = ["n", 1, LENGTH, LENGTH]
        inputs.append(helper.make_tensor_value_info("mask", TensorProto.FLOAT, shape))
    results = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", *outputs)
    ]
    graph = helper.make_graph(
        nodes, "g", inputs, results, [one for one in constants if one.name in named]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def sites_of(given: onnx.ModelProto) -> tuple[onnx.ModelProto, list[Site]]:
    optimized = with_names(ort_optimized(given, OrtOptions(1)))
    return optimized, list(attentions(optimized, products(optimized)))


SCALED = (node("Mul", ["a", "half"], ["u"]),)
BIASED = (*SCALED, node("Add", ["u", "bias"], ["z"]))


@pytest.mark.parametrize("scores", [(), SCALED, BIASED])
@pytest.mark.parametrize(
    "projected", [apart(), apart("Gemm"), stacked()], ids=["apart", "as matrices", "stacked"]
)
@pytest.mark.parametrize("samples", [0, 1, 3])
def test_every_way_computes_the_same(
    projected: list[onnx.NodeProto], scores: tuple[onnx.NodeProto, ...], samples: int
) -> None:
    optimized, found = sites_of(model(projected, scores))
    (site,) = found
    assert [way.name for way in site.ways][:2] == [ATTENTION, PRODUCT]
    made = with_ways(optimized, [(site, site.ways[0])])
    assert sum(one.op_type == "Attention" for one in made.graph.node) == 1
    feeds = {"x": RNG.standard_normal((samples, LENGTH, WIDTH)).astype(np.float32)}
    (wanted,) = OrtSession(optimized, AS_IT_STANDS).run(feeds)
    (result,) = OrtSession(made, AS_IT_STANDS).run(feeds)
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "given",
    [
        # parts of a head side by side, and not heads of a part
        model(stacked("by_sizes", (3, 0, 2, 1, 4))),
        # what is added differs from sample to sample
        model(apart(), (node("Add", ["a", "mask"], ["u"]),), mask=True),
        # somebody else reads the weights of attention, the queries, or their product
        model(apart(), (), node("Neg", ["e"], ["o"]), outputs=("o",)),
        model(apart(), (), node("Neg", ["q"], ["o"]), outputs=("o",)),
        model(apart(), (), node("Neg", ["qs"], ["o"]), outputs=("o",)),
    ],
)
def test_what_is_no_plain_attention_stays(given: onnx.ModelProto) -> None:
    _, found = sites_of(given)
    assert not found


def test_values_that_are_scaled_stay() -> None:
    projected = apart()
    projected[-1].output[0] = "v0"
    projected.append(node("Mul", ["v0", "half"], ["v"]))
    _, found = sites_of(model(projected, SCALED))
    assert not found


def test_numbers_of_half_precision_stay() -> None:
    optimized, found = sites_of(model(apart()))
    assert found
    for tensor in optimized.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float16), tensor.name))
    assert not list(attentions(optimized))
