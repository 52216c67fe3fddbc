"""Sizes at which products and quotients of sizes meet what a model demands, found by trying.

A classifier that flattens ``[n, 24, w]`` to rows of 2520 runs at ``w = 105`` only. No linear
equation says so where convolutions and pools stand before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.sizes.equations import Equation, equations
from eqsat_opt.ir.values.dims import SymDim, dim_names, dim_product

__all__ = ["fitted"]

_MOST = 1024
"""Largest size that is tried."""


def fitted(
    graph: Graph,
    sizes: Mapping[str, int],
    names: Sequence[str],
    completed: Callable[[Mapping[str, int]], dict[str, int]],
) -> dict[str, int]:
    """Return sizes that meet more of a graph's demands, changed one name, or all alike, at a time.

    Args:
        graph: the graph.
        sizes: sizes of all names that do not follow from others.
        names: the names among them that may change.
        completed: adds the sizes that follow from others.
    """
    found = completed(sizes)
    for wanted in chain(equations(graph), _flattened(graph)):
        if wanted.holds(found):
            continue
        difference = wanted.left - wanted.right
        own = [name for name in dict.fromkeys(dim_names(difference)) if name in names]
        for group in (*((name,) for name in reversed(own)), tuple(own)):
            start = max((found[name] for name in group), default=1)
            tried = (
                completed({**found, **dict.fromkeys(group, size)})
                for size in chain(range(start, _MOST + 1), range(1, start))
            )
            fitting = next(filter(wanted.holds, tried), None)
            if fitting is not None:
                found = fitting
                break
    return found


def _flattened(graph: Graph) -> Iterator[Equation]:
    """Yield what probably holds where a Reshape leaves the size of an axis to be inferred.

    All axes but the first become one of a literal size; otherwise that size divides the whole.
    """
    for node in graph.nodes:
        before = graph.tensor_type(node.inputs[0]) if node.op == "Reshape" else None
        after = graph.tensor_type(node.output) if before is not None else None
        if before is None or after is None:
            continue
        left, right = dim_product(before.shape), dim_product(after.shape)
        if left == right:  # they fit at any sizes
            continue
        label = node.name or node.op
        rest = dim_product([dim for dim in before.shape if dim != 1][1:])
        inferred = [dim for dim in after.shape if isinstance(dim, SymDim)]
        if len(inferred) == 1 and isinstance(rest, SymDim):
            known = dim_product(dim for dim in after.shape if isinstance(dim, int))
            yield Equation(rest, known, label, is_strict=True)
        yield Equation(left, right, label, is_strict=True)
