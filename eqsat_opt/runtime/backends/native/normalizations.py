"""Normalisations of rows that our kernel can take over, with the additions fused into them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import TensorProto, helper

from eqsat_opt.runtime.backends.native.sites import DOMAIN, Site, SiteWay

__all__ = ["NORMALIZATION", "normalizations"]

NORMALIZATION = "two-pass-normalization"
"""Name of the algorithm of our kernel."""

_SKIP_SUM = 3
"""Index of the output that holds the sum before it is normalised, for operators with `skip`."""


@dataclass(frozen=True)
class _Spelling:
    """One of onnxruntime's operators: its inputs, and its default epsilon."""

    inputs: tuple[str, ...]
    is_centred: bool
    epsilon: float


_SPELLINGS: Mapping[tuple[str, str], _Spelling] = {
    ("", "LayerNormalization"): _Spelling(("input", "scale", "shift"), True, 1e-5),
    ("", "SimplifiedLayerNormalization"): _Spelling(("input", "scale"), False, 1e-5),
    ("", "RMSNormalization"): _Spelling(("input", "scale"), False, 1e-5),
    ("com.microsoft", "SkipLayerNormalization"): _Spelling(
        ("input", "skip", "scale", "shift", "bias"), True, 1e-12
    ),
    ("com.microsoft", "SkipSimplifiedLayerNormalization"): _Spelling(
        ("input", "skip", "scale", "bias"), False, 1e-12
    ),
}

_OURS = ("input", "scale", "shift", "skip", "bias")
"""Inputs of our operator, in order."""


def normalizations(model: onnx.ModelProto) -> Iterator[Site]:
    """Yield the normalisations that can be replaced: along the last axis, with constant scales.

    Args:
        model: a graph as onnxruntime optimises it on this machine, with named nodes.
    """
    graph = model.graph
    rows = {
        tensor.name: tensor.dims[0]
        for tensor in graph.initializer
        if tensor.data_type == TensorProto.FLOAT and len(tensor.dims) == 1
    }
    ranks = {
        value.name: len(value.type.tensor_type.shape.dim)
        for value in (*graph.input, *graph.value_info)
        if value.type.tensor_type.HasField("shape")
    }
    for node in graph.node:
        spelling = _SPELLINGS.get((node.domain.replace("ai.onnx", ""), node.op_type))
        if spelling is not None and (made := _made(node, spelling, rows, ranks)):
            yield Site((node.name,), (SiteWay(NORMALIZATION, (made,), roughness=1),))


def _made(
    node: onnx.NodeProto, spelling: _Spelling, rows: Mapping[str, int], ranks: Mapping[str, int]
) -> onnx.NodeProto | None:
    """Return our operator for one of onnxruntime's; ``None`` if it cannot compute the same."""
    attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    inputs = dict(zip(spelling.inputs, node.input, strict=False))
    size = rows.get(inputs["scale"], 0)
    vectors = [inputs.get(name, "") for name in ("shift", "bias")]
    first, *others = node.output
    sums = others[_SKIP_SUM - 1 :] if "skip" in inputs else []
    # onnxruntime may broadcast a scale of one element to rows of any length; our kernel does not.
    if (
        size < 2
        or attrs.get("axis", -1) not in (-1, ranks.get(inputs["input"], 0) - 1)
        or attrs.get("stash_type", 1) != TensorProto.FLOAT
        or any(name and rows.get(name) != size for name in vectors)
        or any(others[: len(others) - len(sums)])
    ):
        return None
    return helper.make_node(
        "Normalization",
        _shortened([inputs.get(name, "") for name in _OURS]),
        _shortened([first, *sums]),
        name=node.name,
        domain=DOMAIN,
        centred=int(spelling.is_centred),
        epsilon=float(attrs.get("epsilon", spelling.epsilon)),
    )


def _shortened(names: Sequence[str]) -> list[str]:
    """Return the names without the empty ones at the end."""
    return list(names[: max(i for i, name in enumerate(names) if name) + 1])
