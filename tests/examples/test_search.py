"""A search is one file, and a row of the table of searches or an entry point of a package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.examples.house import House

WALK = '''"""A random walk: any rewrite of the graph that the last one made."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import ClassVar

from eqsat_opt.cost.operators import graph_cost_us
from eqsat_opt.errors import OptionError
from eqsat_opt.search.decoding import decode
from eqsat_opt.search.matching import Matching
from eqsat_opt.search.rewriting import Workbench
from eqsat_opt.search.search import Frame, SearchBudget, SearchResult, SearchTrace
from eqsat_opt.search.terms import PICOSECONDS, Terms


@dataclass(frozen=True)
class Walk:
    """The walk.

    Attributes:
        length: rewrites, at most.
    """

    name: ClassVar[str] = "walk"
    exact: ClassVar[bool] = False

    length: int = 10

    def __post_init__(self) -> None:
        if self.length < 1:
            raise OptionError(f"length is {self.length}; give at least 1")

    def run(self, frame: Frame, budget: SearchBudget, seed: int) -> SearchResult:
        """The cheapest graph on the way."""
        started = time.perf_counter()
        draw = random.Random(seed)
        terms = Terms(frame.graph, frame.cost)
        matching = Matching(terms, frame.rules)
        graph = best = terms.start()
        path: list[str] = []
        steps: tuple[str, ...] = ()
        trace = []
        while len(path) < self.length and (rewrites := matching.rewrites(graph)):
            rewrite = draw.choice(rewrites)
            graph = Workbench(terms, graph).apply(rewrite)
            path.append(rewrite.rule)
            if graph.cost_ps < best.cost_ps:
                best, steps = graph, tuple(path)
                spent_s, cost_us = time.perf_counter() - started, graph.cost_ps / PICOSECONDS
                trace.append(SearchTrace(len(path), len(path), spent_s, cost_us))
        found = decode(terms, best) if steps else frame.graph
        return SearchResult(
            graph=found,
            cost_us=graph_cost_us(found, frame.cost),
            original_cost_us=graph_cost_us(frame.graph, frame.cost),
            steps=steps,
            trace=tuple(trace),
            stopped_by="graphs" if len(path) == self.length else "exhausted",
            time_s=time.perf_counter() - started,
            graphs=1 + len(path),
            tried=len(path),
        )
'''

FOLDER = "eqsat_opt/search"
IMPORT = "from eqsat_opt.search.metaflow import MetaFlow\n"
ROW = "(MetaFlow, Enumeration, Pruning, Dpp, Sampling)"
MODEL = "zoo:linear_attention@tiny"


def as_row(house: House) -> House:
    """In the folder of searches, and in its table."""
    (house.path / FOLDER / "walk.py").write_text(WALK)
    table = f"{FOLDER}/registry.py"
    house.with_edits({table: (IMPORT, f"{IMPORT}from eqsat_opt.search.walk import Walk\n")})
    return house.with_edits({table: (ROW, ROW.replace("Sampling", "Sampling, Walk"))})


def as_package(house: House) -> House:
    """A module of its own and what an installer writes beside it."""
    (house.path / "walk.py").write_text(WALK)
    facts = house.path / "walk-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: walk\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(
        "[eqsat_opt.searches]\nwalk = walk:Walk\nlost = nowhere:Lost\nodd = json:dumps\n"
    )
    return house


@pytest.fixture(scope="module", params=[as_row, as_package])
def house(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> House:
    house: House = request.param(House.copied_to(tmp_path_factory.mktemp("house")))
    return house


def compared(house: House, *arguments: str) -> dict[str, Any]:
    command = ("-m", "eqsat_opt", "compare", MODEL, "--methods", "walk,eqsat", "--json", "-")
    done = house.run(*command, "--threads", "1", *arguments)
    assert done.returncode == 0, done.stderr
    value: dict[str, Any] = json.loads(done.stdout)
    return value


def test_it_is_compared_with_the_others(house: House) -> None:
    """A seed gives the same walk again, and another seed another one; the outputs agree."""
    found = [compared(house, "--set", "walk.length=8", "--seed", seed) for seed in "002"]
    assert found[0]["settings"]["parameters"] == {"walk": {"length": 8}}
    walk, again, other = (one["results"][0] for one in found)
    assert (walk["method"], walk["graphs"], walk["stopped_by"]) == ("walk", 9, "graphs")
    assert (walk["why"], walk["lower_bound_us"]) == ("", None)
    bound_us = found[0]["results"][1]["lower_bound_us"]
    assert bound_us * (1 - 1e-9) <= walk["cost_us"] < found[0]["original_cost_us"]
    assert again["rules"] == walk["rules"] != other["rules"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--methods", "wander"), "unknown method 'wander'; choose from eqsat, metaflow, "),
        (("--methods", "walk", "--set", "walk.length=far"), "walk.length is 'far'; give a whole"),
        (("--methods", "walk", "--set", "walk.length=0"), "length is 0; give at least 1"),
        (
            ("--methods", "walk", "--set", "walk.speed=1"),
            "no parameter 'speed'; choose from length",
        ),
        (("--methods", "eqsat", "--set", "walk.length=1"), "is not a search among the methods"),
    ],
)
def test_mistakes_are_one_line(house: House, arguments: tuple[str, ...], said: str) -> None:
    done = house.run("-m", "eqsat_opt", "compare", MODEL, *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert said in done.stderr


@pytest.mark.parametrize(("name", "said"), [("lost", "cannot be loaded"), ("odd", "dataclass")])
def test_packages_that_hold_no_search(name: str, said: str, tmp_path: Path) -> None:
    house = as_package(House.copied_to(tmp_path))
    done = house.run("-m", "eqsat_opt", "compare", MODEL, "--methods", name)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert f"the installed search {name!r}" in done.stderr
    assert said in done.stderr
