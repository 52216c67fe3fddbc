"""Sites: parts of a model, as onnxruntime runs it, that can be computed in another way.

A family of kernels finds its sites in the graph that onnxruntime optimises for this machine. Each
way to compute a site is a few nodes on the same values, so a site is replaced without a change to
the nodes around it.
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
    "SiteWay",
    "reads",
    "with_names",
    "with_ways",
]

DOMAIN = "eqsat_opt"
"""Domain of the operators of our library; the domains of our other libraries begin with it."""

CONTRIBUTED = "com.microsoft"
"""Domain of onnxruntime's own operators."""

_LARGE = 1 << 15
"""Least number of elements of a weight that matters to the caches."""

ACTIVATIONS: Mapping[str, tuple[int, int]] = {
    "": (0, 0),
    "Relu": (1, 0),
    "LeakyRelu": (2, 1),
    "Clip": (3, 2),
    "Sigmoid": (4, 0),
    "HardSigmoid": (5, 2),
    "HardSwish": (7, 0),
}
"""Activations that onnxruntime fuses, with our number and the count of parameters of each."""

SILU = 6
"""Our number of x sigmoid(x), for which onnxruntime has a separate operator."""


@dataclass(frozen=True, eq=False)
class SiteWay:
    """One other way to compute the nodes of a site.

    Attributes:
        name: the name of the algorithm.
        nodes: the nodes that replace those of the site, in an order in which they can run.
        roughness: 0 if every bit is as onnxruntime computes it; larger numbers mean larger errors.
        constants: constants that these nodes read and that the model does not have.
    """

    name: str
    nodes: tuple[onnx.NodeProto, ...]
    roughness: int
    constants: tuple[onnx.TensorProto, ...] = ()


@dataclass(frozen=True, eq=False)
class Site:
    """Nodes that can be replaced together, and their replacements.

    Attributes:
        nodes: the names of the nodes; no path through the graph leaves them and leads back.
        ways: the replacements, any of which computes the nodes.
        is_small: whether the gain is largely in calls of nodes, which a profiler makes longer, so
            that only the time of the whole model is reliable.
    """

    nodes: tuple[str, ...]
    ways: tuple[SiteWay, ...]
    is_small: bool = False


def with_names(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of a model whose nodes are renamed so that their names are unique.

    It imports the operator sets that it uses and no others, in order. Onnxruntime writes all that
    it knows, which depend on the libraries that the process has loaded.
    """
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    used = set(_domains(copied))
    imports = sorted(
        (one for one in model.opset_import if one.domain in used), key=lambda one: one.domain
    )
    del copied.opset_import[:]
    copied.opset_import.extend(imports)
    for i, node in enumerate(copied.graph.node):
        node.name = f"{i}:{node.op_type}"
    return copied


def _domains(model: onnx.ModelProto) -> Iterator[str]:
    """Yield the domains of all operators of a model."""
    waiting = [*model.graph.node]
    for function in model.functions:
        yield function.domain
        waiting += function.node
    while waiting:
        node = waiting.pop()
        yield "" if node.domain == "ai.onnx" else node.domain
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                waiting += graph.node


def with_ways(model: onnx.ModelProto, chosen: Sequence[tuple[Site, SiteWay]]) -> onnx.ModelProto:
    """Return a copy of a model with some sites replaced.

    Args:
        model: the model that has the sites.
        chosen: disjoint sites, each with the way that shall compute it.
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
    """Yield the nodes that some output needs, each after its producers, otherwise in their order.

    Nodes that read the same large weight follow each other where they can. Onnxruntime runs the
    producers of a region one after another, and alternating weights evict each other from the
    cache.
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
        for name in filter(weights.__contains__, nodes[i].input):
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
        for name in filter(weights.__contains__, nodes[i].input):
            current = readers[name]


def reads(node: onnx.NodeProto) -> Iterable[str]:
    """Yield the names that a node and its subgraphs read, each as often as it occurs."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from reads(inner)
            yield from (value.name for value in graph.output)
