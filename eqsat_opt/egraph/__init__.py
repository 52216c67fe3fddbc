"""The e-graph: load a graph, saturate it under rules, read it out; only this package uses egglog.

The input is :mod:`~eqsat_opt.egraph.terms`, the output is :mod:`~eqsat_opt.egraph.frozen`. The
folders, each importing only those before it: ``engine`` and ``encoding``, ``loading``,
``recognition``, then ``saturation`` and ``derivation`` side by side (``docs/egraph.md``).
"""

from __future__ import annotations

from eqsat_opt.egraph.frozen import EClasses
from eqsat_opt.egraph.loading.lowering import lower
from eqsat_opt.egraph.loading.siblings import NO_SEEDS, Seeder, Seeds
from eqsat_opt.egraph.saturation.rounds import Budget
from eqsat_opt.egraph.saturation.saturate import (
    Saturation,
    SaturationReport,
    saturate,
    saturate_terms,
)
from eqsat_opt.egraph.terms import Lowered, TermNode

__all__ = [
    "NO_SEEDS",
    "Budget",
    "EClasses",
    "Lowered",
    "Saturation",
    "SaturationReport",
    "Seeder",
    "Seeds",
    "TermNode",
    "lower",
    "saturate",
    "saturate_terms",
]
