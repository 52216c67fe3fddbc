"""Products of batches of matrices with their epilogues, as plain data that describes cuDNN graphs.

All kernels of cuDNN for products round their factors (cuDNN 9.19: engine 7, on tensor cores), so
there are none under ``strict-fp32``. All of them are compiled at run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsat_opt.common.codecs import compact_text
from eqsat_opt.common.precision import Precision
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.values.types import numpy_dtype
from eqsat_opt.runtime.backends.shared.batches import one_product
from eqsat_opt.runtime.backends.shared.products import product_of
from eqsat_opt.runtime.backends.shared.tensors import StridedTensor
from eqsat_opt.runtime.plan.plan import dense_strides

__all__ = ["ACTIVATIONS", "ProductSpec", "product_site"]

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_approx_tanh"}
"""cuDNN's names for the activations of products."""


@dataclass(frozen=True)
class ProductSpec:
    """A graph of cuDNN: ``activation(a @ b + bias)``.

    Attributes:
        dtype: the element type of all tensors; sums are float32.
        a, b, y: factors and result, of batches, rows and columns; b may have one batch for all.
        epilogue: the steps after the product, in order: ``bias`` by column, an activation.
        precision: the precision in which elements may be multiplied.
    """

    dtype: str
    a: StridedTensor
    b: StridedTensor
    y: StridedTensor
    epilogue: tuple[str, ...] = ()
    precision: Precision = Precision.TF32

    @property
    def bias(self) -> StridedTensor:
        """Bias, with one number for each column of y."""
        columns = self.y.dims[2]
        return StridedTensor((1, 1, columns), (columns, columns, 1))

    @property
    def tensor_bytes(self) -> int:
        """Bytes of both factors and the result."""
        size = numpy_dtype(self.dtype).itemsize
        return size * sum(one.elements for one in (self.a, self.b, self.y))

    @property
    def key(self) -> str:
        """Canonical JSON, which is equal for equal specs."""
        return compact_text(self)

    @property
    def family(self) -> tuple[object, ...]:
        """Properties that decide whether cuDNN has kernels, whatever the extents are."""
        return self.dtype, self.precision, "product", self.epilogue


def product_site(
    kernel: Kernel, strides: Sequence[Sequence[int]] | None, precision: Precision
) -> tuple[ProductSpec, tuple[int, ...]] | None:
    """Return the spec of a kernel of literal sizes, and its operands for a, b and the bias.

    ``None`` if the kernel is not such a product, or no single stride covers its batches.

    Args:
        kernel: a product, and the operators that a pattern has joined to it.
        strides: the strides of all operands, then of the result, in elements; dense by default.
        precision: the policy.
    """
    product = product_of(kernel, strides)
    if product is None:
        return None
    count, types = len(kernel.operands), kernel.required_types()
    used = [
        StridedTensor(dims, dense_strides(dims) if strides is None else tuple(strides[number]))
        for number in (product.a, product.b, count)
        for dims in (types[number].shape,)
    ]
    found = one_product(*used)
    if found is None:
        return None
    a, b, y = found
    dtype = types[count].dtype
    bias = () if product.bias is None else (product.bias,)
    activation = (ACTIVATIONS[product.activation],) if product.activation else ()
    spec = ProductSpec(
        dtype,
        a,
        b,
        y,
        epilogue=("bias",) * len(bias) + activation,
        precision=precision.of(dtype),
    )
    return spec, (product.a, product.b, *bias)
