"""Stages of searches over small graphs, and equality of values that hold arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from eqsat_opt.common.codecs import document_text
from eqsat_opt.cost.pricing import Pricer
from eqsat_opt.cost.quotes import AnyPricer
from eqsat_opt.egraph import Budget
from eqsat_opt.extract import Objective
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.proving.selection import default_rules
from eqsat_opt.rules import Numerics
from eqsat_opt.select.proposal import Proposal, SearchOptions, propose
from eqsat_opt.select.stages import StageValue, stage_document

RULES = default_rules(Numerics.REFACTOR)


def proposal_of(graph: Graph, **sizes: int) -> Proposal:
    """A small search that measures nothing."""
    return proposal_by(Pricer(None, 1), graph, sizes)


def proposal_by(pricer: AnyPricer, graph: Graph, sizes: Mapping[str, int]) -> Proposal:
    """A small search with the prices of a pricer as they are."""
    budget = Budget(nodes=1_500, iterations=4, algebra_iterations=1)
    options = SearchOptions(Objective({"time_us": 1.0}), budget, sizes, measure=False)
    return propose(graph, RULES, pricer, options)


def parsed(value: StageValue) -> Any:
    """What a reader gets of a written stage."""
    return json.loads(document_text(stage_document(value)))


def difference(one: Any, other: Any, path: str = "value") -> str:
    """Where two values differ in a field, a type or an element; empty if nowhere."""
    if type(one) is not type(other):
        return f"{path}: {type(one).__name__} is no {type(other).__name__}"
    if isinstance(one, np.ndarray):
        same = one.dtype == other.dtype and np.array_equal(one, other)
        return "" if same else f"{path}: {one} is not {other}"
    if is_dataclass(one) and not isinstance(one, type):
        pairs = [
            (f.name, getattr(one, f.name), getattr(other, f.name)) for f in fields(one) if f.compare
        ]
    elif isinstance(one, Mapping):
        if one.keys() != other.keys():
            return f"{path}: {one.keys() ^ other.keys()} in one only"
        pairs = [(str(key), value, other[key]) for key, value in one.items()]
    elif isinstance(one, tuple):
        if len(one) != len(other):
            return f"{path}: {len(one)} and {len(other)} elements"
        pairs = [(str(i), *pair) for i, pair in enumerate(zip(one, other, strict=True))]
    else:
        return "" if one == other and repr(one) == repr(other) else f"{path}: {one} is not {other}"
    found = (difference(a, b, f"{path}.{name}") for name, a, b in pairs)
    return next(filter(None, found), "")
