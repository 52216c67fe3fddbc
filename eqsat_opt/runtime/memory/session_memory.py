"""The memory of values in a session of onnxruntime, which takes an order of its own.

A default session does not run nodes in the order of the file. It goes back from the nodes that no
other node reads, and from each node to those that it reads, those that stand last in the file
first. So the order of the file decides on its order, and on its memory, in an indirect way. Memory
of a value that nothing reads any more is given to a later value of the same shape, and else kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from eqsat_opt.ir.graph.graph import Graph, Node
from eqsat_opt.runtime.memory.orders import (
    Lifetimes,
    bits_of,
    by_rank,
    bytes_of,
    climbed,
    in_order,
    least_peak,
    shares_memory,
)

__all__ = ["SessionMemory", "session_order"]


@dataclass(frozen=True, eq=False)
class SessionMemory:
    """A graph as the file of a default session, at fixed sizes.

    Attributes:
        graph: the graph; its nodes are in the order of the file.
        sizes: sizes of symbolic dimensions. Values of unknown size count nothing.
    """

    graph: Graph
    sizes: Mapping[str, int]

    def peak_bytes(self) -> int:
        """Return the most bytes of inputs and values that a run holds at once."""
        lives = Lifetimes.of(self.graph, self.sizes, keeps_inputs=True)
        return self._peak_bytes(session_order(lives, range(len(self.graph.nodes))))

    def lower_bound_bytes(self) -> int:
        """Return bytes that a run holds at once in any order of the nodes."""
        graph = self.graph
        given = sum(map(self._bytes, dict.fromkeys(graph.inputs)))
        made = dict.fromkeys(name for name in graph.outputs if name not in graph.inputs)
        own = max(map(self._working_set, graph.nodes), default=0)
        return given + max(own, sum(map(self._bytes, made)))

    def with_less(self) -> Graph:
        """Return the graph in an order of the file that leads to a lower peak, where one is found.

        Orders are tried that free memory early, and random changes of the best of them.
        """
        lives = Lifetimes.of(self.graph, self.sizes, keeps_inputs=True)
        own = tuple(range(len(self.graph.nodes)))
        freeing = least_peak(lives, [session_order(lives, own)], work=0).order
        # Wherever there is a choice, the node that stands last in the file runs first.
        last_first = by_rank(lives, {step: -float(n) for n, step in enumerate(freeing)})

        def peak(file: Sequence[int]) -> int:
            return self._peak_bytes(session_order(lives, file))

        begin = min((own, last_first), key=peak)
        file, lowest = climbed(lives, begin, peak, self.lower_bound_bytes())
        return in_order(self.graph, file) if lowest < peak(own) else self.graph

    def _bytes(self, name: str) -> int:
        is_constant = name in self.graph.constants
        return 0 if is_constant else bytes_of(self.graph, name, self.sizes)

    def _working_set(self, node: Node) -> int:
        given = {*self.graph.inputs, *self.graph.constants}
        read = {name: self._bytes(name) for name in node.inputs if name not in given}
        if shares_memory(node):
            return sum(read.values())
        made = sum(map(self._bytes, node.outputs))
        if _writes_on_operand(node) and self._bytes(node.output) in read.values():
            return sum(read.values())
        return sum(read.values()) + made

    def _peak_bytes(self, order: Sequence[int]) -> int:
        """Return the peak of an order of the nodes, by the rules of onnxruntime's planner."""
        nodes = [self.graph.nodes[number] for number in order]
        memory = _Memory(self.graph, self.sizes, nodes)
        for place, node in enumerate(nodes):
            memory.run(place, node)
        return sum(map(self._bytes, dict.fromkeys(self.graph.inputs))) + memory.peak_bytes()


_IN_PLACE = frozenset(
    {
        "Celu", "Clip", "Elu", "HardSigmoid", "LeakyRelu", "LogSoftmax", "Relu", "Selu", "Sigmoid",
        "Softmax", "Softplus", "Softsign", "Tanh", "ThresholdedRelu",
    }
)  # fmt: skip
"""Operators that write on an operand which nothing else reads.

Measured with onnxruntime 1.32, by the memory of sessions that run one of them.
"""


