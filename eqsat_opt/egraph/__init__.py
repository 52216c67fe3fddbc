"""The e-graph: schema, loading, saturation and the frozen result; only this room knows egglog."""

from __future__ import annotations

from eqsat_opt.egraph.frozen import EClasses
from eqsat_opt.egraph.lowering import Lowered, TermNode, lower
from eqsat_opt.egraph.rounds import Budget
from eqsat_opt.egraph.saturate import Saturation, SaturationReport, saturate

__all__ = [
    "Budget",
    "EClasses",
    "Lowered",
    "Saturation",
    "SaturationReport",
    "TermNode",
    "lower",
    "saturate",
]
