"""Two matrix products in a row, which can be one."""

from __future__ import annotations

from onnx import ModelProto

from eqsat_opt.lab.zoo._builder import GraphBuilder

__all__ = ["weight_chain"]


def weight_chain(seed: int, *, rows: int = 128, width: int = 1024) -> ModelProto:
    """Build (xW₁)W₂, x of (rows, width), square weights: x(W₁W₂) does half the work."""
    b = GraphBuilder("weight_chain", seed)
    x = b.input("x", (rows, width))
    y = b.linear(b.linear(x, width, bias=False), width, bias=False)
    return b.model({"y": y})