def _writes_on_operand(node: Node) -> bool:
    return node.op in _IN_PLACE or (node.payload is not None and node.payload.op_type in _IN_PLACE)


class _Memory:
    """Memory that is given to values while nodes run one after another."""

    def __init__(self, graph: Graph, sizes: Mapping[str, int], nodes: Sequence[Node]) -> None:
        self._graph = graph
        self._sizes = sizes
        self._kept = frozenset(graph.outputs)
        self._left: dict[str, int] = {}
        for node in nodes:
            for name in node.reads:
                self._left[name] = self._left.get(name, 0) + 1
        self._place_of: dict[str, int] = {}
        self._bytes: list[int] = []
        self._uses: list[int] = []
        self._begin: list[int] = []
        self._end: list[int] = []
        self._shapes: list[tuple[object, ...]] = []
        self._free: list[int] = []
        self._last = len(nodes)

    def run(self, place: int, node: Node) -> None:
        for name in node.outputs:
            number = self._found(node, name)
            if number is None and not self._is_given(node):
                number = self._new(name, place)
            if number is not None:
                self._place_of[name] = number
                self._uses[number] += max(1, self._left.get(name, 0))
        unread = [name for name in node.outputs if not self._left.get(name)]
        for name in (*node.reads, *unread):
            number = self._place_of.get(name)
            if number is None:
                continue
            self._uses[number] -= 1
            if self._end[number] < self._last:
                self._end[number] = place
                if not self._uses[number]:
                    self._free.insert(0, number)

    def peak_bytes(self) -> int:
        change = [0] * (self._last + 2)
        for size, begin, end in zip(self._bytes, self._begin, self._end, strict=True):
            change[begin] += size
            change[end + 1] -= size
        return max(accumulate(change), default=0)

    def _is_given(self, node: Node) -> bool:
        """Return whether a result lies in an input or a constant."""
        return shares_memory(node) and node.output not in self._kept

    def _new(self, name: str, place: int) -> int:
        self._bytes.append(bytes_of(self._graph, name, self._sizes))
        self._uses.append(0)
        self._shapes.append(self._shape(name))
        self._begin.append(place)
        self._end.append(self._last if name in self._kept else place)
        return len(self._bytes) - 1

    def _found(self, node: Node, name: str) -> int | None:
        """Return memory of an operand, or of a dead value of the same shape."""
        if name in self._kept:
            return None
        if shares_memory(node):
            return self._place_of.get(node.inputs[0])
        shape = self._shape(name)
        for operand in node.inputs if _writes_on_operand(node) else ():
            number = self._place_of.get(operand)
            if number is None or operand in self._kept:
                continue
            if self._uses[number] == 1 and self._shape(operand) == shape:
                return number
        found = next((one for one in self._free if self._shapes[one] == shape), None)
        if found is not None:
            self._free.remove(found)
        return found

    def _shape(self, name: str) -> tuple[object, ...]:
        type_ = self._graph.tensor_type(name)
        if type_ is None:
            return (name,)
        return (bytes_of(self._graph, name, self._sizes), *type_.shape)


def session_order(lives: Lifetimes, file: Sequence[int]) -> tuple[int, ...]:
    """Return the order in which a default session of onnxruntime runs the nodes of a file.

    Args:
        lives: the nodes and their values.
        file: numbers of the nodes in the order of the file.
    """
    place = {step: number for number, step in enumerate(file)}
    ends = [step for step in file if not lives.readers[step]]
    stack = [(step, False) for step in ends]
    seen: set[int] = set()
    order = []
    while stack:
        step, is_ready = stack.pop()
        if is_ready:
            order.append(step)
        elif step not in seen:
            seen.add(step)
            stack.append((step, True))
            read = sorted(bits_of(lives.before[step]), key=place.__getitem__)
            stack += [(one, False) for one in read if one not in seen]
    return tuple(order)
