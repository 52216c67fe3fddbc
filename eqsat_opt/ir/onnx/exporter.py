"""Graph to ONNX: unchanged nodes as they were, new nodes with the rules that made them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir

import eqsat_opt.ir.onnx.mappings  # noqa: F401  (fills the tables)
from eqsat_opt.errors import ModelError
from eqsat_opt.ir.graph.graph import OPAQUE, Graph, Node
from eqsat_opt.ir.graph.outputs import joined
from eqsat_opt.ir.onnx.columns import with_numbers_beside_columns
from eqsat_opt.ir.onnx.export_context import RULES_KEY, SOURCES_KEY, ExportContext, copy_of
from eqsat_opt.ir.onnx.files.load import FREE_INITIALIZERS, ModelSource
from eqsat_opt.ir.onnx.files.map_types import restore_types
from eqsat_opt.ir.onnx.files.sparse_tensors import restore_sparse
from eqsat_opt.ir.onnx.importer import INITIALIZER
from eqsat_opt.ir.onnx.mapping import WRITERS
from eqsat_opt.ir.onnx.types import DEFAULT_OPSET
from eqsat_opt.ir.values.dims import plain_symbol
from eqsat_opt.ir.values.types import DTYPE_CODES, TensorType

__all__ = [
    "GEMM",
    "RULES_KEY",
    "SOURCES_KEY",
    "SPLIT",
    "export_model",
    "model_proto",
    "to_same_type",
]

GEMM = "Gemm"
"""A B + C of matrices, or of their transposes: attributes ``transA`` and ``transB``."""

SPLIT = "Split"
"""Operator that splits a tensor into adjacent parts, with attributes ``axis`` and ``sizes``."""

_GRAPHS = (onnx_ir.AttributeType.GRAPH, onnx_ir.AttributeType.GRAPHS)


def export_model(graph: Graph, opset: int = DEFAULT_OPSET) -> onnx_ir.Model:
    """Return the ONNX model of a graph.

    The interface (names, order, types, symbolic dimensions), opset, IR version, metadata, functions
    and opaque nodes are those of ``graph.model``. Weights are referred to, never copied; computed
    ones stay lazy.

    Args:
        graph: the graph.
        opset: the operator set for a graph that has no model.

    Raises:
        ModelError: the opset of the model cannot express an operator.
    """
    return _Exporter(with_numbers_beside_columns(graph), opset).run()


def model_proto(model: onnx_ir.Model) -> onnx.ModelProto:
    """Return the protobuf form of a model, with sparse tensors, unlike onnx-ir's own conversion.

    It also omits the type of an initializer where it only repeats that of its tensor.
    """
    proto = onnx_ir.to_proto(model)
    _drop_repeated_types(proto.graph)
    return restore_types(restore_sparse(proto))


def _drop_repeated_types(graph: onnx.GraphProto) -> None:
    initializers = {tensor.name for tensor in graph.initializer}
    kept = [
        info
        for info in graph.value_info
        if info.name not in initializers or info.doc_string or info.metadata_props
    ]
    if len(kept) < len(graph.value_info):
        del graph.value_info[:]
        graph.value_info.extend(kept)
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                _drop_repeated_types(inner)


def to_same_type(result: onnx_ir.Model, like: ModelSource) -> onnx.ModelProto | onnx_ir.Model:
    """Return ``result`` in the form in which ``like`` was given; in that of onnx-ir for a path."""
    return model_proto(result) if isinstance(like, onnx.ModelProto) else result


class _Exporter(ExportContext):
    """The walk over the nodes of one graph."""

    def run(self) -> onnx_ir.Model:
        graph = self.graph
        inputs = [self._input(name) for name in graph.inputs]
        for value in inputs:
            self._note_dims(value.name or "")
        nodes = tuple(joined(graph.live_nodes()))
        needed = {name for node in nodes for name in node.reads} | set(graph.outputs)
        for name, constant in graph.constants.items():
            if name in needed:
                self._constant_value(name, constant)
        for node in nodes:
            self._current = node
            if node.op == OPAQUE:
                self._opaque(node)
            elif node.op == SPLIT:
                self._split(node)
            elif node.op == GEMM:
                self.op(GEMM, node.inputs, node.output, **{k: v for k, v in node.attrs if v})
            else:
                WRITERS[node.op](node, self)
            for name in filter(None, node.outputs):
                self._note_dims(name)
        self._current = None
        outputs = self._outputs()
        self._keep_annotations()
        if self.ir_version < FREE_INITIALIZERS:
            # Old runtimes find initializers through the inputs of the same name.
            inputs.extend(self._initializers)
        return self._model(inputs, outputs)

    def _model(self, inputs: list[onnx_ir.Value], outputs: list[onnx_ir.Value]) -> onnx_ir.Model:
        source = self.source
        main = source.graph if source else None
        functions = [f.clone() for f in source.functions.values()] if source else []
        result = onnx_ir.Graph(
            inputs,
            outputs,
            nodes=self._nodes,
            initializers=self._initializers,
            doc_string=main.doc_string if main else None,
            name=main.name if main else "graph",
            metadata_props=dict(main.metadata_props) if main else None,
        )
        owners: list[onnx_ir.Graph | onnx_ir.Function] = [result, *functions]
        used = {"", *(f.domain for f in functions)}
        used.update(node.domain for owner in owners for node in owner.all_nodes())
        result.opset_imports.update({d: v for d, v in self._imports.items() if d in used})
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

    def _input(self, name: str) -> onnx_ir.Value:
        for original in self.source.graph.inputs if self.source else ():
            if original.name == name:
                value = copy_of(original, name)
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
        """Return the outputs under the names of the interface, with the declared types."""
        originals = (
            list(self.source.graph.outputs) if self.source else [None] * len(self.graph.outputs)
        )
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

    def _keep_annotations(self) -> None:
        """Keep initializers that only quantisation annotations name, so that these stay valid."""
        if self.source is None:
            return
        for value in list(self._values.values()):
            for tensor_name in value.meta.get("quant_parameter_tensor_names", {}).values():
                original = self.source.graph.initializers.get(tensor_name)
                if tensor_name not in self._values and original is not None:
                    copy = copy_of(original, tensor_name)
                    copy.const_value = original.const_value
                    self._values[tensor_name] = copy
                    self._initializers.append(copy)

    def _opaque(self, node: Node) -> None:
        payload: onnx_ir.Node = node.payload
        operands = [self._values[name] if name else None for name in node.inputs]
        kept = payload.meta.get(INITIALIZER) and payload.outputs[0].name == node.output
        if kept and (
            self.ir_version >= FREE_INITIALIZERS or node.output in self._source_initializers()
        ):
            tensor = payload.attributes["value"].value
            value = copy_of(payload.outputs[0], node.output)
            value.const_value = tensor
            self._values[node.output] = value
            self._initializers.append(value)
            return
        outputs = [self._value(name) if name else onnx_ir.Value(name="") for name in node.outputs]
        attributes = [self._copied(a, node.captures) for a in payload.attributes.values()]
        self._nodes.append(
            onnx_ir.Node(
                payload.domain,
                payload.op_type,
                operands,
                attributes,
                overload=payload.overload,
                outputs=outputs,
                version=payload.version,
                name=payload.name
                and self._node_name(payload.name, payload.op_type, node.outputs[0]),
                doc_string=payload.doc_string,
                metadata_props=dict(payload.metadata_props),
                device_configurations=payload.device_configurations,
            )
        )

    def _copied(self, attribute: onnx_ir.Attr, captures: tuple[str, ...]) -> onnx_ir.Attr:
        """Copy an attribute so that its graphs, if it has any, read the values of the new model."""
        kind = attribute.type
        if attribute.is_ref() or kind not in _GRAPHS:
            return attribute
        graphs = (
            attribute.as_graphs()
            if kind == onnx_ir.AttributeType.GRAPHS
            else [attribute.as_graph()]
        )
        copies = [g.clone(allow_outer_scope_values=True) for g in graphs]
        for copy in copies:
            own = {id(v) for inner in (copy, *copy.subgraphs()) for v in inner.inputs}
            for inner in copy.all_nodes():
                own.update(id(v) for v in inner.outputs)
            own.update(
                id(v) for inner in (copy, *copy.subgraphs()) for v in inner.initializers.values()
            )
            for inner in copy.all_nodes():
                for index, value in enumerate(inner.inputs):
                    if value is not None and id(value) not in own and value.name in captures:
                        inner.replace_input_with(index, self._values[value.name])
        return onnx_ir.Attr(
            attribute.name,
            kind,
            copies if kind == onnx_ir.AttributeType.GRAPHS else copies[0],
            doc_string=attribute.doc_string,
        )

    def _split(self, node: Node) -> None:
        """Write adjacent Slices of one value that selection merged into one node."""
        sizes: Any = node.attr("sizes")
        inputs, attributes = [*node.inputs], {"axis": node.attr("axis")}
        if self.opset >= 13:
            inputs.append(self.constant(np.asarray(sizes, np.int64)))
        else:
            attributes["split"] = sizes
        self.op_of_several("Split", inputs, node.outputs, **attributes)

    def _source_initializers(self) -> Any:
        return self.source.graph.initializers if self.source else {}
