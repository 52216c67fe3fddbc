"""Where a model, as onnxruntime runs it, can be computed in another way.

A family of kernels finds its sites in the graph that onnxruntime optimises for this machine. Each
way to compute one is a few nodes on the same values, so that it is replaced alone, with nothing
around it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import onnx
from onnx import helper

from eqsat_opt.runtime.backends.ort.nchwc import NCHWC_DOMAIN

__all__ = [
    "ACTIVATIONS",
    "CONTRIBUTED",
    "DOMAIN",
    "SILU",
    "Site",
    "Way",
    "reads",
    "with_names",
    "with_ways",
]

DOMAIN = "eqsat_opt"
"""Of the operators of our library; those of other libraries of ours begin so."""

CONTRIBUTED = "com.microsoft"
"""Domain of onnxruntime's own operators."""

_LARGE = 1 << 15
"""Elements of a weight that counts in a cache."""

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
        constants: what these nodes read that the model does not have.
    """

    name: str
    nodes: tuple[onnx.NodeProto, ...]
    roughness: int
    constants: tuple[onnx.TensorProto, ...] = ()


@dataclass(frozen=True, eq=False)
class Site:
    """Nodes that can be replaced together, and by what.

    Attributes:
        nodes: their names; what none of them reads depends on some of them and is read by others.
        ways: any of which computes them.
        is_small: whether what it gains is largely calls of nodes, which a profiler makes longer, so
            that only the time of the whole model tells.
    """

    nodes: tuple[str, ...]
    ways: tuple[Way, ...]
    is_small: bool = False


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
    weights = frozenset(t.name for t in result.graph.initializer if math.prod(t.dims) >= _LARGE)
    ordered = list(_ordered(kept, {value.name for value in result.graph.output}, weights))
    del result.graph.node[:]
    result.graph.node.extend(ordered)
    result.graph.initializer.extend(one for _, way in chosen for one in way.constants)
    present = {opset.domain for opset in result.opset_import}
    wanted = {node.domain for _, way in chosen for node in way.nodes} | {DOMAIN}
    result.opset_import.extend(
        helper.make_opsetid(name, 1)
        for name in sorted(wanted - present)
        if name in (NCHWC_DOMAIN, CONTRIBUTED) or name.partition(".")[0] == DOMAIN
    )
    return result


def _ordered(
    nodes: Sequence[onnx.NodeProto], outputs: Iterable[str], weights: frozenset[str]
) -> Iterator[onnx.NodeProto]:
    """The nodes that some output needs, each after what it reads, else in their order.

    But those that read one large weight follow each other where they can: onnxruntime runs what a
    region reads one after the other, and weights that take turns push each other out of the cache.
    """
    maker = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    before = [{maker[name] for name in reads(node) if name in maker} for node in nodes]
    needed: set[int] = set()
    left = [maker[name] for name in outputs if name in maker]
    while left:
        if (i := left.pop()) not in needed:
            needed.add(i)
            left += before[i]
    after: dict[int, list[int]] = defaultdict(list)
    for i in needed:
        for k in before[i]:
            after[k].append(i)
    waiting = {i: len(before[i]) for i in needed}
    ready: list[int] = []
    readers: dict[str, list[int]] = defaultdict(list)
    done: set[int] = set()

    def enter(i: int) -> None:
        heappush(ready, i)
        for name in weights.intersection(nodes[i].input):
            heappush(readers[name], i)

    for i in sorted(needed):
        if not waiting[i]:
            enter(i)
    current: list[int] = []
    while ready or current:
        i = heappop(current or ready)
        if i in done:
            continue
        done.add(i)
        yield nodes[i]
        for k in after[i]:
            waiting[k] -= 1
            if not waiting[k]:
                enter(k)
        for name in weights.intersection(nodes[i].input):
            current = readers[name]


def reads(node: onnx.NodeProto) -> Iterable[str]:
    """Names of what a node reads, its subgraphs too; each as often as it stands there."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from reads(inner)
            yield from (value.name for value in graph.output)
