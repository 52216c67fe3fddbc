"""Which normalizations of rows our kernel can take over, with the additions fused into them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import TensorProto, helper

from eqsat_opt.runtime.backends.native.sites import DOMAIN, Site, Way

__all__ = ["NORMALIZATION", "normalizations"]

NORMALIZATION = "two-pass-normalization"
"""Name of the algorithm."""

_SKIP_SUM = 3
"""Number of the output of the operators with `skip` that holds what is normalized."""


@dataclass(frozen=True)
class _Spelling:
    """One of onnxruntime's operators: its inputs, and the epsilon where a node gives none."""

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
"""What those of our operator are."""


def normalizations(model: onnx.ModelProto) -> Iterator[Site]:
    """The nodes that can be replaced: along the last axis, their scales constant.

    Args:
        model: a graph as onnxruntime optimises it on this machine, its nodes with names.
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
            yield Site((node.name,), (Way(NORMALIZATION, (made,), roughness=1),))


def _made(
    node: onnx.NodeProto, spelling: _Spelling, rows: Mapping[str, int], ranks: Mapping[str, int]
) -> onnx.NodeProto | None:
    """Our operator for one of onnxruntime's, or ``None`` where it cannot compute the same."""
    attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    inputs = dict(zip(spelling.inputs, node.input, strict=False))
    size = rows.get(inputs["scale"], 0)
    vectors = [inputs.get(name, "") for name in ("shift", "bias")]
    first, *others = node.output
    sums = others[_SKIP_SUM - 1 :] if "skip" in inputs else []
    # A scale of one element may be broadcast to rows of any length, which ours is not.
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
    """Without the empty ones at the end."""
    return list(names[: max(i for i, name in enumerate(names) if name) + 1])
