"""The context for writers of ONNX nodes: values and nodes under unique names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir

from eqsat_opt.errors import ModelError
from eqsat_opt.ir.graph.graph import Constant, Graph, Node
from eqsat_opt.ir.graph.handles import Expression, Splat
from eqsat_opt.ir.onnx.files.load import FREE_INITIALIZERS, inner_names
from eqsat_opt.ir.onnx.types import DEFAULT_OPSET, standard_schema
from eqsat_opt.ir.sizes.given_values import value_names
from eqsat_opt.ir.values.dims import Dim, SymDim, atom_of, is_size, plain_symbol
from eqsat_opt.ir.values.types import DTYPE_CODES, StaticType, TensorType

__all__ = [
    "RULES_KEY",
    "SOURCES_KEY",
    "ExportContext",
    "copy_of",
    "make_attribute",
    "tensor_of",
]

RULES_KEY = "eqsat_opt.rules"
"""Node metadata: the rules that made the node, separated by commas."""

SOURCES_KEY = "eqsat_opt.sources"
"""Node metadata: the original nodes that the node represents, separated by commas."""

DEFAULT_IR_VERSION = 10

_SPLAT_ELEMENTS = 1024
"""Size above which splats are written as a ConstantOfShape; smaller ones are plain data."""

_MOD = 10
"""First operator set in which Mod computes remainders of integers."""

_EXTREMA_OF_INTEGERS = 12
"""First operator set in which Max and Min accept integers."""

_SHAPE_OF_SOME = 15
"""First operator set in which Shape can return some of the dimensions."""

Array = npt.NDArray[Any]


class ExportContext:
    """The state of an export: known values, and the nodes and initializers written so far."""

    def __init__(self, graph: Graph, opset: int = DEFAULT_OPSET) -> None:
        self.graph = graph
        self.source: onnx_ir.Model | None = graph.model
        imports = self.source.graph.opset_imports if self.source else {"": opset}
        self.opset = imports.get("", 1)
        self.ir_version = self.source.ir_version if self.source else DEFAULT_IR_VERSION
        self._imports = dict(imports)
        self._values: dict[str, onnx_ir.Value] = {}
        self._nodes: list[onnx_ir.Node] = []
        self._initializers: list[onnx_ir.Value] = []
        self._names = set(graph.types)
        for node in graph.nodes:
            if node.payload is not None:
                self._names.update(inner_names(node.payload))
        self._numbers: dict[str, int] = {}
        self._node_names: set[str] = set()
        self._given_names: set[str] = set()
        self._originals: dict[str, onnx_ir.Node] = {}
        self._spelled: dict[str, onnx_ir.Node] = {}
        self._op_types: set[str] = set()
        self._infos: dict[str, onnx_ir.Value] = {}
        self._shared: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._shape_parts: dict[Any, str] = {}
        self._dims: dict[str, tuple[str, int]] = {}
        self._shapes: dict[tuple[Dim, ...], str] = {}
        self._measured: set[str] = set(graph.inputs)
        self._given: dict[str, tuple[str, int]] = {}
        self._below: dict[str, str] = {}
        for name in graph.inputs:
            for place, (above, below) in enumerate(value_names(name, graph.types.get(name))):
                self._given[above] = self._given[below] = name, place
                self._below[above] = below
        self._current: Node | None = None
        if self.source is not None:
            self._note_source(self.source)

    def _note_source(self, model: onnx_ir.Model) -> None:
        self._node_names.update(node.name for node in model.graph.all_nodes() if node.name)
        for node in model.graph:
            if node.op_type == "Shape" and not node.domain:
                self._measured.update(v.name or "" for v in node.inputs if v is not None)
            self._names.update(v.name or "" for v in node.outputs)
            self._names.update(inner_names(node))
        # Nodes of a branch may have left it; those of the graph itself come first.
        for node in (*model.graph, *model.graph.all_nodes()):
            if node.name:
                self._originals.setdefault(node.name, node)
            source = node.name or next((v.name or "" for v in node.outputs), "")
            self._spelled.setdefault(source, node)
            if node.domain == "":
                self._op_types.add(node.op_type)
            for value in node.outputs:
                if value.name and value.type is not None:
                    self._infos.setdefault(value.name, value)

    def _value(self, name: str) -> onnx_ir.Value:
        """Return a new value, with what the model declares for a value of this name."""
        if name in self._values:
            raise ModelError(f"value {name!r} is defined twice")
        original = self._infos.get(name)
        value = onnx_ir.Value(name=name) if original is None else copy_of(original, name)
        if name:
            self._values[name] = value
        return value

    def _constant_value(self, name: str, constant: Constant) -> None:
        original = self.source.graph.initializers.get(name) if self.source else None
        if (
            isinstance(constant.source, Splat)
            and constant.type.size > _SPLAT_ELEMENTS
            and self.opset >= 9
        ):
            shape = self.constant(np.asarray(constant.type.shape, np.int64))
            fill = np.asarray(constant.source.value).reshape(1)
            self.op("ConstantOfShape", [shape], name, value=fill)
            return
        tensor = tensor_of(name, constant)
        if self.ir_version < FREE_INITIALIZERS and original is None:
            self.op("Constant", [], name, value=tensor)
            return
        value = self._initializer(name, tensor)
        if original is not None:
            value.doc_string = original.doc_string
            value.metadata_props.update(original.metadata_props)
            value.meta.update(original.meta)

    def _initializer(self, name: str, tensor: Any) -> onnx_ir.Value:
        value = onnx_ir.Value(
            name=name,
            type=onnx_ir.TensorType(tensor.dtype),
            shape=onnx_ir.Shape(tensor.shape),
            const_value=tensor,
        )
        self._values[name] = value
        self._initializers.append(value)
        return value

    def _new_name(self, base: str) -> str:
        index = self._numbers.get(base, 0)  # counting from 0 would take quadratic time
        while (name := f"{base}__{index}") in self._names:
            index += 1
        self._numbers[base] = index + 1
        self._names.add(name)
        return name

    def _metadata(self, is_last: bool) -> tuple[str, str | None, dict[str, str]]:
        """Return name, documentation and metadata of the node that is being written."""
        node = self._current
        if node is None:
            return "", None, {}
        original = None if node.rules or not is_last else self._originals.get(node.name)
        metadata = {} if original is None else dict(original.metadata_props)
        if node.rules:
            metadata[RULES_KEY] = ",".join(node.rules)
        if node.sources and node.sources != (node.name,):
            metadata[SOURCES_KEY] = ",".join(node.sources)
        doc_string = None if original is None else original.doc_string
        return (node.name if is_last else ""), doc_string, metadata

    def _node_name(self, wanted: str, op_type: str, output: str) -> str:
        """Return ``wanted`` if no node has it yet, else a name that no node of either model has."""
        name = wanted
        if not wanted or wanted in self._given_names:
            name = f"{op_type}_{output}"
            while name in self._node_names or name in self._given_names:
                name += "_"
        self._given_names.add(name)
        return name

    def type(self, name: str) -> TensorType:
        """Return the type of a value of the graph; intermediate values of the export have none."""
        type_ = self.graph.types.get(name)
        if not isinstance(type_, TensorType):
            raise ModelError(f"value {name!r} has no tensor type")
        return type_

    def _original(self, node: Node, op_type: str) -> onnx_ir.Node | None:
        source = node.name or next(iter(node.sources), "")
        original = None if node.rules else self._spelled.get(source)
        found = original is not None and original.domain == "" and original.op_type == op_type
        return original if found else None

    def is_original(self, node: Node, op_type: str) -> bool:
        """Return whether the model itself has ``node`` as this ONNX operator."""
        return self._original(node, op_type) is not None

    def is_in_original(self, op_type: str) -> bool:
        """Return whether the model itself has an operator, even if its operator set does not."""
        return op_type in self._op_types

    def original_constant(self, node: Node, op_type: str, index: int) -> Array | None:
        """Return a constant operand of ``node`` in the model, if :meth:`is_original`."""
        original = self._original(node, op_type)
        if original is None or index >= len(original.inputs):
            return None
        value = original.inputs[index]
        tensor = None if value is None else onnx_ir.convenience.get_const_tensor(value)
        return None if tensor is None else tensor.numpy()

    def original_int(self, node: Node, op_type: str, name: str) -> int | None:
        """Return an attribute of ``node`` in the model, 0 if absent, if :meth:`is_original`."""
        original = self._original(node, op_type)
        return None if original is None else int(original.attributes.get_int(name, 0))

    def op(self, op_type: str, inputs: Iterable[str], out: str | None = None, **attrs: Any) -> str:
        """Add an ONNX node and return its output; without ``out`` the output gets a new name."""
        name = out if out is not None else self._inner(op_type)
        self._append(op_type, inputs, [name], attrs, is_last=out is not None)
        return name

    def op_of_several(
        self, op_type: str, inputs: Iterable[str], outputs: Iterable[str], **attrs: Any
    ) -> None:
        """Add an ONNX node with these outputs; one without a name is absent, or gets a new one."""
        names, schema = list(outputs), standard_schema(op_type, self.opset)
        optional = [one.option is schema.FormalParameterOption.Optional for one in schema.outputs]
        for place, name in enumerate(names):
            if not name and not optional[min(place, len(optional) - 1)]:  # the last may be variadic
                names[place] = self._inner(op_type)
        while not names[-1]:
            names.pop()
        self._append(op_type, inputs, names, attrs)

    def _inner(self, op_type: str) -> str:
        """Return a new name for a value that no other node of the graph reads."""
        outputs = self._current.outputs if self._current is not None else ()
        return self._new_name(next(filter(None, outputs), op_type))

    def _append(
        self,
        op_type: str,
        inputs: Iterable[str],
        outputs: Sequence[str],
        attrs: Mapping[str, Any],
        is_last: bool = True,
    ) -> None:
        wanted, doc_string, metadata = self._metadata(is_last)
        self._nodes.append(
            onnx_ir.Node(
                "",
                op_type,
                [self._values[i] if i else None for i in inputs],
                [
                    v if isinstance(v, onnx_ir.Attr) else _attribute_or_tensor(k, v)
                    for k, v in attrs.items()
                ],
                outputs=list(map(self._value, outputs)),
                name=self._node_name(wanted, op_type, next(filter(None, outputs))),
                doc_string=doc_string,
                metadata_props=metadata or None,
            )
        )

    def constant(self, array: Array) -> str:
        """Add an initializer, shared between equal arrays, and return its name."""
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self._shared:
            name = self._new_name(f"const_{array.dtype}")
            self._shared[key] = name
            tensor = onnx_ir.tensor(array, name=name)
            if self.ir_version < FREE_INITIALIZERS:
                self.op("Constant", [], name, value=tensor)
            else:
                self._initializer(name, tensor)
        return self._shared[key]

    def _note_dims(self, name: str) -> None:
        type_ = self.graph.types.get(name)
        if isinstance(type_, TensorType) and name in self._values:
            for axis, dim in enumerate(type_.shape):
                symbol = plain_symbol(dim)
                if symbol is not None:
                    self._dims.setdefault(symbol, (name, axis))
            # An additional reader of any other value could keep a runtime from fusing that value.
            if name in self._measured and not isinstance(type_, StaticType):
                self._shapes.setdefault(type_.shape, name)

    def shape_value(self, shape: tuple[Dim, ...]) -> str:
        """Return the name of an ``int64`` vector that holds ``shape``, computed at run time.

        If a value has this shape, the vector is the Shape of that value; otherwise it is computed
        from other shapes, with common parts shared.
        """
        whole = self._shapes.get(shape)
        if whole is not None:
            return self._shape_part(("Shape", whole), lambda: self.op("Shape", [whole]))
        parts: list[str] = []
        for is_literal, run in groupby(shape, key=lambda dim: not isinstance(dim, SymDim)):
            if is_literal:
                parts.append(self.constant(np.asarray(list(run), np.int64)))
            else:
                parts += map(self._dim_value, run)
        if len(parts) == 1:
            return parts[0]
        return self._shape_part(("Concat", *parts), lambda: self.op("Concat", parts, axis=0))

    def _dim_value(self, dim: Dim) -> str:
        """Return the name of a vector with ``dim`` as its only element."""
        if not isinstance(dim, SymDim):
            return self.constant(np.asarray([dim], np.int64))
        terms, rest = [], dict(dim.terms)
        for monomial, coefficient in dim.terms:
            if monomial not in rest:
                continue
            below = (self._below.get(monomial[0], "") if len(monomial) == 1 else "",)
            if rest.get(below) == -coefficient:  # above zero less below zero: the value itself
                del rest[below]
                factors = [self._given_value(monomial[0])]
            else:
                factors = [self._atom_value(atom) for atom in monomial]
            if coefficient != 1 or not factors:
                factors.append(self._dim_value(coefficient))
            terms.append(self._chain("Mul", factors))
        return self._chain("Add", terms)

    def _given_value(self, atom: str) -> str:
        """Return the name of a vector with the element of an input that a name represents."""
        name, place = self._given[atom]
        type_ = self.type(name)
        result = name
        if type_.rank == 0:
            target = self.constant(np.asarray([1], np.int64))
            result = self._shape_part(("Reshape", name), lambda: self.op("Reshape", [name, target]))
        elif type_.shape != (1,):
            index = self.constant(np.asarray([place], np.int64))
            result = self._shape_part(
                ("Gather", name, place), lambda: self.op("Gather", [name, index], axis=0)
            )
        if type_.dtype == "int64":
            return result
        code = DTYPE_CODES["int64"]
        return self._shape_part(("Cast", result), lambda: self.op("Cast", [result], to=code))

    def _chain(self, op: str, operands: list[str]) -> str:
        result = operands[0]
        for operand in operands[1:]:
            pair = [result, operand]
            result = self._shape_part((op, *pair), partial(self.op, op, pair))
        return result

    def _atom_value(self, atom: str) -> str:
        if atom in self._given:
            value, zero = self._given_value(atom), self._dim_value(0)
            if atom not in self._below:
                value = self._chain("Mul", [value, self._dim_value(-1)])
            return self._extremum("max", value, zero)
        if atom not in self._dims:
            meaning = atom_of(atom)
            if meaning is not None and meaning.function == "floor":
                return self._quotient_value(meaning.left, meaning.right)
            if meaning is not None:
                left, right = self._dim_value(meaning.left), self._dim_value(meaning.right)
                if meaning.function == "broadcast":
                    return self._broadcast_value(left, right)
                return self._extremum(meaning.function, left, right)
            raise ModelError(
                f"the size {atom} cannot be computed from the model's inputs; "
                "give it with --input-shape"
            )
        name, axis = self._dims[atom]
        if self.opset >= _SHAPE_OF_SOME:
            return self._shape_part(
                ("Shape", name, axis), lambda: self.op("Shape", [name], start=axis, end=axis + 1)
            )
        shape = self._shape_part(("Shape", name), lambda: self.op("Shape", [name]))
        index = self.constant(np.asarray([axis], np.int64))
        return self._shape_part(
            ("Gather", name, axis), lambda: self.op("Gather", [shape, index], axis=0)
        )

    def _quotient_value(self, above: Dim, below: Dim) -> str:
        """Return the name of a vector with ``above // below`` as its only element.

        ONNX's Div rounds towards zero.
        """
        dividend, divisor = self._dim_value(above), self._dim_value(below)
        if is_size(above):
            return self._chain("Div", [dividend, divisor])
        if self.opset >= _MOD:  # without the remainder, Div is exact
            pair = [dividend, divisor]
            rest = self._shape_part(("Mod", *pair), lambda: self.op("Mod", pair))
            less = [dividend, rest]
            whole = self._shape_part(("Sub", *less), lambda: self.op("Sub", less))
            return self._chain("Div", [whole, divisor])
        # No size is more than one divisor below zero.
        moved = self._chain("Div", [self._dim_value(above + below), divisor])
        return self._chain("Add", [moved, self._dim_value(-1)])

    def _extremum(self, function: str, left: str, right: str) -> str:
        """Return the name of a vector with the larger or the smaller of the sizes in two vectors.

        Before Max and Min took integers, it is the one that a comparison chooses.
        """
        if self.opset >= _EXTREMA_OF_INTEGERS:
            return self._chain(function.capitalize(), [left, right])
        order, pair = "Greater" if function == "max" else "Less", [left, right]
        is_first = self._shape_part((order, *pair), lambda: self.op(order, pair))
        choice = [is_first, left, right]
        return self._shape_part(("Where", *choice), lambda: self.op("Where", choice))

    def _broadcast_value(self, left: str, right: str) -> str:
        """Return the name of a vector with the size to which the sizes in two vectors broadcast."""
        pair = [left, self._dim_value(1)]
        is_one = self._shape_part(("Equal", *pair), lambda: self.op("Equal", pair))
        choice = [is_one, right, left]
        return self._shape_part(("Where", *choice), lambda: self.op("Where", choice))

    def _shape_part(self, key: Any, make: Callable[[], str]) -> str:
        if key not in self._shape_parts:
            self._shape_parts[key] = make()
        return self._shape_parts[key]


def make_attribute(name: str, value: Any) -> onnx_ir.Attr:
    if isinstance(value, str):
        return onnx_ir.AttrString(name, value)
    if isinstance(value, (bool, int)):
        return onnx_ir.AttrInt64(name, int(value))
    if isinstance(value, float):
        return onnx_ir.AttrFloat32(name, value)
    if isinstance(value, np.ndarray):
        return onnx_ir.AttrTensor(name, onnx_ir.tensor(value))
    if any(isinstance(v, str) for v in value):
        return onnx_ir.AttrStrings(name, list(value))
    if any(isinstance(v, float) for v in value):
        return onnx_ir.AttrFloat32s(name, [float(v) for v in value])
    return onnx_ir.AttrInt64s(name, [int(v) for v in value])


def _attribute_or_tensor(name: str, value: Any) -> onnx_ir.Attr:
    if hasattr(value, "tobytes") and not isinstance(value, np.ndarray):
        return onnx_ir.AttrTensor(name, value)
    return make_attribute(name, value)


def copy_of(value: onnx_ir.Value, name: str) -> onnx_ir.Value:
    copy = onnx_ir.Value(
        name=name,
        type=value.type,
        shape=value.shape.copy() if value.shape is not None else None,
        doc_string=value.doc_string,
        metadata_props=dict(value.metadata_props) or None,
    )
    copy.meta.update(value.meta)
    return copy


def tensor_of(name: str, constant: Constant) -> Any:
    """Return the onnx-ir tensor of a constant: the original, renamed if needed, or a lazy one."""
    source = constant.source
    if source is not None and not isinstance(source, Expression | Splat):
        if source.name == name:
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
        lambda: onnx_ir.Tensor(np.ascontiguousarray(constant.load()).reshape(constant.type.shape)),
        dtype=onnx_ir.DataType(DTYPE_CODES[constant.type.dtype]),
        shape=onnx_ir.Shape(constant.type.shape),
        name=name,
    )
