"""Random networks, quantised at random, lose nothing by being optimised."""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
from hypothesis import example, given, settings
from onnx import ModelProto

from benchmarks.quantised_models import Recipe, quantise
from eqsat_opt.api import run
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.lab.zoo._builder import GraphBuilder, TracedValue
from eqsat_opt.pipeline.options import Options
from eqsat_opt.runtime.backends.ort.session import OrtOptions, ort_optimized

METADATA_BYTES = 600
"""What names of rules may add to a file."""

_INTEGER = ("Integer", "NBits", "QGemm", "QLinear", "DynamicQuantize")

IMAGES = ("conv", "depthwise", "norm", "relu", "clip", "swish", "pool", "average", "residual",
          "concat")  # fmt: skip
TOKENS = ("linear", "plain", "gelu", "norm", "relu", "residual", "attention", "merge", "cancel")

RECIPES = st.builds(
    Recipe,
    network=st.just("random"),
    method=st.sampled_from(["qdq", "qoperator", "dynamic"]),
    activations=st.sampled_from(["u8", "s8"]),
    weights=st.sampled_from(["u8", "s8"]),
    per_channel=st.booleans(),
    only=st.sampled_from([(), ("Conv", "Gemm", "MatMul")]),
).filter(lambda recipe: recipe.activations == "u8" or recipe.weights == "s8")


def image_network(layers: list[str]) -> ModelProto:
    b = GraphBuilder("images", 0)
    x = b.input("x", (1, 4, 8, 8))
    for layer in layers:
        x = _image_layer(b, x, layer)
    return b.model({"y": b.classifier(x, 5)})


def _image_layer(b: GraphBuilder, x: TracedValue, layer: str) -> TracedValue:
    match layer:
        case "conv":
            return b.conv(x, x.shape[1], 3)
        case "depthwise":
            return b.conv(x, x.shape[1], 3, groups=x.shape[1])
        case "norm":
            return b.conv_bn(x, x.shape[1], 1)
        case "relu":
            return b.relu(x)
        case "clip":
            return b.op("Clip", x, b.scalar(0.0), b.scalar(6.0))
        case "swish":
            return b.mul(x, b.sigmoid(x))
        case "pool":
            return b.max_pool(x, 3, 1)
        case "average":
            return b.average_pool(x, 3, 1)
        case "residual":
            return b.relu(b.add(b.conv(x, x.shape[1], 1), x))
        case _:
            return b.concat([b.conv(x, 2, 1), b.conv(x, 2, 3)])


def token_network(layers: list[str]) -> ModelProto:
    b = GraphBuilder("tokens", 0)
    x = b.input("x", (1, 4, 8))
    for layer in layers:
        x = _token_layer(b, x, layer)
    return b.model({"y": b.linear(x, 5)})


def _token_layer(b: GraphBuilder, x: TracedValue, layer: str) -> TracedValue:
    match layer:
        case "linear":
            return b.linear(x, 8)
        case "plain":
            return b.linear(x, 8, bias=False)
        case "gelu":
            return b.gelu(x)
        case "norm":
            return b.layer_norm(x)
        case "relu":
            return b.relu(x)
        case "residual":
            return b.add(x, b.linear(x, 8, bias=False))
        case "attention":
            keys = b.transpose(b.linear(x, 8), 0, 2, 1)
            weights = b.op("Softmax", b.matmul(b.linear(x, 8), keys), axis=-1)
            return b.matmul(weights, b.linear(x, 8))
        case "merge":
            return b.add(b.linear(x, 8, bias=False), b.linear(x, 8, bias=False))
        case _:
            return b.transpose(b.relu(b.transpose(x, 0, 2, 1)), 0, 2, 1)


NETWORKS = st.one_of(
    st.lists(st.sampled_from(IMAGES), min_size=2, max_size=5).map(image_network),
    st.lists(st.sampled_from(TOKENS), min_size=2, max_size=5).map(token_network),
)


def integer_kernels(model: ModelProto) -> Counter[str]:
    nodes = ort_optimized(model, OrtOptions(1)).graph.node
    return Counter(n.op_type for n in nodes if n.op_type.startswith(_INTEGER))


@settings(max_examples=3)
@given(NETWORKS, RECIPES, st.sampled_from([one.name.lower() for one in Numerics]))
@example(token_network(["merge", "cancel", "attention"]), Recipe("random", "dynamic"), "relaxed")
@example(image_network(["norm", "swish", "concat"]), Recipe("random", "qdq"), "reassociate")
def test_nothing_is_lost(network: ModelProto, recipe: Recipe, numerics: str) -> None:
    """As many integer kernels, no more bytes, and outputs that agree between quantisations."""
    model = quantise(network, recipe, 0)
    options = Options(
        measure=False, race=False, check=2, store="", threads=1, nodes=2_500, budget_s=600.0,
        numerics=numerics, objective="launches",
    )  # fmt: skip
    result = run(model, options)
    assert not result.report.warnings
    assert integer_kernels(result.model) == integer_kernels(model)
    assert result.model.ByteSize() <= model.ByteSize() + METADATA_BYTES
