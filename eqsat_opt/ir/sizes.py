"""Sizes of symbolic dimensions: what a user gives, and assumptions for the rest, made in one place.

Prices, check and race all use the same sizes, so that what is predicted is what is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat_opt.errors import OptionError
from eqsat_opt.ir.dims import SymDim, dim_names, evaluate_dim
from eqsat_opt.ir.graph import OPAQUE, Graph
from eqsat_opt.ir.onnx_types import plain_symbol
from eqsat_opt.ir.ops import IllTyped, get_op
from eqsat_opt.ir.types import TensorType

__all__ = ["Sizes", "assumed_size", "size_sets"]

_SCALES = (1, 2, 4, 8, 16, 32)
"""Times the plain assumptions: up to images of 1024 by 1024."""

_BATCH = 2
_IMAGE = 32
_OTHER = 16


@dataclass(frozen=True)
class Sizes:
    """A size for every symbolic dimension.

    Attributes:
        given: by the user.
        assumed: of the inputs, where nobody gave one.
        data: of what the data decide (how many elements are not zero, say); assumed for prices,
            and used for nothing else.
    """

    given: Mapping[str, int] = field(default_factory=dict)
    assumed: Mapping[str, int] = field(default_factory=dict)
    data: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Graph, given: Mapping[str, int]) -> Sizes:
        """The given sizes, and assumptions for all other symbols of ``graph``.

        An image that vanishes in a network's strides does not only fail: some kernels of
        onnxruntime divide by its size and end the process. So small sizes grow until every tensor
        has elements and every operator is defined; batches do not grow.
        """
        plain, batches = _plain_sizes(graph)
        types = (type_ for type_ in graph.types.values() if isinstance(type_, TensorType))
        inner = {name for type_ in types for dim in type_.shape for name in dim_names(dim)}
        free = sorted((plain.keys() | inner) - given.keys())
        growing = [name for name in free if name not in batches]
        smallest = {name: plain.get(name, _OTHER) for name in free}
        sizes = smallest
        for scale in _SCALES if growing else ():
            scaled = {**smallest, **{name: smallest[name] * scale for name in growing}}
            if _is_defined(graph, {**scaled, **given}):
                sizes = scaled
                break
        return cls(
            dict(given),
            {name: size for name, size in sizes.items() if name in plain},
            {name: size for name, size in sizes.items() if name not in plain},
        )

    @property
    def inputs(self) -> dict[str, int]:
        """Size by symbol of the inputs."""
        return {**self.assumed, **self.given}

    @property
    def all(self) -> dict[str, int]:
        """Size by symbol."""
        return {**self.data, **self.assumed, **self.given}

    def to_json(self) -> dict[str, dict[str, int]]:
        """Plain values."""
        return {"given": dict(self.given), "assumed": dict(self.assumed), "data": dict(self.data)}


def assumed_size(rank: int, axis: int) -> int:
    """A plain size for a symbolic axis of an input."""
    if axis == 0 and rank > 1:
        return _BATCH
    # An image smaller than this vanishes in the strides of usual networks.
    return _IMAGE if rank >= 4 and axis >= 2 else _OTHER


def size_sets(
    graph: Graph, given: Sequence[Mapping[str, tuple[int, ...] | int]]
) -> tuple[Sizes, ...]:
    """Sizes for every set that is given, and one set of assumptions if none is.

    Raises:
        OptionError: a name is unknown, or a shape does not fit its input.
    """
    sets = [_symbol_sizes_of(graph, one) for one in given] or [{}]
    return tuple(Sizes.of(graph, one) for one in sets)


def _plain_sizes(graph: Graph) -> tuple[dict[str, int], set[str]]:
    """A plain size for every symbol of the inputs, and which of them are batches."""
    plain: dict[str, int] = {}
    batches: set[str] = set()
    for name in graph.inputs:
        type_ = graph.tensor_type(name)
        for axis, dim in enumerate(type_.shape if type_ is not None else ()):
            for symbol in dim_names(dim):
                size = assumed_size(len(type_.shape) if type_ is not None else 0, axis)
                plain[symbol] = min(size, plain.get(symbol, size))
                if size == _BATCH:
                    batches.add(symbol)
    return plain, batches


def _is_defined(graph: Graph, sizes: Mapping[str, int]) -> bool:
    """Whether every tensor has elements and every operator is defined at these sizes."""
    try:
        return all(
            all(evaluate_dim(dim, sizes) > 0 for dim in type_.shape if isinstance(dim, SymDim))
            for type_ in graph.types.values()
            if isinstance(type_, TensorType)
        ) and all(_accepts(graph, number, sizes) for number in range(len(graph.nodes)))
    except ZeroDivisionError:
        return False


def _accepts(graph: Graph, number: int, sizes: Mapping[str, int]) -> bool:
    node = graph.nodes[number]
    types = [graph.tensor_type(name) for name in node.inputs]
    if node.op == OPAQUE or not all(types):
        return True
    sized = [
        TensorType(type_.dtype, tuple(evaluate_dim(dim, sizes) for dim in type_.shape))
        for type_ in types
        if type_ is not None
    ]

    def attr(value: Any) -> Any:
        if not isinstance(value, tuple):
            return value
        return tuple(evaluate_dim(v, sizes) if isinstance(v, SymDim) else v for v in value)

    try:
        get_op(node.op).type_fn(sized, {key: attr(value) for key, value in node.attrs})
    except IllTyped:
        return False
    return True


def _symbol_sizes_of(graph: Graph, given: Mapping[str, tuple[int, ...] | int]) -> dict[str, int]:
    """Symbol to size.

    Raises:
        OptionError: a name is unknown, or a shape does not fit its input.
    """
    types = [
        type_ for type_ in (graph.tensor_type(name) for name in graph.inputs) if type_ is not None
    ]
    symbols = {name for type_ in types for dim in type_.shape for name in dim_names(dim)}
    sizes: dict[str, int] = {}
    for name, value in given.items():
        if isinstance(value, tuple):
            sizes.update(_sizes_of_input(graph, name, value))
        elif name in symbols:
            sizes[name] = value
        elif name in graph.inputs:
            sizes.update(_sizes_of_input(graph, name, (value,)))
        else:
            known = ", ".join(sorted(symbols)) or "none"
            raise OptionError(
                f"no input of the model has a symbolic dimension {name!r}; there are: {known}"
            )
    return sizes


def _sizes_of_input(graph: Graph, name: str, shape: tuple[int, ...]) -> dict[str, int]:
    if name not in graph.inputs:
        raise OptionError(
            f"the model has no input {name!r}; its inputs are {', '.join(graph.inputs)}"
        )
    type_ = graph.tensor_type(name)
    fits = type_ is not None and type_.rank == len(shape)
    sizes: dict[str, int] = {}
    for dim, size in zip(type_.shape, shape, strict=True) if type_ is not None and fits else ():
        symbol = plain_symbol(dim)
        fits = fits and (symbol is not None or dim == size)
        if symbol is not None:
            sizes[symbol] = size
    if not fits:
        raise OptionError(
            f"input {name!r} is {graph.types[name]}, which does not fit the shape {list(shape)}"
        )
    return sizes
