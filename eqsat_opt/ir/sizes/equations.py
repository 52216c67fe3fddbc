"""Equations between symbolic sizes that a model demands, and their solutions.

Most operators leave no equation open. One whose operands have sizes of different names (a mask of
``total`` columns that is added to ``past + new`` ones) cannot run at most sizes: its demands are
the equations here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest

import onnx_ir

from eqsat_opt.ir.graph.broadcasting import broadcast_columns
from eqsat_opt.ir.graph.graph import OPAQUE, Graph
from eqsat_opt.ir.ops import with_trait
from eqsat_opt.ir.values.dims import (
    Dim,
    SymDim,
    atom_of,
    dim_names,
    dim_product,
    evaluate_dim,
    substituted,
    sym,
)
from eqsat_opt.ir.values.types import TensorType

__all__ = ["RECURRENT", "TOLD", "Equation", "demands", "equations", "solved", "terms_of"]

_BROADCASTING = with_trait("broadcasting")

TOLD = frozenset({"Expand", "Reshape", "Squeeze"})
"""Operators whose demands depend on the values of their second operand."""

RECURRENT = frozenset({"GRU", "LSTM", "RNN"})
"""Operators that have a type even where sizes differ that they demand to be equal."""


@dataclass(frozen=True)
class Equation:
    """Two sizes that have to be equal.

    Attributes:
        left, right: the sizes.
        node: the node that demands it, for messages.
        is_strict: whether the sizes must be equal even where either is 1.
    """

    left: Dim
    right: Dim
    node: str
    is_strict: bool

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Return whether the equation holds at these sizes."""
        left, right = evaluate_dim(self.left, sizes), evaluate_dim(self.right, sizes)
        return left == right or (not self.is_strict and 1 in (left, right))

    def __str__(self) -> str:
        return f"{self.left} = {self.right} ({self.node})"


def equations(graph: Graph) -> Iterator[Equation]:
    """Yield the equations that the nodes of a graph demand, as far as they can be read."""
    for node in graph.nodes:
        types = [graph.tensor_type(name) for name in node.inputs]
        if node.op != OPAQUE:
            shapes = [type_.shape for type_ in types if type_ is not None]
            for sizes in broadcast_columns(node.op, shapes, dict(node.attrs)):
                for other in sizes[1:]:
                    yield Equation(sizes[0], other, node.name or node.op, is_strict=False)
        elif node.payload is not None:
            yield from demands(node.payload, types)


def demands(
    node: onnx_ir.Node, types: Sequence[TensorType | None], target: Sequence[Dim] | None = None
) -> Iterator[Equation]:
    """Yield the equations that an ONNX node demands.

    Args:
        node: the node.
        types: the types of all its operands, ``None`` for a value that is not a tensor.
        target: the target shape of an Expand or a Reshape, the axes of a Squeeze.
    """
    if node.domain not in ("", "ai.onnx"):
        return
    shapes = [type_.shape for type_ in types if isinstance(type_, TensorType)]
    if node.op_type in TOLD:
        if target is None or not shapes:
            return
        shapes = [shapes[0], tuple(target)]
    elif len(shapes) < 2 or len(shapes) < sum(value is not None for value in node.inputs):
        return
    label = f"{node.op_type} {node.name!r}" if node.name else node.op_type
    for left, right, is_strict in _demanded(node, shapes):
        if isinstance(left - right, SymDim):
            yield Equation(left, right, label, is_strict)


