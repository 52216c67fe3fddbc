"""Values that a Loop or a Scan carries unchanged: the body reads them from outside instead.

Keras passes its weights through every iteration. A runtime packs a weight once if it is a constant
of the body, but in each iteration if it is carried.
"""

from __future__ import annotations

import onnx_ir

from eqsat_opt.ir.onnx.bodies.models import definitions, detached
from eqsat_opt.ir.onnx.export_context import copy_of

__all__ = ["without_invariants"]

_FIRST = {"Loop": (2, 1), "Scan": (0, 0)}
"""The first carried value among the inputs and among the outputs of a body."""


def without_invariants(node: onnx_ir.Node) -> tuple[onnx_ir.Node, list[tuple[str, str]]]:
    """Remove the values that a node carries unchanged, and pair them with the results they equal.

    If the body has no other results, one carried value stays. The given node is not changed.

    Returns:
        The new node, or the given one if nothing is carried unchanged; and pairs of a value and a
            result.
    """
    first_input, first_output = _FIRST[node.op_type]
    attribute = node.attributes.get("body")
    if attribute is None or attribute.type != onnx_ir.AttributeType.GRAPH:
        return node, []
    old = attribute.as_graph()
    states = _state_count(node)
    if len(old.inputs) < first_input + states or len(old.outputs) < first_output + states:
        return node, []
    initial = [node.inputs[first_input + number] for number in range(states)]
    fixed = [
        number
        for number, value in enumerate(initial)
        if value is not None
        and value.name
        and _source(old.outputs[first_output + number]) is old.inputs[first_input + number]
    ]
    body, outer = detached(old)
    taken = {value.name for graph in (body, *body.subgraphs()) for value in definitions(graph)}
    held = {id(value) for graph in body.subgraphs() for value in graph.outputs}
    fixed = [
        number
        for number in fixed
        if _name(initial[number]) not in taken and id(body.inputs[first_input + number]) not in held
    ][: len(node.outputs) - 1]
    if not fixed:
        return node, []
    for number in reversed(fixed):
        name = _name(initial[number])
        stand_in = outer.setdefault(name, onnx_ir.Value(name=name))
        del body.outputs[first_output + number]
        body.inputs[first_input + number].replace_all_uses_with(
            stand_in, replace_graph_outputs=True
        )
        del body.inputs[first_input + number]
    pairs = [(_name(initial[number]), _name(node.outputs[number])) for number in fixed]
    gone = {first_input + number for number in fixed}
    kept = [value for number, value in enumerate(node.inputs) if number not in gone]
    results = [value for number, value in enumerate(node.outputs) if number not in fixed]
    made = onnx_ir.Node(
        node.domain,
        node.op_type,
        [None if value is None else onnx_ir.Value(name=value.name) for value in kept],
        [
            onnx_ir.AttrGraph("body", body, doc_string=one.doc_string) if name == "body" else one
            for name, one in node.attributes.items()
        ],
        outputs=[copy_of(value, _name(value)) for value in results],
        version=node.version,
        name=node.name,
        doc_string=node.doc_string,
        metadata_props=dict(node.metadata_props),
    )
    return made, [pair for pair in pairs if pair[1]]


def _state_count(node: onnx_ir.Node) -> int:
    if node.op_type == "Loop":
        return max(0, len(node.inputs) - 2)
    scanned = node.attributes.get("num_scan_inputs")
    return 0 if scanned is None else max(0, len(node.inputs) - scanned.as_int())


def _source(value: onnx_ir.Value) -> onnx_ir.Value:
    """Follow a chain of Identity nodes from a value to its source."""
    producer = value.producer()
    while producer is not None and producer.domain == "" and producer.op_type == "Identity":
        (source,) = producer.inputs
        if source is None:
            break
        value, producer = source, source.producer()
    return value


def _name(value: onnx_ir.Value | None) -> str:
    return "" if value is None else value.name or ""
