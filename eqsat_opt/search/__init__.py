"""Published searches over graphs, on the same rules, prices and graphs as the e-graph."""

from __future__ import annotations

from eqsat_opt.search.board import Board, Reading
from eqsat_opt.search.frame import LEVELS, Frame, Level
from eqsat_opt.search.metaflow import MetaFlow
from eqsat_opt.search.outcome import Chosen, Outcome
from eqsat_opt.search.pricing import Offered, Pricer, Prices, Quoted, Usual
from eqsat_opt.search.registry import make_search, search_class, search_names, with_parameters
from eqsat_opt.search.running import Run
from eqsat_opt.search.search import Budget, Search, SearchResult, SearchTrace, StopReason
from eqsat_opt.search.state import State

__all__ = [
    "LEVELS",
    "Board",
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
    "Reading",
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
    "with_parameters",
]
