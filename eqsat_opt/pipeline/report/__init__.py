"""What of a run is told: its numbers, and what a further run might add."""

from eqsat_opt.pipeline.report.hints import find_hints
from eqsat_opt.pipeline.report.numbers import (
    report_of,
    rule_notes,
    store_warning,
    unsearched_report,
)

__all__ = ["find_hints", "report_of", "rule_notes", "store_warning", "unsearched_report"]
