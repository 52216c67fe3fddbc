"""Graphs of independent parts on random graphs, beside all graphs one by one."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.cost.analytic import ProfilePricer
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.lab.search import BackendPricer, Budget, Frame, PriceCache
from eqsat_opt.lab.search.frame import Level
from eqsat_opt.lab.search.methods.independence import search_parts
from eqsat_opt.lab.search.methods.metaflow import backtrack
from eqsat_opt.lab.search.running import Run
from eqsat_opt.lab.testing import GraphMaker
from eqsat_opt.proving.selection import load_rules
from eqsat_opt.runtime.devices.profile import load_profile

RULES = tuple(load_rules("metaflow", Numerics.REFACTOR))
PRICER = ProfilePricer(load_profile("v100"))
LARGE = 100.0
"""Times as many operators: no graph of these rules is left out."""


def random_graph(seed: int, operators: int = 10) -> Graph:
    """Products, sums, activations, Slices and Concats of 4 x 4 values, one of which is an input."""
    draw, g = random.Random(seed), GraphMaker()
    values = [g.input("x", 4, 4)]
    weights = [g.weight(4, 4) for _ in range(3)]
    while len(values) <= operators:
        one, other = draw.choice(values[-4:]), draw.choice(values[-4:])
        match draw.choice(("MatMul", "MatMul", "Relu", "Add", "Sub", "halves", "halves")):
            case "MatMul":
                made = g("MatMul", one, draw.choice(weights))
            case "Relu":
                made = g("Relu", one)
            case "halves":
                first = g("Slice", one, axis=1, lo=0, hi=2)
                second = g("Slice", draw.choice((one, other)), axis=1, lo=2, hi=4)
                made = g("Concat", draw.choice((first, g("Relu", first))), second, axis=1)
            case op:
                made = g(op, one, other)
        values.append(made)
    return g.graph(*values[-2:])


def framed(graph: Graph, level: Level) -> Frame:
    prices = PriceCache.of(BackendPricer(PRICER))
    return Frame(graph, RULES, prices, level, backends=PRICER.backends)


def judge(seed: int, level: Level, most: int = 200) -> Counter[str]:
    """Compare the number of graphs, and the cheapest, with those of a search without parts."""
    graph = random_graph(seed)
    plain = Run(framed(graph, level), Budget(most))
    with plain:
        backtrack(plain, plain.frame.start, math.inf, growth=LARGE)
    if plain.is_spent:
        return Counter(["too many graphs"])
    run = Run(framed(graph, level), Budget(0))
    with run:
        parts = search_parts(run, LARGE)
    assert math.prod(len(part.graphs) for part in parts) == plain.graphs
    assert run.best.value == pytest.approx(plain.best.value, rel=1e-9)
    several = sum(len(part.graphs) > 1 for part in parts)
    return Counter(["several parts" if several > 1 else "one part" if several else "one graph"])


def total(seeds: range) -> Counter[str]:
    levels: tuple[Level, ...] = ("operators", "kernels")
    return sum((judge(seed, level) for seed in seeds for level in levels), Counter[str]())


def test_parts_have_all_graphs_together() -> None:
    counts = total(range(12))
    assert counts["several parts"] >= 4
    assert counts["one part"]


@pytest.mark.slow
def test_parts_of_many_graphs_have_all_together() -> None:
    counts = total(range(500))
    assert counts["several parts"] >= 100
