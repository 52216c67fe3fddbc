"""Graph to ONNX: interface, metadata and untouched parts as they came, new nodes with the rules that made them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir
from onnx_ir._cloner import Cloner

import eqsat_opt.ir.mappings  # noqa: F401  (fills the tables)
from eqsat_opt.errors import ModelError
from eqsat_opt.ir.dims import Dim, SymDim
from eqsat_opt.ir.graph import OPAQUE, Constant, Graph, Node
from eqsat_opt.ir.handles import Splat
from eqsat_opt.ir.onnx_import import INITIALIZER
from eqsat_opt.ir.onnx_load import ModelSource
from eqsat_opt.ir.onnx_mapping import WRITERS
from eqsat_opt.ir.onnx_types import plain_symbol
from eqsat_opt.ir.sparse import restore_sparse
from eqsat_opt.ir.types import DTYPE_CODES, TensorType

__all__ = ["RULES_KEY", "SOURCES_KEY", "export_model", "model_proto", "to_same_type"]

RULES_KEY = "eqsat_opt.rules"
"""Node metadata: the rules that made the node, separated by commas."""

SOURCES_KEY = "eqsat_opt.sources"
"""Node metadata: the original nodes that it stands for, separated by commas."""

DEFAULT_OPSET = 21
DEFAULT_IR_VERSION = 10

_SPLAT_ELEMENTS = 1024
"""Splats above this leave as a ConstantOfShape, smaller ones as plain data."""

Array = npt.NDArray[Any]


def export_model(graph: Graph) -> onnx_ir.Model:
    """The model that a graph is.

    The interface (names, order, types, symbolic dimensions), opset, IR version, metadata, functions and opaque nodes
    are those of ``graph.model``. Weights are referred to, never copied; computed ones stay lazy.

    Raises:
        ModelError: the opset of the model cannot express an operator.
    """
    return _Exporter(graph).run()


def model_proto(model: onnx_ir.Model) -> onnx.ModelProto:
    """The protobuf form of a model; unlike onnx-ir's own conversion it keeps sparse tensors."""
    return restore_sparse(onnx_ir.to_proto(model))


def to_same_type(result: onnx_ir.Model, like: ModelSource) -> onnx.ModelProto | onnx_ir.Model:
    """``result`` in the form in which ``like`` was given; onnx-ir's where that was a path."""
    return model_proto(result) if isinstance(like, onnx.ModelProto) else result


def _attribute(name: str, value: Any) -> onnx_ir.Attr:
    if isinstance(value, str):
        return onnx_ir.AttrString(name, value)
    if isinstance(value, (bool, int)):
        return onnx_ir.AttrInt64(name, int(value))
    if isinstance(value, float):
        return onnx_ir.AttrFloat32(name, value)
    if isinstance(value, np.ndarray):
        return onnx_ir.AttrTensor(name, onnx_ir.tensor(value))
    return onnx_ir.AttrInt64s(name, [int(v) for v in value])


