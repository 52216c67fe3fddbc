"""The normal form of a graph, which rules, kernels and reports expect: a list of passes."""

from __future__ import annotations

from functools import partial

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.passes.affine import fold_affine
from eqsat_opt.ir.passes.batch_normalisation import lower_batch_normalisation
from eqsat_opt.ir.passes.infinite_products import with_fixed_infinities
from eqsat_opt.ir.passes.protocol import Pass, run_passes, since, up_to
from eqsat_opt.ir.passes.simplification.simplify import simplify

__all__ = ["NORMAL_FORM", "normalise"]

_SIMPLIFY = tuple(
    Pass("simplify", partial(simplify, numerics=one), frozenset({one})) for one in Numerics
)
"""Rows for each class; its cases depend on the class."""

NORMAL_FORM: tuple[Pass, ...] = (
    *_SIMPLIFY,
    Pass("batch-normalisation", lower_batch_normalisation, since(Numerics.REASSOCIATE)),
    Pass("affine", fold_affine, since(Numerics.REASSOCIATE)),
    *_SIMPLIFY,
    Pass("infinite-products", with_fixed_infinities, up_to(Numerics.FINITE)),
)
"""The passes of the normal form, in the order in which they run."""


def normalise(graph: Graph, *, numerics: Numerics = Numerics.REASSOCIATE) -> Graph:
    """Return an equal graph in normal form.

    Args:
        graph: any graph; it is not changed.
        numerics: the class of allowed differences. ``bitexact`` folds only operations whose results
            IEEE 754 determines; ``reassociate`` folds all constants, and normalisation into
            weights; ``relaxed`` drops ``x + 0`` too, which changes the sign of zero.
    """
    return run_passes(NORMAL_FORM, graph, numerics)
