"""Published searches over graphs, on the same rules, prices and graphs as the e-graph."""

from __future__ import annotations

from eqsat_opt.search.metaflow import MetaFlow
from eqsat_opt.search.registry import make_search, search_names
from eqsat_opt.search.search import (
    Frame,
    Search,
    SearchBudget,
    SearchResult,
    SearchTrace,
    StopReason,
)

__all__ = [
    "Frame",
    "MetaFlow",
    "Search",
    "SearchBudget",
    "SearchResult",
    "SearchTrace",
    "StopReason",
    "make_search",
    "search_names",
]
