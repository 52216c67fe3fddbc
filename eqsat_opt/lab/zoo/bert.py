"""BERT: a real encoder, TASO's benchmark form with live attention, and a deep one for scale."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from onnx import ModelProto

from eqsat_opt.lab.zoo._builder import GraphBuilder, TracedValue
from eqsat_opt.lab.zoo._encoder import encoder_layer, self_attention

__all__ = ["bert", "bert_deep", "bert_full", "bert_taso"]


def bert(
    seed: int,
    *,
    layers: int = 6,
    hidden: int = 768,
    heads: int = 12,
    feed_forward: int = 3072,
    tokens: int = 128,
) -> ModelProto:
    """Build the encoder of BERT: embeddings (1, tokens, hidden) to the same shape.

    It has post-norm layers with LayerNormalization nodes, erf GELU, and softmax attention without a
    mask.
    """
    b = GraphBuilder("bert", seed)
    x = b.layer_norm(b.input("embeddings", (1, tokens, hidden)))
    layer = partial(
        encoder_layer, b, heads=heads, feed_forward=feed_forward, activation=b.gelu, linear=b.linear
    )
    return b.model({"hidden": _stacked(x, layers, layer)})


def bert_deep(
    seed: int,
    *,
    layers: int = 200,
    hidden: int = 64,
    heads: int = 4,
    feed_forward: int = 256,
    tokens: int = 16,
) -> ModelProto:
    """Build a narrow and very deep encoder of 28 operators per layer, rectified feed-forward."""
    b = GraphBuilder("bert_deep", seed)
    x = b.input("embeddings", (1, tokens, hidden))
    layer = partial(
        encoder_layer, b, heads=heads, feed_forward=feed_forward, activation=b.relu, linear=b.linear
    )
    return b.model({"hidden": _stacked(x, layers, layer)})


def bert_full(
    seed: int,
    *,
    layers: int = 8,
    hidden: int = 256,
    heads: int = 8,
    feed_forward: int = 1024,
    tokens: int = 64,
) -> ModelProto:
    """Build the pre-norm encoder of Collage's BERT-full, which keeps the shape (1, tokens, hidden).

    It has rectified feed-forward, softmax attention, and norms written in operators: by the
    unbiased deviation plus 1e-6, which is not ONNX's LayerNormalization. The source is Collage
    `bert_full.py`.
    """
    b = GraphBuilder("bert_full", seed)
    x = b.input("embeddings", (1, tokens, hidden))
    gain = (2 * layers) ** -0.5
    for _ in range(layers):
        y = self_attention(b, _deviation_norm(b, x), heads, b.linear)
        x = b.add(x, b.linear(y, hidden, gain=gain))
        y = b.relu(b.linear(_deviation_norm(b, x), feed_forward))
        x = b.add(x, b.linear(y, hidden, gain=gain))
    return b.model({"hidden": _deviation_norm(b, x)})


def _deviation_norm(b: GraphBuilder, x: TracedValue) -> TracedValue:
    """Add γ (x - mean) / (deviation + 1e-6) + β over the last axis, the deviation unbiased."""
    n = x.shape[-1]
    centred = b.op("Sub", x, b.op("ReduceMean", x, axes=(-1,), keepdims=1))
    square = b.op("ReduceMean", b.mul(centred, centred), axes=(-1,), keepdims=1)
    deviation = b.op("Sqrt", b.mul(square, b.scalar(n / (n - 1))))
    unit = b.op("Div", centred, b.add(deviation, b.scalar(1e-6)))
    return b.add(b.mul(b.gains(n), unit), b.bias(n))


def _stacked(x: TracedValue, layers: int, layer: Callable[..., TracedValue]) -> TracedValue:
    for _ in range(layers):
        x = layer(x, branch_gain=(2 * layers) ** -0.5)
    return x


def bert_taso(
    seed: int,
    *,
    layers: int = 8,
    hidden: int = 1024,
    heads: int = 16,
    tokens: int = 64,
) -> ModelProto:
    """Build the BERT of TASO `examples/bert.py`, corrected so that its attention is used.

    The model maps embeddings (tokens, hidden) to the same shape; it has no softmax, scale, bias,
    norm or feed-forward. There are three corrections. Keys are transposed. The last product of a
    layer takes x + attention; the script takes x alone, which leaves the attention unused. A tanh
    ends each layer, because attention without softmax is cubic in x: eight cubics in a row fade or
    overflow for every input but the one they are scaled for.
    """
    b = GraphBuilder("bert_taso", seed)
    x = b.relu(b.input("embeddings", (tokens, hidden)))
    for _ in range(layers):
        y = b.add(x, _linear_attention(b, x, heads))
        x = b.tanh(b.matmul(y, b.projection(y, hidden, centred=True)))
    return b.model({"hidden": x})


def _linear_attention(b: GraphBuilder, x: TracedValue, heads: int) -> TracedValue:
    tokens, hidden = x.shape
    size = hidden // heads
    # A logit is a sum of `size` products, and an output a sum over `tokens` logits.
    value_gain = 0.3 / (tokens * size) ** 0.5
    query, key, value = (
        b.reshape(
            b.matmul(x, b.projection(x, hidden, gain=gain, centred=True)), (tokens, heads, size)
        )
        for gain in (1.0, 1.0, value_gain)
    )
    logits = b.matmul(b.transpose(query, 1, 0, 2), b.transpose(key, 1, 2, 0))
    mixed = b.matmul(logits, b.transpose(value, 1, 0, 2))
    return b.reshape(b.transpose(mixed, 1, 0, 2), (tokens, hidden))
