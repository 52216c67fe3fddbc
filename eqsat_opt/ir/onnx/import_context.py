"""The context for readers of ONNX nodes: the typed values of the graph so far.

Small integer tensors are evaluated as soon as they are known, because the shapes of all later
values may depend on them; their elements may be symbolic dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir

from eqsat_opt.ir.graph.broadcasting import assumed, result_type
from eqsat_opt.ir.graph.graph import OPAQUE, Constant, Node, attributes
from eqsat_opt.ir.graph.handles import array_constant, splat_constant
from eqsat_opt.ir.onnx.files.load import inner_names, node_reads
from eqsat_opt.ir.onnx.folding import evaluate, exact_value
from eqsat_opt.ir.onnx.mapping import Call, Untranslatable
from eqsat_opt.ir.onnx.shape_values import elementwise, shape_values
from eqsat_opt.ir.onnx.types import OpaqueTyper
from eqsat_opt.ir.ops import OUTPUT, get_op
from eqsat_opt.ir.sizes.facts import NO_FACTS, SizeFacts
from eqsat_opt.ir.sizes.given_values import given_values, value_names
from eqsat_opt.ir.values.dim_names import fresh_dim
from eqsat_opt.ir.values.dims import (
    Dim,
    Function,
    SymDim,
    atom_of,
    dim_names,
    expand_target,
    plain_symbol,
    reshape_target,
    unsqueezed_axes,
)
from eqsat_opt.ir.values.types import StaticType, TensorType, ValueType, numpy_dtype

__all__ = [
    "SMALL_ELEMENTS",
    "Array",
    "ImportContext",
    "identity_node",
    "is_small_integer",
]

SMALL_ELEMENTS = 4096
"""Elements up to which integer tensors are evaluated during the import."""

_CHOICES = 9
"""First operator set that can choose between values, and compare integers."""

_COMPUTABLE: dict[Function, int] = {
    "broadcast": _CHOICES,
    "floor": 1,
    "max": _CHOICES,
    "min": _CHOICES,
}
"""First operator set in which a model can compute a function of two sizes."""

_READABLE = 1 << 16
"""Elements up to which a reader may read a constant."""

_MOST_TERMS = 64
"""Terms up to which the elements of integer tensors are polynomials of sizes."""

Array = npt.NDArray[Any]


def identity_node(source: str, target: str, sources: tuple[str, ...] = ()) -> Node:
    """Return an opaque node that gives a value a second name, for interfaces that need one."""
    payload = onnx_ir.Node(
        "", "Identity", [onnx_ir.Value(name=source)], outputs=[onnx_ir.Value(name=target)]
    )
    return Node(OPAQUE, (source,), (target,), sources=sources, payload=payload)


def is_small_integer(type_: ValueType) -> bool:
    return (
        isinstance(type_, StaticType)
        and type_.dtype in ("int64", "int32", "bool")
        and type_.size <= SMALL_ELEMENTS
    )


class ImportContext:
    """The state of an import: types, constants and nodes so far.

    Attributes:
        opset: the operator set of the default domain.
        exact: whether every bit counts.
        facts: facts about sizes in every run that succeeds.
    """

    def __init__(self, model: onnx_ir.Model, exact: bool, facts: SizeFacts = NO_FACTS) -> None:
        self.model = model
        self.exact = exact
        self.facts = facts
        self.folded: Mapping[str, Array] = {}
        self.opset = model.graph.opset_imports.get("", 1)
        self.types: dict[str, ValueType] = {}
        self.constants: dict[str, Constant] = {}
        self.nodes: list[Node] = []
        self._typer = OpaqueTyper(model)
        self._values: dict[str, Array] = {}
        self._arrays: dict[str, Array] = {}
        self._symbols: set[str] = set()
        self._open_symbols: set[str] = set()
        self._sequences: dict[str, Call] = {}
        self._names = _all_names(model)
        self._numbers: dict[str, int] = {}
        self._read_names = _read_names(model)
        self._made: list[str] = []
        self._call: Call = Call("", (), ())
        self._declared: dict[str, ValueType] = {}
        self._has_joined = False

    # ** definitions **

    def _define(self, name: str, type_: ValueType) -> None:
        self.types[name] = self.facts.typed(type_) if self.facts else type_
        self._made.append(name)

    def _define_constant(self, name: str, constant: Constant) -> None:
        self.constants[name] = constant
        self._define(name, constant.type)

    def _note_symbols(self, type_: ValueType, symbols: set[str]) -> None:
        if isinstance(type_, TensorType):
            for dim in type_.shape:
                if (name := plain_symbol(dim)) is not None:
                    symbols.add(name)

    def _note_values(self, name: str, is_of_body: bool) -> None:
        """Note the elements of an input of the model, which may be sizes of other values."""
        values = None if is_of_body else given_values(name, self.types[name])
        if values is not None and self.opset >= _CHOICES:
            simplified = elementwise(self.facts.simplified, values)
            self._values[name] = simplified
            self._symbols.update(*value_names(name, self.types[name]))

    def _new_name(self) -> str:
        base = next((o for o in self._call.outputs if o), self._call.op_type)
        index = self._numbers.get(base, 0)  # counting from 0 would take quadratic time
        while (name := f"{base}__{index}") in self._names:
            index += 1
        self._numbers[base] = index + 1
        self._names.add(name)
        return name

    def _small_array(self, name: str) -> Array | None:
        constant = self.constants.get(name)
        if (
            constant is None
            or constant.type.dtype == "string"
            or constant.type.size > SMALL_ELEMENTS
        ):
            return None
        return self.array(name)

    # ** for readers; methods raise `Untranslatable` if a value is not as needed **

    def type(self, name: str) -> TensorType:
        """Return the type of a value that is a typed tensor."""
        type_ = self.types.get(name)
        if not isinstance(type_, TensorType):
            raise Untranslatable
        return type_

    def array(self, name: str, most: int = _READABLE) -> Array:
        """Return the contents of a constant of at most so many elements, by default a small one."""
        if name in self.folded:
            return self.folded[name]
        if name not in self._arrays:
            constant = self.constants.get(name)
            if constant is None or constant.type.size > most:
                raise Untranslatable
            self._arrays[name] = np.asarray(constant.load())
        return self._arrays[name]

    def numbers(self, name: str) -> list[float]:
        """Return the elements of a small constant, in order."""
        return [float(element) for element in self.array(name).reshape(-1)]

    def has_no_zero(self, name: str) -> bool:
        """Return whether a value is known to be other than 0 in every place."""
        made = next((node for node in reversed(self.nodes) if name in node.outputs), None)
        source = made.inputs[0] if made is not None and made.op == "Expand" else name
        return source in self.constants and bool(self.array(source).all())

    def dims(self, name: str) -> tuple[Dim, ...]:
        """Return an integer vector as dimensions, all of which are known."""
        if name in self._values:
            return tuple(self._values[name].reshape(-1))
        array = self.array(name)
        if array.dtype.kind not in "iu":
            raise Untranslatable
        return tuple(array.reshape(-1).tolist())

    def open_dim(self, out: str, axis: int) -> Dim:
        """Return a data-dependent size of a result: the declared dimension, else a new one."""
        declared = self._declared.get(out)
        if isinstance(declared, TensorType) and axis < declared.rank:
            return declared.shape[axis]
        return fresh_dim(out, axis)

    def joined(self, left: Dim, right: Dim) -> Dim:
        """Return the size to which two sizes broadcast, since the model broadcasts them."""
        self._has_joined |= left != right and 1 not in (left, right)
        return self.facts.simplified(assumed(left, right))

    def sequence(self, name: str) -> Call | None:
        """Return the call that made a sequence, ``None`` if it is unknown."""
        return self._sequences.get(name)

    def constant(self, array: Array, out: str | None = None) -> str:
        """Add a constant and return its name."""
        name = out or self._new_name()
        self._define_constant(name, array_constant(array))
        self._arrays[name] = np.asarray(array)
        return name

    def splat(self, value: Array, shape: tuple[int, ...], out: str) -> str:
        """Add a constant whose elements all equal the scalar ``value``."""
        if value.dtype.kind in "OSU" or min(shape, default=0) < 0:
            raise Untranslatable
        self._define_constant(out, splat_constant(value, shape))
        return out

    def alias(self, value: str, out: str) -> str:
        """Make ``out`` the same value as ``value``; readers may read a small constant by it."""
        if value not in self.types:
            raise Untranslatable
        constant = self.constants.get(value)
        if constant is not None and constant.type.size <= _READABLE:
            self._define_constant(out, constant)
            return out
        sources = (self._call.name or out,)
        self.nodes.append(identity_node(value, out, sources))
        self._define(out, self.types[value])
        if value in self._values:
            self._values[out] = self._values[value]
        if value in self._typer.protos:
            self._typer.protos[out] = self._typer.protos[value]
        return out

    def named(self, value: str, out: str) -> str:
        """Rename ``value`` to ``out`` if it was made last, else make ``out`` an alias of it."""
        last = self.nodes[-1] if self.nodes else None
        if value not in self._made or last is None or last.outputs != (value,):
            return self.alias(value, out)
        self.nodes[-1] = replace(last, outputs=(out,), name=self._call.name)
        self._define(out, self.types.pop(value))
        return out

    def emit(self, op: str, inputs: Iterable[str], out: str | None = None, **attrs: Any) -> str:
        """Add a registry node and return its output; without ``out`` the output gets a new name."""
        operands = tuple(inputs)
        definition = get_op(op)
        if not definition.arity[0] <= len(operands) <= definition.arity[1]:
            raise Untranslatable
        types = [self.type(name) for name in operands]
        type_ = result_type(op, types, attrs, self.joined)
        name = out or self._new_name()
        call = self._call
        node = Node(
            op,
            operands,
            (name,),
            attributes(**self._simplified(attrs)),
            name=call.name if out == call.outputs[0] else "",
            sources=(call.name or next(filter(None, call.outputs), ""),),
        )
        if self._evaluate(node, type_):
            return name
        self._define(name, type_)
        self.nodes.append(node)
        return name

    def _simplified(self, attrs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return attributes with sizes as the types have them: a target is the type of a result."""
        if not self.facts:
            return attrs
        return {
            key: tuple(map(self.facts.simplified, value)) if isinstance(value, tuple) else value
            for key, value in attrs.items()
        }

    def emit_outputs(self, op: str, inputs: Iterable[str], **attrs: Any) -> None:
        """Add a registry node for each output of the call that is read, in their order."""
        operands, outputs = tuple(inputs), get_op(op).outputs
        if len(self._call.outputs) > outputs:
            raise Untranslatable
        for number, out in enumerate(self._call.outputs):
            if out and (outputs == 1 or out in self._read_names):
                self.emit(op, operands, out, **attrs, **({OUTPUT: number} if outputs > 1 else {}))

    def _evaluate(self, node: Node, type_: TensorType) -> bool:
        """Fold a node on small integer tensors, such as shapes; return whether it was folded."""
        is_whole = type_.dtype in ("int64", "int32", "bool")
        if not is_whole:
            if type_.shape not in ((), (1,)):
                return False
        elif not isinstance(type_, StaticType) or type_.size > SMALL_ELEMENTS:
            return False
        arrays = [self._small_array(n) for n in node.inputs]
        if all(a is not None for a in arrays):
            operands = [a for a in arrays if a is not None]
            value = (evaluate if is_whole else exact_value)(node, operands, type_)
            if value is not None:
                self.constant(value, node.output)
            return value is not None
        if not any(n in self._values for n in node.inputs):
            return False
        objects = []
        for name, array in zip(node.inputs, arrays, strict=True):
            if name in self._values:
                objects.append(self._values[name])
            elif array is not None and array.dtype.kind in "iub":
                objects.append(array.astype(object))
            else:
                return False
        values = shape_values(node, objects, self.facts.is_size)
        if values is None or values.shape != type_.shape or any(map(_is_long, values.flat)):
            return False
        if self.facts:
            values = elementwise(self.facts.simplified, values)
        if any(isinstance(v, SymDim) for v in values.reshape(-1)):
            self._values[node.output] = values
            return False
        self.constant(values.astype(numpy_dtype(type_.dtype)), node.output)
        return True

    def is_expressible(self, source: TensorType, shape: tuple[Dim, ...], op: str) -> bool:
        """Return whether a model can compute ``shape`` as the target of ``op`` on ``source``."""
        if not any(isinstance(d, SymDim) for d in shape):
            return True
        if op == "Expand":
            constant = expand_target(source.shape, shape) is not None
        else:
            constant = (
                reshape_target(source.shape, shape) is not None
                or unsqueezed_axes(source.shape, shape) is not None
                or unsqueezed_axes(shape, source.shape) is not None
            )
        return constant or self.are_computable(shape, source)

    def are_computable(self, dims: Iterable[Dim], source: TensorType) -> bool:
        """Return whether a model can compute sizes from those of its inputs and of an operand."""
        # Values that are needed only for their shape are not folded. Any value with a
        # data-dependent size is computed from the first value that has this size.
        own = {name for d in source.shape if (name := plain_symbol(d)) is not None}
        own |= self._open_symbols.intersection(name for d in source.shape for name in dim_names(d))
        return all(self._is_computable(atom, own) for atom in _factors(dims))

    def _is_computable(self, atom: str, own: set[str]) -> bool:
        """Return whether a model can compute a size: an input's, or a function of such sizes."""
        if atom in self._symbols or atom in own:
            return True
        meaning = atom_of(atom)
        if meaning is None or self.opset < _COMPUTABLE[meaning.function]:
            return False
        return all(
            self._is_computable(name, own) for name in _factors((meaning.left, meaning.right))
        )


def _is_long(value: object) -> bool:
    """Return whether a value is no size that a model computes, but arithmetic on data."""
    return isinstance(value, SymDim) and len(value.terms) > _MOST_TERMS


def _factors(dims: Iterable[Dim]) -> set[str]:
    return {a for d in dims if isinstance(d, SymDim) for monomial, _ in d.terms for a in monomial}


def _all_names(model: onnx_ir.Model) -> set[str]:
    names = {v.name or "" for v in model.graph.inputs} | set(model.graph.initializers)
    for node in model.graph:
        names.update(v.name or "" for v in node.outputs)
        names.update(node_reads(node))
        names.update(inner_names(node))
    return names


def _read_names(model: onnx_ir.Model) -> set[str]:
    names = {v.name or "" for v in model.graph.outputs}
    for node in model.graph.all_nodes():
        names.update(v.name or "" for v in node.inputs if v is not None)
    return names | {v.name or "" for graph in model.graphs() for v in graph.outputs}
