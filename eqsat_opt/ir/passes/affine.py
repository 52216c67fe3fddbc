"""Folding of factors and addends per channel into the weights of the contraction before them.

Exporters write them as constant Mul, Div, Add and Sub.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_opt.ir.graph.graph import Constant, Graph, Node
from eqsat_opt.ir.graph.handles import (
    Expression,
    Splat,
    derived_constant,
    is_expensive,
    shaped,
    splat_constant,
    splat_value,
)
from eqsat_opt.ir.passes.nonfinite import spoils
from eqsat_opt.ir.values.types import FLOATS, StaticType, TensorType, numpy_dtype

__all__ = ["fold_affine"]

Array = npt.NDArray[Any]

_ARITHMETIC: dict[str, Callable[[Array, Array], Array]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide,
}  # fmt: skip
_FACTORS = ("Mul", "Div")


def fold_affine(graph: Graph) -> Graph:
    """Move constant Mul, Div, Add and Sub per channel into weights; return ``graph`` if none can.

    1. A factor after a convolution is moved into its weight and its bias.
    2. An addend after a convolution is moved into its bias, or becomes its bias.
    3. A factor after a product is moved into its weight.
    4. A factor after a product with an added bias is moved into both.
    5. An addend after a product with an added bias is moved into the bias.

    A contraction is changed only if it has no other reader, and a weight only if it has no other
    use.
    """
    draft = _Draft(graph)
    is_changed = False
    for node in graph.nodes:
        folded = _folded(node, draft)
        is_changed |= folded is not None
        draft.append(folded or node)
    return draft.graph() if is_changed else graph


class _Draft:
    """The graph in the making, in which a contraction may be replaced after it was appended."""

    def __init__(self, original: Graph) -> None:
        self.original = original
        self.constants = dict(original.constants)
        self.types = dict(original.types)
        self._nodes: list[Node | None] = []
        self._places: dict[str, int] = {}

    def append(self, node: Node) -> None:
        for name in node.outputs:
            self._places[name] = len(self._nodes)
        self._nodes.append(node)

    def replace(self, name: str, node: Node | None) -> None:
        """Replace the node that computes a value, or remove it."""
        self._nodes[self._places[name]] = node

    def define(self, base: str, constant: Constant) -> str:
        """Define a constant and return its name, which begins with ``base``."""
        name = f"{base}__{constant.digest[:8]}"
        while name in self.types and self.constants.get(name) != constant:
            name += "_"
        self.constants[name], self.types[name] = constant, constant.type
        return name

    def sole_producer(self, name: str) -> Node | None:
        """Return the node that computes a value with a single reader, else ``None``."""
        is_sole = self.original.uses[name] == 1 and name not in self.original.pinned
        return self._nodes[self._places[name]] if is_sole and name in self._places else None

    def may_change(self, weight: str) -> bool:
        """Return whether a value is a constant that nothing else needs as it is."""
        constant = self.constants.get(weight)
        if constant is None:
            return False
        return isinstance(constant.source, Splat) or self.original.uses[weight] <= 1

    def graph(self) -> Graph:
        nodes = tuple(node for node in self._nodes if node is not None)
        return self.original.with_nodes(nodes, constants=self.constants, types=self.types)


@dataclass(frozen=True)
class _Step:
    """A factor or an addend after a contraction.

    Attributes:
        node: the Mul, Div, Add or Sub.
        value: its operand that the contraction computes.
        constant: its constant operand.
        type: the type of the contraction and of the result.
    """

    node: Node
    value: str
    constant: Constant
    type: TensorType

    def joined(self, contraction: Node, inputs: tuple[str, ...]) -> Node:
        """Return the contraction with other operands, as the node that defines the result."""
        return replace(
            contraction,
            inputs=inputs,
            outputs=self.node.outputs,
            sources=_union(contraction.sources, self.node.sources),
        )


_Case = Callable[[Node, _Step, _Draft], Node | None]
"""A function that returns a contraction with a step in its weights, ``None`` if it cannot be."""


def _folded(node: Node, draft: _Draft) -> Node | None:
    """Return the contraction before a node with the constant of the node in its weights."""
    step = _step(node, draft)
    if step is None:
        return None
    contraction = draft.sole_producer(step.value)
    if contraction is None:
        return None
    case = _CASES.get((contraction.op, node.op in _FACTORS))
    axis = 1 if contraction.op in _CONVOLUTIONS else step.type.rank - 1
    if case is None or not _is_per_channel(step.constant.type, step.type, axis):
        return None
    result = case(contraction, step, draft)
    if result is not None:
        draft.replace(step.value, None)
    return result


def _step(node: Node, draft: _Draft) -> _Step | None:
    if node.op not in _ARITHMETIC:
        return None
    left, right = node.inputs
    if node.op in ("Add", "Mul") and left in draft.constants:
        left, right = right, left
    constant, type_ = draft.constants.get(right), draft.types[node.output]
    if constant is None or left in draft.constants or draft.types.get(left) != type_:
        return None
    if not isinstance(type_, TensorType) or type_.dtype not in FLOATS:
        return None
    return _Step(node, left, constant, type_)


# ** cases **


def _scaled_convolution(conv: Node, step: _Step, draft: _Draft) -> Node | None:
    x, weight, *bias = conv.inputs
    vector = _bias_type(conv, step, draft)
    if vector is None:
        return None
    old = draft.constants[weight]
    shape = _weight_shape(conv, old.type, step.constant.type.size)
    if shape is None:
        return None
    scaled = _combined(step.node.op, old.type, old, step.constant, shape=shape)
    others = [
        _combined(step.node.op, vector, draft.constants[name], step.constant, shape=(-1,))
        for name in bias
    ]
    if scaled is None or None in others:
        return None
    weight = draft.define(weight, scaled)
    pairs = zip(bias, others, strict=True)
    return step.joined(
        conv, (x, weight, *(draft.define(name, one) for name, one in pairs if one is not None))
    )


def _shifted_convolution(conv: Node, step: _Step, draft: _Draft) -> Node | None:
    x, weight, *bias = conv.inputs
    vector = _bias_type(conv, step, draft)
    if vector is None:
        return None
    if bias:
        name, old = bias[0], draft.constants[bias[0]]
    else:
        name = f"{conv.output}__bias"
        old = splat_constant(np.zeros((), numpy_dtype(vector.dtype)), vector.shape)
    shifted = _combined(step.node.op, vector, old, step.constant, shape=(-1,))
    return None if shifted is None else step.joined(conv, (x, weight, draft.define(name, shifted)))


def _bias_type(conv: Node, step: _Step, draft: _Draft) -> StaticType | None:
    """Return the type of a bias; ``None`` if weight or bias cannot change or have no known size."""
    _, weight, *bias = conv.inputs
    channels = step.type.shape[1]
    if not draft.may_change(weight) or any(name not in draft.constants for name in bias):
        return None
    return StaticType(step.type.dtype, (channels,)) if isinstance(channels, int) else None


def _scaled_product(product: Node, step: _Step, draft: _Draft) -> Node | None:
    x, weight = product.inputs
    if x in draft.constants or not draft.may_change(weight):
        return None
    old = draft.constants[weight]
    if old.type.rank < 2:
        return None
    scaled = _combined(step.node.op, old.type, old, step.constant, shape=(-1,))
    return None if scaled is None else step.joined(product, (x, draft.define(weight, scaled)))


def _biased_product(biased: Node, step: _Step, draft: _Draft) -> Node | None:
    """Fold ``c`` into (x·w + b) ∘ c, for a product whose bias is added by a separate node."""
    value, bias = biased.inputs
    if value in draft.constants:
        value, bias = bias, value
    product = draft.sole_producer(value)
    if product is None or product.op != "MatMul" or bias not in draft.constants:
        return None
    old, columns = draft.constants[bias], step.type.shape[-1]
    if not _is_per_channel(old.type, step.type, step.type.rank - 1) or not isinstance(columns, int):
        return None
    vector = StaticType(step.type.dtype, (columns,))
    combined = _combined(step.node.op, vector, _flat(old, vector), step.constant, shape=(-1,))
    if combined is None:
        return None
    if step.node.op in _FACTORS:
        scaled = _scaled_product(product, step, draft)
        if scaled is None:
            return None
        draft.replace(value, replace(scaled, outputs=product.outputs))
    return step.joined(biased, (value, draft.define(bias, combined)))


_CONVOLUTIONS = ("Conv", "ConvTranspose")

_CASES: Mapping[tuple[str, bool], _Case] = {
    ("Conv", True): _scaled_convolution,
    ("Conv", False): _shifted_convolution,
    ("ConvTranspose", True): _scaled_convolution,
    ("ConvTranspose", False): _shifted_convolution,
    ("MatMul", True): _scaled_product,
    ("Add", True): _biased_product,
    ("Add", False): _biased_product,
}
"""The cases, by the operator before a step and whether the step is a factor."""


# ** constants **


def _combined(
    op: str, type_: StaticType, left: Constant, right: Constant, shape: tuple[int, ...]
) -> Constant | None:
    """Return ``left op right`` with ``right`` reshaped to ``shape``, computed in float64.

    It is ``None`` if an operand has infinities or NaN or is expensive to compute, or if the result
    leaves the ordinary range.
    """
    function, dtype = _ARITHMETIC[op], numpy_dtype(type_.dtype)

    def result_of(a: Array, b: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(np.asarray(a, np.float64), np.asarray(b, np.float64)))

    def is_refused(a: Array, b: Array) -> bool:
        with np.errstate(all="ignore"):
            result = result_of(a, b).astype(dtype)
        finite = all(np.all(np.isfinite(v)) for v in (a, b, result))
        return not finite or spoils(op, {}, (a, b), result)

    if is_expensive(left, right):
        return None
    a, b = splat_value(left, 1), splat_value(right, 1)
    if a is not None and b is not None:
        if is_refused(a, b):
            return None
        return splat_constant(result_of(a, b).astype(dtype), type_.shape)

    def compute() -> Array:
        return np.broadcast_to(
            result_of(left.load(), np.asarray(right.load()).reshape(shape)), type_.shape
        )

    if is_refused(np.asarray(left.load()), np.asarray(right.load()).reshape(shape)):
        return None
    source = Expression(op, (), (left, shaped(right, shape)))
    return derived_constant(
        type_, compute, (op, str(shape), left.digest, right.digest), source=source
    )


def _flat(constant: Constant, type_: StaticType) -> Constant:
    """Return a bias of any rank as a vector."""
    if constant.type == type_:
        return constant
    is_whole = constant.type.size == type_.size
    return derived_constant(
        type_,
        lambda: np.broadcast_to(np.asarray(constant.load()).reshape(-1), type_.shape),
        ("flat", constant.digest),
        flops=constant.flops,
        # A scalar is broadcast, which no operator on constants expresses.
        source=shaped(constant, type_.shape).source if is_whole else None,
    )


def _union(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def _is_per_channel(constant: StaticType, type_: TensorType, axis: int) -> bool:
    if constant.dtype != type_.dtype or constant.rank > type_.rank:
        return False
    padded = (1,) * (type_.rank - constant.rank) + constant.shape
    return all(d == 1 or (i == axis and d == type_.shape[i]) for i, d in enumerate(padded))


def _weight_shape(conv: Node, weight: StaticType, size: int) -> tuple[int, ...] | None:
    """Return the shape in which a factor per output channel broadcasts against the weights."""
    ones = (1,) * (weight.rank - 2)
    if conv.op == "Conv":
        return (-1, 1, *ones)
    # Transposed weights are [C_in, C_out / group, ...]: with groups a factor varies along two axes.
    return (1, -1, *ones) if conv.attr("group") == 1 or size == 1 else None
