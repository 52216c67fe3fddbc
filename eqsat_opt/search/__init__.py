"""Published searches over graphs, on the same rules, prices and graphs as the e-graph."""

from __future__ import annotations

from eqsat_opt.search.metaflow import MetaFlow
from eqsat_opt.search.search import (
    Search,
    SearchBudget,
    SearchResult,
    SearchTrace,
    StopReason,
)

__all__ = ["MetaFlow", "Search", "SearchBudget", "SearchResult", "SearchTrace", "StopReason"]
