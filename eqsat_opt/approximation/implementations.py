"""Implementations of a product in low precision, as nodes that onnxruntime runs or fuses.

A new implementation is one class with the methods of `ProductImplementation` and one entry of
`IMPLEMENTATIONS`. Its price and its errors are measured, so nothing else describes it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import onnx_ir

from eqsat_opt.approximation.drafts import CONTRIB, ReplacementDraft
from eqsat_opt.approximation.weights import (
    BlockWeights,
    IntegerWeights,
    block_weights,
    compensated_weights,
    integer_weights,
    inverse_root,
)

__all__ = [
    "IMPLEMENTATIONS",
    "FittingRows",
    "ProductImplementation",
    "implementations_on",
    "integer_product",
    "quantise_rows",
]

_Array = npt.NDArray[Any]

_MOST_COMPENSATED = 4096
"""Longest row whose weights are compensated, which takes time and memory by its square and cube."""

_ARM_HALVES = frozenset({"asimdhp", "fphp"})
"""Extensions of processors of Arm that compute in 16-bit floats."""


@dataclass(frozen=True, eq=False)
class FittingRows:
    """Rows to which implementations of one product are fitted.

    Attributes:
        samples: the rows `[..., k]` of each sample.
    """

    samples: Sequence[_Array]

    @cached_property
    def inverse_root(self) -> _Array | None:
        """The :func:`~eqsat_opt.approximation.weights.inverse_root` of all rows.

        It takes longest of a fit, and is the same for all implementations.
        """
        return inverse_root(np.sum([_gram(one) for one in self.samples], axis=0))


class ProductImplementation(Protocol):
    """A way to compute a product of rows `[..., k]` with a constant matrix `[k, n]`."""

    @property
    def name(self) -> str:
        """Name for users, which is unique."""

    @property
    def kernel(self) -> str:
        """Name of the implementation whose time is also its own; its own name if none is."""

    @property
    def reads_integers(self) -> bool:
        """Whether it reads the rows as `quantise_rows` returns them, instead of floats."""

    def fitted(self, matrix: _Array, rows: FittingRows) -> ProductImplementation | None:
        """Return the implementation for one matrix and rows like these.

        Args:
            matrix: `[k, n]` f32.
            rows: the rows.

        Returns:
            The implementation; ``None`` if the rows do not allow it.
        """

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

    @property
    def kernel(self) -> str:
        return self.name

    def fitted(self, matrix: _Array, rows: FittingRows) -> ProductImplementation | None:
        del matrix, rows
        return self

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

    Attributes:
        name: name for users.
        kernel: name of the implementation with the same nodes.
        bits, block: bits of a weight, and weights of a block.
        accuracy: onnxruntime's accuracy level: 4 rounds the rows to 8 bits in blocks too, 0
            computes in floats.
        is_symmetric: whether zero is in the middle of the integers.
        is_compensated: whether weights make up for the errors of others, on rows to which the
            implementation is fitted. One that is not is rounded as any other.
        held: the weights of the matrix to which it is fitted.
    """

    name: str
    kernel: str
    bits: int
    block: int
    accuracy: int
    is_symmetric: bool = True
    is_compensated: bool = False
    held: BlockWeights | None = None
    reads_integers: bool = False

    def fitted(self, matrix: _Array, rows: FittingRows) -> ProductImplementation | None:
        if not self.is_compensated:
            return self
        if len(matrix) > _MOST_COMPENSATED or rows.inverse_root is None:
            return None
        held = compensated_weights(
            matrix,
            rows.inverse_root,
            bits=self.bits,
            block=self.block,
            is_symmetric=self.is_symmetric,
        )
        return replace(self, held=held)

    def emit(
        self, draft: ReplacementDraft, rows: Sequence[onnx_ir.Value], matrix: _Array
    ) -> onnx_ir.Value:
        held = self.held or block_weights(
            matrix, bits=self.bits, block=self.block, is_symmetric=self.is_symmetric
        )
        k, n = matrix.shape
        attributes = {
            "K": k,
            "N": n,
            "bits": self.bits,
            "block_size": self.block,
            "accuracy_level": self.accuracy,
        }
        constants = [draft.constant("weight", held.values), draft.constant("scales", held.scales)]
        if held.zero_points is not None:
            constants.append(draft.constant("zeros", held.zero_points))
        (result,) = draft.node(
            "MatMulNBits", [*rows, *constants], ["product"], attributes, domain=CONTRIB
        )
        return result


