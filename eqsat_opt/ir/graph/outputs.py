"""Operators with several outputs: one node of a graph per output, but one ONNX node for all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from eqsat_opt.ir.graph.graph import Attrs, Node
from eqsat_opt.ir.ops import OPS, OUTPUT

__all__ = ["Application", "application", "joined"]

Application = tuple[str, Attrs, tuple[object, ...]]
"""Operator, attributes without the number of the output, and operands."""


def application(op: str, attrs: Attrs, operands: tuple[object, ...]) -> Application | None:
    """Return the key that all outputs of an application share; ``None`` if it has one output."""
    if op not in OPS or OPS[op].outputs == 1:
        return None
    return op, tuple(pair for pair in attrs if pair[0] != OUTPUT), operands


def joined(nodes: Iterable[Node]) -> list[Node]:
    """Merge the nodes of one application into one node with all outputs, at the place of the first.

    The merged node has the attributes of ONNX, and `""` for each output that no node computes.
    """
    made: list[Node] = []
    places: dict[Application, int] = {}
    for node in nodes:
        key = application(node.op, node.attrs, node.inputs)
        if key is None:
            made.append(node)
            continue
        number, place = node.attr(OUTPUT), places.get(key)
        if place is None or made[place].outputs[number]:
            place = places[key] = len(made)
            made.append(replace(node, outputs=("",) * OPS[node.op].outputs, attrs=key[1]))
        made[place] = _with_output(made[place], node, number)
    return made


def _with_output(whole: Node, node: Node, number: int) -> Node:
    outputs = (*whole.outputs[:number], node.output, *whole.outputs[number + 1 :])
    return replace(
        whole,
        outputs=outputs,
        name=whole.name or node.name or next(iter(node.sources), ""),
        sources=tuple(dict.fromkeys((*whole.sources, *node.sources))),
        rules=tuple(dict.fromkeys((*whole.rules, *node.rules))),
    )
