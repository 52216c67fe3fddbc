"""Convolutions of one value as one convolution: the merge stage of IOS.

Smaller kernels are padded with zeros, and the output channels are concatenated. The steps after
each convolution in its kernel (bias, scale, activation) must be the same for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from eqsat_opt.ir.graph.graph import Graph, Node, attributes
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.passes.rebuild import GraphWriter
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.lab.search.pricing.outcome import ChosenKernel

__all__ = ["mergeable", "merged"]

_RANK = 4
"""Rank of images."""

_CHANNELS = 1
"""Axis of the channels of images."""


def mergeable(graph: Graph, kernels: Sequence[ChosenKernel]) -> bool:
    """Return whether two or more kernels, convolutions of one value, can become one."""
    if len(kernels) < 2 or not all(_is_convolution(graph, one) for one in kernels):
        return False
    return len({_alike(graph, one) for one in kernels}) == 1


def _is_convolution(graph: Graph, one: ChosenKernel) -> bool:
    """Return whether a kernel is an ordinary convolution with constants.

    Its weights are constant, and so are the operands of the steps after it, which vary by channel
    only.
    """
    kernel = one.kernel
    if kernel is None or kernel.static_types is None or not kernel.steps:
        return False
    (first, *rest), count = kernel.steps, len(kernel.operands)
    attrs = dict(first.attrs)
    if first.op != "Conv" or attrs["group"] != 1:
        return False
    data, weight, *bias = first.operands
    if kernel.types[data].rank != _RANK or attrs["dilations"] != (1, 1):
        return False
    if max(data, weight) >= count or kernel.operands[data].const:
        return False
    channels, _, height, width = kernel.static_types[weight].shape
    if not kernel.operands[weight].const or not height % 2 == width % 2 == 1:
        return False

    def is_by_channel(operand: int) -> bool:
        # A kernel may read a constant in another shape than it has.
        if operand >= count or not kernel.operands[operand].const:
            return False
        found = graph.tensor_type(one.reads[operand])
        return found is not None and found.shape in ((channels, 1, 1), (1, channels, 1, 1))

    if not all(map(is_by_channel, bias)):
        return False
    for before, step in enumerate(rest, start=count):
        others = [number for number in step.operands if number != before]
        if get_op(step.op).kind != "pointwise" or len(others) == len(step.operands):
            return False
        if not all(map(is_by_channel, others)):
            return False
    return kernel.outputs == (count + len(rest),)


def _alike(graph: Graph, one: ChosenKernel) -> object:
    """Return a key that is equal for kernels that can become one."""
    kernel = one.kernel
    assert kernel is not None
    (first, *rest), count = kernel.steps, len(kernel.operands)
    ranks = [_rank(graph, name) for name in one.reads]
    steps = [
        (
            step.op,
            step.attrs,
            tuple(None if number == before else ranks[number] for number in step.operands),
        )
        for before, step in enumerate(rest, start=count)
    ]
    data, _, *bias = first.operands
    strides = dict(first.attrs)["strides"]
    biases = tuple(ranks[number] for number in bias)
    return one.reads[data], kernel.types[data].dtype, strides, _centred(kernel), biases, (*steps,)


def _rank(graph: Graph, name: str) -> int:
    found = graph.tensor_type(name)
    return -1 if found is None else found.rank


def _extents(kernel: Kernel) -> tuple[int, int]:
    """Return the height and width of a filter."""
    height, width = kernel.required_types()[kernel.steps[0].operands[1]].shape[2:]
    return height, width


def _centred(kernel: Kernel) -> tuple[int, int, int, int]:
    """Return the pads that a filter would have if it were its centre alone."""
    (top, left, bottom, right), (height, width) = _pads(kernel), _extents(kernel)
    return top - height // 2, left - width // 2, bottom - height // 2, right - width // 2


def _pads(kernel: Kernel) -> Any:
    return dict(kernel.steps[0].attrs)["pads"]


def merged(graph: Graph, kernels: Sequence[ChosenKernel]) -> tuple[Graph, frozenset[str]]:
    """Replace several convolutions of a graph by one.

    Args:
        graph: the graph in which the kernels run.
        kernels: kernels that `mergeable` accepts.

    Returns:
        The graph; the values of the convolution, the steps after it and the Slices of its result.
    """
    nodes = _Nodes(graph)
    bodies = [one.kernel for one in kernels if one.kernel is not None]
    first, count = bodies[0].steps[0], len(bodies[0].operands)
    height, width = (max(sizes) for sizes in zip(*map(_extents, bodies), strict=True))
    weights = []
    for one, body in zip(kernels, bodies, strict=True):
        name, (own_height, own_width) = one.reads[body.steps[0].operands[1]], _extents(body)
        up, left = (height - own_height) // 2, (width - own_width) // 2
        if up or left:
            name = nodes.add("Pad", name, pads=(0, 0, up, left, 0, 0, up, left), value=0.0)
        weights.append(name)
    top, left, bottom, right = _centred(bodies[0])
    pads = (top + height // 2, left + width // 2, bottom + height // 2, right + width // 2)
    attrs: dict[str, Any] = {**dict(first.attrs), "pads": pads}
    made = nodes.add("Conv", kernels[0].reads[first.operands[0]], nodes.joined(weights, 0), **attrs)
    inside = [made]

    def constant(step: int, position: int) -> str:
        """Concatenate the constants that the kernels have at this place."""
        places = [body.steps[step].operands[position] for body in bodies]
        names = [one.reads[place] for one, place in zip(kernels, places, strict=True)]
        return nodes.joined(names, _rank(graph, names[0]) - _RANK + _CHANNELS)

    if len(first.operands) > 2:
        made = nodes.add("Add", made, constant(0, 2))
        inside.append(made)
    for number, step in enumerate(bodies[0].steps[1:], start=1):
        operands = [
            made if operand == count + number - 1 else constant(number, position)
            for position, operand in enumerate(step.operands)
        ]
        made = nodes.add(step.op, *operands, **dict[str, Any](step.attrs))
        inside.append(made)
    begin = 0
    for one, body in zip(kernels, bodies, strict=True):
        end = begin + body.required_types()[body.outputs[0]].shape[_CHANNELS]
        nodes.named(one.writes[-1], "Slice", (made,), {"axis": _CHANNELS, "lo": begin, "hi": end})
        begin = end
    results = {one.writes[-1] for one in kernels}
    kept = (node for node in graph.nodes if results.isdisjoint(node.outputs))
    whole = replace(
        graph,
        nodes=_in_order((*kept, *nodes.nodes), {*graph.inputs, *graph.constants}),
        types={**graph.types, **nodes.types},
    )
    return whole.with_nodes(tuple(whole.live_nodes())), frozenset(results.union(inside))


class _Nodes:
    """New nodes, in an order in which they can run."""

    def __init__(self, graph: Graph) -> None:
        self.nodes: list[Node] = []
        self.types: dict[str, TensorType] = {}
        self._graph, self._names = graph, GraphWriter(graph)

    def add(self, op: str, *operands: str, **attrs: Any) -> str:
        return self.named(self._names.fresh(f"{op.lower()}_merged"), op, operands, attrs)

    def named(self, name: str, op: str, operands: tuple[str, ...], attrs: dict[str, Any]) -> str:
        types = [self.types.get(one) or self._graph.types[one] for one in operands]
        self.types[name] = get_op(op).type_fn(types, attrs)  # type: ignore[arg-type]
        self.nodes.append(Node(op, operands, (name,), attributes(**attrs), rules=(_RULE,)))
        return name

    def joined(self, names: Sequence[str], axis: int) -> str:
        whole, *others = names
        for name in others:
            whole = self.add("Concat", whole, name, axis=axis)
        return whole


_RULE = "ios/merge"
"""The rule that nodes record as their origin."""


def _in_order(nodes: Sequence[Node], given: Iterable[str]) -> tuple[Node, ...]:
    """Return the nodes in an order in which each comes after those that it reads."""
    producer = {name: i for i, node in enumerate(nodes) for name in node.outputs if name}
    known = set(given)
    done: dict[int, None] = {}
    for start in range(len(nodes)):
        stack = [start]
        while stack:
            reads = (name for name in nodes[stack[-1]].reads if name not in known)
            missing = [producer[name] for name in reads if producer[name] not in done]
            if missing:
                stack += missing
            else:
                done[stack.pop()] = None
    return tuple(nodes[i] for i in done)
