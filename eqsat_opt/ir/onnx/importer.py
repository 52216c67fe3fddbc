"""ONNX to Graph: every node enters, known operators typed and explicit, all others opaque.

Types are computed on the way, node by node in topological order, together with the values of small
integer tensors: these are the shapes that later nodes read, and they may contain symbolic
dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir

import eqsat_opt.ir.onnx.mappings  # noqa: F401  (fills the tables)
from eqsat_opt.errors import ModelError
from eqsat_opt.ir.graph.graph import OPAQUE, Graph, Node
from eqsat_opt.ir.graph.handles import array_constant, tensor_constant
from eqsat_opt.ir.onnx.bodies.importer import BodyImporter, Known, body_graphs
from eqsat_opt.ir.onnx.computed_shapes import computed_types
from eqsat_opt.ir.onnx.contradictions import NeverRuns, contradiction
from eqsat_opt.ir.onnx.files.load import (
    FREE_INITIALIZERS,
    ModelSource,
    captured_values,
    load_model,
    topological_nodes,
)
from eqsat_opt.ir.onnx.folding import evaluate_opaque, is_deterministic
from eqsat_opt.ir.onnx.foreign_types import IN_DEFAULT_DOMAIN, foreign_types
from eqsat_opt.ir.onnx.functions import with_functions_inlined
from eqsat_opt.ir.onnx.import_context import identity_node, is_small_integer
from eqsat_opt.ir.onnx.mapping import READERS, Call, Reader, Untranslatable
from eqsat_opt.ir.onnx.quantised import quantised_units
from eqsat_opt.ir.onnx.runtime_types import runtime_types
from eqsat_opt.ir.onnx.shape_values import CHOOSING, chosen_values, measured_values
from eqsat_opt.ir.onnx.types import inner_graphs, is_known, merge_dims
from eqsat_opt.ir.ops import IllTyped, get_op, with_trait
from eqsat_opt.ir.sizes.equations import RECURRENT, TOLD, Equation, demands
from eqsat_opt.ir.sizes.facts import NO_FACTS, SizeFacts, facts_of, lengths, windows
from eqsat_opt.ir.values.dims import Dim, SymDim
from eqsat_opt.ir.values.types import DTYPE_NAMES, OtherType, TensorType, ValueType, numpy_dtype

__all__ = [
    "FIRST_OPSET",
    "INITIALIZER",
    "ModelSource",
    "identity_node",
    "import_bodies",
    "import_model",
    "load_model",
]

FIRST_OPSET = 7
"""First operator set that is read. Before it broadcasting was an attribute; the nodes of older
models all stay opaque.
"""

_ROUNDS = 5
"""Limit of imports of a model, each with the facts about sizes that the previous one found."""

_CONVOLUTIONS = frozenset(op for op in with_trait("spatial") if get_op(op).kind == "contraction")
"""Operators whose result has an element along each spatial axis; that of a pool may be empty."""

Array = npt.NDArray[Any]

NO_READERS: Mapping[str, Reader] = {}
NO_ARRAYS: Mapping[str, Array] = {}

INITIALIZER = "eqsat_opt.initializer"
"""Key in ``payload.meta`` of an opaque Constant that represents an initializer."""


def import_model(
    model: onnx_ir.Model,
    shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    exact: bool = False,
    conditions: Mapping[str, bool] | None = None,
    folded: Mapping[str, Array] = NO_ARRAYS,
    foreign: Mapping[str, Reader] = NO_READERS,
) -> Graph:
    """Return the typed graph of a model; the unchanged model stays attached as ``graph.model``.

    If functions are worth inlining, ``graph.model`` is a copy with these inlined.

    Args:
        model: the model as :func:`load_model` returns it.
        shapes: sizes to assume for graph inputs instead of the declared ones. The interface of an
            export is not affected.
        exact: whether every bit counts; then an operator stays opaque if the registry expresses it
            by several operators, which libraries round differently from their own kernel.
        conditions: values of the conditions of Ifs that are known from elsewhere, such as folding,
            by the name of the value.
        folded: integers that are known from elsewhere in the same way, such as computed sizes.
        foreign: readers of operators of any domain that are only called in this import, by name.

    Raises:
        ModelError: the graph is malformed, an operand has a wrong element type, or ``shapes`` does
            not fit.
    """
    plain = with_functions_inlined(model)
    facts = SizeFacts()
    for _ in range(_ROUNDS):
        importer = _Importer(plain, exact, conditions=conditions, facts=facts, foreign=foreign)
        importer.folded = folded
        graph = importer.run(shapes or {})
        found = facts.merged(importer.new_facts(graph))
        if found == facts:
            break
        facts = found
    return graph


def import_bodies(node: Node, graph: Graph, *, exact: bool = False) -> dict[str, Graph]:
    """Return the bodies of an opaque node of a graph as graphs, by attribute.

    The model of each has the types of its inputs: first the body's own, then the values that it
    reads from outside. Constants around it are constants of it. A body that has no types is left
    out.
    """
    assert graph.model is not None
    importer = _Importer(graph.model, exact)
    importer.take(graph)
    types = [graph.types[name] if name else OtherType("absent") for name in node.inputs]
    return body_graphs(node.payload, types, importer.body, importer.opset)


def _attribute_value(attribute: onnx_ir.Attr) -> Any:
    value = attribute.value
    if attribute.type == onnx_ir.AttributeType.TENSOR:
        return value.numpy()
    return tuple(value) if isinstance(value, (list, tuple)) else value


class _Importer(BodyImporter):
    """The walk over the nodes of one model."""

    def __init__(
        self,
        model: onnx_ir.Model,
        exact: bool,
        known: Known | None = None,
        conditions: Mapping[str, bool] | None = None,
        facts: SizeFacts = NO_FACTS,
        foreign: Mapping[str, Reader] = NO_READERS,
    ) -> None:
        super().__init__(model, exact, facts)
        self._foreign = foreign
        self.conditions = conditions or {}
        self._known = known or Known({}, {})
        self._is_body = known is not None
        self._demands: dict[str, list[Equation]] = {}
        self._wants_facts = False
        self._units: frozenset[onnx_ir.Node] = frozenset()

    def run(self, shapes: Mapping[str, Sequence[int]]) -> Graph:
        graph = self.model.graph
        order = topological_nodes(graph)
        self._note_units(order)
        inputs = self._enter_interface(shapes)
        for name, value in graph.initializers.items():
            if name not in self.types:
                self._enter_initializer(name, value)
        for node in order:
            self._enter_node(node)
        outputs = tuple(v.name or "" for v in graph.outputs)
        for value in graph.outputs:
            self._check_output(value)
        result = Graph(
            inputs=inputs,
            outputs=outputs,
            nodes=tuple(self.nodes),
            constants=self.constants,
            types=self.types,
            parameters=frozenset(inputs).intersection(graph.initializers),
            model=self.model,
        )
        result.check()
        return result

    def _note_units(self, nodes: Sequence[onnx_ir.Node]) -> None:
        self._units |= quantised_units(nodes)

    def _import_body(self, model: onnx_ir.Model, known: Known) -> Graph:
        return _Importer(model, self.exact, known, facts=self.facts).run({})

    def new_facts(self, graph: Graph) -> SizeFacts:
        """Return further facts about sizes, if an operator could not be typed or sizes may not fit.

        The facts are the demands of such operators, if every run meets them, and that no tensor has
        a negative size. Operators whose results are not read do not count: runtimes do not run
        them.
        """
        if not self._wants_facts:
            return NO_FACTS
        read = set(graph.outputs)
        for node in reversed(graph.nodes):
            if not read.isdisjoint(node.outputs):
                read.update(node.inputs, node.captures)
        wanted = [
            equation
            for name, equations in self._demands.items()
            if name in read
            for equation in equations
        ]
        made = [
            (node.op, type_)
            for node in self.nodes
            if node.op != OPAQUE and node.output in read
            if (type_ := graph.tensor_type(node.output)) is not None
        ]
        known = lengths(type_ for _, type_ in made)
        known = known.merged(windows(type_ for op, type_ in made if op in _CONVOLUTIONS))
        return known.merged(facts_of(wanted, self._symbols, self.facts.merged(known)))

    def _enter_interface(self, shapes: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
        graph = self.model.graph
        is_free = self.model.ir_version >= FREE_INITIALIZERS
        fixed = set() if is_free else set(graph.initializers)
        inputs = []
        for value in graph.inputs:
            name = value.name or ""
            if name in fixed:
                continue
            if name in self.types:
                raise ModelError(f"graph input {name!r} is defined twice")
            inputs.append(name)
            type_ = self._known.types.get(name) or self._typer.declare(value)
            if name in self._known.values:
                self._values[name] = self._known.values[name]
            if name in shapes:
                type_ = _specialised(name, type_, shapes[name])
            self._define(name, type_)
            self._note_symbols(type_, self._symbols)
            self._note_values(name, self._is_body)
        for name in shapes:
            if name not in inputs:
                raise ModelError(
                    f"the model has no input {name!r}; its inputs are {', '.join(inputs) or 'none'}"
                )
        return tuple(inputs)

    def _enter_initializer(self, name: str, value: onnx_ir.Value) -> None:
        if value.const_value is None:
            raise ModelError(f"initializer {name!r} has no contents")
        constant = tensor_constant(value.const_value)
        if constant is not None:
            self._define_constant(name, constant)
            return
        payload = onnx_ir.Node(
            "",
            "Constant",
            [],
            [onnx_ir.AttrTensor("value", value.const_value)],
            outputs=[onnx_ir.Value(name=name, type=value.type, shape=value.shape)],
        )
        payload.meta[INITIALIZER] = True
        self._define(name, self._typer.declare(payload.outputs[0]))
        self.nodes.append(Node(OPAQUE, (), (name,), sources=(name,), payload=payload))

    def _enter_node(self, node: onnx_ir.Node) -> None:
        if node.domain == "" and (why := self._contradiction(node)):
            text = f"node {node.name!r} ({node.op_type}) can never run: {why}"
            raise NeverRuns(text, [value.name or "" for value in node.outputs])
        if node.op_type in self._foreign and self._read(node, self._foreign[node.op_type]):
            return
        is_function = node.op_identifier() in self.model.functions
        if node.domain == "" and self.opset >= FIRST_OPSET and not is_function:
            if node.op_type == "Constant" and self._enter_constant(node):
                return
            reader = READERS.get(node.op_type)
            if reader is not None and node in self._units:
                self._enter_opaque(node, self._read_types(node, reader))
                return
            # Some runtimes support more operators than the operator set has; those that
            # onnxruntime's tools write have the meaning of later operator sets.
            is_standard = is_known(node.op_type, self.opset, node.attributes.keys())
            is_defined = is_standard or node.op_type in IN_DEFAULT_DOMAIN
            if reader is not None and is_defined and self._read(node, reader):
                if self._has_joined or node.op_type in RECURRENT:
                    self._note_demands(node)
                return
            if self._enter_branch(node):
                return
            if reader is not None:
                self._note_demands(node)
        self._enter_opaque(self._without_invariants(node))

    def _note_demands(self, node: onnx_ir.Node) -> None:
        self._wants_facts = True
        names = ["" if value is None else value.name or "" for value in node.inputs]
        types, target = [self.types.get(name) for name in names], None
        if node.op_type in TOLD:
            try:
                target = self._second_operand(node, names)
            except (Untranslatable, IndexError):
                return
        tensors = [type_ if isinstance(type_, TensorType) else None for type_ in types]
        found = list(demands(node, tensors, target))
        if found:
            self._demands |= {one.name: found for one in node.outputs if one.name}

    def _second_operand(self, node: onnx_ir.Node, names: Sequence[str]) -> Sequence[Dim]:
        """Return the target shape of an operator, or its axes, an attribute in older opsets."""
        axes = node.attributes.get_ints("axes", ())
        return axes or self.dims(names[1])

    def _contradiction(self, node: onnx_ir.Node) -> str:
        names = ["" if value is None else value.name or "" for value in node.inputs]
        types = [self.types.get(name) for name in names]
        try:
            target = self.dims(names[1]) if node.op_type == "Reshape" else None
        except (Untranslatable, IndexError):
            target = None
        return contradiction(
            node.op_type,
            [type_ if isinstance(type_, TensorType) else None for type_ in types],
            {name: a.value for name, a in node.attributes.items() if not a.is_ref()},
            target,
        )

    def _enter_constant(self, node: onnx_ir.Node) -> bool:
        attribute = node.attributes.get("value")
        if attribute is None or attribute.is_ref() or attribute.value is None:
            return False
        constant = tensor_constant(attribute.value)
        if constant is not None:
            self._define_constant(node.outputs[0].name or "", constant)
        return constant is not None

    def _read(self, node: onnx_ir.Node, reader: Any) -> bool:
        call = self._call_of(node)
        mark = len(self.nodes)
        self._call, self._made, self._has_joined = call, [], False
        self._declared = {v.name or "": self._typer.declared(v) for v in node.outputs}
        try:
            reader(call, self)
        except (Untranslatable, IllTyped, KeyError, IndexError, ValueError, TypeError):
            # The last four are malformed nodes: running the model will show what is wrong with
            # them.
            self._forget(mark)
            return False
        return True

    def _forget(self, mark: int) -> None:
        """Undo the definitions of the last reader, from node number ``mark`` on."""
        del self.nodes[mark:]
        for name in self._made:
            for table in (self.types, self.constants, self._values, self._arrays):
                table.pop(name, None)

    def _read_types(self, node: onnx_ir.Node, reader: Any) -> list[ValueType] | None:
        """Return the types that a reader would give the results of a node that stays opaque.

        They are exact where onnx's own inference gives up: after symbolic dimensions.
        """
        mark = len(self.nodes)
        if not self._read(node, reader):
            return None
        types = [self.types.get(value.name or "") for value in node.outputs]
        self._forget(mark)
        known = [type_ for type_ in types if type_ is not None]
        return known if len(known) == len(types) else None

    def _enter_opaque(self, node: onnx_ir.Node, types: list[ValueType] | None = None) -> None:
        call = self._call_of(node) if node.op_type == "SplitToSequence" else None
        inputs = tuple("" if v is None else v.name or "" for v in node.inputs)
        outputs = tuple(v.name or "" for v in node.outputs)
        captures = tuple(captured_values(node))
        types = self._opaque_types(node, inputs, captures) if types is None else types
        if self._is_evaluated(node, inputs, outputs, captures, types=types):
            return
        for name, type_ in zip(outputs, types, strict=True):
            if name:
                self._define(name, type_)
                self._note_symbols(self.types[name], self._open_symbols)
        if call is not None:
            self._sequences[outputs[0]] = call
        self.nodes.append(
            Node(
                OPAQUE,
                inputs,
                outputs,
                name=node.name or "",
                sources=(node.name or outputs[0],) if outputs else (),
                captures=captures,
                payload=node,
            )
        )

    def _opaque_types(
        self, node: onnx_ir.Node, inputs: tuple[str, ...], captures: tuple[str, ...]
    ) -> list[ValueType]:
        known = None
        if node.domain == "" and node.op_type in ("Shape", "Size"):
            known = measured_values(node, self.types.get(inputs[0]))
        elif node.domain == "" and node.op_type in CHOOSING:
            known = self._chosen(node, inputs)
        if known is not None:
            self._values[node.outputs[0].name or ""] = known
            return [TensorType("int64", known.shape)]
        types = self._typer.infer(node, captures, self.types, self._small_array)
        operands = [self.types.get(name) for name in inputs]
        types = foreign_types(node, operands, types)
        if node.op_identifier() not in self.model.functions:
            opsets = self.model.graph.opset_imports
            types = runtime_types(node, operands, types, constant=self._small_array, opsets=opsets)
        if node.domain == "" and any(True for _ in inner_graphs(node)):
            return self._body_types(node, inputs, types)
        computed = computed_types(node, self.types, self)
        for place, (type_, value) in enumerate(zip(computed, node.outputs, strict=False)):
            shape = merge_dims(type_.shape, types[place], value.name or "")
            types[place] = TensorType(type_.dtype, shape)
        return types

    def _chosen(self, node: onnx_ir.Node, inputs: tuple[str, ...]) -> Array | None:
        """Return the elements that constants choose among sizes, ``None`` for other values."""
        name = inputs[CHOOSING[node.op_type]]
        values, type_ = self._values.get(name), self.types.get(name)
        if values is None or not isinstance(type_, TensorType) or type_.dtype != "int64":
            return None
        arrays = [values if one == name else self._small_array(one) for one in inputs]
        if any(one is None for one in arrays):
            return None
        return chosen_values(node, arrays, self.opset)

    def _is_evaluated(
        self,
        node: onnx_ir.Node,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        captures: tuple[str, ...],
        types: list[ValueType],
    ) -> bool:
        """Replace shape arithmetic that the registry does not know by its value, if it is known."""
        if len(outputs) == 1 and outputs[0] in self._values:
            values = self._values[outputs[0]]
            if any(isinstance(v, SymDim) for v in values.reshape(-1)):
                return False
            self._define_constant(outputs[0], array_constant(values.astype(np.int64)))
            return True
        if captures or not is_deterministic(node) or not inputs:
            return False
        if any(name and name not in self.constants for name in inputs):
            return False
        if not all(is_small_integer(t) for t in types):
            return False
        operands = [self._small_array(name) if name else None for name in inputs]
        if any(o is None and n for o, n in zip(operands, inputs, strict=True)):
            return False
        results = evaluate_opaque(node, operands, self.opset)
        if results is None:
            return False
        for name, array, type_ in zip(outputs, results, types, strict=True):
            if name and isinstance(type_, TensorType):
                self._define_constant(name, array_constant(array.astype(numpy_dtype(type_.dtype))))
        return True

    def _check_output(self, value: onnx_ir.Value) -> None:
        computed = self.types.get(value.name or "")
        declared = value.type
        if isinstance(computed, TensorType) and isinstance(declared, onnx_ir.TensorType):
            name = DTYPE_NAMES.get(declared.dtype.value)
            if name is not None and name != computed.dtype:
                raise ModelError(
                    f"graph output {value.name!r} is declared {name} but computes {computed.dtype}"
                )

    def _call_of(self, node: onnx_ir.Node) -> Call:
        """Return a node as readers see it, without trailing absent operands and unread results."""
        inputs = ["" if v is None else v.name or "" for v in node.inputs]
        while inputs and not inputs[-1]:
            inputs.pop()
        outputs = [v.name or "" for v in node.outputs]
        outputs = [
            name if i == 0 or name in self._read_names else "" for i, name in enumerate(outputs)
        ]
        while outputs and not outputs[-1]:
            outputs.pop()
        attrs = {name: _attribute_value(a) for name, a in node.attributes.items()}
        return Call(
            op_type=node.op_type,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            attrs=attrs,
            name=node.name or "",
            n_outputs=len(node.outputs),
        )


def _specialised(name: str, declared: ValueType, sizes: Sequence[int]) -> TensorType:
    if not isinstance(declared, TensorType) or declared.rank != len(sizes):
        raise ModelError(f"input {name!r} is {declared}; the shape {list(sizes)} does not fit")
    for dim, size in zip(declared.shape, sizes, strict=True):
        if isinstance(dim, int) and dim != size:
            raise ModelError(f"input {name!r} is {declared}; the shape {list(sizes)} does not fit")
    return TensorType(declared.dtype, tuple(int(s) for s in sizes))