def _demanded(
    node: onnx_ir.Node, shapes: Sequence[tuple[Dim, ...]]
) -> Iterator[tuple[Dim, Dim, bool]]:
    """Yield pairs of sizes that must be equal, and whether they must be even where one is 1."""
    match node.op_type:
        case "MatMul" if min(map(len, shapes)) > 0:
            yield shapes[0][-1], shapes[1][-2:][0], True
            yield from _aligned([shape[:-2] for shape in shapes])
        case "Gemm" if all(len(shape) == 2 for shape in shapes[:2]):
            swapped = [node.attributes.get_int(name, 0) for name in ("transA", "transB")]
            yield shapes[0][0 if swapped[0] else 1], shapes[1][1 if swapped[1] else 0], True
        case "Conv" | "ConvTranspose" if min(map(len, shapes[:2])) > 2:
            channels = shapes[1][0]
            if node.op_type == "Conv":
                channels = shapes[1][1] * node.attributes.get_int("group", 1)
            yield shapes[0][1], channels, True
        case "BatchNormalization" | "InstanceNormalization" if len(shapes[0]) > 1:
            yield shapes[0][1], shapes[1][0], True
        case operator if operator in RECURRENT and min(map(len, shapes[:2])) > 2:
            yield shapes[0][2], shapes[1][2], True
        case "Reshape" if not any(isinstance(dim, int) and dim <= 0 for dim in shapes[1]):
            yield dim_product(shapes[0]), dim_product(shapes[1]), True
        case "Squeeze":
            rank = len(shapes[0])
            named = zip(range(-rank, rank), shapes[0] * 2, strict=True)
            yield from ((size, 1, True) for axis, size in named if axis in shapes[1])
        case "Concat":
            axis = node.attributes.get_int("axis", 0)
            first, *rest = shapes
            for other in rest:
                if len(other) == len(first):
                    for i, pair in enumerate(zip(first, other, strict=True)):
                        if i != axis % len(first):
                            yield *pair, True
        case op if op in _BROADCASTING or op in ("Where", "Expand"):
            yield from _aligned(shapes)
        case _:
            return


def _aligned(shapes: Sequence[tuple[Dim, ...]]) -> Iterator[tuple[Dim, Dim, bool]]:
    """Yield pairs of sizes that broadcasting aligns, except sizes of 1."""
    for column in zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1):
        sizes = [size for size in dict.fromkeys(column) if size != 1]
        yield from ((sizes[0], other, False) for other in sizes[1:])


def solved(
    wanted: Iterable[Equation], free: Iterable[str], inner: Iterable[str] = ()
) -> dict[str, SymDim | int]:
    """Solve linear equations for names of sizes.

    Args:
        wanted: the equations; an equation without a solution of this kind is left out.
        free: names that may be derived from others, the preferred ones first.
        inner: names of sizes that the model computes; they are solved for before all others.

    Returns:
        Names with the sizes derived for them; no such size contains a name that is solved itself.
    """
    known: dict[str, SymDim | int] = {}
    order = [*inner, *free]
    for equation in wanted:
        difference = substituted(equation.left - equation.right, known)
        if not isinstance(difference, SymDim):
            continue
        cases = tuple(islice(_cases(difference), _MOST_CASES))
        for case in cases if 0 not in cases else ():
            name = next((one for one in order if _is_alone(case, one)), None)
            if name is None:
                continue
            coefficient = dict(terms_of(case))[(name,)]
            value = sym(name) - case * coefficient  # the coefficient is 1 or -1
            if substituted(difference, {name: value}) == 0:
                known = {other: substituted(size, {name: value}) for other, size in known.items()}
                known[name] = value
                break
    return known


_MOST_CASES = 64
"""Cases of an equation with maxima and minima that are examined."""


def _cases(dim: Dim) -> Iterator[Dim]:
    """Yield a size with either operand in place of each maximum or minimum, then the size itself.

    ``total - min(past, total)`` is ``total - past`` in one case, so that a total may be found of
    which ``past`` is a part. If it is 0 in one case, it is so without any size being derived.
    """
    for name in (name for names, _ in terms_of(dim) for name in names):
        atom = atom_of(name)
        if atom is not None and atom.function != "floor":
            for operand in (atom.left, atom.right):
                yield from _cases(substituted(dim, {name: operand}))
            break
    yield dim


def terms_of(dim: Dim) -> tuple[tuple[tuple[str, ...], int], ...]:
    """Return the terms of a size as a polynomial: the names in each, and its coefficient."""
    return dim.terms if isinstance(dim, SymDim) else (((), dim),)


def _is_alone(difference: Dim, name: str) -> bool:
    """Return whether a name occurs once, as a term by itself with the coefficient 1 or -1."""
    own = dict(terms_of(difference)).get((name,))
    if own not in (1, -1):
        return False
    rest = difference - sym(name) * own
    return name not in set(dim_names(rest))
