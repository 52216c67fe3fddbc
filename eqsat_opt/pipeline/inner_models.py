"""Bodies of If, Loop and Scan, each optimised as a model of its own before the graph around them.

What becomes of one is decided by a check and a race of its own; a body that fails, or for which
there is no time, stays as it came. The check and the race of the whole model judge the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import onnx_ir

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.ir.graph.graph import OPAQUE, Graph
from eqsat_opt.ir.passes.new_bodies import bodies_in, with_new_bodies
from eqsat_opt.ir.values.dims import evaluate_dim
from eqsat_opt.ir.values.types import StaticType, TensorType

__all__ = ["Bodies", "Improve", "with_better_bodies"]

Shapes = Mapping[str, tuple[int, ...]]

Improve = Callable[[onnx_ir.Model, str, Shapes, Deadline], onnx_ir.Model | None]
"""Gives a better model of the same interface in time, or ``None``; its arguments are a model, its
name, shapes of inputs that are not symbolic after all, and the deadline."""

_FEWEST = 3
"""Known operators of a body below which there is nothing to find."""

_LEAST_S = 0.3
"""In which no model is loaded, searched, checked and raced."""

_SHARE = 0.5
"""What bodies get of the time that their number of operators is worth: the whole model is searched,
checked and raced after them."""


@dataclass(frozen=True)
class Bodies:
    """What became of the bodies of a graph.

    Attributes:
        graph: with better ones.
        better: names of those that are better now.
        late: names of those for which there was no time.
    """

    graph: Graph
    better: tuple[str, ...] = ()
    late: tuple[str, ...] = ()


def with_better_bodies(
    graph: Graph,
    improve: Improve,
    given: Mapping[str, int],
    deadline: Deadline,
    *,
    exact: bool = False,
) -> Bodies:
    """A graph whose bodies are optimised where that gains; what is found in time.

    Args:
        graph: in normal form; it is not changed.
        improve: optimises one model.
        given: sizes of symbolic dimensions that the user gave.
        deadline: of all of them and of what is done with the graph after that. Each gets a share by
            its number of operators.
        exact: whether every bit counts.
    """
    bodies = bodies_in(graph, exact=exact)
    weights = {
        place: len(body.nodes)
        for place, body in bodies.items()
        if sum(node.op != OPAQUE for node in body.nodes) >= _FEWEST
    }
    models: dict[tuple[int, str], onnx_ir.Model] = {}
    better, late = [], []
    rest = len(graph.nodes) + sum(weights.values())
    for place, weight in sorted(weights.items(), key=lambda item: -item[1]):
        number, key = place
        node = graph.nodes[number]
        name = f"{key} of {node.name or node.outputs[0]!r}"
        share = _SHARE * weight / rest
        rest -= weight
        own = deadline.share(share)
        if own.left_s < _LEAST_S:
            late.append(name)
            continue
        found = improve(bodies[place].model, name, _shapes(bodies[place], given), own)
        if found is not None:
            models[place] = found
            better.append(name)
    changed = with_new_bodies(graph, models) if models else graph
    return Bodies(changed, tuple(better), tuple(late))


def _shapes(body: Graph, given: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Shapes of the inputs of a body whose sizes all follow from what the user gave."""
    found = {}
    for name in body.inputs:
        type_ = body.types[name]
        if not isinstance(type_, TensorType) or isinstance(type_, StaticType):
            continue
        try:
            found[name] = tuple(evaluate_dim(dim, given) for dim in type_.shape)
        except (KeyError, ZeroDivisionError):
            continue
    return found
