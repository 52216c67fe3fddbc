"""Folding of scales and shifts per channel into the weights of the contraction before them.

Batch normalisation at inference is such a scale and shift; so are the constant Mul and Add that
exporters write.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_opt.ir.graph.graph import Constant, Graph, Node
from eqsat_opt.ir.graph.handles import (
    Expression,
    Splat,
    array_constant,
    derived_constant,
    is_dear,
    reshaped,
    splat_constant,
    splat_value,
)
from eqsat_opt.ir.passes.nonfinite import spoils
from eqsat_opt.ir.values.types import FLOATS, StaticType, TensorType, numpy_dtype

__all__ = ["fold_affine", "lower_batch_normalisation"]

Array = npt.NDArray[Any]

_ARITHMETIC: dict[str, Callable[[Array, Array], Array]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide,
}  # fmt: skip


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

    if is_dear(left, right):
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
    source = Expression(op, (), (left, _shaped(right, shape)))
    return derived_constant(
        type_, compute, (op, str(shape), left.digest, right.digest), source=source
    )


def _shaped(constant: Constant, shape: tuple[int, ...]) -> Constant:
    """Return a constant with the same elements in another shape; one size may be -1."""
    size = constant.type.size
    rest = -math.prod(shape)
    shape = tuple(size // max(rest, 1) if extent < 0 else extent for extent in shape)
    if constant.type.shape == shape:
        return constant
    type_ = StaticType(constant.type.dtype, shape)
    return reshaped(constant, type_, f"{constant.digest}:{shape}")


def lower_batch_normalisation(graph: Graph) -> Graph:
    """Replace batch normalisations that can be folded by Mul and Add; return ``graph`` if none can.

    A batch normalisation that does not follow a contraction stays whole: runtimes run it in one
    pass, and Mul and Add in two.
    """
    nodes: list[Node] = []
    lowered = False
    constants, types = dict(graph.constants), dict(graph.types)
    for node in graph.nodes:
        is_constant = all(p in constants for p in node.inputs[1:])
        if (
            node.op != "BatchNormalization"
            or not is_constant
            or not _follows_weights(graph, node.inputs[0])
        ):
            nodes.append(node)
            continue
        x, (gamma, beta, mean, variance) = node.inputs[0], (constants[p] for p in node.inputs[1:])
        type_ = graph.tensor_type(x)
        assert type_ is not None
        channels = gamma.type.shape[0]
        parameter = StaticType(type_.dtype, (channels, *(1,) * (type_.rank - 2)))
        parts = _scale_and_shift(
            parameter, node.attr("epsilon"), gamma, beta, mean=mean, variance=variance
        )
        if parts is None:
            nodes.append(node)
            continue
        names = [f"{node.output}__{part}" for part in ("scale", "shift", "scaled")]
        while any(n in types for n in names):
            names = [f"{n}_" for n in names]
        for name, constant in zip(names, parts, strict=False):
            constants[name], types[name] = constant, constant.type
        types[names[2]] = types[node.output]
        lowered = True
        nodes.append(Node("Mul", (x, names[0]), (names[2],), sources=node.sources))
        nodes.append(Node("Add", (names[2], names[1]), (node.output,), sources=node.sources))
    if not lowered:
        return graph
    return graph.with_nodes(tuple(nodes), constants=constants, types=types)


def _follows_weights(graph: Graph, name: str) -> bool:
    """Return whether a value is the result of a contraction, biased or not, with one reader."""
    producer = graph.producers.get(name)
    if producer is None or graph.uses[name] != 1 or name in graph.pinned:
        return False
    if producer.op == "Add":
        return any(_follows_weights(graph, operand) for operand in producer.inputs)
    return producer.op in ("Conv", "ConvTranspose", "MatMul")


def _scale_and_shift(
    type_: StaticType,
    epsilon: float,
    gamma: Constant,
    beta: Constant,
    mean: Constant,
    variance: Constant,
) -> tuple[Constant, Constant] | None:
    """Return γ/√(σ²+ε) and β − µγ/√(σ²+ε); ``None`` if they are not ordinary numbers."""

    def scale_of(g: Array, v: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(g, np.float64) / np.sqrt(np.asarray(v, np.float64) + epsilon)

    def shift_of(g: Array, b: Array, m: Array, v: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(b, np.float64) - np.asarray(m, np.float64) * scale_of(g, v)

    parts = (gamma, beta, mean, variance)
    if is_dear(*parts):
        return None
    g, b, m, v = (np.asarray(p.load()) for p in parts)
    with np.errstate(all="ignore"):
        folded = [
            a.astype(numpy_dtype(type_.dtype)) for a in (scale_of(g, v), shift_of(g, b, m, v))
        ]
    if not all(np.all(np.isfinite(a)) for a in (g, b, m, v, *folded)):
        return None
    if spoils("Mul", {}, (g, np.ones_like(g)), folded[0]):
        return None
    digests = (str(epsilon), *(p.digest for p in parts))
    if all(isinstance(p.source, Splat) for p in parts):
        g, b, m, v = (p.source.value for p in parts)
        shape, dtype = type_.shape, numpy_dtype(type_.dtype)
        return (
            splat_constant(scale_of(g, v).astype(dtype), shape),
            splat_constant(shift_of(g, b, m, v).astype(dtype), shape),
        )
    scale_source, shift_source = _sources(gamma, beta, mean, variance, epsilon=epsilon)
    scale = derived_constant(
        type_,
        lambda: scale_of(gamma.load(), variance.load()),
        ("bn-scale", *digests),
        source=_shaped(scale_source, type_.shape).source,
    )
    shift = derived_constant(
        type_,
        lambda: shift_of(*(p.load() for p in parts)),
        ("bn-shift", *digests),
        source=_shaped(shift_source, type_.shape).source,
    )
    return scale, shift


def _sources(
    gamma: Constant, beta: Constant, mean: Constant, variance: Constant, *, epsilon: float
) -> tuple[Constant, Constant]:
    """Return scale and shift as vectors that are expressions of registry operators."""
    small = array_constant(np.asarray(epsilon, numpy_dtype(gamma.type.dtype)))
    deviation = _then("Sqrt", _then("Add", variance, small))
    scale = _then("Div", gamma, deviation)
    return scale, _then("Sub", beta, _then("Mul", mean, scale))


def _then(op: str, *operands: Constant) -> Constant:
    """Return an operator on constants, with the type of the first; only its expression is used."""
    return derived_constant(
        operands[0].type,
        _unread,
        (op, *(one.digest for one in operands)),
        source=Expression(op, (), operands),
    )


def _unread() -> Array:
    raise AssertionError("only its expression is read")


def fold_affine(graph: Graph) -> Graph:
    """Move constant Mul, Div, Add and Sub per channel into weights; return ``graph`` if none can.

    A product is changed only if it has no other reader, and weights only if they have no other use.
    """
    return _Folder(graph).run()


class _Folder:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.constants = dict(graph.constants)
        self.types = dict(graph.types)
        self.nodes: list[Node | None] = []
        self.index: dict[str, int] = {}
        self.changed = False

    def run(self) -> Graph:
        for node in self.graph.nodes:
            new = self._folded(node) or node
            self.changed |= new is not node
            for name in new.outputs:
                self.index[name] = len(self.nodes)
            self.nodes.append(new)
        if not self.changed:
            return self.graph
        nodes = tuple(n for n in self.nodes if n is not None)
        return self.graph.with_nodes(nodes, constants=self.constants, types=self.types)

    def _constant(self, base: str, constant: Constant) -> str:
        name = f"{base}__{constant.digest[:8]}"
        while name in self.types and self.constants.get(name) != constant:
            name += "_"
        self.constants[name], self.types[name] = constant, constant.type
        return name

    def _sole_producer(self, name: str) -> Node | None:
        """Return the node that computes a value with a single reader, else ``None``."""
        if self.graph.uses[name] != 1 or name in self.graph.pinned or name not in self.index:
            return None
        return self.nodes[self.index[name]]

    def _folded(self, node: Node) -> Node | None:
        if node.op not in _ARITHMETIC:
            return None
        left, right = node.inputs
        if node.op in ("Add", "Mul") and left in self.constants:
            left, right = right, left
        constant = self.constants.get(right)
        type_ = self.types[node.output]
        if constant is None or left in self.constants or self.types.get(left) != type_:
            return None
        if not isinstance(type_, TensorType) or type_.dtype not in FLOATS:
            return None
        producer = self._sole_producer(left)
        if producer is None:
            return None
        result = self._into(producer, node, constant, type_)
        if result is not None:
            self.nodes[self.index[left]] = None
        return result

    def _into(
        self, producer: Node, node: Node, constant: Constant, type_: TensorType
    ) -> Node | None:
        """Return ``producer`` with the constant of ``node`` in its weights, defining its output."""
        if producer.op in ("Conv", "ConvTranspose") and _is_per_channel(constant.type, type_, 1):
            return self._into_convolution(producer, node, constant, type_)
        if not _is_per_channel(constant.type, type_, type_.rank - 1):
            return None
        if producer.op == "MatMul" and node.op in ("Mul", "Div"):
            return self._into_product(
                producer, node.op, constant, node.output, sources=node.sources
            )
        if producer.op == "Add":
            return self._into_biased_product(producer, node, constant, type_)
        return None

    def _may_change(self, weight: str) -> bool:
        constant = self.constants.get(weight)
        if constant is None:
            return False
        return isinstance(constant.source, Splat) or self.graph.uses[weight] <= 1

    def _into_convolution(
        self, conv: Node, node: Node, constant: Constant, type_: TensorType
    ) -> Node | None:
        x, weight, *bias = conv.inputs
        if not self._may_change(weight) or any(b not in self.constants for b in bias):
            return None
        channels = type_.shape[1]
        if not isinstance(channels, int):
            return None
        vector = StaticType(type_.dtype, (channels,))
        flat = (-1,)
        if node.op in ("Mul", "Div"):
            shape = _weight_shape(conv, self.constants[weight].type, constant.type.size)
            if shape is None:
                return None
            old = self.constants[weight]
            scaled = _combined(node.op, old.type, old, constant, shape=shape)
            others = [
                _combined(node.op, vector, self.constants[b], constant, shape=flat) for b in bias
            ]
            if scaled is None or None in others:
                return None
            weight = self._constant(weight, scaled)
            bias = [
                self._constant(b, c) for b, c in zip(bias, others, strict=True) if c is not None
            ]
        else:
            old = (
                self.constants[bias[0]]
                if bias
                else splat_constant(np.zeros((), numpy_dtype(type_.dtype)), (channels,))
            )
            name = bias[0] if bias else f"{conv.output}__bias"
            shifted = _combined(node.op, vector, old, constant, shape=flat)
            if shifted is None:
                return None
            bias = [self._constant(name, shifted)]
        return replace(
            conv,
            inputs=(x, weight, *bias),
            outputs=node.outputs,
            sources=_union(conv.sources, node.sources),
        )

    def _into_product(
        self, product: Node, op: str, constant: Constant, output: str, sources: tuple[str, ...]
    ) -> Node | None:
        x, weight = product.inputs
        if (
            x in self.constants
            or not self._may_change(weight)
            or self.constants[weight].type.rank < 2
        ):
            return None
        scaled = _combined(
            op, self.constants[weight].type, self.constants[weight], constant, shape=(-1,)
        )
        if scaled is None:
            return None
        return replace(
            product,
            inputs=(x, self._constant(weight, scaled)),
            outputs=(output,),
            sources=_union(product.sources, sources),
        )

    def _into_biased_product(
        self, biased: Node, node: Node, constant: Constant, type_: TensorType
    ) -> Node | None:
        """Fold ``c`` into (x·w + b) ∘ c, for a product whose bias is added by a separate node."""
        value, bias = biased.inputs
        if value in self.constants:
            value, bias = bias, value
        product = self._sole_producer(value)
        if product is None or product.op != "MatMul" or bias not in self.constants:
            return None
        old = self.constants[bias]
        columns = type_.shape[-1]
        if not _is_per_channel(old.type, type_, type_.rank - 1) or not isinstance(columns, int):
            return None
        vector = StaticType(type_.dtype, (columns,))
        combined = _combined(node.op, vector, _flat(old, vector), constant, shape=(-1,))
        if combined is None:
            return None
        if node.op in ("Mul", "Div"):
            scaled = self._into_product(product, node.op, constant, value, sources=node.sources)
            if scaled is None:
                return None
            self.nodes[self.index[value]] = scaled
        name = self._constant(bias, combined)
        return replace(
            biased,
            inputs=(value, name),
            outputs=node.outputs,
            sources=_union(biased.sources, node.sources),
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
        source=_shaped(constant, type_.shape).source if is_whole else None,
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
