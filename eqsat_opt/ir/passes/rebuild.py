"""The only writer of graphs that replace another graph: the same interface, with other nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from eqsat_opt.ir.graph.graph import Constant, Graph, Node
from eqsat_opt.ir.onnx.files.load import inner_names
from eqsat_opt.ir.onnx.import_context import identity_node
from eqsat_opt.ir.values.types import ValueType

__all__ = ["GraphWriter"]


class GraphWriter:
    """A collector of the nodes of a new graph, operands first.

    Args:
        original: the graph whose inputs, outputs and captured names the new one keeps.
        taken: more names that new values must not take.

    Attributes:
        types: value name to type, for all values written so far.
    """

    def __init__(self, original: Graph, taken: Iterable[str] = ()) -> None:
        self.original = original
        self.types: dict[str, ValueType] = {name: original.types[name] for name in original.inputs}
        opaque = (node.payload for node in original.nodes if node.payload is not None)
        self._taken = {*original.types, *taken}
        self._taken.update(*map(inner_names, opaque))
        self._numbers: dict[str, int] = {}
        self._constants: dict[str, Constant] = {}
        self._nodes: list[Node] = []
        self._kept: set[str] = set()

    @property
    def nodes(self) -> Sequence[Node]:
        """All nodes written so far."""
        return self._nodes

    def preferred(self, values: Mapping[str, int]) -> dict[int, str]:
        """Return the name that each value should keep: if it has several, a pinned one."""
        original, names = self.original, dict[int, str]()
        for name in sorted(values, key=lambda name: name not in original.pinned):
            if name in original.types and name not in original.constants:
                names.setdefault(values[name], name)
        return names

    def fresh(self, base: str) -> str:
        """Return an unused name: ``base``, with a number if needed."""
        name, number = base, self._numbers.get(base, 0)
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._numbers[base] = number  # counting from 0 would take quadratic time
        self._taken.add(name)
        return name

    def constant(self, name: str, handle: Constant) -> None:
        """Define a constant."""
        self._constants[name] = handle
        self.types[name] = handle.type

    def node(self, node: Node, *types: ValueType) -> None:
        """Append a node whose outputs have these types."""
        self._nodes.append(node)
        self.types.update(zip(node.outputs, types, strict=True))

    def opaque(self, node: Node, inputs: Iterable[str], captured: Sequence[str]) -> None:
        """Append an opaque node of the original.

        Args:
            node: the node.
            inputs: the present names of its operands.
            captured: the present names of the values that its subgraphs read.
        """
        for name, found in zip(filter(None, node.captures), captured, strict=True):
            # Two values of the model may have become one; subgraphs refer to both by name.
            if name != found and name not in self.types:
                self._name_again(name, found)
        operands = iter(inputs)
        self._nodes.append(
            replace(node, inputs=tuple(next(operands) if name else "" for name in node.inputs))
        )
        self.types.update((name, self.original.types[name]) for name in node.outputs if name)

    def _name_again(self, name: str, found: str) -> None:
        if name in self.original.constants:
            self.constant(name, self.original.constants[name])
        else:
            self.node(identity_node(found, name), self.original.types[name])
            self._kept.add(name)

    def graph(self, outputs: Sequence[str]) -> Graph:
        """Return the graph of all nodes that ``outputs`` need.

        Constants are in the order of the original, followed by new ones: rules use this order to
        distinguish operands that may be exchanged.

        Args:
            outputs: the present names of the original's outputs.
        """
        original = self.original
        kept = {*self._kept, *self._constants}  # no second value takes one of these names
        place = {name: number for number, name in enumerate(original.constants)}
        constants = sorted(self._constants, key=lambda name: place.get(name, len(place)))
        pairs = zip(original.outputs, outputs, strict=True)
        written = Graph(
            inputs=original.inputs,
            outputs=tuple(name if name in kept else found for name, found in pairs),
            nodes=tuple(self._nodes),
            constants={name: self._constants[name] for name in constants},
            types=self.types,
            parameters=original.parameters,
            model=original.model,
        )
        return written.with_nodes(tuple(written.live_nodes()))
