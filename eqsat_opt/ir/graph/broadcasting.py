"""Types of operators on sizes that fit in every run that succeeds, although nothing shows it.

A model that adds ``n`` elements to ``m`` runs where these are equal or one of them is 1, and
nowhere else; one that reshapes ``n`` elements to ``m`` runs where these are equal. So the result
has a type. Type functions of the registry know nothing of a model's runs and refuse such operands:
no rewrite may add ``n`` elements to ``m`` unless the model itself broadcasts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import permutations, zip_longest

from eqsat_opt.ir.graph.graph import Attrs
from eqsat_opt.ir.ops import AttrMap, IllTyped, get_op, with_trait
from eqsat_opt.ir.ops._base import require
from eqsat_opt.ir.values.dims import Dim, dim_broadcast, dim_product
from eqsat_opt.ir.values.types import TensorType, ValueType

__all__ = ["Joins", "assumed", "broadcast_columns", "result_type"]

Shape = tuple[Dim, ...]
Join = Callable[[Dim, Dim], Dim]
"""A function that returns the size to which two sizes broadcast; raises `IllTyped` if there is
none."""

_BROADCASTING = with_trait("broadcasting")


def assumed(left: Dim, right: Dim) -> Dim:
    """Return the size to which two sizes broadcast if any do so that may.

    Raises:
        IllTyped: the sizes are two different numbers above 1.
    """
    numbers = {dim for dim in (left, right) if isinstance(dim, int) and dim != 1}
    require(len(numbers) < 2, "sizes {} and {} do not broadcast", left, right)
    return dim_broadcast(left, right)


def result_type(
    op: str, types: Sequence[TensorType], attrs: AttrMap, join: Join = assumed
) -> TensorType:
    """Return the type of an operator's result.

    Args:
        op: an operator of the registry.
        types: types of its operands.
        attrs: its attributes.
        join: returns the common size of two sizes of which nothing shows that they fit; by default
            they are assumed to, as in an application of the model itself.

    Raises:
        IllTyped: the operator is not defined on such operands.
    """
    definition = get_op(op)
    try:
        return definition.type_fn(types, attrs)
    except IllTyped:
        shapes = [type_.shape for type_ in types]
        if op == "Reshape":
            before, after = dim_product(shapes[0]), dim_product(attrs["shape"])
            if before == after:
                raise
            join(before, after)
            return TensorType(types[0].dtype, tuple(attrs["shape"]))
        fitted = _fitted(op, shapes, attrs, join)
        if fitted == shapes:
            raise
    dtypes = [type_.dtype for type_ in types]
    return definition.type_fn(list(map(TensorType, dtypes, fitted)), attrs)


def broadcast_columns(
    op: str, shapes: Sequence[Shape], attrs: AttrMap
) -> Iterator[tuple[Dim, ...]]:
    """Yield the different sizes that broadcast along an axis, without 1, last axis first."""
    for column in zip_longest(*map(reversed, _parts(op, shapes, attrs)), fillvalue=1):
        yield tuple(size for size in dict.fromkeys(column) if size != 1)


def _parts(op: str, shapes: Sequence[Shape], attrs: AttrMap) -> list[Shape]:
    """Return the parts of shapes that broadcast with one another; none if no axes do."""
    if op in _BROADCASTING:
        return list(shapes)
    match op, shapes:
        case "MatMul", (_, _):
            return [shape[:-2] for shape in shapes]
        case "Expand", (shape,):
            return [shape, tuple(attrs["shape"])]
        case "MaskedAttention", ((batch, heads, rows, _), (_, _, columns, _), _, mask):
            return [(batch, heads, rows, columns), mask]
        case _:
            return []


def _fitted(op: str, shapes: Sequence[Shape], attrs: AttrMap, join: Join) -> list[Shape]:
    """Return the shapes that operands have once they are broadcast where sizes differ."""
    one: Dim = 1
    common = [reduce(join, sizes, one) for sizes in broadcast_columns(op, shapes, attrs)]
    parts: list[Shape] = [
        tuple(
            dim if dim == 1 else size
            for dim, size in zip(part, reversed(common[: len(part)]), strict=True)
        )
        for part in _parts(op, shapes, attrs)
    ]
    match op:
        case "MatMul":
            return [part + shape[-2:] for part, shape in zip(parts, shapes, strict=True)]
        case "Expand":
            return parts[:1]
        case "MaskedAttention":
            return [*shapes[:3], *parts[1:]]
        case _:
            return parts or list(shapes)


@dataclass(frozen=True)
class Joins:
    """The sizes that a model broadcasts.

    Attributes:
        sizes: pairs of sizes to the size to which they broadcast in every run that succeeds.
    """

    sizes: Mapping[tuple[Dim, Dim], Dim]

    @classmethod
    def of(cls, applications: Iterable[tuple[str, Attrs, Sequence[ValueType], ValueType]]) -> Joins:
        """Collect the pairs of a model.

        Args:
            applications: operator, attributes, types of operands and of the result of each
                application that runs whenever the model does.
        """
        found: dict[tuple[Dim, Dim], Dim] = {}
        for op, attrs, operands, result in applications:
            types = [one for one in operands if isinstance(one, TensorType)]
            if not isinstance(result, TensorType) or len(types) < len(operands):
                continue
            columns = broadcast_columns(op, [type_.shape for type_ in types], dict(attrs))
            axes = result.shape[:-2] if op == "MatMul" else result.shape
            for sizes, whole in zip(columns, reversed(axes), strict=False):
                if len(sizes) > 1:
                    pairs = permutations(dict.fromkeys((*sizes, whole)), 2)
                    found.update(
                        (pair, whole) for pair in pairs if len(sizes) == 2 or whole in pair
                    )
        return cls(found)

    def __call__(self, left: Dim, right: Dim) -> Dim:
        """Return the size to which two sizes broadcast.

        Raises:
            IllTyped: the model does not show that they do.
        """
        if left == right or right == 1:
            return left
        if left == 1:
            return right
        require((left, right) in self.sizes, "sizes {} and {} do not broadcast", left, right)
        return self.sizes[left, right]
