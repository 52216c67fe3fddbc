"""Sizes of symbolic dimensions, from what a user gives: dimension names or whole input shapes."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat_opt.errors import OptionError
from eqsat_opt.ir.dims import Dim, dim_names
from eqsat_opt.ir.graph import Graph

__all__ = ["symbol_sizes_of"]


def _plain_name(dim: Dim) -> str | None:
    """The name of a dimension that is a symbol and nothing else."""
    if isinstance(dim, int) or len(dim.terms) != 1:
        return None
    (monomial, coefficient) = dim.terms[0]
    return monomial[0] if coefficient == 1 and len(monomial) == 1 else None


def symbol_sizes_of(graph: Graph, given: Mapping[str, tuple[int, ...] | int]) -> dict[str, int]:
    """Symbol to size.

    Args:
        graph: whose inputs have the symbols.
        given: input name to shape, or symbol to size.

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
        symbol = _plain_name(dim)
        fits = fits and (symbol is not None or dim == size)
        if symbol is not None:
            sizes[symbol] = size
    if not fits:
        raise OptionError(
            f"input {name!r} is {graph.types[name]}, which does not fit the shape {list(shape)}"
        )
    return sizes
