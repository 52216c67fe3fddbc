"""Values that are elements of one tensor: the steps of a sequence, taken apart and put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.passes.recurrences.affine_forms import AffineForms, Data
from eqsat_opt.ir.passes.recurrences.writing import Writing

__all__ = ["StepRange", "stacked", "stretch_of", "whole", "without_restacking"]


@dataclass(frozen=True)
class StepRange:
    """Elements ``lo`` to ``hi`` of a tensor along an axis, each [N, F].

    Attributes:
        source: the tensor, [T, N, F] or [N, T, F]; or [T·N, F] if ``rows`` are not 0.
        axis: the axis of the elements.
        is_reverse: whether the last one is taken first.
        rows: number of rows of an element, where the tensor has them one below another.
    """

    source: str
    axis: int
    lo: int
    hi: int
    is_reverse: bool = False
    rows: int = 0


def stretch_of(steps: Sequence[Data], graph: Graph) -> StepRange | None:
    """Return what the data of several steps are together, if they are elements of one tensor."""
    first = steps[0].pick
    type_ = graph.tensor_type(steps[0].name)
    if first is None or type_ is None or {step.name for step in steps} != {steps[0].name}:
        return None
    places, rows = [], 0
    for step in steps:
        pick = step.pick
        if pick is None or (pick.axis, pick.is_dropped) != (first.axis, first.is_dropped):
            return None
        rows = 0 if pick.is_dropped else first.hi - first.lo
        if rows and (pick.lo % rows or pick.hi != pick.lo + rows):
            return None
        places.append(pick.lo // max(rows, 1))
    size = type_.shape[0]
    fits = isinstance(size, int) and size % rows == 0 if rows else type_.rank == 3
    if not fits or (rows and (type_.rank != 2 or first.axis)):
        return None
    lo, count = min(places), len(places)
    upwards = list(range(lo, lo + count))
    if places not in (upwards, upwards[::-1]):
        return None
    return StepRange(
        steps[0].name, first.axis, lo, lo + count, is_reverse=places != upwards, rows=rows
    )


def whole(stretch: StepRange, writing: Writing) -> str:
    """Write the elements of a stretch, in the order of the tensor: [T, N, F]."""
    value = stretch.source
    if stretch.rows:
        rows, columns = writing.type(value).shape
        assert isinstance(rows, int)
        value = writing.reshape(value, rows // stretch.rows, stretch.rows, columns)
    value = writing.cut(value, stretch.axis, stretch.lo, stretch.hi)
    return value if stretch.axis == 0 else writing.apply("Transpose", [value], perm=(1, 0, 2))


def stacked(steps: Sequence[Data], writing: Writing) -> str:
    """Write the data of several steps, each [N, F], one after another: [T, N, F]."""
    values = [writing.data(step) for step in steps]
    return writing.concat(
        [writing.reshape(one, 1, *writing.type(one).shape) for one in values], axis=0
    )


def without_restacking(graph: Graph) -> Graph:
    """Return the graph without concatenations of what are elements of one tensor, in its order.

    1. Elements that lie one after another, or are stacked along a new first axis, are a reshape.
    2. Elements that lie side by side, or are stacked along a new second axis, are a reshape of a
       transpose.
    """
    forms, writing, is_changed = AffineForms(graph), Writing(graph), False
    for node in graph.nodes:
        if node.op != "Concat" or len(node.inputs) < 2:
            continue
        elements = [_element(name, forms) for name in node.inputs]
        stretch = stretch_of(elements, graph)
        result = graph.tensor_type(node.output)
        if stretch is None or stretch.is_reverse or stretch.rows or result is None:
            continue
        samples = graph.tensor_type(stretch.source)
        assert samples is not None
        first = graph.tensor_type(node.inputs[0])
        before = () if first is None else first.shape[: node.attr("axis")]
        if all(size == 1 for size in before):
            value = whole(stretch, writing)
        elif [size for size in before if size != 1] == [samples.shape[1 - stretch.axis]]:
            value = writing.apply("Transpose", [whole(stretch, writing)], perm=(1, 0, 2))
        else:
            continue
        writing.about(node.sources)
        writing.reshape(value, *result.shape, name=node.output)
        is_changed = True
    return writing.result() if is_changed else graph


def _element(name: str, forms: AffineForms) -> Data:
    """Return what a value is an element of, where it may have further axes of size 1."""
    data = forms.data(name)
    node = forms.graph.producers.get(name)
    if data.pick is not None or node is None or node.op != "Reshape":
        return data
    inner = forms.data(node.inputs[0])
    before, after = (forms.graph.tensor_type(one) for one in (node.inputs[0], name))
    if inner.pick is None or before is None or after is None:
        return data
    plain = [[size for size in one.shape if size != 1] for one in (before, after)]
    return inner if plain[0] == plain[1] else data
