"""Equality saturation and the published searches on one model, under one cost."""

from __future__ import annotations

from eqsat_opt.comparison.compare import (
    METHODS,
    CompareSettings,
    Comparison,
    MethodResult,
    check,
    compare_methods,
)

__all__ = ["METHODS", "CompareSettings", "Comparison", "MethodResult", "check", "compare_methods"]
