"""Reports on runs: their numbers, and hints on further runs."""

from eqsat_opt.pipeline.report.hints import find_hints
from eqsat_opt.pipeline.report.numbers import (
    report_of,
    rule_notes,
    store_warning,
    unsearched_report,
)

__all__ = ["find_hints", "report_of", "rule_notes", "store_warning", "unsearched_report"]
