"""Spellings of fused operators as exporters write them, and near misses that only look like them.

Every spelling is a small model of plain ONNX operators (opset 17) whose output equals the fused
operator; every near miss differs from it by one constant, axis, factor or operand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks.spellings.attention import attention, softmax
from benchmarks.spellings.gates import gelu, gelu_sigmoid, gelu_tanh, hard_swish, swish
from benchmarks.spellings.misses import near_misses
from benchmarks.spellings.norms import layer_norm, rms_norm
from benchmarks.spellings.writer import Spelling

__all__ = ["FAMILIES", "Spelling", "near_misses", "spellings"]

FAMILIES: dict[str, Callable[[], Iterator[Spelling]]] = {
    "gelu": gelu,
    "gelu-tanh": gelu_tanh,
    "gelu-sigmoid": gelu_sigmoid,
    "swish": swish,
    "hard-swish": hard_swish,
    "layer-norm": layer_norm,
    "rms-norm": rms_norm,
    "softmax": softmax,
    "attention": attention,
}


def spellings(family: str) -> list[Spelling]:
    """All spellings of one family."""
    return list(FAMILIES[family]())
