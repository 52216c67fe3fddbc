"""Transformer encoder layers shared by the BERT and LoRA models."""

from __future__ import annotations

from collections.abc import Callable

from eqsat_opt.lab.zoo._builder import GraphBuilder, Linear, TracedValue

__all__ = ["encoder_layer", "merge_heads", "self_attention", "split_heads"]


def encoder_layer(
    b: GraphBuilder,
    x: TracedValue,
    *,
    heads: int,
    feed_forward: int,
    activation: Callable[[TracedValue], TracedValue],
    linear: Linear,
    branch_gain: float,
) -> TracedValue:
    """Add a post-norm encoder layer (BERT): attention and feed-forward, each LN(x + branch).

    `x` is (batch, tokens, hidden), and the heads divide hidden. `linear` makes every linear map.
    Each branch has the deviation `branch_gain` and the skip path 1: about 1/√(number of branches)
    keeps the result of the first layers visible after the last.
    """
    hidden = x.shape[-1]
    y = linear(self_attention(b, x, heads, linear), hidden, gain=branch_gain)
    x = b.layer_norm(b.add(x, y), spread=branch_gain)
    y = linear(activation(linear(x, feed_forward)), hidden, gain=branch_gain)
    return b.layer_norm(b.add(x, y), spread=branch_gain)


def split_heads(b: GraphBuilder, x: TracedValue, heads: int) -> TracedValue:
    """Reshape (batch, tokens, hidden) to (batch, heads, tokens, hidden / heads)."""
    batch, tokens, hidden = x.shape
    return b.transpose(b.reshape(x, (batch, tokens, heads, hidden // heads)), 0, 2, 1, 3)


def merge_heads(b: GraphBuilder, x: TracedValue) -> TracedValue:
    """Reshape (batch, heads, tokens, size) to (batch, tokens, heads * size)."""
    batch, heads, tokens, size = x.shape
    return b.reshape(b.transpose(x, 0, 2, 1, 3), (batch, tokens, heads * size))


def self_attention(b: GraphBuilder, x: TracedValue, heads: int, linear: Linear) -> TracedValue:
    """Add softmax attention of `heads` heads, without the linear map after it."""
    batch, tokens, hidden = x.shape
    size = hidden // heads
    query = split_heads(b, linear(x, hidden), heads)
    # A key bias would add one number to all logits of a query, which softmax ignores.
    key = b.reshape(linear(x, hidden, bias=False), (batch, tokens, heads, size))
    value = split_heads(b, linear(x, hidden), heads)
    logits = b.matmul(query, b.transpose(key, 0, 2, 3, 1))
    weights = b.op("Softmax", b.op("Div", logits, b.scalar(size**0.5)), axis=-1)
    return merge_heads(b, b.matmul(weights, value))
