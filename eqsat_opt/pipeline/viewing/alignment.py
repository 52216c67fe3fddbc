"""The alignment of two models: which node of one is which node of the other.

Nodes are compared by structure: operator, attributes and aligned operands, not names. First nodes
that compute the same from the same are aligned, then those whose results have one name, then
neighbours of aligned nodes, from the outputs upwards and from the inputs downwards, until nothing
is added. So a change aligns what is behind it, and every run gives the same.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import onnx_ir

from eqsat_opt.ir.onnx.files.content import update_digest
from eqsat_opt.ir.onnx.files.load import captured_values, topological_nodes

__all__ = ["Alignment", "Side", "align", "attribute_texts"]


class Side:
    """One of the two models, with its nodes in order and a digest of every constant.

    Attributes:
        inputs: names of the graph inputs without a constant of the same name.
        outputs: names of the graph outputs.
        nodes: all nodes but constants, in an order in which they can run.
        constants: digest of type and contents by value name.
        contents: the same for users: the elements of a small constant, the type of a larger one.
        values: every value by name.
    """

    def __init__(self, model: onnx_ir.Model) -> None:
        graph = model.graph
        self.constants: dict[str, str] = {}
        self.contents: dict[str, str] = {}
        for name, value in graph.initializers.items():
            if value.const_value is not None:
                self._note(name, value.const_value)
        self.nodes: list[onnx_ir.Node] = []
        self.values: dict[str, onnx_ir.Value] = {v.name or "": v for v in graph.inputs}
        self.values.update(graph.initializers)
        for node in topological_nodes(graph):
            self.values.update({value.name or "": value for value in node.outputs})
            tensor = _constant_of(node)
            if tensor is None:
                self.nodes.append(node)
            else:
                self._note(node.outputs[0].name or "", tensor)
        self.inputs = [v.name or "" for v in graph.inputs if v.name not in graph.initializers]
        self.outputs = [v.name or "" for v in graph.outputs]
        self.operands = [_operands(node) for node in self.nodes]
        self.results = [[value.name or "" for value in node.outputs] for node in self.nodes]
        self.kinds = [(node.domain, node.op_type) for node in self.nodes]
        self.producer = {
            name: number for number, names in enumerate(self.results) for name in names if name
        }

    def _note(self, name: str, tensor: Any) -> None:
        self.constants[name] = _digest(tensor)
        self.contents[name] = _contents(tensor)

    @cached_property
    def attributes(self) -> list[dict[str, str]]:
        """The attributes of each node as texts that are equal exactly if the attributes are."""
        return [attribute_texts(node) for node in self.nodes]

    @cached_property
    def consumers(self) -> dict[str, list[tuple[int, int]]]:
        """Value name to the nodes that read it, each with the place of the operand."""
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for number, names in enumerate(self.operands):
            for place, name in enumerate(names):
                found[name].append((number, place))
        return found

    @cached_property
    def keys(self) -> list[str]:
        """A key of each node: equal keys mean equal terms over inputs of one name and constants."""
        of_value = {name: f"input {name}" for name in self.inputs}
        of_value.update({name: f"constant {digest}" for name, digest in self.constants.items()})
        keys = []
        for number, names in enumerate(self.operands):
            own = (*self.kinds[number], str(sorted(self.attributes[number].items())))
            parts = (*own, *(of_value.get(name, name and "?") for name in names))
            key = hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
            keys.append(key)
            for place, name in enumerate(self.results[number]):
                of_value[name] = f"{key}.{place}"
        return keys


class Alignment:
    """Pairs of nodes of two models; each node is in one pair at most.

    Attributes:
        first, second: the models.
        pairs: number of a node of the first model to that of the second.
    """

    def __init__(self, first: Side, second: Side) -> None:
        self.first, self.second = first, second
        self.pairs: dict[int, int] = {}
        self._taken: set[int] = set()
        self._values: dict[str, str] = {}
        outer = {*first.inputs} & {*second.inputs}
        self._values.update({name: name for name in outer})

    def add(self, one: int, other: int) -> bool:
        """Align two nodes if both are free and have the same operator; return whether they do."""
        kinds = self.first.kinds[one], self.second.kinds[other]
        if one in self.pairs or other in self._taken or kinds[0] != kinds[1]:
            return False
        self.pairs[one] = other
        self._taken.add(other)
        for name, twin in zip(self.first.results[one], self.second.results[other], strict=False):
            if name and twin:
                self._values[name] = twin
        return True

    def is_free(self, number: int, *, second: bool = False) -> bool:
        """Return whether a node has no partner yet."""
        return number not in (self._taken if second else self.pairs)

    def twin(self, name: str) -> str | None:
        """Return the value of the second model that is aligned with a value of the first."""
        return self._values.get(name)

    def same_operand(self, name: str, other: str) -> bool:
        """Return whether two operands are aligned values, equal constants, or both absent."""
        if name in self.first.constants or other in self.second.constants:
            return self.first.constants.get(name) == self.second.constants.get(other)
        return name == other if not name or not other else self._values.get(name) == other


def align(first: Side, second: Side) -> Alignment:
    """Align the nodes of two models."""
    found = Alignment(first, second)
    _by_key(found, first.keys, second.keys)
    _by_key(found, _names(first), _names(second))
    is_more = True
    while is_more:
        is_more = _upwards(found) | _downwards(found)
    return found


def _by_key(found: Alignment, keys: Sequence[str], others: Sequence[str]) -> None:
    """Align free nodes of equal keys, in order."""
    places: dict[str, list[int]] = defaultdict(list)
    for number, key in enumerate(others):
        if key and found.is_free(number, second=True):
            places[key].append(number)
    for number, key in enumerate(keys):
        if found.is_free(number) and places[key]:
            found.add(number, places[key].pop(0))


def _names(side: Side) -> list[str]:
    """Return a key of operator and first result for each node."""
    return [
        f"{kind}\0{names[0]}" if names and names[0] else ""
        for kind, names in zip(side.kinds, side.results, strict=True)
    ]


def _upwards(found: Alignment) -> bool:
    """Align the producers of outputs, and of operands of aligned nodes; return whether any is."""
    first, second = found.first, found.second
    waiting = [*zip(first.outputs, second.outputs, strict=False)]
    for one in sorted(found.pairs):
        waiting += zip(first.operands[one], second.operands[found.pairs[one]], strict=False)
    is_more = False
    while waiting:
        name, other = waiting.pop()
        maker, twin = first.producer.get(name), second.producer.get(other)
        if maker is not None and twin is not None and found.add(maker, twin):
            waiting += zip(first.operands[maker], second.operands[twin], strict=False)
            is_more = True
    return is_more


def _downwards(found: Alignment) -> bool:
    """Align readers of aligned values at the same place; return whether any is aligned."""
    first, second = found.first, found.second
    is_more = False
    for number, names in enumerate(first.operands):
        if not found.is_free(number):
            continue
        votes: Counter[int] = Counter()
        for place, name in enumerate(names):
            for other, where in second.consumers.get(found.twin(name) or "", ()):
                is_alike = where == place and second.kinds[other] == first.kinds[number]
                if is_alike and found.is_free(other, second=True):
                    votes[other] += 1
        if votes:
            best = max(votes, key=lambda other: (votes[other], -other))
            is_more |= found.add(number, best)
    return is_more


def _operands(node: onnx_ir.Node) -> list[str]:
    """Return the names of operands, and of the values that bodies of the node read."""
    names = ["" if value is None else value.name or "" for value in node.inputs]
    return [*names, *captured_values(node)]


def attribute_texts(node: onnx_ir.Node) -> dict[str, str]:
    """Return the attributes as texts; a long one, such as a body, is a digest."""
    return {name: _attribute_text(one) for name, one in node.attributes.items()}


_LONGEST = 60
"""Characters of the longest attribute that is its own text."""


def _attribute_text(attribute: onnx_ir.Attr) -> str:
    if attribute.is_ref():
        return f"attribute {attribute.ref_attr_name}"
    if attribute.type == onnx_ir.AttributeType.TENSOR and attribute.value is not None:
        return f"tensor {_digest(attribute.value)[:12]}"
    text = str(attribute.value)
    is_plain = attribute.type not in (onnx_ir.AttributeType.GRAPH, onnx_ir.AttributeType.GRAPHS)
    if is_plain and len(text) <= _LONGEST:
        return text
    data = onnx_ir.to_proto(attribute).SerializeToString(deterministic=True)
    kind = "list" if is_plain else "body"
    return f"{kind} {hashlib.blake2b(data, digest_size=6).hexdigest()}"


def _constant_of(node: onnx_ir.Node) -> Any:
    """Return the tensor of a Constant, ``None`` for another node."""
    if node.domain or node.op_type != "Constant":
        return None
    value = node.attributes.get("value")
    return None if value is None or value.is_ref() else value.value


def _digest(tensor: Any) -> str:
    state = hashlib.blake2b(f"{tensor.dtype.name}{list(tensor.shape)}".encode(), digest_size=16)
    if tensor.dtype == onnx_ir.DataType.STRING:
        for text in tensor.string_data():
            state.update(len(text).to_bytes(8, "little") + text)
    else:
        update_digest(state, tensor)
    return state.hexdigest()


_SMALL = 4
"""Most elements of a constant that is described by these."""


def _contents(tensor: Any) -> str:
    dims = list(tensor.shape)
    type_ = f"{tensor.dtype.name.lower()}[{','.join(map(str, dims))}]"
    if math.prod(dims) > _SMALL or tensor.dtype == onnx_ir.DataType.STRING:
        return type_
    return f"{tensor.numpy().tolist()} of {type_}"


def free_nodes(found: Alignment, *, second: bool) -> Iterator[int]:
    """Yield the numbers of the nodes without a partner."""
    side = found.second if second else found.first
    return (n for n in range(len(side.nodes)) if found.is_free(n, second=second))
