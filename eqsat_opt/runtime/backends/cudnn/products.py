"""What cuDNN is asked to multiply: batches of matrices and what follows them, as plain data.

All its kernels for products round their factors (cuDNN 9.19: engine 7, on tensor cores), so there
are none under ``strict-fp32``; and all are compiled where they run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat_opt.common.precision import Precision
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.values.types import numpy_dtype
from eqsat_opt.runtime.backends.shared.batches import one_product
from eqsat_opt.runtime.backends.shared.products import product_of
from eqsat_opt.runtime.backends.shared.tensors import Tensor, tensor_from_json, tensor_to_json
from eqsat_opt.runtime.plan.plan import dense_strides

__all__ = ["ACTIVATIONS", "ProductSpec", "product_site", "product_spec_from_json"]

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_approx_tanh"}
"""Of products, as cuDNN calls them."""


@dataclass(frozen=True)
class ProductSpec:
    """A graph of cuDNN: ``activation(a @ b + bias)``.

    Attributes:
        dtype: of all tensors; sums are float32.
        a, b, y: of batches, rows and columns; b may have one batch for all.
        epilogue: in order: ``bias`` by column, an activation.
        precision: in which elements may be multiplied.
    """

    dtype: str
    a: Tensor
    b: Tensor
    y: Tensor
    epilogue: tuple[str, ...] = ()
    precision: Precision = Precision.TF32

    @property
    def bias(self) -> Tensor:
        """One number for each column of y."""
        columns = self.y.dims[2]
        return Tensor((1, 1, columns), (columns, columns, 1))

    @property
    def tensor_bytes(self) -> int:
        """Of both factors and the result."""
        size = numpy_dtype(self.dtype).itemsize
        return size * sum(one.elements for one in (self.a, self.b, self.y))

    @property
    def key(self) -> str:
        """Canonical JSON: equal specs have equal ones."""
        return json.dumps(self.to_json(), separators=(",", ":"), sort_keys=True)

    @property
    def family(self) -> tuple[object, ...]:
        """What decides whether cuDNN has kernels, whatever the extents are."""
        return self.dtype, self.precision, "product", self.epilogue

    def to_json(self) -> dict[str, Any]:
        """The document of a spec; `product_spec_from_json` gives back an equal value."""
        return {
            "dtype": self.dtype,
            **{name: tensor_to_json(getattr(self, name)) for name in ("a", "b", "y")},
            "epilogue": list(self.epilogue),
            "precision": self.precision.value,
        }


def product_spec_from_json(value: Mapping[str, Any]) -> ProductSpec:
    """What `ProductSpec.to_json` made."""
    return ProductSpec(
        value["dtype"],
        tensor_from_json(value["a"]),
        tensor_from_json(value["b"]),
        tensor_from_json(value["y"]),
        epilogue=tuple(value["epilogue"]),
        precision=Precision(value["precision"]),
    )


def product_site(
    kernel: Kernel, strides: Sequence[Sequence[int]] | None, precision: Precision
) -> tuple[ProductSpec, tuple[int, ...]] | None:
    """A kernel of literal sizes as cuDNN multiplies it, and the operands of a, b and the bias.

    ``None`` where it is no such kernel, or has batches that no stride leads through.

    Args:
        kernel: a product, and what a pattern has joined to it.
        strides: of all operands, then of the result, in elements; dense by default.
        precision: the policy.
    """
    product = product_of(kernel, strides)
    if product is None:
        return None
    count, types = len(kernel.operands), kernel.required_types()
    used = [
        Tensor(dims, dense_strides(dims) if strides is None else tuple(strides[number]))
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
