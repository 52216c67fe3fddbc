"""A graph in the making, written operator by operator; equal applications are one value."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_opt.errors import ModelError
from eqsat_opt.ir.graph.graph import Attrs, Constant, Graph, Node, attributes
from eqsat_opt.ir.graph.handles import array_constant, splat_constant
from eqsat_opt.ir.ops import IllTyped, get_op
from eqsat_opt.ir.values.dims import Dim
from eqsat_opt.ir.values.types import TensorType, numpy_dtype

__all__ = ["Number", "Tape", "TapeValue", "one_of"]


class Tape:
    """The nodes, constants and types of a graph to which operators are appended.

    Args:
        graph: the graph to begin with.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._types = dict(graph.types)
        self._constants = dict(graph.constants)
        self._nodes: list[Node] = []
        self._made: dict[tuple[str, tuple[str, ...], Attrs], str] = {}
        self._places: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self._taken = {*graph.types, *(name for node in graph.nodes for name in node.outputs)}
        for node in graph.nodes:
            self.append(node)

    # ** reading **

    def value(self, name: str) -> TapeValue:
        """Return the value of this name, which must be a tensor.

        Raises:
            ModelError: the type of the value is unknown.
        """
        if not isinstance(self._types[name], TensorType):
            raise ModelError(
                f"the type of {name!r} is unknown, so it has no derivative; give the shapes of "
                "inputs, or train parameters after it"
            )
        return TapeValue(self, name)

    def type(self, name: str) -> TensorType:
        """Return the type of a value that is a tensor."""
        type_ = self._types[name]
        assert isinstance(type_, TensorType)
        return type_

    def held(self, name: str) -> Constant | None:
        """Return the constant of this name, if it is one."""
        return self._constants.get(name)

    def producer(self, value: TapeValue) -> Node | None:
        """Return the node that makes a value, ``None`` for an input or a constant."""
        place = self._places.get(value.name)
        return None if place is None else self._nodes[place]

    def part(self, result: TapeValue, operands: Collection[str]) -> tuple[Node, ...]:
        """Return the nodes that compute a value from operands, in order."""
        found: set[int] = set()
        waiting = [result.name]
        while waiting:
            name = waiting.pop()
            place = self._places.get(name)
            if name not in operands and place is not None and place not in found:
                found.add(place)
                waiting.extend(self._nodes[place].reads)
        return tuple(self._nodes[place] for place in sorted(found))

    # ** writing **

    def append(self, node: Node) -> None:
        """Append a node, whose results have types already."""
        place = len(self._nodes)
        self._nodes.append(node)
        self._places.update((name, place) for name in node.outputs if name)
        if len(node.outputs) == 1 and node.payload is None:
            self._made.setdefault((node.op, node.inputs, node.attrs), node.output)

    def apply(self, op: str, *operands: TapeValue, name: str = "", **attrs: Any) -> TapeValue:
        """Apply an operator of the registry.

        Args:
            op: its name.
            operands: its operands.
            name: the name of the result; without one, an equal result is taken again.
            attrs: all its attributes.

        Raises:
            ModelError: the operator is not defined on these operands.
        """
        inputs, given = tuple(one.name for one in operands), attributes(**attrs)
        made = self._made.get((op, inputs, given))
        if made is not None and not name:
            return TapeValue(self, made)
        try:
            type_ = get_op(op).type_fn([one.type for one in operands], attrs)
        except IllTyped as error:
            raise ModelError(f"a training graph cannot be built with {op}: {error}") from error
        output = name or self.fresh(f"joint__{op.lower()}")
        self._taken.add(output)
        self._types[output] = type_
        self.append(Node(op, inputs, (output,), given))
        return TapeValue(self, output)

    def input(self, name: str, type_: TensorType) -> TapeValue:
        """Return a new input; :meth:`graph` is told the order of inputs."""
        if name in self._taken:
            raise ModelError(f"the model has a value {name!r} already; rename it")
        self._taken.add(name)
        self._types[name] = type_
        return TapeValue(self, name)

    def constant(self, array: npt.NDArray[Any]) -> TapeValue:
        """Return a constant."""
        name = f"constant__{array_constant(array).digest[:16]}"
        if name not in self._constants:
            self._constants[name] = array_constant(array)
            self._types[name] = self._constants[name].type
            self._taken.add(name)
        return TapeValue(self, name)

    def scalar(self, number: float, dtype: str) -> TapeValue:
        """Return a constant of rank 0."""
        return self.constant(np.asarray(number, numpy_dtype(dtype)))

    def filled(self, number: float, type_: TensorType) -> TapeValue:
        """Return a tensor with the same number everywhere."""
        shape = tuple(size for size in type_.shape if isinstance(size, int))
        if len(shape) < type_.rank:
            return self.scalar(number, type_.dtype).expand(type_.shape)
        handle = splat_constant(np.asarray(number, numpy_dtype(type_.dtype)), shape)
        name = f"constant__{handle.digest[:16]}"
        self._constants[name], self._types[name] = handle, handle.type
        self._taken.add(name)
        return TapeValue(self, name)

    def fresh(self, base: str) -> str:
        """Return a name that no value has."""
        number = self._numbers.get(base, 0)  # counting from 0 would take quadratic time
        while (name := f"{base}_{number}") in self._taken:
            number += 1
        self._numbers[base] = number + 1
        return name

    def graph(self, inputs: Iterable[str], outputs: Iterable[str]) -> Graph:
        """Return the graph of what the outputs need."""
        graph = Graph(
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            nodes=tuple(self._nodes),
            constants=self._constants,
            types=self._types,
        )
        nodes = tuple(graph.live_nodes())
        alive = {name for node in nodes for name in (*node.reads, *node.outputs)}
        alive.update(graph.inputs, graph.outputs)
        return graph.with_nodes(
            nodes,
            constants={name: one for name, one in self._constants.items() if name in alive},
            types={name: one for name, one in self._types.items() if name in alive},
        )


