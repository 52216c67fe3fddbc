"""A search is one file, and a row of the table of searches or an entry point of a package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.examples.house import House

PAGE = (Path(__file__).parents[2] / "docs/own-searches.md").read_text(encoding="utf-8")
WALK = PAGE.partition("```python\n")[2].partition("```")[0]

FOLDER = "eqsat_opt/lab/search"
ROW = '    "metaflow": "MetaFlow",\n'
MODEL = "zoo:linear_attention@tiny"


def test_the_page_holds_a_short_search() -> None:
    assert 20 < len(WALK.splitlines()) <= 40


def as_row(house: House) -> House:
    """In the folder of searches, and in its table."""
    (house.path / FOLDER / "methods" / "walk.py").write_text(WALK)
    return house.with_edits({f"{FOLDER}/registry.py": (ROW, f'{ROW}    "walk": "Walk",\n')})


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
    command = ("-m", "eqsat_opt", "compare", MODEL, "--json", "-", "--threads", "1")
    done = house.run(*command, *arguments, "--set", "walk.length=8", "--rules", "matmul")
    assert done.returncode == 0, done.stderr
    value: dict[str, Any] = json.loads(done.stdout)
    return value


def test_it_is_compared_with_the_others(house: House) -> None:
    """A seed gives the same walk again, and another seed another one; the outputs agree."""
    found = compared(house, "--methods", "walk", "--seed", "0", "--seeds", "2")
    assert found["settings"]["parameters"] == {"walk": {"length": 8}}
    walk, other = found["results"]
    assert (walk["method"], walk["graphs"], walk["stopped_by"]) == ("walk", 8, "exhausted")
    assert (walk["why"], walk["lower_bound"]) == ("", None)
    assert walk["cost"] < found["original_cost"]
    (again,) = compared(house, "--methods", "walk", "--check", "0")["results"]
    assert again["rules"] == walk["rules"] != other["rules"]


MISTAKES = [
    (("--methods", "wander"), "unknown method 'wander'; choose from eqsat, "),
    (("--methods", "walk", "--set", "walk.length=far"), "walk.length is 'far'; give a whole"),
    (("--methods", "walk", "--set", "walk.length=0"), "length is 0; give at least 1"),
    (("--methods", "walk", "--set", "walk.speed=1"), "no parameter 'speed'; choose from length"),
    (("--methods", "eqsat", "--set", "walk.length=1"), "is not among the methods"),
]
NO_SEARCHES = [
    (("--methods", "lost"), "the installed search 'lost' (nowhere:Lost) cannot be loaded"),
    (("--methods", "odd"), "it must be a dataclass of this name"),
]


def test_mistakes_are_one_line(house: House) -> None:
    mistakes = MISTAKES + NO_SEARCHES * (house.path / "walk.py").exists()
    done = house.commands([("compare", MODEL, *arguments) for arguments, _ in mistakes])
    for one, (_, said) in zip(done, mistakes, strict=True):
        assert (one.returncode, one.stdout, one.stderr.count("\n")) == (1, "", 1)
        assert said in one.stderr
