"""The definition of an operator, which types, evaluates, counts operations and maps to ONNX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from eqsat_opt.ir.values.dims import Dim, dim_product
from eqsat_opt.ir.values.types import TensorType

if TYPE_CHECKING:
    from eqsat_opt.ir.ops.index.scalars import IndexFn

__all__ = [
    "OPS",
    "OUTPUT",
    "Array",
    "AttrKind",
    "AttrMap",
    "Domain",
    "ExactFn",
    "IllTyped",
    "OnnxForm",
    "Op",
    "Trait",
    "TypeFn",
    "broadcast_shapes",
    "define",
    "get_op",
    "is_known",
    "lowest",
    "padded",
    "register",
    "require",
    "traits",
    "with_trait",
]

Array = npt.NDArray[Any]
AttrMap = Mapping[str, Any]
AttrKind = Literal["int", "size", "float", "str", "ints"]
"""A ``size``, and each of ``ints``, is an integer that may be symbolic; an ``int`` is literal."""
OpClass = Literal["pointwise", "contraction", "reduction", "window", "movement"]
Trait = Literal[
    "exact", "determined", "nonnegative", "pole", "vanishing",
    "broadcasting", "moving", "ring", "order", "sorting", "truth", "floats",
    "along", "trailing", "reducing", "pooling", "channel", "plane", "spatial",
]  # fmt: skip


OUTPUT = "output"
"""The attribute that selects an output of an operator with several outputs."""


class IllTyped(Exception):
    """The operator is not defined on operands of these types."""


class Domain(Protocol):
    """The numbers that an evaluation runs on (float, exact integer, prime field).

    Data movement needs no domain; all computation goes through these methods. ``apply`` is a
    nonlinear scalar function by name; a field may replace it by a random function.
    """

    name: str

    def add(self, a: Array, b: Array) -> Array: ...
    def sub(self, a: Array, b: Array) -> Array: ...
    def mul(self, a: Array, b: Array) -> Array: ...
    def div(self, a: Array, b: Array) -> Array: ...
    def matmul(self, a: Array, b: Array) -> Array: ...
    def sum(self, a: Array, axes: tuple[int, ...]) -> Array: ...
    def maximum(self, a: Array, axes: tuple[int, ...]) -> Array: ...
    def where(self, condition: Array, a: Array, b: Array) -> Array: ...
    def apply(self, function: str, attrs: AttrMap, *operands: Array) -> Array: ...
    def constant(self, value: float, like: Array) -> Array: ...


TypeFn = Callable[[Sequence[TensorType], AttrMap], TensorType]
EvalFn = Callable[[Domain, Sequence[Array], AttrMap], Array]
ExactFn = Callable[..., Any]
FlopsFn = Callable[[Sequence[TensorType], TensorType, AttrMap], Dim]


@dataclass(frozen=True)
class OnnxForm:
    """An operator of ONNX with the same name, operands and attributes.

    Attributes:
        since: first opset of ONNX that has it with these attributes.
        defaults: values that ONNX gives to attributes that are left out.
    """

    since: int = 1
    defaults: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Op:
    """An operator with one output, or several.

    Each of several outputs is a function of its own: the attribute :data:`OUTPUT`, whose values are
    among the ``choices``, selects one. So outputs are typed, evaluated, counted and rewritten one
    by one, and equal ones are merged. An ONNX node with several outputs is read as one node for
    each output that is used, tiled as one kernel, and written as one node again.

    Attributes:
        name: the name in ONNX, if ONNX has the operator.
        arity: least and greatest number of inputs.
        attrs: attribute name to kind; every node carries all of them.
        kind: the class of operators, which decides what bounds its cost and which generic rules
            apply.
        type_fn: operand types and attributes to the result type; raises :class:`IllTyped`.
        eval_fn: ``(domain, operands, attributes) -> result``.
        flops: ``(operand types, result type, attributes) -> number of floating point operations``.
        commutative: whether the two operands may be exchanged.
        index_fn: one output element as a term over operand elements, at symbolic extents; it must
            agree with ``eval_fn``, and its premises follow from ``type_fn``. ``None``: no rule on
            this operator is proved for all sizes.
        traits: its properties, in three groups. The first is about special numbers. ``exact``: it
            does not round; ``determined``: IEEE 754 leaves one result, so that all implementations
            agree to the last bit; ``pole``: it is infinite at some finite operand, where the sign
            of a zero may decide which infinity; ``vanishing``: over the reals it is never 0, but
            small results underflow to 0; ``nonnegative``: over the reals it has no negative
            operand. All operators propagate NaN, except a ``Where`` that does not select it, and a
            bound of a ``Clamp``.

            The second group is about the computation. ``moving``: each element of the result is an
            element of an operand, or a number that the operator supplies, as for all operators of
            kind ``movement``; ``ring``: it computes sums, differences and products of elements,
            which are equal in every ring if they are equal in one; ``order``: it computes maxima
            and minima of elements, which are the same in every order; ``sorting``: it compares
            elements with one another, so evaluations on numbers without an order prove nothing
            about it; ``truth``: results are true or false; ``floats``: it is defined on floating
            point only.

            The third group is about axes. ``broadcasting``: elementwise, and operands broadcast;
            ``along``: attributes name one or more axes, and the result has the axes of the
            operands, and their extents too unless the operator moves data; ``trailing``: it
            normalises all axes from one on; ``reducing``: it reduces the named axes, which it keeps
            or drops; ``pooling``: it reduces windows of each channel; ``channel``: it handles the
            second axis separately; ``plane``: it reduces over all axes after the first two;
            ``spatial``: it computes images, whose first two axes are samples and channels.
        element_types: number of an operand to its element type, if this differs from that of the
            other operands; an empty text if any type is allowed.
        result_types: number of an output to its element type, if this is never that of the
            operands.
        neutral: number of an operand to the value at which the result is the other operand; adding
            -0, and not 0, keeps the sign of zeros.
        choices: attribute to all values that it may have, if these are few.
        onnx: the same operator of ONNX; ``None`` if :mod:`eqsat_opt.ir.onnx.mappings` defines its
            form in ONNX.
        exact: ``(*numbers, attributes) -> number``: one element at rational operands, for an
            operator that is not a sum or a product; ``None`` if values may be irrational.
        doc: a description, for an operator that ONNX does not have.
    """

    name: str
    arity: tuple[int, int]
    attrs: Mapping[str, AttrKind]
    kind: OpClass
    type_fn: TypeFn
    eval_fn: EvalFn
    flops: FlopsFn
    commutative: bool = False
    index_fn: IndexFn | None = None
    traits: frozenset[Trait] = frozenset()
    element_types: Mapping[int, str] = field(default_factory=dict)
    result_types: Mapping[int, str] = field(default_factory=dict)
    neutral: Mapping[int, float] = field(default_factory=dict)
    choices: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    onnx: OnnxForm | None = None
    exact: ExactFn | None = None
    doc: str = ""

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return len(self.choices.get(OUTPUT, (0,)))

    @property
    def is_moving(self) -> bool:
        """Whether each element of the result is one of an operand, or supplied by the operator."""
        return self.kind == "movement" or "moving" in self.traits

    @property
    def keeps_elements(self) -> bool:
        """Whether each element of the result is known to be an element of an operand."""
        makes_none = self.arity[0] > 0 and "value" not in self.attrs
        return self.is_moving and makes_none and 1 not in self.element_types


OPS: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Add an operator to the registry; a name is defined once."""
    if op.name in OPS:
        raise ValueError(f"operator {op.name} is registered twice")
    OPS[op.name] = op
    return op


