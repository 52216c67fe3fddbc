"""The part of the importer that enters the bodies of If, Loop and Scan.

An If whose condition is known, or whose branches compute the same, is not an operator: the nodes of
the branch are entered in its place, where everything known of shapes applies to them too. A node
that stays is typed by importing its bodies as models of their own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import onnx_ir

from eqsat_opt.errors import ModelError
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.onnx.bodies.invariants import without_invariants
from eqsat_opt.ir.onnx.bodies.models import body_model, defined_names, detached
from eqsat_opt.ir.onnx.bodies.types import (
    Typed,
    atoms_of,
    joined_type,
    loop_body,
    loop_types,
    scan_body,
    scan_types,
    widened,
)
from eqsat_opt.ir.onnx.equal_graphs import output_keys
from eqsat_opt.ir.onnx.files.load import captured_values, in_order
from eqsat_opt.ir.onnx.import_context import Array, ImportContext
from eqsat_opt.ir.onnx.mapping import Call, Untranslatable
from eqsat_opt.ir.values.dims import Dim
from eqsat_opt.ir.values.types import TensorType, ValueType

__all__ = ["BRANCHES", "BodyImporter", "Known", "body_graphs", "is_if"]

BRANCHES = ("then_branch", "else_branch")

_SCAN_OPSET = 9
"""First operator set in which a Scan has no batch axis."""


class Known:
    """Facts about the inputs of a body in addition to its declarations.

    Attributes:
        types: types by name.
        values: integers whose elements may be symbolic dimensions, by name.
    """

    def __init__(self, types: Mapping[str, ValueType], values: Mapping[str, Array]) -> None:
        self.types = types
        self.values = values


class BodyImporter(ImportContext):
    """An importer of nodes that have bodies.

    Attributes:
        conditions: values of the conditions of Ifs that are known from elsewhere, by name.
    """

    conditions: Mapping[str, bool]

    @abstractmethod
    def _enter_node(self, node: onnx_ir.Node) -> None: ...

    @abstractmethod
    def _enter_initializer(self, name: str, value: onnx_ir.Value) -> None: ...

    @abstractmethod
    def _call_of(self, node: onnx_ir.Node) -> Call: ...

    @abstractmethod
    def _note_units(self, nodes: Sequence[onnx_ir.Node]) -> None: ...

    @abstractmethod
    def _import_body(self, model: onnx_ir.Model, known: Known) -> Graph: ...

    @cached_property
    def _definitions(self) -> Counter[str]:
        return defined_names(self.model)

    # ** branches that are entered **

    def _enter_branch(self, node: onnx_ir.Node) -> bool:
        """Enter the branch of an If in its place, if it is known which branch is taken."""
        if not is_if(node):
            return False
        taken = self._taken_branch(node)
        if taken is None:
            return False
        branch, _ = detached(node.attributes[taken].as_graph())
        if not in_order(branch) or len(branch.outputs) != len(node.outputs):
            return False
        for name, value in list(branch.initializers.items()):
            own = self._own_name(name)
            if own != name:  # renaming a value would rename its tensor, which others share
                other = onnx_ir.Value(name=own)
                value.replace_all_uses_with(other, replace_graph_outputs=True)
            self._enter_initializer(own, value)
        inner = list(branch)
        for one in inner:
            for value in one.outputs:
                if value.name:
                    value.const_value = None
                    value.name = self._own_name(value.name)
        self._note_units(inner)
        for one in inner:
            self._enter_node(one)
        self._call, self._made = self._call_of(node), []
        for result, value in zip(branch.outputs, node.outputs, strict=True):
            if value.name:
                self.alias(result.name or "", value.name)
        return True

    def _own_name(self, name: str) -> str:
        """Return a name for a value that leaves its body: its own, unless another value has it."""
        if self._definitions[name] < 2:
            return name
        index = 1
        while (own := f"{name}__b{index}") in self._names:
            index += 1
        self._names.add(own)
        if name in self._read_names:
            self._read_names.add(own)
        return own

    def _taken_branch(self, node: onnx_ir.Node) -> str | None:
        condition = self._condition(node)
        if condition is not None:
            return BRANCHES[0 if condition else 1]
        return BRANCHES[0] if self._has_equal_branches(node) else None

    def _condition(self, node: onnx_ir.Node) -> bool | None:
        name = node.inputs[0].name or "" if node.inputs[0] is not None else ""
        if name in self.conditions:
            return self.conditions[name]
        constant = self.constants.get(name)
        if constant is None or constant.type.dtype != "bool" or constant.type.size != 1:
            return None
        return bool(self.array(name).reshape(-1)[0])

    def _has_equal_branches(self, node: onnx_ir.Node) -> bool:
        keys = []
        for name in BRANCHES:
            graph = self.body(node.attributes[name].as_graph(), ())
            keys.append(None if graph is None else output_keys(self._normal_form(graph)))
        return keys[0] is not None and keys[0] == keys[1]

    def _normal_form(self, graph: Graph) -> Graph:
        from eqsat_opt.common.numerics import Numerics
        from eqsat_opt.ir.passes.normalise import normalise  # a circular import at the top

        numerics = Numerics.BITEXACT if self.exact else Numerics.REASSOCIATE
        return normalise(graph, numerics=numerics)

    def _without_invariants(self, node: onnx_ir.Node) -> onnx_ir.Node:
        """Remove the values that a loop carries unchanged; its results become aliases of them."""
        if node.domain != "" or node.op_type not in ("Loop", "Scan"):
            return node
        if node.op_type == "Scan" and self.opset < _SCAN_OPSET:
            return node
        made, pairs = without_invariants(node)
        self._call, self._made = self._call_of(node), []
        for value, result in pairs:
            self.alias(value, result)
        return made

    # ** types **

    def _body_types(
        self, node: onnx_ir.Node, inputs: tuple[str, ...], declared: Sequence[ValueType]
    ) -> list[ValueType]:
        """Return the output types of a node with bodies; unknown ones are those declared."""
        found = self._types_by_bodies(node, inputs)
        if found is None or len(found) != len(declared):
            return [*declared]
        return [
            type_ if isinstance(type_, TensorType) else other
            for type_, other in zip(found, declared, strict=True)
        ]

    def _types_by_bodies(
        self, node: onnx_ir.Node, inputs: tuple[str, ...]
    ) -> list[ValueType] | None:
        types = [self.types[name] for name in inputs if name]
        reads = (self.types[name] for name in captured_values(node) if name in self.types)
        known = atoms_of((*types, *reads))
        try:
            if is_if(node):
                return self._if_types(node, known)
            if node.op_type == "Loop":
                states = [self.types[name] for name in inputs[2:]]
                of_all = (types[0], types[0], *states)  # the first two are ignored
                return loop_types(node, of_all, self.body, known=known, trips=self._trips(inputs))
            if node.op_type == "Scan" and self.opset >= _SCAN_OPSET:
                return scan_types(node, types, self.body, known)
        except (KeyError, IndexError, ValueError, TypeError):
            return None  # a malformed node: running the model will show what is wrong with it
        return None

    def _if_types(self, node: onnx_ir.Node, known: frozenset[str]) -> list[ValueType] | None:
        graphs = [self.body(node.attributes[name].as_graph(), ()) for name in BRANCHES]
        first, second = graphs
        if first is None or second is None:
            return None
        types: list[ValueType] = []
        for value, *names in zip(node.outputs, first.outputs, second.outputs, strict=True):
            name = value.name or ""
            one, other = (
                joined_type(name, graph.types[inner], known)
                for graph, inner in zip((first, second), names, strict=True)
            )
            types.append(widened(name, one, other))
        return types

    def _trips(self, inputs: tuple[str, ...]) -> Dim | None:
        """Return the trip count of a Loop that only its condition may end; ``None`` if unknown."""
        try:
            if len(inputs) > 1 and inputs[1] and not self.array(inputs[1]).all():
                return None
            return self.dims(inputs[0])[0]
        except (Untranslatable, IndexError):
            return None

    def take(self, graph: Graph) -> None:
        """Take over the types and constants of a graph that is already imported."""
        self.types.update(graph.types)
        self.constants.update(graph.constants)

    @cached_property
    def _bodies(self) -> dict[Any, tuple[onnx_ir.Graph, Graph | None]]:
        return {}

    def body(self, graph: onnx_ir.Graph, types: Sequence[ValueType]) -> Graph | None:
        """Return a body as a typed graph, read once; ``None`` if it cannot be read by itself.

        Args:
            graph: the body.
            types: types of its inputs.
        """
        # Reading bodies in bodies twice at each level would take time exponential in the depth.
        key = (id(graph), tuple(types))
        if key not in self._bodies:
            self._bodies[key] = graph, self._read_body(graph, types)
        return self._bodies[key][1]

    def _read_body(self, graph: onnx_ir.Graph, types: Sequence[ValueType]) -> Graph | None:
        model = body_model(graph, self.model, self.constants)
        if model is None or len(types) != len(graph.inputs):
            return None
        names = [value.name or "" for value in model.graph.inputs]
        reads = names[len(types) :]
        if any(name not in self.types for name in reads):
            return None
        given = dict(zip(names, types, strict=False))
        given.update({name: self.types[name] for name in reads})
        values = {name: self._values[name] for name in reads if name in self._values}
        for value in model.graph.inputs:
            self._typer.describe(value, given[value.name or ""])
        try:
            return self._import_body(model, Known(given, values))
        except ModelError:
            return None


def body_graphs(
    node: onnx_ir.Node, types: Sequence[ValueType], typed: Typed, opset: int
) -> dict[str, Graph]:
    """Return the bodies of a node as graphs, by attribute, without those that cannot be read.

    Args:
        node: the node with bodies.
        types: types of its inputs.
        typed: imports a body.
        opset: the operator set of the default domain.
    """
    try:
        if is_if(node):
            graphs = {name: typed(node.attributes[name].as_graph(), ()) for name in BRANCHES}
            return {name: graph for name, graph in graphs.items() if graph is not None}
        if node.domain == "" and node.op_type == "Loop":
            loop = loop_body(node, types, typed)
            return {} if loop is None else {"body": loop[1]}
        if node.domain == "" and node.op_type == "Scan" and opset >= _SCAN_OPSET:
            scan = scan_body(node, types, typed)
            return {} if scan is None else {"body": scan[1]}
    except (KeyError, IndexError, ValueError, TypeError):
        return {}  # a malformed node: running the model will show what is wrong with it
    return {}


def is_if(node: onnx_ir.Node) -> bool:
    """Return whether a node is an If with two branches."""
    return (
        node.domain == ""
        and node.op_type == "If"
        and len(node.inputs) == 1
        and all(
            name in node.attributes and node.attributes[name].type == onnx_ir.AttributeType.GRAPH
            for name in BRANCHES
        )
    )
