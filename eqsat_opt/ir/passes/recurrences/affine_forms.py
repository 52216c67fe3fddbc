"""Sums of products with weights, as which the gates of a recurrent cell are seen in any spelling.

A gate may be one product of concatenated operands, several products, columns of a product that all
gates share, or rows of a product that all steps share. All of these have the same affine form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from eqsat_opt.ir.graph.graph import Constant, Graph, Node
from eqsat_opt.ir.values.types import FLOATS, TensorType

__all__ = ["AffineForm", "AffineForms", "Block", "ColumnRange", "Data", "Pick"]

_MOST = 8
"""Greatest number of products and addends of a form; gates have fewer."""


@dataclass(frozen=True)
class Pick:
    """The elements ``lo`` to ``hi`` of a value along ``axis``.

    Attributes:
        is_dropped: whether the axis, of one element, is absent from the result.
    """

    axis: int
    lo: int
    hi: int
    is_dropped: bool = False


@dataclass(frozen=True)
class Data:
    """A value, or a part of it along an axis other than the last."""

    name: str
    pick: Pick | None = None

    def at(self, pick: Pick) -> Data | None:
        """Return a part of it; ``None`` for a part of a part."""
        return Data(self.name, pick) if self.pick is None else None


@dataclass(frozen=True)
class ColumnRange:
    """The columns ``lo`` to ``hi`` of a value: its elements along the last axis."""

    name: str
    lo: int
    hi: int

    def columns(self, lo: int, hi: int) -> ColumnRange:
        """Return columns of these columns."""
        return ColumnRange(self.name, self.lo + lo, self.lo + hi)


@dataclass(frozen=True)
class Block:
    """Rows of a part of a weight matrix."""

    rows: tuple[int, int]
    of: ColumnRange


@dataclass(frozen=True)
class AffineForm:
    """A sum of products of data with blocks of weights, of constant vectors and of other values.

    Attributes:
        products: pairs of data [..., F] and a block [F, N].
        bias: constants [N], [1, N] and so on.
        addends: other values [..., N].
    """

    products: tuple[tuple[Data, Block], ...] = ()
    bias: tuple[ColumnRange, ...] = ()
    addends: tuple[ColumnRange, ...] = ()

    def plus(self, other: AffineForm) -> AffineForm | None:
        """Return the sum; ``None`` if it is too long for a gate."""
        made = AffineForm(
            self.products + other.products, self.bias + other.bias, self.addends + other.addends
        )
        count = len(made.products) + len(made.bias) + len(made.addends)
        return made if count <= _MOST else None

    def columns(self, lo: int, hi: int) -> AffineForm:
        """Return columns of it."""
        return AffineForm(
            tuple((d, replace(b, of=b.of.columns(lo, hi))) for d, b in self.products),
            tuple(part.columns(lo, hi) for part in self.bias),
            tuple(part.columns(lo, hi) for part in self.addends),
        )

    def picked(self, pick: Pick) -> AffineForm | None:
        """Return a part of it along an axis other than the last, if all is products and bias."""
        if self.addends:
            return None
        products = []
        for data, block in self.products:
            part = data.at(pick)
            if part is None:
                return None
            products.append((part, block))
        return AffineForm(tuple(products), self.bias)


class AffineForms:
    """The affine forms of the values of a graph.

    Attributes:
        graph: the graph.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._forms: dict[str, AffineForm] = {}
        for node in graph.nodes:
            if len(node.outputs) == 1 and (form := self._made(node)) is not None:
                self._forms[node.output] = form

    def form(self, name: str) -> AffineForm | None:
        """Return the form of a value that has one."""
        return self._forms.get(name)

    def activated(self, name: str, op: str) -> AffineForm | None:
        """Return the form of which a value is the function ``op``, whichever of them was cut."""
        node = self.graph.producers.get(name)
        if node is None:
            return None
        if node.op == op:
            return self.form(node.inputs[0])
        if node.op == "Slice" and self._is_last_axis(node) and _is_literal(node):
            inner = self.graph.producers.get(node.inputs[0])
            form = self.form(inner.inputs[0]) if inner is not None and inner.op == op else None
            return None if form is None else form.columns(node.attr("lo"), node.attr("hi"))
        return None

    def data(self, name: str) -> Data:
        """Return a value as a part of another one, if it is one."""
        node = self.graph.producers.get(name)
        cut = None if node is None else self._cut(node)
        if node is None or cut is None:
            return Data(name)
        return Data(self.origin(node), cut)

    def origin(self, node: Node) -> str:
        """Return the value of which a node that cuts takes a part."""
        if node.op == "Reshape":
            node = self.graph.producers[node.inputs[0]]
        return node.inputs[0]

    # ** the form of a node **

    def _made(self, node: Node) -> AffineForm | None:
        type_ = self.graph.tensor_type(node.output)
        if type_ is None or type_.dtype not in FLOATS or type_.rank < 2:
            return None
        columns = type_.shape[-1]
        if not isinstance(columns, int):
            return None
        match node.op:
            case "MatMul":
                return self._product(*node.inputs)
            case "Add":
                return self._sum(node, type_, columns)
            case "Slice" if self._is_last_axis(node) and _is_literal(node):
                form = self.form(node.inputs[0])
                return None if form is None else form.columns(node.attr("lo"), node.attr("hi"))
            case "Slice" | "Gather" | "Reshape":
                cut = self._cut(node)
                form = None if cut is None else self.form(self.origin(node))
                return None if form is None or cut is None else form.picked(cut)
        return None

    def _product(self, left: str, right: str) -> AffineForm | None:
        weight = self.graph.constants.get(right)
        if weight is None or weight.type.rank != 2 or left in self.graph.constants:
            return None
        rows, columns = weight.type.shape
        node, start, products = self.graph.producers.get(left), 0, []
        parts: Sequence[str] = (left,)
        if node is not None and node.op == "Concat" and self._is_last_axis(node):
            parts = node.inputs
        for name in parts:
            type_ = self.graph.tensor_type(name)
            size = None if type_ is None else type_.shape[-1]
            if len(parts) == 1:
                size = rows
            if not isinstance(size, int):
                return None
            block = Block((start, start + size), ColumnRange(right, 0, columns))
            products.append((self.data(name), block))
            start += size
        return AffineForm(tuple(products)) if start == rows and len(products) <= _MOST else None

    def _sum(self, node: Node, type_: TensorType, columns: int) -> AffineForm | None:
        forms = [self._addend(name, type_, columns) for name in node.inputs]
        if all(name not in self._forms for name in node.inputs):
            return None
        first, second = forms
        return None if first is None or second is None else first.plus(second)

    def _addend(self, name: str, type_: TensorType, columns: int) -> AffineForm | None:
        part = ColumnRange(name, 0, columns)
        constant = self.graph.constants.get(name)
        if constant is not None:
            return AffineForm(bias=(part,)) if _is_vector(constant, columns) else None
        own = self.graph.tensor_type(name)
        if own is None or own.shape != type_.shape:
            return None
        return self._forms.get(name, AffineForm(addends=(part,)))

    # ** parts along other axes **

    def _is_last_axis(self, node: Node) -> bool:
        type_ = self.graph.tensor_type(node.output)
        return type_ is not None and node.attr("axis") == type_.rank - 1

    def _cut(self, node: Node) -> Pick | None:
        """Return what part of another value a node is, if it is one along one axis."""
        match node.op:
            case "Slice" if not self._is_last_axis(node) and _is_literal(node):
                return Pick(node.attr("axis"), node.attr("lo"), node.attr("hi"))
            case "Gather":
                index = self.graph.constants.get(node.inputs[1])
                source = self.graph.tensor_type(node.inputs[0])
                if index is None or index.type.rank or source is None:
                    return None
                axis, place = node.attr("axis"), int(index.load())
                size = source.shape[axis]
                if place < 0:
                    if not isinstance(size, int):
                        return None
                    place += size
                is_last = axis == source.rank - 1
                return None if is_last else Pick(axis, place, place + 1, is_dropped=True)
            case "Reshape":
                return self._squeezed(node)
        return None

    def _squeezed(self, node: Node) -> Pick | None:
        """Return what a node picks that drops the axis of a slice of one element."""
        inner = self.graph.producers.get(node.inputs[0])
        if inner is None or inner.op != "Slice" or self._is_last_axis(inner):
            return None
        if not _is_literal(inner):
            return None
        axis, lo, hi = inner.attr("axis"), inner.attr("lo"), inner.attr("hi")
        before, after = (self.graph.tensor_type(one.output) for one in (inner, node))
        if before is None or after is None or hi - lo != 1:
            return None
        rest = (*before.shape[:axis], *before.shape[axis + 1 :])
        return Pick(axis, lo, hi, is_dropped=True) if after.shape == rest else None


def _is_literal(cut: Node) -> bool:
    return isinstance(cut.attr("lo"), int) and isinstance(cut.attr("hi"), int)


def _is_vector(constant: Constant, columns: int) -> bool:
    """Return whether a constant adds the same to every row, and something of its own to columns."""
    shape = constant.type.shape
    return bool(shape) and shape[-1] == columns and all(size == 1 for size in shape[:-1])