class _Exporter:
    """The state of one export; it is also the context that writers work in."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.source: onnx_ir.Model | None = graph.model
        imports = self.source.graph.opset_imports if self.source else {"": DEFAULT_OPSET}
        self.opset = imports.get("", 1)
        self.ir_version = self.source.ir_version if self.source else DEFAULT_IR_VERSION
        self._imports = dict(imports)
        self._values: dict[str, onnx_ir.Value] = {}
        self._nodes: list[onnx_ir.Node] = []
        self._initializers: list[onnx_ir.Value] = []
        self._names = set(graph.types)
        self._node_names: set[str] = set()
        self._originals: dict[str, onnx_ir.Node] = {}
        self._infos: dict[str, onnx_ir.Value] = {}
        self._shared: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._shape_parts: dict[Any, str] = {}
        self._dims: dict[str, tuple[str, int]] = {}
        self._current: Node | None = None
        if self.source is not None:
            self._note_source(self.source)

    def _note_source(self, model: onnx_ir.Model) -> None:
        for node in model.graph.all_nodes():
            self._names.update(v.name or "" for v in node.outputs)
            if node.name:
                self._node_names.add(node.name)
        for node in model.graph:
            if node.name:
                self._originals[node.name] = node
            for value in node.outputs:
                if value.name and value.type is not None:
                    self._infos[value.name] = value

    # ** the export **

    def run(self) -> onnx_ir.Model:
        graph = self.graph
        inputs = [self._input(name) for name in graph.inputs]
        for value in inputs:
            self._note_dims(value.name or "")
        nodes = tuple(graph.live_nodes())
        needed = {name for node in nodes for name in node.reads} | set(graph.outputs)
        for name, constant in graph.constants.items():
            if name in needed:
                self._constant_value(name, constant)
        for node in nodes:
            self._current = node
            if node.op == OPAQUE:
                self._opaque(node)
            else:
                WRITERS[node.op](node, self)
            for name in node.outputs:
                self._note_dims(name)
        self._current = None
        outputs = self._outputs()
        self._keep_annotations()
        if self.ir_version < 4:
            # Old runtimes find initializers by the inputs of the same name.
            inputs.extend(self._initializers)
        return self._model(inputs, outputs)

    def _model(self, inputs: list[onnx_ir.Value], outputs: list[onnx_ir.Value]) -> onnx_ir.Model:
        source = self.source
        main = source.graph if source else None
        functions = [f.clone() for f in source.functions.values()] if source else []
        used = {""} | {n.domain for n in self._nodes} | {f.domain for f in functions}
        for owner in (*self._nodes, *functions):
            used |= {n.domain for n in _nested_nodes(owner)}
        result = onnx_ir.Graph(
            inputs,
            outputs,
            nodes=self._nodes,
            initializers=self._initializers,
            doc_string=main.doc_string if main else None,
            opset_imports={d: v for d, v in self._imports.items() if d in used},
            name=main.name if main else "graph",
            metadata_props=dict(main.metadata_props) if main else None,
        )
        if source is None:
            return onnx_ir.Model(result, ir_version=self.ir_version, producer_name="eqsat-opt")
        return onnx_ir.Model(
            result,
            ir_version=source.ir_version,
            producer_name=source.producer_name,
            producer_version=source.producer_version,
            domain=source.domain,
            model_version=source.model_version,
            doc_string=source.doc_string,
            functions=functions,
            metadata_props=dict(source.metadata_props),
            device_configurations=source.device_configurations,
        )

    # ** interface **

    def _input(self, name: str) -> onnx_ir.Value:
        for original in self.source.graph.inputs if self.source else ():
            if original.name == name:
                value = _copy_of(original, name)
                if self.source and name in self.source.graph.initializers:
                    value.const_value = original.const_value
                    self._initializers.append(value)
                break
        else:
            value = self._typed_value(name)
        self._values[name] = value
        return value

    def _typed_value(self, name: str) -> onnx_ir.Value:
        type_ = self.graph.types.get(name)
        if not isinstance(type_, TensorType):
            return onnx_ir.Value(name=name)
        dims = [d if isinstance(d, int) else plain_symbol(d) for d in type_.shape]
        return onnx_ir.Value(
            name=name,
            type=onnx_ir.TensorType(onnx_ir.DataType(DTYPE_CODES[type_.dtype])),
            shape=onnx_ir.Shape(dims),
        )

    def _outputs(self) -> list[onnx_ir.Value]:
        """The outputs under the names of the interface, with the declared types."""
        originals = list(self.source.graph.outputs) if self.source else [None] * len(self.graph.outputs)
        outputs: list[onnx_ir.Value] = []
        for name, original in zip(self.graph.outputs, originals, strict=True):
            wanted = original.name if original is not None and original.name else name
            kept = original is not None and (original.is_initializer() or original.is_graph_input())
            value = self._values.get(wanted)
            if wanted != name or (name in self.graph.constants and not kept):
                value = self._renamed_output(name, wanted)
            elif value is None:
                raise ModelError(f"graph output {wanted!r} is never defined")
            if original is None:
                self._declare(value, self._typed_value(name))
            elif not value.is_graph_input():
                self._declare(value, original)
            outputs.append(value)
        return outputs

    def _renamed_output(self, name: str, wanted: str) -> onnx_ir.Value:
        if wanted == name:
            # A constant output: the data moves to a new name, and an Identity carries the old one.
            value = self._values.pop(name)
            value.name = self._new_name(name)
            self._values[value.name] = value
            name = value.name
        elif wanted in self._values:
            raise ModelError(f"the output name {wanted!r} already belongs to another value")
        self.op("Identity", [name], wanted)
        return self._values[wanted]

    def _declare(self, value: onnx_ir.Value, original: onnx_ir.Value) -> None:
        value.type = original.type
        value.shape = original.shape.copy() if original.shape is not None else None
        value.doc_string = original.doc_string
        value.metadata_props.update(original.metadata_props)
        value.meta.update(original.meta)

    # ** values **

    def _value(self, name: str) -> onnx_ir.Value:
        """A new value, with what the model declares of one with this name."""
        if name in self._values:
            raise ModelError(f"value {name!r} is defined twice")
        original = self._infos.get(name)
        value = onnx_ir.Value(name=name) if original is None else _copy_of(original, name)
        if name:
            self._values[name] = value
        return value

    def _constant_value(self, name: str, constant: Constant) -> None:
        original = self.source.graph.initializers.get(name) if self.source else None
        if isinstance(constant.source, Splat) and constant.type.static_size() > _SPLAT_ELEMENTS and self.opset >= 9:
            shape = self.constant(np.asarray(constant.type.static_shape(), np.int64))
            fill = np.asarray(constant.source.value).reshape(1)
            self.op("ConstantOfShape", [shape], name, value=fill)
            return
        tensor = _tensor_of(name, constant)
        if self.ir_version < 4 and original is None:
            self.op("Constant", [], name, value=tensor)
            return
        value = onnx_ir.Value(
            name=name, type=onnx_ir.TensorType(tensor.dtype), shape=onnx_ir.Shape(tensor.shape), const_value=tensor
        )
        if original is not None:
            value.doc_string = original.doc_string
            value.metadata_props.update(original.metadata_props)
            value.meta.update(original.meta)
        self._values[name] = value
        self._initializers.append(value)

    def _new_name(self, base: str) -> str:
        index = 0
        while (name := f"{base}__{index}") in self._names:
            index += 1
        self._names.add(name)
        return name

    def _keep_annotations(self) -> None:
        """Quantisation annotations name initializers that no node reads; they must not dangle."""
        if self.source is None:
            return
        for value in list(self._values.values()):
            for tensor_name in value.meta.get("quant_parameter_tensor_names", {}).values():
                original = self.source.graph.initializers.get(tensor_name)
                if tensor_name not in self._values and original is not None:
                    copy = _copy_of(original, tensor_name)
                    copy.const_value = original.const_value
                    self._values[tensor_name] = copy
                    self._initializers.append(copy)

    # ** nodes **

    def _opaque(self, node: Node) -> None:
        payload: onnx_ir.Node = node.payload
        operands = [self._values[name] if name else None for name in node.inputs]
        if payload.meta.get(INITIALIZER) and (self.ir_version >= 4 or node.output in self._source_initializers()):
            tensor = payload.attributes["value"].value
            value = _copy_of(payload.outputs[0], node.output)
            value.const_value = tensor
            self._values[node.output] = value
            self._initializers.append(value)
            return
        outputs = [self._value(name) if name else onnx_ir.Value(name="") for name in node.outputs]
        captured = {
            value: self._values[value.name]
            for value in _outer_values(payload)
            if value.name in node.captures
        }
        cloner = Cloner(
            attr_map={},
            value_map=dict(captured),
            metadata_props={},
            allow_outer_scope_values=True,
        )
        attributes = [cloner.clone_attr(k, a) for k, a in payload.attributes.items()]
        self._nodes.append(
            onnx_ir.Node(
                payload.domain,
                payload.op_type,
                operands,
                [a for a in attributes if a is not None],
                overload=payload.overload,
                outputs=outputs,
                version=payload.version,
                name=payload.name,
                doc_string=payload.doc_string,
                metadata_props=dict(payload.metadata_props),
                device_configurations=payload.device_configurations,
            )
        )

    def _source_initializers(self) -> Any:
        return self.source.graph.initializers if self.source else {}

    def _metadata(self, is_last: bool) -> tuple[str, str | None, dict[str, str]]:
        """Name, documentation and metadata of the node that is written now."""
        node = self._current
        if node is None:
            return "", None, {}
        if is_last and node.name and not node.rules:
            original = self._originals.get(node.name)
            if original is not None:
                return node.name, original.doc_string, dict(original.metadata_props)
        metadata = {}
        if node.rules:
            metadata[RULES_KEY] = ",".join(node.rules)
        if node.sources and node.sources != (node.name,):
            metadata[SOURCES_KEY] = ",".join(node.sources)
        return (node.name if is_last else ""), None, metadata

    def _node_name(self, wanted: str, op_type: str, output: str) -> str:
        if wanted:
            return wanted
        name = f"{op_type}_{output}"
        while name in self._node_names:
            name += "_"
        self._node_names.add(name)
        return name

    # ** what writers use (WriteContext) **

    def type(self, name: str) -> TensorType:
        type_ = self.graph.types.get(name)
        if not isinstance(type_, TensorType):
            raise ModelError(f"value {name!r} has no tensor type")
        return type_

    def op(self, op_type: str, inputs: Iterable[str], out: str | None = None, **attrs: Any) -> str:
        is_last = out is not None
        base = self._current.outputs[0] if self._current is not None else op_type
        name = out if out is not None else self._new_name(base)
        wanted, doc_string, metadata = self._metadata(is_last)
        self._nodes.append(
            onnx_ir.Node(
                "",
                op_type,
                [self._values[i] if i else None for i in inputs],
                [v if isinstance(v, onnx_ir.Attr) else _attribute_or_tensor(k, v) for k, v in attrs.items()],
                outputs=[self._value(name)],
                name=self._node_name(wanted, op_type, name),
                doc_string=doc_string,
                metadata_props=metadata or None,
            )
        )
        return name

    def constant(self, array: Array) -> str:
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self._shared:
            name = self._new_name(f"const_{array.dtype}")
            self._shared[key] = name
            tensor = onnx_ir.tensor(array, name=name)
            if self.ir_version < 4:
                self.op("Constant", [], name, value=tensor)
            else:
                value = onnx_ir.Value(
                    name=name,
                    type=onnx_ir.TensorType(tensor.dtype),
                    shape=onnx_ir.Shape(array.shape),
                    const_value=tensor,
                )
                self._values[name] = value
                self._initializers.append(value)
        return self._shared[key]

    def _note_dims(self, name: str) -> None:
        type_ = self.graph.types.get(name)
        if isinstance(type_, TensorType) and name in self._values:
            for axis, dim in enumerate(type_.shape):
                symbol = plain_symbol(dim)
                if symbol is not None:
                    self._dims.setdefault(symbol, (name, axis))

    def shape_value(self, shape: tuple[Dim, ...]) -> str:
        parts = [self._dim_value(dim) for dim in shape]
        return self._shape_part(("Concat", *parts), lambda: self.op("Concat", parts, axis=0))

    def _dim_value(self, dim: Dim) -> str:
        """A vector with the one element ``dim``."""
        if not isinstance(dim, SymDim):
            return self.constant(np.asarray([dim], np.int64))
        terms = []
        for monomial, coefficient in dim.terms:
            factors = [self._atom_value(atom) for atom in monomial]
            if coefficient != 1 or not factors:
                factors.append(self._dim_value(coefficient))
            terms.append(self._chain("Mul", factors))
        return self._chain("Add", terms)

    def _chain(self, op: str, operands: list[str]) -> str:
        result = operands[0]
        for operand in operands[1:]:
            pair = [result, operand]
            result = self._shape_part((op, *pair), lambda pair=pair: self.op(op, pair))  # type: ignore[misc]
        return result

    def _atom_value(self, atom: str) -> str:
        if atom not in self._dims:
            raise ModelError(f"the size {atom} cannot be computed from the model's inputs; give it with --input-shape")
        name, axis = self._dims[atom]
        shape = self._shape_part(("Shape", name), lambda: self.op("Shape", [name]))
        index = self.constant(np.asarray([axis], np.int64))
        return self._shape_part(("Gather", name, axis), lambda: self.op("Gather", [shape, index], axis=0))

    def _shape_part(self, key: Any, make: Callable[[], str]) -> str:
        if key not in self._shape_parts:
            self._shape_parts[key] = make()
        return self._shape_parts[key]


def _attribute_or_tensor(name: str, value: Any) -> onnx_ir.Attr:
    if hasattr(value, "tobytes") and not isinstance(value, np.ndarray):
        return onnx_ir.AttrTensor(name, value)
    return _attribute(name, value)


def _copy_of(value: onnx_ir.Value, name: str) -> onnx_ir.Value:
    copy = onnx_ir.Value(
        name=name,
        type=value.type,
        shape=value.shape.copy() if value.shape is not None else None,
        doc_string=value.doc_string,
        metadata_props=dict(value.metadata_props) or None,
    )
    copy.meta.update(value.meta)
    return copy


def _tensor_of(name: str, constant: Constant) -> Any:
    """The onnx-ir tensor of a constant: the original one, under another name if need be, or a lazy one."""
    source = constant.source
    if source is not None and not isinstance(source, Splat):
        if source.name in (name, None, ""):
            return source
        if isinstance(source, onnx_ir.ExternalTensor):
            return onnx_ir.ExternalTensor(
                source.location,
                source.offset,
                source.length,
                source.dtype,
                shape=onnx_ir.Shape(source.shape),
                name=name,
                doc_string=source.doc_string,
                base_dir=source.base_dir,
            )
        return onnx_ir.LazyTensor(
            lambda: source, dtype=source.dtype, shape=onnx_ir.Shape(source.shape), name=name
        )
    return onnx_ir.LazyTensor(
        lambda: onnx_ir.Tensor(np.ascontiguousarray(constant.load()).reshape(constant.type.static_shape())),
        dtype=onnx_ir.DataType(DTYPE_CODES[constant.type.dtype]),
        shape=onnx_ir.Shape(constant.type.static_shape()),
        name=name,
    )


def _subgraphs(owner: Any) -> list[Any]:
    graphs = []
    for attribute in owner.attributes.values():
        if attribute.type == onnx_ir.AttributeType.GRAPH and attribute.value is not None:
            graphs.append(attribute.value)
        elif attribute.type == onnx_ir.AttributeType.GRAPHS and attribute.value is not None:
            graphs.extend(attribute.value)
    return graphs


def _nested_nodes(owner: Any) -> Iterable[onnx_ir.Node]:
    if isinstance(owner, onnx_ir.Function):
        yield from owner.all_nodes()
        return
    for graph in _subgraphs(owner):
        yield from graph.all_nodes()


def _outer_values(payload: onnx_ir.Node) -> Iterable[onnx_ir.Value]:
    for nested in _nested_nodes(payload):
        yield from (v for v in nested.inputs if v is not None)
    for graph in _subgraphs(payload):
        for inner in (graph, *graph.subgraphs()):
            yield from inner.outputs
