"""Published searches over graphs, on the same rules, prices and graphs as the e-graph."""

from __future__ import annotations

from eqsat_opt.lab.search.frame import LEVELS, Frame, Level
from eqsat_opt.lab.search.methods.metaflow import MetaFlow
from eqsat_opt.lab.search.pricing.board import Board, Reading
from eqsat_opt.lab.search.pricing.outcome import ChosenKernel, PricedGraph
from eqsat_opt.lab.search.pricing.pricing import (
    BackendPricer,
    KernelPricer,
    PriceCache,
    Quoted,
    Usual,
)
from eqsat_opt.lab.search.registry import make_search, search_class, search_names, with_parameters
from eqsat_opt.lab.search.rewriting.state import State
from eqsat_opt.lab.search.running import Run
from eqsat_opt.lab.search.search import Budget, Search, SearchResult, SearchTrace, StopReason

__all__ = [
    "LEVELS",
    "BackendPricer",
    "Board",
    "Budget",
    "ChosenKernel",
    "Frame",
    "KernelPricer",
    "Level",
    "MetaFlow",
    "PriceCache",
    "PricedGraph",
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
