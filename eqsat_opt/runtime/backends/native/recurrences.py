"""Recurrent layers that our kernel can take over: LSTM and GRU with constant weights, in float32.

Their weights are packed so that those of a layer's states stay in the caches from step to step, and
all gates of some units are computed together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx
from onnx import TensorProto, helper

from eqsat_opt.runtime.backends.native.sites import DOMAIN, Site, SiteWay

__all__ = ["RECURRENT", "recurrences"]

RECURRENT = "packed-recurrence"
"""Name of the algorithm of our kernel."""

_ACTIVATIONS: Mapping[str, tuple[bytes, ...]] = {
    "LSTM": (b"Sigmoid", b"Tanh", b"Tanh"),
    "GRU": (b"Sigmoid", b"Tanh"),
}
"""The activations of ONNX's defaults, which are those of our kernel."""

_OPERANDS: Mapping[str, int] = {"LSTM": 7, "GRU": 6}
"""Number of operands that our kernel reads; what follows are peepholes."""

_DIRECTIONS = (b"forward", b"reverse", b"bidirectional")
"""Directions in the order of the numbers that our operator has for them."""


def recurrences(model: onnx.ModelProto) -> Iterator[Site]:
    """Yield the recurrent layers that can be replaced.

    Args:
        model: a graph as onnxruntime optimises it on this machine, with named nodes.
    """
    given = {value.name for value in model.graph.input}
    constants = {
        tensor.name: len(tensor.dims)
        for tensor in model.graph.initializer
        if tensor.data_type == TensorProto.FLOAT and tensor.name not in given
    }
    for node in model.graph.node:
        if node.domain in ("", "ai.onnx") and node.op_type in _ACTIVATIONS:
            attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            if _is_ours(node, attrs, constants):
                yield Site((node.name,), (SiteWay(RECURRENT, (_ours(node, attrs),), roughness=1),))


def _is_ours(node: onnx.NodeProto, attrs: Mapping[str, Any], constants: Mapping[str, int]) -> bool:
    """Return whether our kernel computes the same as a node."""
    kind = node.op_type
    _, weights, recurrent, *others = node.input
    directions = 2 if attrs.get("direction") == _DIRECTIONS[2] else 1
    bias = others[0] if others else ""
    return (
        constants.get(weights) == constants.get(recurrent) == 3
        and (not bias or constants.get(bias) == 2)
        and not any(node.input[_OPERANDS[kind] :])
        and _chosen(attrs, "activations") in ((), _ACTIVATIONS[kind] * directions)
        and not any(attrs.get(name) for name in ("activation_alpha", "activation_beta", "clip"))
        and not attrs.get("layout")
        and not attrs.get("input_forget")
        and (kind == "LSTM" or attrs.get("linear_before_reset") == 1)
    )


def _chosen(attrs: Mapping[str, Any], name: str) -> Sequence[bytes]:
    return tuple(attrs.get(name) or ())


def _ours(node: onnx.NodeProto, attrs: Mapping[str, Any]) -> onnx.NodeProto:
    return helper.make_node(
        "RecurrentLayer",
        list(node.input[: _OPERANDS[node.op_type]]),
        list(node.output),
        name=node.name,
        domain=DOMAIN,
        lstm=int(node.op_type == "LSTM"),
        direction=_DIRECTIONS.index(attrs.get("direction", _DIRECTIONS[0])),
    )
