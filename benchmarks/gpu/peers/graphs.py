"""A graph of ours as a list of steps that another framework can walk through."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.graph.graph import OPAQUE, Graph, Node
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.ops.linear import window_size
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.values.types import StaticType
from eqsat_opt.runtime.plan.places import Array

__all__ = ["Operator", "PeerGraph", "Step", "peer_graph", "walk", "window_counts", "window_pads"]

Operator: TypeAlias = Callable[..., Any]
"""From attributes and operands to the result, in the arrays of a framework."""


@dataclass(frozen=True)
class Step:
    """An operator on named values."""

    op: str
    attrs: Mapping[str, Any]
    inputs: tuple[str, ...]
    output: str


@dataclass(frozen=True)
class PeerGraph:
    """A model: its interface, its weights, and steps in an order in which they can run."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Array]
    steps: tuple[Step, ...]


def peer_graph(model: Any) -> PeerGraph:
    """A model as it was given: nothing is rewritten but what ONNX writes in several ways.

    Raises:
        RuntimeFailed: it has an operator that the registry does not know.
        ModelError: it is not valid.
    """
    graph = normalise(import_model(load_model(model)), numerics=Numerics.BITEXACT)
    steps = tuple(_step(graph, node) for node in graph.nodes)
    read = {name for step in steps for name in step.inputs} | {*graph.outputs}
    constants = {
        name: np.asarray(one.load()) for name, one in graph.constants.items() if name in read
    }
    return PeerGraph(tuple(graph.inputs), tuple(graph.outputs), constants, steps)


def _step(graph: Graph, node: Node) -> Step:
    if node.op != OPAQUE:
        return Step(node.op, dict(node.attrs), node.inputs, node.output)
    kind = node.payload.op_type
    before, after = (graph.tensor_type(name) for name in (node.inputs[0], node.outputs[0]))
    attrs = {name: one.value for name, one in node.payload.attributes.items()}
    is_repeating = (
        kind == "Resize"
        and attrs.get("mode", "nearest") == "nearest"
        and attrs.get("coordinate_transformation_mode") == "asymmetric"
        and attrs.get("nearest_mode") == "floor"
    )
    if not is_repeating or not isinstance(before, StaticType) or not isinstance(after, StaticType):
        raise RuntimeFailed(f"peers have no operator {kind} with these attributes")
    sizes = tuple(zip(before.shape, after.shape, strict=True))
    if any(new % old for old, new in sizes):
        raise RuntimeFailed("peers repeat elements whole times only")
    factors = tuple(new // old for old, new in sizes)
    return Step("Resize", {"factors": factors}, node.inputs[:1], node.outputs[0])


def walk(
    steps: Sequence[Step], table: Mapping[str, Operator], values: dict[str, Any]
) -> Mapping[str, Any]:
    """All values, by running the steps.

    Raises:
        RuntimeFailed: the framework's table has no such operator.
    """
    for step in steps:
        if step.op not in table:
            raise RuntimeFailed(f"the peer has no operator {step.op}")
        operands = [values[name] for name in step.inputs]
        values[step.output] = table[step.op](step.attrs, *operands)
    return values


# ** windows **


def window_pads(plane: Sequence[int], attrs: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Of each axis: elements before and after it, with what rounding up adds at the end."""
    return [
        (begin, max(end, (size - 1) * stride + span - extent - begin))
        for extent, begin, end, stride, span, size in _axes(plane, attrs)
    ]


def window_counts(plane: Sequence[int], attrs: Mapping[str, Any]) -> Array:
    """How many elements each window of an average has; padding counts where it is said to."""
    counts = np.ones(())
    for (extent, begin, end, stride, _, size), taps, apart in zip(
        _axes(plane, attrs), attrs["kernel"], attrs["dilations"], strict=True
    ):
        at = np.arange(size)[:, None] * stride + np.arange(taps)[None, :] * apart - begin
        low, high = (-begin, extent + end) if attrs["count_include_pad"] else (0, extent)
        inside = ((at >= low) & (at < high)).sum(axis=1)
        counts = counts[..., None] * np.maximum(inside, 1)
    return counts


def _axes(
    plane: Sequence[int], attrs: Mapping[str, Any]
) -> Iterator[tuple[int, int, int, int, int, int]]:
    """Extent, padding before and after, stride, span and number of the windows of each axis."""
    count = len(plane)
    for axis, extent in enumerate(plane):
        begin, end = attrs["pads"][axis], attrs["pads"][axis + count]
        stride, apart = attrs["strides"][axis], attrs["dilations"][axis]
        span = (attrs["kernel"][axis] - 1) * apart + 1
        size = window_size(
            extent, attrs["kernel"][axis], stride, begin,
            after=end, dilation=apart, ceil=attrs.get("ceil", 0),
        )  # fmt: skip
        assert isinstance(size, int)
        yield extent, begin, end, stride, span, size
