"""Batch normalisation after a contraction, as the factor and the addend that fold into it."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_opt.ir.graph.graph import Constant, Graph, Node
from eqsat_opt.ir.graph.handles import (
    Expression,
    Splat,
    array_constant,
    derived_constant,
    is_expensive,
    shaped,
    splat_constant,
)
from eqsat_opt.ir.passes.nonfinite import spoils
from eqsat_opt.ir.values.types import StaticType, numpy_dtype

__all__ = ["lower_batch_normalisation"]

Array = npt.NDArray[Any]


def lower_batch_normalisation(graph: Graph) -> Graph:
    """Replace batch normalisations of contractions by Mul and Add, which fold into the weights.

    1. One that follows a contraction, biased or not, becomes γ/√(σ²+ε) · x + β − µγ/√(σ²+ε).
    2. Any other stays whole: runtimes run it in one pass, and Mul and Add in two.

    The result is ``graph`` if there is nothing to replace.
    """
    nodes: list[Node] = []
    constants, types = dict(graph.constants), dict(graph.types)
    for node in graph.nodes:
        parts = _scale_and_shift(node, graph) if node.op == "BatchNormalization" else None
        if parts is None:
            nodes.append(node)
            continue
        scale, shift, scaled = names = _new_names(node.output, types)
        for name, constant in zip(names, parts, strict=False):
            constants[name], types[name] = constant, constant.type
        types[scaled] = types[node.output]
        nodes.append(Node("Mul", (node.inputs[0], scale), (scaled,), sources=node.sources))
        nodes.append(Node("Add", (scaled, shift), (node.output,), sources=node.sources))
    if len(nodes) == len(graph.nodes):
        return graph
    return graph.with_nodes(tuple(nodes), constants=constants, types=types)


def _new_names(base: str, taken: Container[str]) -> tuple[str, str, str]:
    scale, shift, scaled = f"{base}__scale", f"{base}__shift", f"{base}__scaled"
    while scale in taken or shift in taken or scaled in taken:
        scale, shift, scaled = f"{scale}_", f"{shift}_", f"{scaled}_"
    return scale, shift, scaled


def _follows_weights(graph: Graph, name: str) -> bool:
    """Return whether a value is the result of a contraction, biased or not, with one reader."""
    producer = graph.producers.get(name)
    if producer is None or graph.uses[name] != 1 or name in graph.pinned:
        return False
    if producer.op == "Add":
        return any(_follows_weights(graph, operand) for operand in producer.inputs)
    return producer.op in ("Conv", "ConvTranspose", "MatMul")


def _scale_and_shift(node: Node, graph: Graph) -> tuple[Constant, Constant] | None:
    """Return γ/√(σ²+ε) and β − µγ/√(σ²+ε) for a batch normalisation that can be folded.

    It can if it follows a contraction, and if all parameters and both results are ordinary numbers.
    """
    x, *names = node.inputs
    parts = [graph.constants[name] for name in names if name in graph.constants]
    if len(parts) != len(names) or is_expensive(*parts) or not _follows_weights(graph, x):
        return None
    whole = graph.tensor_type(x)
    assert whole is not None
    gamma, beta, mean, variance = parts
    type_ = StaticType(whole.dtype, (gamma.type.shape[0], *(1,) * (whole.rank - 2)))
    epsilon, dtype = node.attr("epsilon"), numpy_dtype(type_.dtype)

    def scale_of(g: Array, v: Array) -> Array:
        with np.errstate(all="ignore"):
            deviation = np.sqrt(np.asarray(v, np.float64) + epsilon)
            return np.asarray(np.asarray(g, np.float64) / deviation)

    def shift_of(g: Array, b: Array, m: Array, v: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(b, np.float64) - np.asarray(m, np.float64) * scale_of(g, v)

    g, b, m, v = (np.asarray(p.load()) for p in parts)
    with np.errstate(all="ignore"):
        folded = [a.astype(dtype) for a in (scale_of(g, v), shift_of(g, b, m, v))]
    if not all(np.all(np.isfinite(a)) for a in (g, b, m, v, *folded)):
        return None
    if spoils("Mul", {}, (g, np.ones_like(g)), folded[0]):
        return None
    if all(isinstance(p.source, Splat) for p in parts):
        g, b, m, v = (p.source.value for p in parts)
        return (
            splat_constant(scale_of(g, v).astype(dtype), type_.shape),
            splat_constant(shift_of(g, b, m, v).astype(dtype), type_.shape),
        )
    digests = (str(epsilon), *(p.digest for p in parts))
    scale_source, shift_source = _sources(gamma, beta, mean, variance, epsilon=epsilon)
    scale = derived_constant(
        type_,
        lambda: scale_of(gamma.load(), variance.load()),
        ("bn-scale", *digests),
        source=shaped(scale_source, type_.shape).source,
    )
    shift = derived_constant(
        type_,
        lambda: shift_of(*(p.load() for p in parts)),
        ("bn-shift", *digests),
        source=shaped(shift_source, type_.shape).source,
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
