"""Where a model, as onnxruntime runs it, can be computed in another way.

A family of kernels finds its sites in the graph that onnxruntime optimises for this machine. Each
way to compute one is a few nodes on the same values, so that it is replaced alone, with nothing
around it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import helper

__all__ = ["ACTIVATIONS", "DOMAIN", "SILU", "Site", "Way", "with_names", "with_ways"]

DOMAIN = "eqsat_opt"
"""Of the operators of our library."""

ACTIVATIONS: Mapping[str, tuple[int, int]] = {
    "": (0, 0),
    "Relu": (1, 0),
    "LeakyRelu": (2, 1),
    "Clip": (3, 2),
    "Sigmoid": (4, 0),
    "HardSigmoid": (5, 2),
    "HardSwish": (7, 0),
}
"""What onnxruntime fuses: our number of it, and how many parameters it has."""

SILU = 6
"""Our number of x sigmoid(x), for which onnxruntime has an operator of its own."""


@dataclass(frozen=True, eq=False)
class Way:
    """One other way to compute the nodes of a site.

    Attributes:
        name: of the algorithm.
        nodes: what stands for the site's nodes, in an order in which they can run.
        roughness: 0 where every bit is as onnxruntime computes it; the more, the larger its errors.
    """

    name: str
    nodes: tuple[onnx.NodeProto, ...]
    roughness: int


@dataclass(frozen=True, eq=False)
class Site:
    """Nodes that can be replaced together, and by what.

    Attributes:
        nodes: their names; the last of them in the graph can read what all of them read, and
            nothing between them reads what they make.
        ways: any of which computes them.
    """

    nodes: tuple[str, ...]
    ways: tuple[Way, ...]


def with_names(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model, its nodes renamed so that no two have one name."""
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    for i, node in enumerate(copied.graph.node):
        node.name = f"{i}:{node.op_type}"
    return copied


def with_ways(model: onnx.ModelProto, chosen: Sequence[tuple[Site, Way]]) -> onnx.ModelProto:
    """The model with some sites replaced.

    Args:
        model: the one whose sites these are.
        chosen: disjoint sites, and how each shall be computed.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    made = {site.nodes[-1]: way.nodes for site, way in chosen}
    gone = {name for site, _ in chosen for name in site.nodes}
    kept = [
        one
        for node in result.graph.node
        for one in made.get(node.name, () if node.name in gone else (node,))
    ]
    del result.graph.node[:]
    result.graph.node.extend(kept)
    if all(opset.domain != DOMAIN for opset in result.opset_import):
        result.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return result