def define(
    kind: OpClass,
    name: str,
    attrs: Mapping[str, AttrKind],
    type_fn: TypeFn,
    eval_fn: EvalFn,
    index_fn: IndexFn | None = None,
    *,
    arity: int | tuple[int, int] = 1,
    flops: FlopsFn | int = 1,
    **facts: Any,
) -> None:
    """Register an operator; an integer ``flops`` counts operations per element of the result."""
    inputs = (arity, arity) if isinstance(arity, int) else arity
    work = per_element(flops) if isinstance(flops, int) else flops
    register(
        Op(
            name,
            inputs,
            attrs,
            kind,
            type_fn=type_fn,
            eval_fn=eval_fn,
            flops=work,
            index_fn=index_fn,
            **facts,
        )
    )


def get_op(name: str) -> Op:
    """Return the operator called ``name``."""
    return OPS[name]


def traits(*names: Trait) -> frozenset[Trait]:
    """Return a set of traits."""
    return frozenset(names)


def with_trait(trait: Trait) -> frozenset[str]:
    """Return the names of all operators with a trait."""
    return frozenset(name for name, op in OPS.items() if trait in op.traits)


def is_known(name: str) -> bool:
    """Return whether the registry defines ``name``."""
    return name in OPS


def require(condition: bool, message: str, *shown: object) -> None:
    """Raise :class:`IllTyped` unless ``condition`` holds.

    The message is formatted only then: most conditions hold, and printing types takes longer than
    checking them.

    Args:
        condition: the condition.
        message: a format with a place for each of ``shown``.
        shown: the objects to print.
    """
    if not condition:
        raise IllTyped(message.format(*shown))


def broadcast_shapes(*shapes: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Return the shape of ONNX multidirectional broadcasting.

    A symbolic dimension only broadcasts with itself or 1.
    """
    if all(shape == shapes[0] for shape in shapes):
        return shapes[0]
    rank = max(len(s) for s in shapes)
    result: list[Dim] = []
    for axis in range(-rank, 0):
        size: Dim = 1
        for shape in shapes:
            if -axis > len(shape):
                continue
            dim = shape[axis]
            if size == 1:
                size = dim
            elif dim != 1 and dim != size:
                raise IllTyped(f"shapes {shapes} do not broadcast")
        result.append(size)
    return tuple(result)


def lowest(dtype: np.dtype[Any]) -> Any:
    """Return the least value of an element type; a type unknown to NumPy is floating point."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min
    return False if dtype.kind == "b" else -np.inf


def padded(x: Array, widths: Sequence[tuple[int, int]], fill: Any = 0) -> Array:
    """Return ``x`` padded with ``fill``, with the given widths before and after it, by axis.

    For small arrays, of which verification evaluates many, this takes a fraction of the time of
    `numpy.pad`.
    """
    if not any(map(any, widths)):
        return x
    sizes = [sum(width) + size for width, size in zip(widths, x.shape, strict=True)]
    if type(fill) is int and fill == 0:
        result = np.zeros(sizes, x.dtype)
    else:
        result = np.empty(sizes, x.dtype)
        result[...] = fill
    inside = zip(widths, x.shape, strict=True)
    result[tuple(slice(before, before + size) for (before, _), size in inside)] = x
    return result


def per_element(count: int) -> FlopsFn:
    """Return a function that counts ``count`` operations for each element of the result."""
    return lambda _inputs, output, _attrs: dim_product(output.shape) * count


def per_operand_element(inputs: Sequence[TensorType], _output: TensorType, _attrs: AttrMap) -> Dim:
    """Count one operation for each element of the first operand."""
    return dim_product(inputs[0].shape)
