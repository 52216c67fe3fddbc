"""Attention without softmax, associated the expensive way."""

from __future__ import annotations

from onnx import ModelProto

from eqsat_opt.lab.zoo._builder import GraphBuilder

__all__ = ["linear_attention"]


def linear_attention(seed: int, *, heads: int = 8, tokens: int = 512, size: int = 64) -> ModelProto:
    """Build (QKᵀ)V of three inputs (1, heads, tokens, size), with 1/√(tokens·size) on Q.

    Q(KᵀV) needs tokens/size times fewer operations.
    """
    b = GraphBuilder("linear_attention", seed)
    shape = (1, heads, tokens, size)
    query, key, value = (b.input(name, shape) for name in ("query", "key", "value"))
    scaled = b.mul(query, b.scalar((tokens * size) ** -0.5))
    logits = b.matmul(scaled, b.transpose(key, 0, 1, 3, 2))
    return b.model({"attention": b.matmul(logits, value)})
