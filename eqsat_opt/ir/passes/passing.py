"""Operators that pass through an optimisation unchanged, each with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx_ir

from eqsat_opt.ir.graph.graph import OPAQUE, Graph, Node
from eqsat_opt.ir.onnx.folding import is_deterministic
from eqsat_opt.ir.onnx.importer import FIRST_OPSET
from eqsat_opt.ir.onnx.mapping import READERS
from eqsat_opt.ir.onnx.quantised import quantised_units
from eqsat_opt.ir.onnx.types import RARE, inner_graphs
from eqsat_opt.ir.values.dims import dim_names
from eqsat_opt.ir.values.types import OtherType, TensorType

__all__ = ["Passing", "is_explained", "passing_operators", "reasons"]

_PLACES = 3
"""Most nodes that are named for a reason; the others are only counted."""

_ALIASES = ("Constant", "Identity")
"""Operators that compute nothing."""


@dataclass(frozen=True)
class Passing:
    """Operators of one kind that pass through unchanged for one reason.

    Attributes:
        operator: the operator's name, with its domain if that is not the default one.
        count: number of nodes.
        why: the reason, as a clause.
        nodes: names of the first nodes; an unnamed node has the name of its first output.
    """

    operator: str
    count: int
    why: str
    nodes: tuple[str, ...]


def passing_operators(graph: Graph) -> tuple[Passing, ...]:
    """Return the operators that no equation can rewrite, the most frequent first.

    Args:
        graph: a graph in normal form, as operators that are folded away pass nothing on.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for node, why in reasons(graph):
        payload = node.payload
        name = f"{payload.domain}::{payload.op_type}" if payload.domain else payload.op_type
        found.setdefault((name, why), []).append(node.name or node.outputs[0])
    return tuple(
        Passing(name, len(nodes), why, tuple(nodes[:_PLACES]))
        for (name, why), nodes in sorted(found.items(), key=lambda one: (-len(one[1]), one[0]))
    )


def reasons(graph: Graph) -> Iterator[tuple[Node, str]]:
    """Yield the nodes of a graph that pass through, each with the reason as a clause."""
    opaque = [node for node in graph.nodes if node.op == OPAQUE and node.payload is not None]
    units = quantised_units([node.payload for node in opaque])
    opset = 0 if graph.model is None else graph.model.opset_imports.get("", 0)
    for node in opaque:
        payload: onnx_ir.Node = node.payload
        if payload.domain or payload.op_type not in _ALIASES:
            yield node, _reason(node, graph, is_quantised=payload in units, opset=opset)


def _reason(node: Node, graph: Graph, *, is_quantised: bool, opset: int) -> str:
    payload: onnx_ir.Node = node.payload
    if graph.model is not None and payload.op_identifier() in graph.model.functions:
        return "a function of the model, kept as one operator"
    if is_quantised:
        return "quantised arithmetic, for which the runtime has integer kernels of this form"
    if any(True for _ in inner_graphs(payload)):
        return "control flow, whose bodies are optimised as graphs of their own"
    if payload.domain:
        return f"an operator of the domain {payload.domain}, about which no equation is known"
    if not is_deterministic(payload):
        return "its result is another one each time"
    if opset < FIRST_OPSET:
        return f"{_OLD} {opset}; equations begin at {FIRST_OPSET}"
    if payload.op_type not in READERS:
        return "no equation about this operator is known"
    types = [graph.types.get(name) for name in (*node.inputs, *node.outputs) if name]
    rare = [one.text for one in types if isinstance(one, OtherType) and one.text.startswith(RARE)]
    if rare:
        return f"no equation is about elements of {rare[0].removeprefix(RARE)}"
    if payload.op_type == "SequenceAt":
        return "no equation is about sequences other than parts of a tensor"
    names = filter(None, node.inputs)
    if any(not isinstance(graph.types.get(name), TensorType) for name in names):
        return _UNTYPED
    return _form(payload) or (_OF_DATA if _is_of_data(node, graph) else _OUTSIDE)


_OLD = "the model has operator set"
_UNTYPED = "an operand has a shape that only a run tells"
_OUTSIDE = "these operands or attributes are outside of what equations cover"
_OF_DATA = "data decide the sizes of its result, or what it takes"

_TOLD: Mapping[str, tuple[int, ...]] = {
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "Pad": (1,),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Unsqueeze": (1,),
}
"""Operators with the places of operands that hold sizes, bounds or axes."""

_MEASURING = ("Shape", "Size")

_OF_ATTENTION = 4
"""Operands of attention that equations are about: queries, keys, values and a mask."""

_COUNTING = ("Compress", "NonMaxSuppression", "NonZero", "Unique")
"""Operators whose results have as many elements as they find."""


def is_explained(why: str) -> bool:
    """Return whether a node passes through for what it is, and not for what is not known of it."""
    return why not in (_UNTYPED, _OUTSIDE) and not why.startswith(_OLD)


def _form(node: onnx_ir.Node) -> str:
    """Return why an operator in this form has no equation, empty for one that may have."""
    attributes = node.attributes
    if node.op_type == "Resize":
        if attributes.get_string("mode", "nearest") == "cubic":
            return "no equation is about interpolation by cubics"
        if attributes.get_int("antialias", 0):
            return "no equation is about interpolation with antialiasing"
        if attributes.get_string("keep_aspect_ratio_policy", "stretch") != "stretch":
            return "no equation is about sizes that keep the ratio of the sides"
    if node.op_type == "Squeeze" and len(node.inputs) < 2 and "axes" not in attributes:
        return "sizes that only a run tells decide the rank of its result"
    if node.op_type == "Attention" and (
        sum(value is not None for value in node.inputs) > _OF_ATTENTION
        or any(attributes.get_int(name, 0) for name in ("is_causal", "qk_matmul_output_mode"))
        or ("softcap" in attributes and attributes["softcap"].as_float())
    ):
        return "no equation is about attention with a cache, a cap or a causal mask"
    if attributes.get_string("auto_pad", "NOTSET").startswith("SAME"):
        return "sizes that only a run tells decide its padding"
    return ""


def _is_of_data(node: Node, graph: Graph) -> bool:
    """Return whether an operand that holds sizes is computed from data, not only from shapes."""
    places = _TOLD.get(node.payload.op_type, ())
    waiting = [node.inputs[place] for place in places if place < len(node.inputs)]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if not name or name in seen or name in graph.constants:
            continue
        seen.add(name)
        producer = graph.producers.get(name)
        if producer is None:
            return True
        if producer.payload is not None and producer.payload.op_type in _MEASURING:
            if _is_counted(producer.inputs[0], graph):
                return True
        else:
            waiting += producer.reads
            if not producer.reads:
                return True
    return False


def _is_counted(name: str, graph: Graph) -> bool:
    """Return whether an axis of a value is as long as the elements that an operator found."""
    type_ = graph.types.get(name)
    dims = type_.shape if isinstance(type_, TensorType) else ()
    for size in {size for dim in dims for size in dim_names(dim) if size.startswith("?")}:
        producer = graph.producers.get(size[1:].rpartition(".")[0])
        payload = None if producer is None else producer.payload
        if payload is not None and payload.op_type in _COUNTING:
            return True
    return False
