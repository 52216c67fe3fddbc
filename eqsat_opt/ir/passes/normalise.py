"""Normalisation of a graph to the one form that rules, kernels and reports expect.

One forward pass removes operators without effect, evaluates constant expressions and merges equal
ones; a second folds scales and shifts per channel into the weights before them. Dead nodes are
removed after each. Interface and captured values keep their names throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.ir.graph.graph import OPAQUE, Constant, Graph, Node
from eqsat_opt.ir.graph.handles import (
    array_constant,
    held_bytes,
    is_dear,
    splat_constant,
    splat_value,
)
from eqsat_opt.ir.onnx.folding import evaluate_opaque, fold, is_deterministic, is_exact
from eqsat_opt.ir.onnx.import_context import identity_node
from eqsat_opt.ir.onnx.quantised import may_fold
from eqsat_opt.ir.ops import IllTyped, get_op, with_trait
from eqsat_opt.ir.passes.affine import fold_affine
from eqsat_opt.ir.passes.batch_normalisation import lower_batch_normalisation
from eqsat_opt.ir.passes.infinite_products import with_fixed_infinities
from eqsat_opt.ir.values.types import StaticType, TensorType, ValueType, numpy_dtype

__all__ = ["FOLDED_BYTES", "normalise"]


FOLDED_BYTES = 4 << 20
"""Bytes up to which a folded constant is allowed; it may also be as large as its operands."""

_BROADCASTING = with_trait("broadcasting")


def normalise(graph: Graph, *, numerics: Numerics = Numerics.REASSOCIATE) -> Graph:
    """Return an equal graph in normal form.

    Args:
        graph: any graph; it is not changed.
        numerics: the class of allowed differences. ``bitexact`` folds only operations whose results
            IEEE 754 determines; ``reassociate`` folds all constants, and normalisation into
            weights; ``relaxed`` drops ``x + 0`` too, which changes the sign of zero.
    """
    graph = _Pass(graph, numerics).run()
    if numerics is not Numerics.BITEXACT:
        lowered = lower_batch_normalisation(graph)
        folded = fold_affine(lowered)
        if folded is not graph:
            graph = _Pass(folded, numerics).run()
    keeps_infinities = numerics in (Numerics.BITEXACT, Numerics.REASSOCIATE)
    return with_fixed_infinities(graph) if keeps_infinities else graph


def _without_dead(graph: Graph) -> Graph:
    nodes = tuple(graph.live_nodes())
    alive = {name for node in nodes for name in (*node.reads, *node.outputs)}
    alive.update(graph.inputs, graph.outputs)
    return graph.with_nodes(
        nodes,
        constants={k: v for k, v in graph.constants.items() if k in alive},
        types={k: v for k, v in graph.types.items() if k in alive},
    )


class _Pass:
    """One forward pass; a value is renamed to the value that it equals."""

    def __init__(self, graph: Graph, numerics: Numerics) -> None:
        self.graph = graph
        self.relaxed = numerics is Numerics.RELAXED
        self.exact_only = numerics is Numerics.BITEXACT
        self.opset = graph.model.graph.opset_imports.get("", 1) if graph.model is not None else 21
        self.nodes: list[Node | None] = []
        self.constants: dict[str, Constant] = dict(graph.constants)
        self.types: dict[str, ValueType] = dict(graph.types)
        self.renamed: dict[str, str] = {}
        self.seen: dict[object, str] = {}
        self.index: dict[str, int] = {}
        self.by_digest: dict[str, str] = {}
        self.expanded: dict[str, str] = {}

    def run(self) -> Graph:
        for name, constant in self.graph.constants.items():
            self._share_constant(name, constant)
        for node in self.graph.live_nodes():
            self._visit(node)
        # A pinned value may have taken over the definition of an earlier one, so names are final
        # only now.
        nodes = tuple(self._resolved(n) for n in self.nodes if n is not None)
        result = self.graph.with_nodes(nodes, constants=self.constants, types=self.types)
        return _without_dead(result)

    def _name(self, name: str) -> str:
        while name in self.renamed:
            name = self.renamed[name]
        return name

    def _resolved(self, node: Node) -> Node:
        if not any(n in self.renamed for n in (*node.inputs, *node.outputs)):
            return node
        inputs = tuple(self._name(n) for n in node.inputs)
        if (
            node.payload is not None
            and node.payload.op_type == "Identity"
            and not node.payload.domain
        ):
            return identity_node(inputs[0], node.output, node.sources)
        return replace(node, inputs=inputs, outputs=tuple(self._name(n) for n in node.outputs))

    def _share_constant(self, name: str, constant: Constant) -> bool:
        """Replace a constant by an equal earlier one; return whether it was replaced."""
        first = self.by_digest.setdefault(constant.digest, name)
        if first == name or name in self.graph.pinned:
            return False
        self.renamed[name] = first
        return True

    def _visit(self, node: Node) -> None:
        inputs = tuple(self._name(n) if n else n for n in node.inputs)
        if inputs != node.inputs:
            node = replace(node, inputs=inputs)
        if node.op == OPAQUE:
            self._visit_opaque(node)
            return
        node = self._without_expansions(node)
        if node.op == "Expand":
            self.expanded[node.output] = node.inputs[0]
        same = self._same_value(node)
        if same is not None:
            self._alias(node, same)
        elif not self._fold(node):
            self._share(node)

    # ** values that equal others **

    def _alias(self, node: Node, value: str) -> None:
        """Replace the output of ``node`` by ``value``, without losing a pinned name."""
        target, pinned = node.output, self.graph.pinned
        if target not in pinned:
            self.renamed[target] = value
        elif value in self.index and value not in pinned and value not in self.renamed:
            # The value has a producer and a name that nothing depends on: it gets the pinned name.
            self.renamed[value] = target
            self.index[target] = self.index.pop(value)
        else:
            self._append(identity_node(value, target, node.sources))

    def _append(self, node: Node) -> None:
        for name in node.outputs:
            if name:
                self.index[name] = len(self.nodes)
        self.nodes.append(node)

    def _define_constant(self, name: str, constant: Constant) -> None:
        self.constants[name] = constant
        self.types[name] = constant.type
        self._share_constant(name, constant)

    # ** opaque nodes **

    def _visit_opaque(self, node: Node) -> None:
        payload = node.payload
        standard = payload is not None and payload.domain == ""
        if standard and payload.op_type == "Identity":
            self._alias(node, node.inputs[0])
        elif not (standard and self._fold_opaque(node)):
            self._append(node)

    def _fold_opaque(self, node: Node) -> bool:
        if (
            self.exact_only
            or not is_deterministic(node.payload)
            or node.captures
            or not any(node.inputs)
        ):
            return False
        operands = [self.constants.get(name) for name in node.inputs]
        if any(c is None and name for c, name in zip(operands, node.inputs, strict=True)):
            return False
        if not may_fold(node.payload, [c.type.dtype for c in operands if c is not None]):
            return False
        results = [self.types.get(name) for name in node.outputs if name]
        given = [c for c in operands if c is not None]
        room = max(FOLDED_BYTES, held_bytes(given))
        if (
            is_dear(*given)
            or any(c.type.bytes > room for c in given)
            or not all(_may_hold(t, room) for t in results)
        ):
            return False
        arrays = evaluate_opaque(
            node.payload, [None if c is None else c.load() for c in operands], self.opset
        )
        if arrays is None:
            return False
        for name, array in zip(node.outputs, arrays, strict=True):
            type_ = self.types.get(name)
            if name and (not isinstance(type_, TensorType) or array.shape != type_.shape):
                return False
        for name, array in zip(node.outputs, arrays, strict=True):
            type_ = self.types.get(name)
            if name and isinstance(type_, TensorType):
                self._define_constant(name, array_constant(array.astype(numpy_dtype(type_.dtype))))
        return True

    # ** registry nodes **

    def _operand_types(self, node: Node) -> list[TensorType]:
        return [t for t in (self.types.get(n) for n in node.inputs) if isinstance(t, TensorType)]

    def _without_expansions(self, node: Node) -> Node:
        """Replace f(expand(x), y) by f(x, y) where broadcasting gives the same shape."""
        if node.op not in _BROADCASTING:
            return node
        for position, name in enumerate(node.inputs):
            if name not in self.expanded:
                continue
            source = self._name(self.expanded[name])
            inputs = (*node.inputs[:position], source, *node.inputs[position + 1 :])
            candidate = replace(node, inputs=inputs)
            try:
                type_ = get_op(node.op).type_fn(self._operand_types(candidate), dict(node.attrs))
            except IllTyped:
                continue
            if type_ == self.types[node.output]:
                node = candidate
        return node

    def _same_value(self, node: Node) -> str | None:
        """Return the operand that the result equals, ``None`` if there is none."""
        type_ = self.types[node.output]
        identity = _IDENTITIES.get(node.op)
        if (
            identity is not None
            and node.inputs
            and self.types.get(node.inputs[0]) == type_
            and identity(node)
        ):
            return node.inputs[0]
        for position, neutral in get_op(node.op).neutral.items():
            other = node.inputs[1 - position]
            constant = self.constants.get(node.inputs[position])
            if constant is None or self.types.get(other) != type_:
                continue
            value = splat_value(constant)
            if value is not None and bool(value == neutral):
                is_zero = not neutral and value.dtype.kind not in "iub"
                if self.relaxed or not is_zero or np.signbit(float(value)) == np.signbit(neutral):
                    return other
        if node.op == "Where":
            return self._chosen_branch(node)
        return None

    def _chosen_branch(self, node: Node) -> str | None:
        constant = self.constants.get(node.inputs[0])
        value = splat_value(constant, 1 << 16) if constant is not None else None
        if value is None:
            return None
        branch = node.inputs[1 if value else 2]
        return branch if self.types.get(branch) == self.types[node.output] else None

    def _fold(self, node: Node) -> bool:
        operands = [self.constants.get(name) for name in node.inputs]
        type_ = self.types[node.output]
        if not isinstance(type_, StaticType) or type_.dtype == "string":
            return False
        if node.op == "Where" and operands[0] is not None and self._fold_where(node, type_):
            return True
        constants = [c for c in operands if c is not None]
        if len(constants) != len(operands) or (self.exact_only and not is_exact(node.op)):
            return False
        constant = fold(node, constants, type_, FOLDED_BYTES)
        if constant is None:
            return False
        self._define_constant(node.output, constant)
        return True

    def _fold_where(self, node: Node, type_: StaticType) -> bool:
        """Replace a Where by a constant branch, expanded, if condition and branch are uniform."""
        value = splat_value(self.constants[node.inputs[0]], 1 << 16)
        if value is None:
            return False
        branch = self.constants.get(node.inputs[1 if value else 2])
        scalar = splat_value(branch) if branch is not None else None
        if scalar is None:
            return False
        self._define_constant(node.output, splat_constant(scalar, type_.shape))
        return True

    def _share(self, node: Node) -> None:
        """Merge common subexpressions.

        Registry operators are deterministic, so nodes with equal operands and attributes are equal.
        """
        inputs = tuple(sorted(node.inputs)) if get_op(node.op).commutative else node.inputs
        first = self.seen.setdefault((node.op, inputs, node.attrs), node.output)
        if first == node.output:
            self._append(node)
        else:
            self._alias(node, self._name(first))


def _may_hold(type_: ValueType | None, room_bytes: int) -> bool:
    if not isinstance(type_, StaticType) or type_.dtype == "string":
        return False
    return type_.bytes <= room_bytes


_IDENTITIES: Mapping[str, Callable[[Node], bool]] = {
    "Cast": lambda _node: True,
    "Concat": lambda node: len(node.inputs) == 1,
    "Expand": lambda _node: True,
    "Pad": lambda node: not any(node.attr("pads")),
    "Reshape": lambda _node: True,
    "Slice": lambda _node: True,
    "Transpose": lambda node: node.attr("perm") == tuple(range(len(node.attr("perm")))),
    "Clip": lambda node: node.attr("min") == -np.inf and node.attr("max") == np.inf,
}
"""Conditions under which a node whose result has the type of its first operand equals it."""
