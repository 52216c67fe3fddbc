"""Reading of ONNX models in any form; invalid ones are refused with a message of one line.

Weights stay in their files: external tensors are checked by the size of the file, and mapped when
they are read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import onnx
import onnx_ir
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from eqsat_opt.errors import ModelError, reason
from eqsat_opt.ir.onnx.files.external import (
    BITS,
    by_real_place,
    byte_count,
    check_external,
    external_in,
    external_tensors,
    tensor_slots,
)
from eqsat_opt.ir.onnx.files.map_types import hide_types
from eqsat_opt.ir.onnx.files.sparse_tensors import hide_sparse
from eqsat_opt.ir.onnx.types import inner_graphs

__all__ = [
    "FREE_INITIALIZERS",
    "LEFT_OUT",
    "ModelSource",
    "in_order",
    "load_model",
    "topological_nodes",
]

ModelSource = str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model

FREE_INITIALIZERS = 4
"""IR version since which initializers need not be inputs; one that is an input too is a default."""

LEFT_OUT = "eqsat_opt.left_out"
"""Key in ``model.meta`` with a text that describes parts of the file that the model lacks."""

_CYCLE = "the graph has a cycle, so no order of its nodes can run"

_TYPED_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")


def load_model(source: ModelSource) -> onnx_ir.Model:
    """Return the model in the form of onnx-ir; ``source`` is not changed.

    Args:
        source: a path, or a model in either of the two in-memory forms. Relative paths of external
            data are relative to the folder of the file, or to the working directory for a
            ``ModelProto``.

    Raises:
        ModelError: the file cannot be read, or the model is not valid ONNX.
    """
    if isinstance(source, onnx_ir.Model):
        topological_nodes(source.graph)
        check_external(external_tensors(source))
        if all(map(_is_sorted, _graphs(source))):
            return source
        return _from_proto(onnx_ir.to_proto(source), "the model", os.getcwd())
    if isinstance(source, onnx.ModelProto):
        return _from_proto(source, "the model", os.getcwd())
    path = os.fspath(source)
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        # The file is read more than once, also by onnxruntime.
        raise ModelError(f"{path} is not an ordinary file; save the model to one first")
    home = os.path.dirname(os.path.realpath(path))
    return _from_proto(_read(path), path, os.path.dirname(os.path.abspath(path)), home)


def _read(path: str) -> onnx.ModelProto:
    try:
        return onnx.load(path, load_external_data=False)
    except OSError as error:
        why = "no such file" if isinstance(error, FileNotFoundError) else reason(error)
        if path == "-":
            why = "a model is read more than once, so not from a pipe; save it to a file first"
        if not path:
            raise ModelError("the file name of the model is empty; give one") from error
        raise ModelError(f"cannot read {path!r}: {why}") from error
    except (DecodeError, ValueError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} is truncated or not an ONNX model") from error
    except Exception as error:  # text and JSON formats raise parser errors of their own
        raise ModelError(f"{path} is not an ONNX model: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _from_proto(
    proto: onnx.ModelProto, name: str, base: str, home: str | None = None
) -> onnx_ir.Model:
    _check_envelope(proto, name)
    home = home or os.path.realpath(base)
    check_external(external_in(proto, base), home)
    hidden = hide_types(hide_sparse(proto, base, home))
    _check_graph(hidden.graph, set())
    for function in hidden.functions:
        _check_function(function)
    try:
        model = onnx_ir.from_proto(hidden)
    except Exception as error:
        cause = error.__cause__ or error
        raise ModelError(f"{name} is not a valid ONNX model: {_first_line(cause)}") from error
    for slot in tensor_slots(model):
        if slot.is_external:
            slot.tensor.base_dir = base
            slot.replace(by_real_place(slot.tensor, home))
    topological_nodes(model.graph)
    for graph in _graphs(model):
        if not _is_sorted(graph):
            _sort(graph)
    if proto.training_info:
        model.meta[LEFT_OUT] = "training information, which speaks of the original's weights"
    return model


def _check_envelope(proto: onnx.ModelProto, name: str) -> None:
    if proto.ir_version <= 0 or not proto.HasField("graph"):
        raise ModelError(f"{name} is truncated or not an ONNX model: it has no graph")
    if proto.ir_version > onnx.IR_VERSION:
        raise ModelError(
            f"{name} has IR version {proto.ir_version}; "
            f"the installed onnx knows {onnx.IR_VERSION}: upgrade onnx"
        )
    if not proto.graph.output:
        raise ModelError(f"{name} has an empty graph: it has no outputs")
    entries = [text for entry in proto.metadata_props for text in (entry.key, entry.value)]
    _require_text(proto.producer_name, proto.producer_version, proto.domain, *entries)
    versions: dict[str, int] = {}
    for one in proto.opset_import:
        domain = one.domain or "ai.onnx"
        if versions.setdefault(domain, one.version) != one.version:
            both = f"{versions[domain]} and {one.version}"
            raise ModelError(f"{name} imports {domain} twice, as operator set {both}")
    if not versions:
        raise ModelError(f"{name} imports no operator set")
    version, known = versions.get("ai.onnx", 1), onnx.defs.onnx_opset_version()
    if not 1 <= version <= known:
        raise ModelError(
            f"{name} uses operator set {version}; "
            f"the installed onnx knows 1 to {known}: upgrade onnx"
        )


def _check_graph(graph: onnx.GraphProto, outer: set[str]) -> None:
    """Check for single definitions, defined reads, valid interfaces and complete tensors.

    Nested graphs are checked too.
    """
    values = (*graph.input, *graph.output, *graph.value_info, *graph.initializer)
    _require_text(graph.name, graph.doc_string, *(value.name for value in values))
    inputs = [value.name for value in graph.input]
    _require_unique(inputs, "graph input")
    _require_unique([t.name for t in graph.initializer], "initializer")
    for value in (*graph.input, *graph.output):
        _check_value(value)
    for tensor in graph.initializer:
        if not tensor.name:
            raise ModelError("an initializer has no name")
        _check_tensor(tensor)
    defined = set(inputs) | {t.name for t in graph.initializer}
    produced = [name for node in graph.node for name in node.output if name]
    _require_unique(produced, "value")
    for name in produced:
        if name in defined:
            raise ModelError(f"value {name!r} is defined twice")
    visible = outer.union(defined, produced)
    _check_nodes(graph.node, visible)
    for value in graph.output:
        if value.name not in visible:
            raise ModelError(f"graph output {value.name!r} is never defined")


def _check_function(function: onnx.FunctionProto) -> None:
    """Check a function of the model for single definitions, defined reads and complete tensors."""
    try:
        _require_text(function.name, function.domain, *function.input, *function.output)
        inputs = list(function.input)
        _require_unique(inputs, "input")
        produced = [name for node in function.node for name in node.output if name]
        _require_unique([*inputs, *produced], "value")
        _check_nodes(function.node, {*inputs, *produced})
        for name in function.output:
            if name not in inputs and name not in produced:
                raise ModelError(f"output {name!r} is never defined")
    except ModelError as error:
        raise ModelError(f"in function {function.name!r}: {error}") from None


def _check_nodes(nodes: Iterable[onnx.NodeProto], visible: set[str]) -> None:
    for node in nodes:
        names = (*node.input, *node.output, *(attribute.name for attribute in node.attribute))
        _require_text(node.name, node.op_type, node.domain, node.doc_string, *names)
        if node.op_type == "Constant" and not node.domain and len(node.attribute) > 1:
            given = ", ".join(repr(attribute.name) for attribute in node.attribute)
            raise ModelError(f"node {_label(node)} has more than one value: {given}")
        for name in node.input:
            if name and name not in visible:
                raise ModelError(f"node {_label(node)} reads {name!r}, which nothing defines")
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                _check_tensor(attribute.t)
            elif attribute.type == onnx.AttributeProto.GRAPH:
                _check_graph(attribute.g, visible)
            elif attribute.type == onnx.AttributeProto.GRAPHS:
                for nested in attribute.graphs:
                    _check_graph(nested, visible)


def _require_text(*texts: str | bytes) -> None:
    for text in texts:
        if isinstance(text, bytes):  # protobuf returns bytes for text that it cannot decode
            raise ModelError(f"the name or description {text!r} is not UTF-8 text")


def _label(node: onnx.NodeProto) -> str:
    return f"{node.name!r} ({node.op_type})" if node.name else node.op_type


def _require_unique(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ModelError(f"{what} {name!r} is defined twice")
        seen.add(name)


def _check_value(value: onnx.ValueInfoProto) -> None:
    if not value.name:
        raise ModelError("a graph input or output has no name")
    if not value.type.HasField("tensor_type"):
        return
    code = value.type.tensor_type.elem_type
    if code not in BITS and code != onnx.TensorProto.STRING:
        raise ModelError(f"value {value.name!r} has the unknown element type {code}")
    size = 1
    for dim in value.type.tensor_type.shape.dim:
        # Runtimes take a negative dimension for an unknown one.
        size *= dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else 1
    if size >= 1 << 63:
        raise ModelError(
            f"value {value.name!r} has {size} elements, more than any machine can count"
        )


def _check_tensor(tensor: onnx.TensorProto) -> None:
    label = f"tensor {tensor.name!r}" if tensor.name else "an attribute tensor"
    size = 1
    for dim in tensor.dims:
        if dim < 0:
            raise ModelError(f"{label} has the dimension {dim}")
        size *= dim
    code = tensor.data_type
    if code not in BITS and code != onnx.TensorProto.STRING:
        raise ModelError(f"{label} has the unknown element type {code}")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return
    if code == onnx.TensorProto.STRING:
        found, expected = len(tensor.string_data), size
    elif tensor.HasField("raw_data"):
        found, expected = len(tensor.raw_data), byte_count(size, code)
    else:
        found = sum(len(getattr(tensor, field)) for field in _TYPED_FIELDS)
        expected = _typed_count(size, code)
    if found != expected:
        unit = "bytes" if tensor.HasField("raw_data") else "elements"
        raise ModelError(f"{label} has {found} {unit} of data where its dimensions need {expected}")


def _typed_count(size: int, code: int) -> int:
    if code in (onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128):
        return 2 * size
    per_entry = {4: 2, 2: 4}.get(BITS[code], 1)
    return -(-size // per_entry)


def _graphs(model: onnx_ir.Model) -> Iterator[onnx_ir.Graph | onnx_ir.Function]:
    yield model.graph
    yield from model.functions.values()


def in_order(graph: onnx_ir.Graph | onnx_ir.Function) -> bool:
    """Return whether every node comes after the nodes whose results it reads."""
    made = {id(value) for node in graph for value in node.outputs}
    seen: set[int] = set()
    for node in graph:
        reads = [*node.inputs]
        for inner in inner_graphs(node):
            reads += [value for one in inner.all_nodes() for value in one.inputs]
        if any(id(value) in made and id(value) not in seen for value in reads):
            return False
        seen.update(id(value) for value in node.outputs)
    return True


def _is_sorted(graph: onnx_ir.Graph | onnx_ir.Function) -> bool:
    """Return whether all nodes, also in bodies, can run in the given order.

    The library onnx-ir copies no other graphs.
    """
    return in_order(graph) and all(
        map(_is_sorted, (inner for node in graph for inner in inner_graphs(node)))
    )


def _sort(graph: onnx_ir.Graph | onnx_ir.Function) -> None:
    try:
        graph.sort()
    except ValueError as error:
        raise ModelError(_CYCLE) from error


def topological_nodes(graph: onnx_ir.Graph) -> list[onnx_ir.Node]:
    """Return the nodes in an order in which they can run, the given order if possible.

    Raises:
        ModelError: a value has no definition, or two, or the nodes form a cycle.
    """
    nodes = list(graph)
    defined = {v.name for v in graph.inputs} | set(graph.initializers)
    producer: dict[Any, int] = {}
    for index, node in enumerate(nodes):
        for value in node.outputs:
            if value.name in producer or (value.name and value.name in defined):
                raise ModelError(f"value {value.name!r} is defined twice")
            if value.name:
                producer[value.name] = index
    reads = [node_reads(node) for node in nodes]
    for node, names in zip(nodes, reads, strict=True):
        for name in names:
            if name not in producer and name not in defined:
                raise ModelError(
                    f"node {node.name!r} ({node.op_type}) reads {name!r}, which nothing defines"
                )
    if all(producer.get(name, -1) < i for i, names in enumerate(reads) for name in names):
        return nodes
    return [nodes[i] for i in _sorted_indices(reads, producer)]


def _sorted_indices(reads: list[list[str]], producer: dict[Any, int]) -> list[int]:
    """Return a depth-first order of the nodes, in which a node follows all those that it reads."""
    order: list[int] = []
    state = [0] * len(reads)  # 0 new, 1 on the current path, 2 done
    for root in range(len(reads)):
        stack = [root]
        while stack:
            index = stack[-1]
            waiting = [
                producer[n] for n in reads[index] if n in producer and state[producer[n]] != 2
            ]
            if state[index] == 2 or not waiting:
                stack.pop()
                if state[index] != 2:
                    state[index] = 2
                    order.append(index)
                continue
            if state[index] == 1 and any(state[w] == 1 for w in waiting):
                raise ModelError(_CYCLE)
            state[index] = 1
            stack.extend(waiting)
    return order


def node_reads(node: onnx_ir.Node) -> list[str]:
    """Return every value that a node reads, and the outer values that its subgraphs read."""
    names = [v.name for v in node.inputs if v is not None and v.name]
    return [*names, *captured_values(node)]


def captured_values(node: onnx_ir.Node) -> list[str]:
    """Return the names of outer values that the subgraphs of ``node`` read, in order, each once."""
    found: dict[str, None] = {}
    for graph in inner_graphs(node):
        _collect_captures(graph, set(), found)
    return list(found)


def inner_names(node: onnx_ir.Node) -> Iterator[str]:
    """Yield the names of the values of the graphs within ``node``, at any depth.

    No value around the node may have one of these names: a nested graph is in its scope.
    """
    for graph in inner_graphs(node):
        values = [*graph.inputs, *graph.initializers.values()]
        for inner in graph:
            values += inner.outputs
            yield from inner_names(inner)
        yield from (value.name for value in values if value.name)


def _collect_captures(graph: onnx_ir.Graph, inner: set[Any], found: dict[str, None]) -> None:
    inner = inner | {id(v) for v in graph.inputs} | {id(v) for v in graph.initializers.values()}
    for node in graph:
        inner.update(id(v) for v in node.outputs)
    for node in graph:
        for value in node.inputs:
            if value is not None and value.name and id(value) not in inner:
                found[value.name] = None
        for nested in inner_graphs(node):
            _collect_captures(nested, inner, found)
    for value in graph.outputs:
        if value.name and id(value) not in inner:
            found[value.name] = None
