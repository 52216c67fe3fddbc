"""Choice of the kernels that are offered as generated launches: those without redundant work.

The measured price decides whether an offered kernel is chosen. Kernels that are left out here would
be correct as well, but are never worth the compiler's time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from eqsat_opt.ir.graph.graph import Graph, Node
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.values.types import StaticType
from eqsat_opt.runtime.backends.generated.building import built
from eqsat_opt.runtime.backends.generated.lowering import fits
from eqsat_opt.runtime.backends.generated.regions import MOST_PARTS
from eqsat_opt.runtime.backends.generated.term_translator import Unfit

__all__ = ["LEFT_OUT", "is_eligible", "is_launched"]

LEFT_OUT: Mapping[str, str] = {
    "Attention": "each weight would be computed once for every column of the values",
    "MaskedAttention": "each weight would be computed once for every column of the values",
    "ConvTranspose": "each element would look at all elements and weights for those that meet it",
    "CumSum": "each element would add up anew all before it",
    "Gather": "others copy whole slices",
    "TopK": "each element would be compared with all others, once for each that is wanted",
}
"""Operators whose generated kernel is always too slow on a processor, with the reason."""

_MOST_WORK = 20_000_000
"""Limit of the statements of one run; longer products and convolutions go to other backends."""


def is_eligible(graph: Graph, nodes: Sequence[Node], outputs: Sequence[str]) -> bool:
    """Return whether some nodes are offered as one generated kernel.

    They must be of float32 and literal sizes.
    """
    if any(node.op in LEFT_OUT or len(node.inputs) > MOST_PARTS for node in nodes):
        return False
    if fits(graph, nodes, outputs):
        return True
    for name in {name for node in nodes for name in (*node.inputs, *node.outputs)}:
        type_ = graph.tensor_type(name)
        if not isinstance(type_, StaticType) or type_.dtype != "float32":
            return False
        if not type_.size:
            return False
    try:
        return built(graph, nodes, outputs, target="cpu").work <= _MOST_WORK
    except Unfit:
        return False


@lru_cache(maxsize=1 << 12)
def is_launched(kernel: Kernel) -> bool:
    """Return whether a kernel is offered as one generated kernel."""
    graph = kernel.to_graph()
    return is_eligible(graph, graph.nodes, graph.outputs)
