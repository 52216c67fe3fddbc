"""Types of ONNX values: conversion to and from types of the graph, and inference for opaque nodes.

Known operators are typed by the registry. Operators that it does not know are typed node by node
with onnx's own inference, so that nothing larger than one node is ever serialised.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir
from onnx.checker import ValidationError
from onnx.shape_inference import InferenceError

from eqsat_opt.errors import ModelError
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.onnx.files.sparse_tensors import sparse_shape
from eqsat_opt.ir.onnx.foreign_types import standing_in
from eqsat_opt.ir.values.dim_names import declared_dim, plain_names
from eqsat_opt.ir.values.dims import Dim, SymDim, plain_symbol
from eqsat_opt.ir.values.types import DTYPE_CODES, DTYPE_NAMES, OtherType, TensorType, ValueType

__all__ = [
    "DEFAULT_OPSET",
    "RARE",
    "OpaqueTyper",
    "inner_graphs",
    "is_known",
    "merge_dims",
    "opset_of",
    "shape_of",
    "standard_schema",
    "type_from_ir",
    "type_proto",
]

DEFAULT_OPSET = 21
"""The operator set of a graph that no model came with."""


def opset_of(graph: Graph) -> int:
    """Return the operator set of the default domain in which a graph is written."""
    model: onnx_ir.Model | None = graph.model
    return DEFAULT_OPSET if model is None else model.graph.opset_imports.get("", 1)


def inner_graphs(node: onnx_ir.Node) -> Iterator[onnx_ir.Graph]:
    """Yield the subgraphs of a node: bodies and branches."""
    for attribute in node.attributes.values():
        if attribute.type == onnx_ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == onnx_ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def shape_of(shape: onnx_ir.Shape, value: str, plain: Collection[str] = ()) -> tuple[Dim, ...]:
    """Return the dimensions of an onnx-ir shape; unknown ones become fresh symbols of ``value``.

    Args:
        shape: the shape as it is declared.
        value: name of the value that has it.
        plain: names that are sizes of their own, of which other names may be expressions.
    """
    return tuple(
        declared_dim(dim if isinstance(dim, int) else dim.value or "", value, axis, plain)
        for axis, dim in enumerate(shape)
    )


RARE = "tensor of "
"""Beginning of the text of a type whose elements no operator of the registry takes."""


def type_from_ir(value: onnx_ir.Value, plain: Collection[str] = ()) -> ValueType:
    """Return the type that a model declares for a value; ``plain`` is as in :func:`shape_of`."""
    if isinstance(value.type, onnx_ir.TensorType) and value.type.dtype.value in DTYPE_NAMES:
        if value.shape is not None:
            return TensorType(
                DTYPE_NAMES[value.type.dtype.value],
                shape_of(value.shape, value.name or "", plain),
            )
        return OtherType(f"{DTYPE_NAMES[value.type.dtype.value]} of unknown rank")
    if isinstance(value.type, onnx_ir.TensorType) and value.type.dtype.value:
        return OtherType(f"{RARE}{value.type.dtype}")
    return OtherType(str(value.type) if value.type is not None else "unknown")


def type_proto(type_: TensorType) -> onnx.TypeProto:
    """Return the protobuf form of a tensor type; composite dimensions become names too."""
    proto = onnx.TypeProto()
    tensor = proto.tensor_type
    tensor.elem_type = DTYPE_CODES[type_.dtype]
    tensor.shape.SetInParent()
    for dim in type_.shape:
        entry = tensor.shape.dim.add()
        if isinstance(dim, int):
            entry.dim_value = dim
        else:
            entry.dim_param = str(dim)
    return proto


def _proto_from_ir(value: onnx_ir.Value) -> onnx.TypeProto | None:
    if value.type is None:
        return None
    proto = onnx_ir.serde.serialize_type(value.type)
    if value.shape is not None:
        onnx_ir.serde.serialize_shape_into(proto, value.shape)
    return proto


@lru_cache(maxsize=4096)
def standard_schema(op_type: str, opset: int, domain: str = "") -> Any:
    """Return the schema of an operator, ``None`` if onnx does not define it in that opset."""
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


_NEWEST_READ = 24
"""The newest operator set of which readers know all attributes."""


def is_known(op_type: str, opset: int, attributes: Collection[str]) -> bool:
    """Return whether an operator is standard, and readers know all of its attributes.

    A later operator set may add one that changes the meaning, as the windows of Attention do.
    """
    known = _known_attributes(op_type, min(opset, _NEWEST_READ))
    return known is not None and known.issuperset(attributes)


@lru_cache(maxsize=1024)
def _known_attributes(op_type: str, opset: int) -> frozenset[str] | None:
    schema = standard_schema(op_type, opset)
    return None if schema is None else frozenset(schema.attributes)


class OpaqueTyper:
    """A typer of the outputs of nodes that the registry does not know, in topological order.

    Attributes:
        symbols: composite dimensions by the name under which inference sees them.
        protos: types that no :class:`TensorType` expresses (sequences, optionals, unknown ranks),
            by value name.
        plain: names of dimensions of inputs that are sizes of their own.
    """

    def __init__(self, model: onnx_ir.Model) -> None:
        shapes = (value.shape for value in model.graph.inputs if value.shape is not None)
        dims = (dim for shape in shapes for dim in shape)
        self.plain = plain_names(dim.value or "" for dim in dims if not isinstance(dim, int))
        self.symbols: dict[str, Dim] = {}
        self.protos: dict[str, onnx.TypeProto] = {}
        self._opsets = dict(model.graph.opset_imports)
        self._imports = [onnx.helper.make_opsetid(d, v) for d, v in self._opsets.items()]
        self._ir_version = model.ir_version
        self._functions = model.functions
        self._function_protos: dict[Any, onnx.FunctionProto] = {}

    def declared(self, value: onnx_ir.Value) -> ValueType:
        """Return the type that the model declares for a value."""
        return type_from_ir(value, self.plain)

    def declare(self, value: onnx_ir.Value) -> ValueType:
        """Remember a declared type and return it."""
        declared = self.declared(value)
        if not isinstance(declared, TensorType) and value.name:
            proto = _proto_from_ir(value)
            if proto is not None:
                self.protos[value.name] = proto
        return declared

    def describe(self, value: onnx_ir.Value, type_: ValueType) -> None:
        """Declare a value that has no type yet, with this type or the one known for its name."""
        proto = type_proto(type_) if isinstance(type_, TensorType) else None
        proto = self.protos.get(value.name or "") if proto is None else proto
        if proto is None or value.type is not None:
            return
        value.type = onnx_ir.serde.deserialize_type_proto_for_type(proto)
        value.shape = onnx_ir.serde.deserialize_type_proto_for_shape(proto)

    def infer(
        self,
        node: onnx_ir.Node,
        captures: Sequence[str],
        types: Mapping[str, ValueType],
        constant: Callable[[str], npt.NDArray[Any] | None],
    ) -> list[ValueType]:
        """Return the types of all outputs; declared types complete inferred ones.

        Raises:
            ModelError: the operands have element types that the operator does not take.
        """
        sparse = sparse_shape(node)
        if sparse is not None and sparse[0] in DTYPE_NAMES:
            return [TensorType(DTYPE_NAMES[sparse[0]], sparse[1])]
        inferred = self._infer_protos(node, captures, types, constant)
        return [self._output_type(v, inferred.get(v.name or "")) for v in node.outputs]

    def _output_type(self, value: onnx_ir.Value, proto: onnx.TypeProto | None) -> ValueType:
        declared = self.declare(value)
        name = value.name or ""
        if proto is None or proto.WhichOneof("value") is None:
            return declared
        if proto.HasField("tensor_type") and proto.tensor_type.elem_type in DTYPE_NAMES:
            dtype = DTYPE_NAMES[proto.tensor_type.elem_type]
            if proto.tensor_type.HasField("shape"):
                dims = self._dims(proto.tensor_type.shape, name)
                return TensorType(dtype, merge_dims(dims, declared, name))
            if isinstance(declared, TensorType):
                return declared
            self.protos[name] = proto
            return OtherType(f"{dtype} of unknown rank")
        if name not in self.protos:
            self.protos[name] = proto
        if proto.HasField("tensor_type") and proto.tensor_type.elem_type:
            return OtherType(f"{RARE}{onnx_ir.DataType(proto.tensor_type.elem_type)}")
        return OtherType(proto.WhichOneof("value") or "unknown")

    def _dims(self, shape: onnx.TensorShapeProto, name: str) -> tuple[Dim, ...]:
        dims: list[Dim] = []
        for axis, dim in enumerate(shape.dim):
            known = self.symbols.get(dim.dim_param) if dim.dim_param else None
            declared = dim.dim_value if dim.HasField("dim_value") else dim.dim_param
            own = declared_dim(declared, name, axis, self.plain) if known is None else known
            dims.append(own)
        return tuple(dims)

    def _proto(self, name: str, types: Mapping[str, ValueType]) -> onnx.TypeProto | None:
        type_ = types.get(name)
        if isinstance(type_, TensorType):
            for dim in type_.shape:
                if isinstance(dim, SymDim):
                    self.symbols[str(dim)] = dim
            return type_proto(type_)
        return self.protos.get(name)

    def _infer_protos(
        self,
        node: onnx_ir.Node,
        captures: Sequence[str],
        types: Mapping[str, ValueType],
        constant: Callable[[str], npt.NDArray[Any] | None],
    ) -> dict[str, onnx.TypeProto]:
        names = [v.name for v in node.inputs if v is not None and v.name]
        known = {n: p for n in (*names, *captures) if (p := self._proto(n, types)) is not None}
        if node.op_identifier() in self._functions:
            return self._infer_function(node, known)
        proto = standing_in(node)
        schema = standard_schema(proto.op_type, self._opsets.get(proto.domain, 0), proto.domain)
        if schema is None or any(n not in known for n in names):
            return {}
        data = {}
        for name in dict.fromkeys(names):
            array = constant(name)
            if array is not None and array.dtype != object:
                data[name] = onnx.numpy_helper.from_array(np.array(array), name)
        try:
            return dict(
                onnx.shape_inference.infer_node_outputs(
                    schema,
                    proto,
                    known,
                    data,
                    None,
                    self._imports,
                    self._ir_version,
                )
            )
        except ValidationError as error:
            if "inconsistent type" not in str(error):
                return {}
            first = str(error).strip().splitlines()[0]
            raise ModelError(f"node {node.name!r} ({node.op_type}): {first}") from error
        except (InferenceError, RuntimeError, KeyError, ValueError):
            return {}

    def _infer_function(
        self, node: onnx_ir.Node, known: Mapping[str, onnx.TypeProto]
    ) -> dict[str, onnx.TypeProto]:
        key = node.op_identifier()
        if key not in self._function_protos:
            self._function_protos[key] = onnx_ir.to_proto(self._functions[key])
        inputs = [
            known.get(v.name or "", onnx.TypeProto()) if v else onnx.TypeProto()
            for v in node.inputs
        ]
        attributes = [onnx_ir.to_proto(a) for a in node.attributes.values()]
        try:
            results = onnx.shape_inference.infer_function_output_types(
                self._function_protos[key], inputs, attributes
            )
        except (InferenceError, ValidationError, RuntimeError, ValueError):
            return {}
        return {v.name: p for v, p in zip(node.outputs, results, strict=False) if v.name}


def merge_dims(dims: tuple[Dim, ...], declared: ValueType, name: str) -> tuple[Dim, ...]:
    """Return computed dimensions, with unknown ones replaced by those that the model declares."""
    if not isinstance(declared, TensorType) or len(declared.shape) != len(dims):
        return dims
    return tuple(
        known if isinstance(dim, SymDim) and (plain_symbol(dim) or "").startswith("?") else dim
        for dim, known in zip(dims, declared.shape, strict=True)
    )
