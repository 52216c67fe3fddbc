"""Types of the results of If, Loop and Scan, from types of their bodies in every iteration.

Sizes of a value that a loop carries may change from one iteration to the next. The type that holds
for all of them is found by widening: it starts as that of the initial value, and a dimension that
the body changes becomes unknown, until nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import onnx_ir

from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.onnx.equal_graphs import is_identity
from eqsat_opt.ir.values.dim_names import fresh_dim
from eqsat_opt.ir.values.dims import Dim, SymDim, is_size
from eqsat_opt.ir.values.types import OtherType, TensorType, ValueType

__all__ = [
    "Typed",
    "atoms_of",
    "joined_type",
    "loop_body",
    "loop_types",
    "scan_body",
    "scan_types",
    "widened",
]

Typed = Callable[[onnx_ir.Graph, Sequence[ValueType]], Graph | None]
"""A function from a body and types of its inputs to a typed graph; ``None`` if they do not fit."""

_MOST_ROUNDS = 16
_UNKNOWN = OtherType("unknown")


def widened(name: str, first: ValueType, second: ValueType) -> ValueType:
    """Return the type of a value called ``name`` that has one of two types."""
    if first == second:
        return first
    if not isinstance(first, TensorType) or not isinstance(second, TensorType):
        return _UNKNOWN
    if first.dtype != second.dtype:
        return _UNKNOWN
    if first.rank != second.rank:
        return OtherType(f"{first.dtype} of unknown rank")
    dims = (
        one if one == other else fresh_dim(name, axis)
        for axis, (one, other) in enumerate(zip(first.shape, second.shape, strict=True))
    )
    return TensorType(first.dtype, tuple(dims))


def joined_type(name: str, type_: ValueType, known: frozenset[str]) -> ValueType:
    """Return the type of a result called ``name``, derived from its type in a body.

    Sizes that only the body has are unknown outside of it.

    Args:
        name: name of the result.
        type_: its type in the body.
        known: the names of sizes that mean the same outside of the body.
    """
    if not isinstance(type_, TensorType):
        return type_
    return TensorType(
        type_.dtype,
        tuple(
            dim if _atoms(dim) <= known else fresh_dim(name, axis)
            for axis, dim in enumerate(type_.shape)
        ),
    )


def _atoms(dim: Dim) -> frozenset[str]:
    terms = dim.terms if isinstance(dim, SymDim) else ()
    return frozenset(name for monomial, _ in terms for name in monomial)


def atoms_of(types: Iterable[ValueType]) -> frozenset[str]:
    """Return the names in the dimensions of tensors."""
    found: set[str] = set()
    for type_ in types:
        for dim in type_.shape if isinstance(type_, TensorType) else ():
            found |= _atoms(dim)
    return frozenset(found)


def _carried(
    body: onnx_ir.Graph,
    typed: Typed,
    before: Sequence[ValueType],
    initial: Sequence[ValueType],
    after: Sequence[ValueType],
    first: int,
) -> tuple[list[ValueType], Graph] | None:
    """Return types of carried values that hold in every iteration, and the body with these types.

    Args:
        body: the body of the loop.
        typed: see :data:`Typed`.
        before: types of the body's inputs before the carried ones.
        initial: types of the carried values before the first iteration.
        after: types of the body's inputs after the carried ones.
        first: the output of the body that is the first carried value.
    """
    names = [value.name or "" for value in body.inputs]
    states = list(initial)
    for _ in range(_MOST_ROUNDS):
        graph = typed(body, (*before, *states, *after))
        if graph is None:
            return None
        outputs = graph.outputs[first : first + len(states)]
        following = [
            widened(names[len(before) + number], state, graph.types[name])
            for number, (state, name) in enumerate(zip(states, outputs, strict=True))
        ]
        if following == states:
            return states, graph
        states = following
    return None


def loop_body(
    node: onnx_ir.Node, types: Sequence[ValueType], typed: Typed
) -> tuple[list[ValueType], Graph] | None:
    """Return the types of the values that a Loop carries, and its body; ``None`` if untyped.

    Args:
        node: the Loop.
        types: types of its inputs.
        typed: see :data:`Typed`.
    """
    body = node.attributes["body"].as_graph()
    initial = list(types[2:])
    before = (TensorType("int64", ()), TensorType("bool", ()))
    if len(body.inputs) != 2 + len(initial) or len(body.outputs) < 1 + len(initial):
        return None
    return _carried(body, typed, before, initial=initial, after=(), first=1)


def loop_types(
    node: onnx_ir.Node,
    types: Sequence[ValueType],
    typed: Typed,
    known: frozenset[str],
    trips: Dim | None,
) -> list[ValueType] | None:
    """Return the types of the outputs of a Loop; ``None`` if its body cannot be typed.

    Args:
        node: the Loop.
        types: types of its inputs.
        typed: see :data:`Typed`.
        known: names of sizes that are known around it.
        trips: how often it runs unless its condition ends it; ``None`` if unknown.
    """
    found = loop_body(node, types, typed)
    if found is None:
        return None
    states, graph = found
    if isinstance(trips, int) and trips > 0:
        # A carried value may have another rank before the first iteration.
        states = [graph.types[name] for name in graph.outputs[1 : 1 + len(states)]]
    results = [
        joined_type(value.name or "", state, known)
        for value, state in zip(node.outputs, states, strict=False)
    ]
    is_ended = not _goes_on(graph)
    for value, name in zip(
        node.outputs[len(states) :], graph.outputs[1 + len(states) :], strict=False
    ):
        own = value.name or ""
        inner = joined_type(own, graph.types[name], known)
        if isinstance(inner, TensorType):
            unknown = trips is None or is_ended or not is_size(trips)
            length = fresh_dim(own, inner.rank) if unknown or trips is None else trips
            inner = TensorType(inner.dtype, (length, *inner.shape))
        results.append(inner)
    return results


def _goes_on(body: Graph) -> bool:
    """Return whether the body of a Loop never makes its condition false."""
    name = body.outputs[0]
    while name in body.producers and is_identity(body.producers[name]):
        name = body.producers[name].inputs[0]
    constant = body.constants.get(name)
    is_true = constant is not None and constant.type.size == 1 and constant.load().all()
    return name == body.inputs[1] or bool(is_true)


def scan_body(
    node: onnx_ir.Node, types: Sequence[ValueType], typed: Typed
) -> tuple[list[ValueType], Graph, Dim] | None:
    """Return the types of the values that a Scan carries, its body, and the number of iterations.

    Args:
        node: the Scan, of operator set 9 or later.
        types: types of its inputs.
        typed: see :data:`Typed`.
    """
    body, count = node.attributes["body"].as_graph(), node.attributes["num_scan_inputs"].as_int()
    carried = len(types) - count
    axes = _axes(node, "scan_input_axes", count)
    elements: list[ValueType] = []
    length: Dim | None = None
    for type_, axis in zip(types[carried:], axes, strict=True):
        if not isinstance(type_, TensorType) or not -type_.rank <= axis < type_.rank:
            return None
        length = type_.shape[axis]
        place = axis % type_.rank
        elements.append(TensorType(type_.dtype, type_.shape[:place] + type_.shape[place + 1 :]))
    if length is None or len(body.inputs) != len(types) or len(body.outputs) < carried:
        return None
    found = _carried(body, typed, (), initial=types[:carried], after=elements, first=0)
    return None if found is None else (*found, length)


def scan_types(
    node: onnx_ir.Node, types: Sequence[ValueType], typed: Typed, known: frozenset[str]
) -> list[ValueType] | None:
    """Return the types of the outputs of a Scan; ``None`` if its body cannot be typed.

    Args:
        node: the Scan, of operator set 9 or later.
        types: types of its inputs.
        typed: see :data:`Typed`.
        known: names of sizes that are known around it.
    """
    found = scan_body(node, types, typed)
    if found is None:
        return None
    states, graph, length = found
    carried = len(states)
    results = [
        joined_type(value.name or "", state, known)
        for value, state in zip(node.outputs, states, strict=False)
    ]
    given = _axes(node, "scan_output_axes", len(node.outputs) - carried)
    for value, name, axis in zip(
        node.outputs[carried:], graph.outputs[carried:], given, strict=False
    ):
        inner = joined_type(value.name or "", graph.types[name], known)
        if isinstance(inner, TensorType):
            rank = inner.rank + 1
            if not -rank <= axis < rank:
                return None
            place = axis % rank
            shape = (*inner.shape[:place], length, *inner.shape[place:])
            inner = TensorType(inner.dtype, shape)
        results.append(inner)
    return results


def _axes(node: onnx_ir.Node, name: str, count: int) -> Sequence[int]:
    attribute = node.attributes.get(name)
    return (0,) * count if attribute is None else attribute.as_ints()
