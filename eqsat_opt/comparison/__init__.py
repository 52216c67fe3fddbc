"""Equality saturation and the published searches on one model, under one cost."""

from __future__ import annotations

from eqsat_opt.comparison.compare import check, compare_methods
from eqsat_opt.comparison.results import Comparison, MethodResult, Moment
from eqsat_opt.comparison.settings import CompareSettings, method_names, parse_budget

__all__ = [
    "CompareSettings",
    "Comparison",
    "MethodResult",
    "Moment",
    "check",
    "compare_methods",
    "method_names",
    "parse_budget",
]
