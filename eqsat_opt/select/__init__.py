"""Instruction selection: the package that joins e-graph, costs, extraction and backends."""

from __future__ import annotations

from eqsat_opt.select.choosing.choose import ChoiceResult, choose, selected
from eqsat_opt.select.choosing.pricing import PricedCandidates
from eqsat_opt.select.rebuilding.constants import spoilt_constants
from eqsat_opt.select.rebuilding.raising import raise_graph, rules_used
from eqsat_opt.select.tiling.candidates import Candidate, Candidates, Selected, Selection
from eqsat_opt.select.tiling.tiling import tile

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
