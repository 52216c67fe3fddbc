"""A transformer block with low-rank adapters that were never merged."""

from __future__ import annotations

from onnx import ModelProto

from eqsat_opt.lab.zoo._builder import GraphBuilder, TracedValue
from eqsat_opt.lab.zoo._encoder import encoder_layer

__all__ = ["lora"]


def lora(
    seed: int,
    *,
    hidden: int = 768,
    heads: int = 12,
    feed_forward: int = 3072,
    tokens: int = 128,
    rank: int = 16,
) -> ModelProto:
    """Build one encoder layer with an adapter on each of its six linear maps.

    The layer maps embeddings (1, tokens, hidden) to the same shape. Each map is xW + (xA)B (+
    bias), with the adapter's scale inside B (Hu et al. 2021).
    """
    b = GraphBuilder("lora", seed)

    def adapted(
        x: TracedValue, features: int, *, gain: float = 1.0, bias: bool = True
    ) -> TracedValue:
        base = b.linear(x, features, gain=gain, bias=False)
        delta = b.linear(b.linear(x, rank, bias=False), features, gain=0.5 * gain, bias=False)
        y = b.add(base, delta)
        return b.add(y, b.bias(features, gain=gain)) if bias else y

    x = b.input("embeddings", (1, tokens, hidden))
    y = encoder_layer(
        b,
        x,
        heads=heads,
        feed_forward=feed_forward,
        activation=b.gelu,
        linear=adapted,
        branch_gain=2**-0.5,
    )
    return b.model({"hidden": y})
