"""Instruction selection: the joint where e-graph, costs, extraction and backends meet."""

from __future__ import annotations

from eqsat_opt.select.candidates import Candidate, Candidates, Selected, Selection
from eqsat_opt.select.choose import ChoiceResult, choose, selected
from eqsat_opt.select.constants import spoilt_constants
from eqsat_opt.select.pricing import PricedCandidates
from eqsat_opt.select.raising import raise_graph, rules_used
from eqsat_opt.select.tiling import tile

__all__ = [
    "Candidate",
    "Candidates",
    "ChoiceResult",
    "PricedCandidates",
    "Selected",
    "Selection",
    "choose",
    "raise_graph",
    "rules_used",
    "selected",
    "spoilt_constants",
    "tile",
]
