"""Equality saturation and the published searches on one model, under one cost."""

from __future__ import annotations

from eqsat_opt.lab.comparison.compare import Subject, checked, priced, run_method, warm_up
from eqsat_opt.lab.comparison.installed import priced_sources
from eqsat_opt.lab.comparison.results import (
    Comparison,
    FailedRun,
    MethodResult,
    Moment,
    Original,
    Runs,
    gathered,
)
from eqsat_opt.lab.comparison.settings import LOCAL, CompareSettings, method_names, parse_budget
from eqsat_opt.lab.search.pricing.plans import planned

__all__ = [
    "LOCAL",
    "CompareSettings",
    "Comparison",
    "FailedRun",
    "MethodResult",
    "Moment",
    "Original",
    "Runs",
    "Subject",
    "checked",
    "gathered",
    "method_names",
    "parse_budget",
    "planned",
    "priced",
    "priced_sources",
    "run_method",
    "warm_up",
]
