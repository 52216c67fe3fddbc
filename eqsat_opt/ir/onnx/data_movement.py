"""Operators of ONNX that only move data: each element of a result is one of an operand."""

from __future__ import annotations

__all__ = ["MOVING"]

MOVING = frozenset(
    {"Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "Identity",
     "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"}
)  # fmt: skip
"""Names in the standard domain, without operators that add other numbers, such as Pad."""
