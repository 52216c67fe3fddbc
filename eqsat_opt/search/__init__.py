"""Published searches over graphs, on the same rules, prices and graphs as the e-graph."""

from __future__ import annotations

from eqsat_opt.search.frame import LEVELS, Chosen, Frame, Level, Outcome
from eqsat_opt.search.metaflow import MetaFlow
from eqsat_opt.search.pricing import Offered, Pricer, Prices, Quoted, Usual
from eqsat_opt.search.registry import make_search, search_class, search_names
from eqsat_opt.search.running import Run
from eqsat_opt.search.search import Budget, Search, SearchResult, SearchTrace, StopReason
from eqsat_opt.search.state import State

__all__ = [
    "LEVELS",
    "Budget",
    "Chosen",
    "Frame",
    "Level",
    "MetaFlow",
    "Offered",
    "Outcome",
    "Pricer",
    "Prices",
    "Quoted",
    "Run",
    "Search",
    "SearchResult",
    "SearchTrace",
    "State",
    "StopReason",
    "Usual",
    "make_search",
    "search_class",
    "search_names",
]
