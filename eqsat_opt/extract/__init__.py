"""Extraction: the cheapest acyclic choice from an e-graph, with a bound on how far from optimal.

The package works on arrays only. Its entry point is `extract(problem, objective)`; problems come
from `ProblemBuilder` or `gym.read_json`.
"""

from __future__ import annotations

if not __name__.startswith("eqsat_opt."):
    raise ImportError("import eqsat_opt.extract; the top-level link is for readers")

from eqsat_opt.extract.alternatives import alternatives
from eqsat_opt.extract.engine import extract
from eqsat_opt.extract.extraction import Extraction, TracePoint
from eqsat_opt.extract.extractors import EXTRACTORS, Extractor
from eqsat_opt.extract.gym.files import GymFile, read_json, write_json
from eqsat_opt.extract.objective import AnyObjective, Objective, Product, Ratio
from eqsat_opt.extract.pareto import Front, pareto
from eqsat_opt.extract.problem import Problem, ProblemBuilder
from eqsat_opt.extract.spec import parse_objective

__all__ = [
    "EXTRACTORS",
    "AnyObjective",
    "Extraction",
    "Extractor",
    "Front",
    "GymFile",
    "Objective",
    "Problem",
    "ProblemBuilder",
    "Product",
    "Ratio",
    "TracePoint",
    "alternatives",
    "extract",
    "pareto",
    "parse_objective",
    "read_json",
    "write_json",
]
