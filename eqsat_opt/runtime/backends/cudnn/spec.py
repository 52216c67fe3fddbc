"""Convolutions of images with their epilogues, as plain data that describes cuDNN graphs.

The precompiled fused kernels compute ``act(conv [+ z] + bias)``: the residual comes before the
bias, and there is always a bias. So a sum in another order is computed in this order, which rounds
differently but no worse, and if there is no bias, a bias of zeros is added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from eqsat_opt.common.codecs import compact_text, value_from_json
from eqsat_opt.common.precision import Precision
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.values.types import StaticType, numpy_dtype
from eqsat_opt.runtime.backends.cudnn.products import ProductSpec, product_site
from eqsat_opt.runtime.backends.shared.tensors import StridedTensor
from eqsat_opt.runtime.plan.plan import layout_strides

__all__ = [
    "ZERO_BIAS",
    "AnySpec",
    "CudnnSite",
    "CudnnSpec",
    "may_run",
    "site_of",
    "spec_from_json",
]

ZERO_BIAS = -1
"""Number that represents a bias of zeros in place of an operand."""

_RANK = 4
_DTYPES = ("float32", "float16")
_ACTIVATIONS = {"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh"}


@dataclass(frozen=True)
class CudnnSpec:
    """A graph of cuDNN that begins with a convolution.

    Attributes:
        dtype: the element type of all tensors; sums are float32.
        x, w, y: data, weights (outputs, inputs of a group, height, width), result.
        pads: the padding before height and width, then after them.
        strides, dilations: the strides and dilations of the window.
        epilogue: the steps after the convolution, in order: ``add`` of a tensor like y, ``bias`` by
            channel, an activation.
        residual: the operand of ``add``; ``None`` if there is none.
        precision: the precision in which elements may be multiplied; sums are float32.
    """

    dtype: str
    x: StridedTensor
    w: StridedTensor
    y: StridedTensor
    pads: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    epilogue: tuple[str, ...] = ()
    residual: StridedTensor | None = None
    precision: Precision = Precision.STRICT

    @property
    def groups(self) -> int:
        """Number of groups of the channels of x."""
        return self.x.dims[1] // max(self.w.dims[1], 1)

    @property
    def bias(self) -> StridedTensor:
        """Bias, with one number for each channel of y."""
        channels = self.y.dims[1]
        return StridedTensor((1, channels, 1, 1), (channels, 1, channels, channels))

    @property
    def tensor_bytes(self) -> int:
        """Bytes of data, weights and result."""
        size = numpy_dtype(self.dtype).itemsize
        return size * sum(one.elements for one in (self.x, self.w, self.y))

    @property
    def key(self) -> str:
        """Canonical JSON, which is equal for equal specs."""
        return compact_text(self)

    @property
    def family(self) -> tuple[object, ...]:
        """Properties that decide whether cuDNN has kernels, whatever the extents are."""
        grouped = "" if self.groups == 1 else "depthwise" if self.w.dims[1] == 1 else "grouped"
        return self.dtype, self.precision, grouped, self.epilogue, self.dilations == (1, 1)


AnySpec: TypeAlias = CudnnSpec | ProductSpec


def spec_from_json(value: Mapping[str, Any]) -> AnySpec:
    """Return the spec whose document `value_to_json` returned.

    Raises:
        StageError: the value is no spec.
    """
    if "a" in value:
        return value_from_json(value, ProductSpec, "the product", strict=False)
    return value_from_json(value, CudnnSpec, "the convolution", strict=False)


@dataclass(frozen=True)
class CudnnSite:
    """A kernel as cuDNN computes it.

    Attributes:
        spec: the spec of the graph.
        operands: for x, w and each operand of the epilogue, the operand of the kernel, or
            `ZERO_BIAS`; cuDNN takes weights with their channels innermost, whatever layout the
            kernel has. For a product: the operands of both factors and the bias.
    """

    spec: AnySpec
    operands: tuple[int, ...]


def may_run(spec: AnySpec) -> bool:
    """Return whether cuDNN may have kernels for such strides (cuDNN 9.19, all architectures).

    Precompiled kernels need channels that vary fastest, whether or not the image is part of a
    larger tensor, and a residual with the strides of the result.
    """
    if isinstance(spec, ProductSpec):
        return True
    images = (spec.x, spec.y)
    return all(one.strides[1] == 1 or one.dims[1] == 1 for one in images) and (
        spec.residual is None or spec.residual.strides == spec.y.strides
    )


def site_of(
    kernel: Kernel,
    strides: Sequence[Sequence[int]] | None = None,
    *,
    precision: Precision = Precision.STRICT,
) -> CudnnSite | None:
    """Return a kernel of literal sizes as cuDNN computes it; ``None`` if it cannot.

    Args:
        kernel: a convolution of images or a product, and the operators that a pattern has joined
            to it.
        strides: the strides of all operands, then of the result, in elements; by default all
            images have their channels innermost, and all other tensors are dense. cuDNN is not
            given the strides of a bias, so a bias must not have gaps.
        precision: the policy.
    """
    types = kernel.static_types
    if not kernel.steps or types is None:
        return None
    if kernel.steps[0].op == "MatMul":
        found = product_site(kernel, strides, precision)
        return None if found is None else CudnnSite(*found)
    if kernel.steps[0].op != "Conv":
        return None
    conv, count = kernel.steps[0], len(kernel.operands)
    x, w = conv.operands[:2]
    y = types[count]
    dtypes = {types[number].dtype for number in (*range(count), count)}
    if y.rank != _RANK or len(dtypes) > 1 or y.dtype not in _DTYPES or max(conv.operands) >= count:
        return None
    if any(0 in type_.shape for type_ in types):
        return None
    after = _epilogue(kernel, types)
    if after is None:
        return None
    bias, residual, activation = after
    if bias is not None and strides is not None:
        steps = zip(types[bias].shape, strides[bias], strict=True)
        if any(step != 1 for extent, step in steps if extent != 1):
            return None
    parts = {
        "add": residual is not None,
        "bias": bias is not None or residual is not None or bool(activation),
        activation: bool(activation),
    }
    epilogue = tuple(kind for kind, is_there in parts.items() if is_there)

    def tensor(number: int) -> StridedTensor:
        dims = types[number].shape
        return StridedTensor(
            dims, layout_strides(dims, "nhwc") if strides is None else tuple(strides[number])
        )

    weights = types[w].shape
    attrs: dict[str, Any] = dict(conv.attrs)
    spec = CudnnSpec(
        y.dtype,
        tensor(x),
        StridedTensor(weights, layout_strides(weights, "nhwc")),
        tensor(count),
        pads=tuple(attrs["pads"]),
        strides=tuple(attrs["strides"]),
        dilations=tuple(attrs["dilations"]),
        epilogue=epilogue,
        residual=None if residual is None else tensor(residual),
        precision=precision.of(y.dtype),
    )
    operands = [x, w]
    if residual is not None:
        operands.append(residual)
    if "bias" in epilogue:
        operands.append(ZERO_BIAS if bias is None else bias)
    return CudnnSite(spec, tuple(operands))


def _epilogue(
    kernel: Kernel, types: Sequence[StaticType]
) -> tuple[int | None, int | None, str] | None:
    """Return the operands of bias and residual and the activation; ``None`` if there is more."""
    count = len(kernel.operands)
    y = types[count]
    bias = next(iter(kernel.steps[0].operands[2:]), None)
    residual, activation = None, ""
    for number, step in enumerate(kernel.steps[1:], start=count + 1):
        before = number - 1
        if activation or step.operands.count(before) != 1:
            return None
        if step.op in _ACTIVATIONS and not get_op(step.op).attrs:
            activation = _ACTIVATIONS[step.op]
            continue
        if step.op != "Add":
            return None
        (other,) = (one for one in step.operands if one != before)
        if other >= count:
            return None
        if bias is None and _is_bias(types[other], y):
            bias = other
        elif residual is None and types[other] == y:
            residual = other
        else:
            return None
    is_last = kernel.outputs == (count + len(kernel.steps) - 1,)
    return (bias, residual, activation) if is_last else None


def _is_bias(type_: StaticType, y: StaticType) -> bool:
    """Return whether a tensor has one number for each channel."""
    channels = y.shape[1]
    shape = (1,) * (y.rank - type_.rank) + type_.shape
    return type_.rank <= y.rank and shape == (1, channels, 1, 1)
