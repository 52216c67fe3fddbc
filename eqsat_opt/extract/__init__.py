"""Extraction: the cheapest acyclic choice from an e-graph, with a bound on how far from optimal.

Knows arrays only. `extract(problem, objective)` is the way in; problems come from `ProblemBuilder`
or `gym.read_json`.
"""

from __future__ import annotations

if not __name__.startswith("eqsat_opt."):
    raise ImportError("import eqsat_opt.extract; the top-level link is for readers")

from eqsat_opt.extract.alternatives import alternatives
from eqsat_opt.extract.engine import extract
from eqsat_opt.extract.extraction import Extraction, TracePoint
from eqsat_opt.extract.extractors import EXTRACTORS, Extractor
from eqsat_opt.extract.gym import GymFile, read_json, write_json
from eqsat_opt.extract.objective import Objective
from eqsat_opt.extract.problem import Problem, ProblemBuilder

__all__ = [
    "EXTRACTORS",
    "Extraction",
    "Extractor",
    "GymFile",
    "Objective",
    "Problem",
    "ProblemBuilder",
    "TracePoint",
    "alternatives",
    "extract",
    "read_json",
    "write_json",
]
