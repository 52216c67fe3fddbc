"""Bodies of If, Loop and Scan, each optimised as a model of its own before the graph around them.

Each new body has to pass a check and win a race of its own. A body that fails, or for which there
is no time, stays unchanged. The check and the race of the whole model judge all bodies together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import onnx_ir

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.ir.graph.graph import OPAQUE, Graph
from eqsat_opt.ir.passes.new_bodies import bodies_in, with_new_bodies
from eqsat_opt.ir.values.dims import evaluate_dim
from eqsat_opt.ir.values.types import StaticType, TensorType
from eqsat_opt.pipeline.decisions.document import Edit

__all__ = ["Bodies", "Improve", "with_better_bodies"]

Place = tuple[int, str]
Shapes = Mapping[str, tuple[int, ...]]

Improve = Callable[[onnx_ir.Model, str, Shapes, Deadline], tuple[onnx_ir.Model, Edit | None] | None]
"""A function that returns a better model of the same interface and its edit if decisions are asked
for, or ``None``; its arguments are a model, its name, shapes of inputs whose sizes are known, and
the deadline."""

_FEWEST = 3
"""Least number of known operators in a body; in a smaller one there is nothing to find."""

_LEAST_S = 0.3
"""Least seconds for a body; in less time no model is loaded, searched, checked and raced."""

_SHARE = 0.5
"""Factor on the share of the time that a body's number of operators is worth, as the whole model is
searched, checked and raced after its bodies."""


@dataclass(frozen=True)
class Bodies:
    """The result of optimising the bodies of a graph.

    Attributes:
        graph: the graph with better bodies.
        better: names of the bodies that were replaced.
        late: names of the bodies for which there was no time.
        edits: how the new bodies are made, by the number of their node and the attribute.
    """

    graph: Graph
    better: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    edits: Mapping[Place, Edit | None] = field(default_factory=dict)


def with_better_bodies(
    graph: Graph,
    improve: Improve,
    given: Mapping[str, int],
    deadline: Deadline,
    *,
    exact: bool = False,
) -> Bodies:
    """Optimise the bodies of a graph, and replace those that gain.

    Args:
        graph: a graph in normal form; it is not changed.
        improve: optimises one model.
        given: sizes of symbolic dimensions that the user gave.
        deadline: end of the time for all bodies and for the work on the graph after them. Each body
            gets a share by its number of operators.
        exact: whether every bit counts.
    """
    bodies = bodies_in(graph, exact=exact)
    weights = {
        place: len(body.nodes)
        for place, body in bodies.items()
        if sum(node.op != OPAQUE for node in body.nodes) >= _FEWEST
    }
    models: dict[tuple[int, str], onnx_ir.Model] = {}
    edits: dict[Place, Edit | None] = {}
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
            models[place], edits[place] = found
            better.append(name)
    changed = with_new_bodies(graph, models) if models else graph
    return Bodies(changed, tuple(better), tuple(late), edits)


def _shapes(body: Graph, given: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of those inputs of a body whose sizes all follow from given ones."""
    found = {}
    for name in body.inputs:
        type_ = body.types[name]
        if not isinstance(type_, TensorType) or isinstance(type_, StaticType):
            continue
        try:
            found[name] = tuple(evaluate_dim(dim, given) for dim in type_.shape)
        except KeyError:
            continue
    return found