def _gram(rows: _Array) -> _Array:
    flat = rows.reshape(-1, rows.shape[-1]).astype(np.float64)
    return np.asarray(flat.T @ flat)


def _in_blocks(
    bits: int,
    block: int,
    *,
    accuracy: int = 4,
    is_symmetric: bool = True,
    is_compensated: bool = False,
) -> _WeightsInBlocks:
    kernel = (
        f"weights of {bits} bits by {block}"
        f"{'' if accuracy else ', floats'}{'' if is_symmetric else ', asymmetric'}"
    )
    return _WeightsInBlocks(
        f"{kernel}, compensated" if is_compensated else kernel,
        kernel=kernel, bits=bits, block=block, accuracy=accuracy, is_symmetric=is_symmetric,
        is_compensated=is_compensated,
    )  # fmt: skip


@dataclass(frozen=True)
class _Halves:
    """A product in 16-bit floats, between conversions."""

    name: str = "float16"
    kernel: str = "float16"
    reads_integers: bool = False

    def fitted(self, matrix: _Array, rows: FittingRows) -> ProductImplementation | None:
        del matrix, rows
        return self

    def emit(
        self, draft: ReplacementDraft, rows: Sequence[onnx_ir.Value], matrix: _Array
    ) -> onnx_ir.Value:
        (row,) = rows
        half, single = ({"to": one} for one in (onnx_ir.DataType.FLOAT16, onnx_ir.DataType.FLOAT))
        (narrow,) = draft.node("Cast", [row], ["narrow"], half)
        most = np.finfo(np.float16).max
        weight = draft.constant("weight", np.clip(matrix, -most, most).astype(np.float16))
        (product,) = draft.node("MatMul", [narrow, weight], ["narrow_product"])
        return draft.node("Cast", [product], ["product"], single)[0]


_IN_8_BITS: tuple[ProductImplementation, ...] = (
    _DynamicIntegers("int8", 8, is_signed=True, is_per_column=False),
    _DynamicIntegers("int8 per column", 8, is_signed=True, is_per_column=True),
    # Without VNNI, sums of two products of 8 bits saturate; one bit less leaves room.
    _DynamicIntegers("int7 per column", 7, is_signed=True, is_per_column=True),
    _DynamicIntegers("uint8", 8, is_signed=False, is_per_column=False),
    _DynamicIntegers("uint8 per column", 8, is_signed=False, is_per_column=True),
)

IMPLEMENTATIONS: tuple[ProductImplementation, ...] = (
    *_IN_8_BITS,
    *(
        _in_blocks(8, block, is_symmetric=is_symmetric)
        for is_symmetric in (True, False)
        for block in (32, 128)
    ),
    *(
        _in_blocks(4, block, is_symmetric=is_symmetric)
        for is_symmetric in (True, False)
        for block in (16, 32, 64, 128)
    ),
    *(_in_blocks(4, block, accuracy=0) for block in (32, 128)),
    *(
        _in_blocks(4, block, is_symmetric=is_symmetric, is_compensated=True)
        for is_symmetric in (True, False)
        for block in (32, 128)
    ),
)
"""All implementations on integers, besides the product in floats."""


def implementations_on(isa: Collection[str]) -> tuple[ProductImplementation, ...]:
    """Return the implementations for a processor with some extensions of its instructions.

    onnxruntime multiplies 16-bit floats only on processors of Arm that do so themselves; on others
    it converts them first.
    """
    has_halves = not _ARM_HALVES.isdisjoint(isa)
    return (*IMPLEMENTATIONS, _Halves()) if has_halves else IMPLEMENTATIONS
