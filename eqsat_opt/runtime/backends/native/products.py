"""Products with constant right-hand sides that our kernel can take over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import onnx
from onnx import TensorProto, helper

from eqsat_opt.runtime.backends.native.sites import ACTIVATIONS, DOMAIN, Site, SiteWay

__all__ = ["HALVED", "PRODUCT", "products"]

PRODUCT, HALVED = "packed-product", "strassen-product"
"""Names of the algorithms: on packed weights, and with Strassen's halves."""

_LARGE = 256
"""Least columns and depth of a product that gains more from Strassen's halves than their sums
cost."""

_GEMMS = {("", "Gemm"), ("com.microsoft", "FusedGemm")}
_PARAMETERS = ("activation_alpha", "activation_beta", "activation_gamma")
_MATMULS = {("", "MatMul"), ("com.microsoft", "FusedMatMul")}


def products(model: onnx.ModelProto) -> Iterator[Site]:
    """Yield the products that can be replaced: by one constant matrix, in float32.

    Args:
        model: a graph as onnxruntime optimises it on this machine, with named nodes.
    """
    given = {value.name for value in model.graph.input}
    shapes = {
        tensor.name: tuple(tensor.dims) if tensor.data_type == TensorProto.FLOAT else ()
        for tensor in model.graph.initializer
        if tensor.name not in given
    }
    for node in model.graph.node:
        kind = node.domain.replace("ai.onnx", ""), node.op_type
        if kind in _GEMMS | _MATMULS:
            attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            made = _made(node, attrs, kind in _GEMMS, shapes)
            if made is not None:
                yield Site((node.name,), tuple(_ways(made, shapes[node.input[1]])))


def _ways(made: onnx.NodeProto, weights: tuple[int, ...]) -> Iterator[SiteWay]:
    yield SiteWay(PRODUCT, (made,), roughness=1)
    if min(weights) >= _LARGE:
        halved = onnx.NodeProto()
        halved.CopyFrom(made)
        next(one for one in halved.attribute if one.name == "halved").i = 1
        yield SiteWay(HALVED, (halved,), roughness=2)


def _made(
    node: onnx.NodeProto,
    attrs: Mapping[str, Any],
    is_gemm: bool,
    shapes: Mapping[str, tuple[int, ...]],
) -> onnx.NodeProto | None:
    """Return our operator for one of onnxruntime's; ``None`` if it cannot compute the same."""
    weights = shapes.get(node.input[1], ())
    bias = node.input[2] if len(node.input) > 2 else ""
    transposed = bool(attrs.get("transB", 0))
    activation = attrs.get("activation", b"").decode()
    number, count = ACTIVATIONS.get(activation, (0, -1))
    parameters = [attrs[name] for name in _PARAMETERS if name in attrs]
    if (
        len(weights) != 2
        or 0 in weights
        or any(attrs.get(name, 0) for name in ("transA", "transBatchA", "transBatchB"))
        # An addend that changes from run to run may have any shape.
        or (bias in shapes and shapes[bias] not in _rows(weights[0 if transposed else 1]))
        or len(parameters) != count
    ):
        return None
    alpha, beta = (*parameters, 0.0, 0.0)[:2]
    return helper.make_node(
        "PackedProduct",
        [*node.input[:2], *([bias] if bias else [])],
        list(node.output),
        name=node.name,
        domain=DOMAIN,
        transposed=int(transposed),
        halved=0,
        factor=float(attrs.get("alpha", 1.0)),
        bias_factor=float(attrs.get("beta", 1.0)) if is_gemm else 1.0,
        activation=number,
        alpha=float(alpha),
        beta=float(beta),
    )


def _rows(columns: int) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of a bias that is the same for all rows."""
    return (columns,), (1, columns), (), (1,), (1, 1)
