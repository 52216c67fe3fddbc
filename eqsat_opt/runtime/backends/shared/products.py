"""Kernels that compute a product of matrices, a bias by column, and an activation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsat_opt.ir.graph.graph import attributes
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.values.types import StaticType

__all__ = ["LibraryProduct", "product_of"]

_DTYPES = ("float32", "float16")
_ACTIVATIONS = {
    ("Relu", attributes()): "relu",
    ("Gelu", attributes(approximate="none")): "gelu",
    ("Gelu", attributes(approximate="tanh")): "gelu_tanh",
}


@dataclass(frozen=True)
class LibraryProduct:
    """A kernel as libraries compute it.

    Attributes:
        a, b: the operands that are multiplied, of two axes or more, the leading ones for batches.
        bias: the operand that is added, one number for each column; ``None`` if there is no bias.
        activation: ``""``, ``relu``, ``gelu`` or ``gelu_tanh``.
    """

    a: int
    b: int
    bias: int | None
    activation: str


def product_of(
    kernel: Kernel, strides: Sequence[Sequence[int]] | None = None
) -> LibraryProduct | None:
    """Return a kernel of literal sizes as a product; ``None`` if it is not a product.

    Args:
        kernel: a product, and the operators that a pattern has joined to it.
        strides: the strides of all operands, then of the result, in elements; dense by default. One
            of the last two axes has to be contiguous. With a bias it has to be the last one:
            libraries are not given a stride of the bias, and cuBLASLt does not add a bias to a
            result in column-major order.
    """
    types = kernel.static_types
    if not kernel.steps or kernel.steps[0].op != "MatMul" or types is None:
        return None
    count = len(kernel.operands)
    a, b = kernel.steps[0].operands
    y = types[count]
    matrices = types[a], types[b], y
    if any(one.rank < 2 or one.dtype not in _DTYPES for one in matrices) or max(a, b) >= count:
        return None
    if any(0 in type_.shape for type_ in types):
        return None
    if strides is not None and not all(
        _is_matrix(types[i].shape, strides[i]) for i in (a, b, count)
    ):
        return None
    bias, activation = None, ""
    for number, step in enumerate(kernel.steps[1:], start=count + 1):
        if activation or step.operands.count(number - 1) != 1:
            return None
        activation = _ACTIVATIONS.get((step.op, step.attrs), "")
        if activation:
            continue
        others = [one for one in step.operands if one != number - 1]
        if step.op != "Add" or bias is not None or others[0] >= count:
            return None
        bias = others[0]
        if not _is_bias(types[bias], y):
            return None
        if strides is not None and any(strides[i][-1] != 1 for i in (bias, count)):
            return None
    if kernel.outputs != (count + len(kernel.steps) - 1,):
        return None
    return LibraryProduct(a, b, bias, activation)


def _is_matrix(dims: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether rows or columns are contiguous, and do not overlap."""
    (rows, columns), (outer, inner) = dims[-2:], strides[-2:]
    by_rows = (inner == 1 or columns == 1) and (outer >= columns or rows == 1)
    by_columns = (outer == 1 or rows == 1) and (inner >= rows or columns == 1)
    return by_rows or by_columns


def _is_bias(type_: StaticType, y: StaticType) -> bool:
    """Return whether a tensor has one number for each column, for all rows and batches."""
    shape = type_.shape
    return bool(shape) and type_.rank <= y.rank and shape[-1] == y.shape[-1] and all(
        extent == 1 for extent in shape[:-1]
    )  # fmt: skip
