"""The class of numerics that a model may have: one with infinities of its own is not `finite`."""

from __future__ import annotations

from dataclasses import replace

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.passes.finiteness import source_of_infinities
from eqsat_opt.pipeline.request import Request

__all__ = ["settled"]


def settled(request: Request, graph: Graph) -> tuple[Request, tuple[str, ...]]:
    """Return the request for a graph in normal form, and a note if it is of a stricter class.

    Where all values are finite for finite inputs, ``finite`` promises all that ``reassociate``
    does. Elsewhere the user would lose that promise without being asked.
    """
    source = source_of_infinities(graph) if request.numerics is Numerics.FINITE else ""
    if not source:
        return request, ()
    strict = Numerics.REASSOCIATE
    rules = request.rules_of(strict) if request.rules else ()
    note = (
        f"numerics are reassociate, not finite: {source} may be infinite or no number; "
        "--numerics refactor allows what finite does, and more"
    )
    return replace(request, numerics=strict, rules=rules), (note,)
