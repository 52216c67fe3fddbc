"""Sizes that inputs declare by a name that no type of the graph has, since another size equals it.

Where a product of ``[n, k]`` and ``[m, p]`` is computed in every run, ``k`` and ``m`` are one size,
and types call both by one name. Users, and the file, call them by their own.
"""

from __future__ import annotations

from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.values.dim_names import declared_dim, plain_names
from eqsat_opt.ir.values.dims import Dim, dim_names, plain_symbol

__all__ = ["renamed_sizes"]


def renamed_sizes(graph: Graph) -> dict[str, Dim]:
    """Return the declared names of sizes of inputs that the graph replaced, with what they equal.

    Args:
        graph: a graph; one that was made by hand declares no names besides its own.
    """
    if graph.model is None:
        return {}
    declared = {
        value.name: [dim if isinstance(dim, int) else dim.value or "" for dim in value.shape]
        for value in graph.model.graph.inputs
        if value.shape is not None and value.name in graph.inputs
    }
    plain = plain_names(dim for shape in declared.values() for dim in shape if isinstance(dim, str))
    found: dict[str, Dim] = {}
    kept: set[str] = set()
    for value, shape in declared.items():
        type_ = graph.tensor_type(value)
        if type_ is None or type_.rank != len(shape):
            continue
        for axis, (dim, own) in enumerate(zip(shape, type_.shape, strict=True)):
            name = plain_symbol(declared_dim(dim, value, axis, plain))
            kept.update(dim_names(own))
            if name is not None and plain_symbol(own) != name:
                found.setdefault(name, own)
    return {name: size for name, size in found.items() if name not in kept}
