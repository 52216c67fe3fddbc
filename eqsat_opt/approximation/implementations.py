"""Implementations of a product in low precision, as nodes that onnxruntime runs or fuses.

A new implementation is one class with the methods of `ProductImplementation` and one entry of
`IMPLEMENTATIONS`. Its price and its errors are measured, so nothing else describes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt
import onnx_ir

from eqsat_opt.approximation.drafts import CONTRIB, ReplacementDraft
from eqsat_opt.approximation.weights import IntegerWeights, block_weights, integer_weights

__all__ = ["IMPLEMENTATIONS", "ProductImplementation", "integer_product", "quantise_rows"]

_Array = npt.NDArray[Any]


class ProductImplementation(Protocol):
    """A way to compute a product of rows `[..., k]` with a constant matrix `[k, n]`."""

    @property
    def name(self) -> str:
        """Name for users, which is unique."""

    @property
    def reads_integers(self) -> bool:
        """Whether it reads the rows as `quantise_rows` returns them, instead of floats."""

    def emit(
        self, draft: ReplacementDraft, rows: Sequence[onnx_ir.Value], matrix: _Array
    ) -> onnx_ir.Value:
        """Add the nodes of the product, and return its result.

        Args:
            draft: receives nodes and constants.
            rows: the outputs of `quantise_rows`, or the rows in floats alone.
            matrix: `[k, n]` f32.
        """


def quantise_rows(draft: ReplacementDraft, rows: onnx_ir.Value) -> Sequence[onnx_ir.Value]:
    """Add the conversion of rows to 8-bit integers in the range of each run.

    Returns:
        The integers, their scale and their zero point.
    """
    return draft.node("DynamicQuantizeLinear", [rows], ["integers", "scale", "zero"])


def integer_product(
    draft: ReplacementDraft, rows: Sequence[onnx_ir.Value], held: IntegerWeights
) -> onnx_ir.Value:
    """Add the nodes of a product of integers, and return its result in floats.

    Args:
        draft: receives nodes and constants.
        rows: the integers, their scale and their zero point.
        held: the matrix.
    """
    integers, scale, zero = rows
    # onnxruntime fuses exactly these four nodes into one kernel.
    (sums,) = draft.node(
        "MatMulInteger",
        [
            integers,
            draft.constant("weight", held.values),
            zero,
            draft.constant("weight_zero", held.zero_points),
        ],
        ["sums"],
    )
    (floats,) = draft.node("Cast", [sums], ["floats"], {"to": onnx_ir.DataType.FLOAT})
    (scales,) = draft.node("Mul", [scale, draft.constant("weight_scale", held.scales)], ["scales"])
    (result,) = draft.node("Mul", [floats, scales], ["product"])
    return result


@dataclass(frozen=True)
class _DynamicIntegers:
    """A product of 8-bit integers, with one scale of the rows and scales of the matrix."""

    name: str
    bits: int
    is_signed: bool
    is_per_column: bool
    reads_integers: bool = True

    def emit(
        self, draft: ReplacementDraft, rows: Sequence[onnx_ir.Value], matrix: _Array
    ) -> onnx_ir.Value:
        held = integer_weights(
            matrix, bits=self.bits, is_signed=self.is_signed, is_per_column=self.is_per_column
        )
        return integer_product(draft, rows, held)


@dataclass(frozen=True)
class _WeightsInBlocks:
    """A product of floats with weights of few bits, each block of a column with its scale.

    ``accuracy`` is onnxruntime's accuracy level: 4 rounds the rows to 8 bits in blocks too, 0
    computes in floats.
    """

    name: str
    bits: int
    block: int
    accuracy: int
    reads_integers: bool = False

    def emit(
        self, draft: ReplacementDraft, rows: Sequence[onnx_ir.Value], matrix: _Array
    ) -> onnx_ir.Value:
        held = block_weights(matrix, bits=self.bits, block=self.block)
        k, n = matrix.shape
        attributes = {
            "K": k,
            "N": n,
            "bits": self.bits,
            "block_size": self.block,
            "accuracy_level": self.accuracy,
        }
        constants = [draft.constant("weight", held.values), draft.constant("scales", held.scales)]
        (result,) = draft.node(
            "MatMulNBits", [*rows, *constants], ["product"], attributes, domain=CONTRIB
        )
        return result


IMPLEMENTATIONS: tuple[ProductImplementation, ...] = (
    _DynamicIntegers("int8", 8, is_signed=True, is_per_column=False),
    _DynamicIntegers("int8 per column", 8, is_signed=True, is_per_column=True),
    # Without VNNI, sums of two products of 8 bits saturate; one bit less leaves room.
    _DynamicIntegers("int7 per column", 7, is_signed=True, is_per_column=True),
    _DynamicIntegers("uint8", 8, is_signed=False, is_per_column=False),
    _DynamicIntegers("uint8 per column", 8, is_signed=False, is_per_column=True),
    *(
        _WeightsInBlocks(f"weights of {bits} bits by {block}", bits, block, accuracy=4)
        for bits in (8, 4)
        for block in (32, 128)
    ),
    *(
        _WeightsInBlocks(f"weights of 4 bits by {block}, floats", 4, block, accuracy=0)
        for block in (32, 128)
    ),
)
"""All implementations besides the product in floats."""
