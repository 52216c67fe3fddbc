"""The graph that a simplification makes, node by node; a value takes the name of one it equals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eqsat_opt.ir.graph.graph import Constant, Graph, Node
from eqsat_opt.ir.onnx.equal_graphs import is_identity
from eqsat_opt.ir.onnx.import_context import identity_node
from eqsat_opt.ir.values.types import ValueType

__all__ = ["Draft"]


class Draft:
    """The nodes, constants and types so far.

    Equal constants are one from the start. Pinned names are kept here and nowhere else: a pinned
    value takes over the definition of the value that it equals, or becomes an Identity of it.

    Attributes:
        original: the graph that is simplified.
        constants: constants by name.
        types: types by name.
    """

    def __init__(self, original: Graph) -> None:
        self.original = original
        self.constants: dict[str, Constant] = dict(original.constants)
        self.types: dict[str, ValueType] = dict(original.types)
        self._nodes: list[Node] = []
        self._renamed: dict[str, str] = {}
        self._produced: set[str] = set()
        self._firsts: dict[object, str] = {}
        for name, constant in original.constants.items():
            self._share(name, constant)

    # ** reading **

    def name(self, name: str) -> str:
        """Return the present name of a value of the original."""
        while name in self._renamed:
            name = self._renamed[name]
        return name

    def present(self, node: Node) -> Node:
        """Return a node of the original with the present names of its operands."""
        if self._renamed.keys().isdisjoint(node.inputs):
            return node
        return replace(node, inputs=tuple(map(self.name, node.inputs)))

    def first(self, key: object, name: str) -> str:
        """Return the present name of the first value that came with a key, which may be this one.

        Args:
            key: a key that equal values have, such as the digest of a constant.
            name: the value that comes with the key now.
        """
        return self.name(self._firsts.setdefault(key, name))

    # ** writing **

    def append(self, node: Node) -> None:
        """Append a node."""
        self._produced.update(filter(None, node.outputs))
        self._nodes.append(node)

    def alias(self, node: Node, value: str) -> None:
        """Replace the only output of a node by a value that it equals."""
        target, pinned = node.output, self.original.pinned
        if target not in pinned:
            self._renamed[target] = value
        elif value in self._produced and value not in pinned and value not in self._renamed:
            # The value has a producer and a name that nothing depends on: it gets the pinned name.
            self._renamed[value] = target
            self._produced.remove(value)
            self._produced.add(target)
        else:
            self.append(identity_node(value, target, node.sources))

    def define(self, node: Node, constants: Sequence[Constant | None]) -> None:
        """Replace the outputs of a node by constants; an output without a name has none."""
        for name, constant in zip(node.outputs, constants, strict=True):
            if constant is not None:
                self.constants[name] = constant
                self.types[name] = constant.type
                self._share(name, constant)

    def graph(self) -> Graph:
        """Return the graph of what the outputs need."""
        # A pinned value may have taken over the definition of an earlier one, so names are final
        # only now.
        nodes = tuple(map(self._final, self._nodes))
        return _without_dead(
            self.original.with_nodes(nodes, constants=self.constants, types=self.types)
        )

    def _share(self, name: str, constant: Constant) -> None:
        first = self._firsts.setdefault(constant.digest, name)
        if first != name and name not in self.original.pinned:
            self._renamed[name] = first

    def _final(self, node: Node) -> Node:
        renamed = self._renamed.keys()
        if renamed.isdisjoint(node.inputs) and renamed.isdisjoint(node.outputs):
            return node
        inputs = tuple(map(self.name, node.inputs))
        if node.payload is not None and is_identity(node):
            return identity_node(inputs[0], node.output, node.sources)
        return replace(node, inputs=inputs, outputs=tuple(map(self.name, node.outputs)))


def _without_dead(graph: Graph) -> Graph:
    nodes = tuple(graph.live_nodes())
    alive = {name for node in nodes for name in (*node.reads, *node.outputs)}
    alive.update(graph.inputs, graph.outputs)
    return graph.with_nodes(
        nodes,
        constants={k: v for k, v in graph.constants.items() if k in alive},
        types={k: v for k, v in graph.types.items() if k in alive},
    )
