"""Epilogues of convolutions: the activation that onnxruntime fused, or a SiLU that follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx import helper

from eqsat_opt.runtime.backends.native.sites import ACTIVATIONS, SILU, reads

__all__ = ["attributes", "epilogue", "is_known", "silus"]


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Return the attributes that a node gives, by name."""
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def is_known(node: onnx.NodeProto, constants: Mapping[str, Any]) -> bool:
    """Return whether our kernels have the activation, and the bias, if any, is constant."""
    name, parameters = _activation(node)
    bias = node.input[2] if len(node.input) > 2 else ""
    return (
        name in ACTIVATIONS
        and len(parameters) == ACTIVATIONS[name][1]
        and (not bias or bias in constants)
    )


def epilogue(nodes: Sequence[onnx.NodeProto]) -> dict[str, Any]:
    """Return the attributes of our operators for a convolution and the SiLU after it, if any."""
    name, parameters = _activation(nodes[0])
    alpha, beta = (*parameters, 0.0, 0.0)[:2]
    number = ACTIVATIONS[name][0] if len(nodes) == 1 else SILU
    return {"activation": number, "alpha": float(alpha), "beta": float(beta)}


def silus(model: onnx.ModelProto) -> dict[str, onnx.NodeProto]:
    """Return the nodes that compute x sigmoid(x), by the name of x; no other node reads x.

    Nodes after an activation that is already fused are left out.
    """
    graph = model.graph
    readers = Counter(name for node in graph.node for name in reads(node))
    readers.update(value.name for value in graph.output)
    activated = {name for node in graph.node if _activation(node)[0] for name in node.output}
    return {
        node.input[0]: node
        for node in graph.node
        if node.domain == "com.microsoft"
        and node.op_type == "QuickGelu"
        and attributes(node).get("alpha") == 1.0
        and readers[node.input[0]] == 1
        and node.input[0] not in activated
    }


def _activation(node: onnx.NodeProto) -> tuple[str, tuple[float, ...]]:
    given = {a.name: a for a in node.attribute if a.name.startswith("activation")}
    name = given["activation"].s.decode() if "activation" in given else ""
    parameters = given["activation_params"].floats if "activation_params" in given else ()
    return name, tuple(parameters)