@dataclass(frozen=True)
class TapeValue:
    """A tensor on a tape; arithmetic with values and numbers appends operators.

    Attributes:
        tape: the tape.
        name: the name of the value.
    """

    tape: Tape
    name: str

    @property
    def type(self) -> TensorType:
        """Element type and shape."""
        return self.tape.type(self.name)

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The shape, whose sizes may be symbolic."""
        return self.type.shape

    @property
    def rank(self) -> int:
        """Number of axes."""
        return self.type.rank

    @property
    def dtype(self) -> str:
        """The element type."""
        return self.type.dtype

    def apply(self, op: str, *others: Number, **attrs: Any) -> TapeValue:
        """Apply an operator to this value and others."""
        operands = [one if isinstance(one, TapeValue) else self.number(one) for one in others]
        return self.tape.apply(op, self, *operands, **attrs)

    def number(self, number: float) -> TapeValue:
        """Return a number of the same element type."""
        return self.tape.scalar(number, self.dtype)

    def __add__(self, other: Number) -> TapeValue:
        return self.apply("Add", other)

    def __radd__(self, other: float) -> TapeValue:
        return self.apply("Add", other)

    def __sub__(self, other: Number) -> TapeValue:
        return self.apply("Sub", other)

    def __rsub__(self, other: float) -> TapeValue:
        return self.number(other).apply("Sub", self)

    def __mul__(self, other: Number) -> TapeValue:
        return self if other == 1 else self.apply("Mul", other)

    def __rmul__(self, other: float) -> TapeValue:
        return self * other

    def __truediv__(self, other: Number) -> TapeValue:
        return self if other == 1 else self.apply("Div", other)

    def __rtruediv__(self, other: float) -> TapeValue:
        return self.apply("Reciprocal") * other

    def __matmul__(self, other: TapeValue) -> TapeValue:
        return self.apply("MatMul", other)

    def __neg__(self) -> TapeValue:
        return self.apply("Neg")

    def reshape(self, *shape: Dim) -> TapeValue:
        """Return the same elements in another shape."""
        return self if shape == self.shape else self.apply("Reshape", shape=shape)

    def expand(self, shape: tuple[Dim, ...]) -> TapeValue:
        """Return this value broadcast to a shape."""
        return self if shape == self.shape else self.apply("Expand", shape=shape)

    def transpose(self, *perm: int) -> TapeValue:
        """Return the axes in another order."""
        return self if perm == tuple(range(self.rank)) else self.apply("Transpose", perm=perm)

    def turned(self) -> TapeValue:
        """Return the matrices of the last two axes transposed."""
        last = self.rank - 1
        return self.transpose(*range(last - 1), last, last - 1)

    def sum(self, axes: Sequence[int], *, keepdims: bool = False) -> TapeValue:
        """Return sums over axes; without axes the value."""
        if not axes:
            return self
        return self.apply("ReduceSum", axes=tuple(axes), keepdims=int(keepdims))

    def mean(self, axes: Sequence[int], *, keepdims: bool = True) -> TapeValue:
        """Return means over axes."""
        return self.apply("ReduceMean", axes=tuple(axes), keepdims=int(keepdims))

    def summed_to(self, shape: tuple[Dim, ...]) -> TapeValue:
        """Return the sum over what broadcasting a tensor of a shape to this shape repeated."""
        extra = self.rank - len(shape)
        axes = [
            axis
            for axis, size in enumerate(self.shape)
            if axis < extra or (shape[axis - extra] == 1 and size != 1)
        ]
        return self.sum(axes).reshape(*shape)

    def cast(self, dtype: str) -> TapeValue:
        """Return this value in another element type."""
        return self if dtype == self.dtype else self.apply("Cast", to=dtype)

    def where(self, condition: TapeValue, other: Number = 0.0) -> TapeValue:
        """Return this value where a condition holds, and the other one elsewhere."""
        other = other if isinstance(other, TapeValue) else self.number(other)
        return self.tape.apply("Where", condition, self, other)

    def masked(self, condition: TapeValue) -> TapeValue:
        """Return this value times 1 where a condition holds, and times 0 elsewhere.

        On finite numbers it is :meth:`where` with 0, which takes onnxruntime four times as long.
        """
        return self * condition.cast(self.dtype)

    def moved(self, axis: int, target: int) -> TapeValue:
        """Return this value with an axis moved to another place."""
        order = [one for one in range(self.rank) if one != axis]
        order.insert(target, axis)
        return self.transpose(*order)

    def mapped(self, axis: int, matrix: npt.NDArray[Any]) -> TapeValue:
        """Return products of a matrix with the vectors along an axis.

        Args:
            axis: the axis, whose size is that of the second axis of the matrix.
            matrix: [new size, size].
        """
        weights = self.tape.constant(matrix.T.astype(numpy_dtype(self.dtype)))
        return (self.moved(axis, self.rank - 1) @ weights).moved(self.rank - 1, axis)


Number = TapeValue | float


def one_of(condition: TapeValue, yes: Number, no: Number, dtype: str) -> TapeValue:
    """Return one of two values or numbers for each element, depending on a condition."""
    tape = condition.tape
    chosen = [one if isinstance(one, TapeValue) else tape.scalar(one, dtype) for one in (yes, no)]
    return tape.apply("Where", condition, *chosen)
