"""Expansions before operators that broadcast anyway."""

from __future__ import annotations

from dataclasses import replace

from eqsat_opt.ir.graph.graph import Node
from eqsat_opt.ir.ops import IllTyped, get_op
from eqsat_opt.ir.passes.simplification.draft import Draft
from eqsat_opt.ir.values.types import TensorType

__all__ = ["without_expansions"]


def without_expansions(node: Node, draft: Draft) -> Node | None:
    """Return f(x, y) for f(expand(x), y) where broadcasting gives the same shape."""
    found = node
    for position, name in enumerate(node.inputs):
        producer = draft.original.producers.get(name)
        if producer is None or producer.op != "Expand":
            continue
        source = draft.name(producer.inputs[0])
        inputs = (*found.inputs[:position], source, *found.inputs[position + 1 :])
        types = [type_ for type_ in map(draft.types.get, inputs) if isinstance(type_, TensorType)]
        try:
            type_ = get_op(node.op).type_fn(types, dict(node.attrs))
        except IllTyped:
            continue
        if type_ == draft.types[node.output]:
            found = replace(found, inputs=inputs)
    return None if found is node else found
