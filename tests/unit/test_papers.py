"""`python -m benchmarks.papers`: verdicts, and that its tables can be run."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from benchmarks.papers import __main__ as papers
from eqsat_opt import zoo
from eqsat_opt.comparison import CompareSettings, parse_budget
from eqsat_opt.errors import OptionError


@pytest.mark.parametrize(
    ("paper", "ours", "said"),
    [
        ((10.0, 8.0), (100.0, 82.0), ""),
        ((10.0, 8.0), (100.0, 65.0), ""),
        ((10.0, 8.0), (100.0, 60.0), "ours falls to 0.600, the paper's falls to 0.800"),
        ((10.0, 8.0), (100.0, 95.0), "ours falls to 0.950, the paper's falls to 0.800"),
        ((10.0, 8.0), (100.0, 100.2), "ours stays at 1.002, the paper's falls to 0.800"),
        ((10.0, 8.0), (100.0, 110.0), "ours rises to 1.100"),
        ((8.0, 10.0), (80.0, 98.0), ""),
        ((10.0, 10.0), (80.0, 80.1), ""),
        ((10.0, 8.0), (0.0, 0.0), "no ratio"),
        ((10.0, 8.0), (float("inf"), 1.0), "no ratio"),
    ],
)
def test_a_change(paper: tuple[float, float], ours: tuple[float, float], said: str) -> None:
    found = papers.change(paper, ours)
    assert (said in found) if said else not found


@pytest.mark.parametrize(
    ("ours", "said"),
    [
        ((3.0, 2.0, 2.0), ""),
        ((3.0, 2.0, 2.005), ""),
        ((3.0, 2.0, 2.1), "b is below c here, and equal to it in the paper"),
        ((2.0, 2.0, 2.0), "a is equal to b here, and above it in the paper"),
    ],
)
def test_an_order(ours: tuple[float, ...], said: str) -> None:
    paper = {"a": 9.5, "b": 8.8, "c": 8.8}
    assert papers.order(paper, dict(zip(paper, ours, strict=True))) == said


def figures() -> list[tuple[str, dict[str, Any]]]:
    found = []
    for table in papers.tables():
        given = tomllib.loads((papers.FOLDER / f"{table}.toml").read_text(encoding="utf-8"))
        assert given["title"]
        assert "20" in given["source"]  # a year
        found += [(table, {**given.get("compare", {}), **one}) for one in given["figure"]]
    return found


def test_every_figure_can_be_told() -> None:
    """Its model, metric and settings exist; one that is not run says why."""
    assert {table for table, _ in figures()} == set(papers.tables()) > {"metaflow", "ocggs"}
    keys = {"where", "what", "paper", "why", "model", "metric", "method", "unit", "our_unit"}
    keys |= {"must_end", "variants", *papers._SETTINGS, *papers._OPTIONS}
    for table, one in figures():
        assert one.keys() <= keys, table
        assert one["where"]
        if isinstance(one["paper"], str):
            assert one["why"]
            continue
        assert one["model"].removeprefix("zoo:") in zoo.names()
        is_order = isinstance(one["paper"], dict)
        used = one["paper"] if is_order and "variants" not in one else [one["method"]]
        assert set(used) <= set(one["methods"])
        assert len(one["paper"]) >= 2
        settings: dict[str, Any] = {
            name: one[name] for name in ("device", "level", "objective") if name in one
        }
        settings["budget"] = parse_budget([one["budget"]])
        parameters = {k: v for k, v in one.get("set", {}).items() if k in one["methods"]}
        assert parameters == one.get("set", {})
        if one.get("objective") == "energy":
            # No profile that ships has a model of it: the table brings its own.
            with pytest.raises(OptionError, match="tells no energy"):
                CompareSettings(tuple(one["methods"]), parameters, **settings)
            settings["energy_model"] = str(papers.FOLDER / one["energy_model"])
        variants = one.get("variants", {"": {}})
        if "variants" in one:
            assert list(variants) == (list(one["paper"]) if is_order else ["before", "after"])
        for varied in variants.values():
            every = {**parameters, one["method"]: varied} if varied else parameters
            CompareSettings(tuple(one["methods"]), every, **settings)


def test_a_table_from_the_command_line(tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    command = [sys.executable, "-m", "benchmarks.papers"]
    done = subprocess.run(
        [*command, "collage", "--json", str(output)], capture_output=True, text=True, check=True
    )
    assert "## Collage" in done.stdout
    found = json.loads(output.read_text(encoding="utf-8"))["collage"]
    assert {one["verdict"] for one in found} == {"not comparable"}
    assert all(one["why"] for one in found)
    done = subprocess.run([*command, "tables"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "choose from" in done.stderr


def test_a_figure_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours comes from a comparison with the settings of the table."""
    from eqsat_opt.comparing import whole, worker

    monkeypatch.setattr(whole, "run_apart", worker.run_here)
    common = {"methods": ["metaflow"], "rules": "matmul/assoc", "budget": "20", "device": "v100"}
    given = {"where": "Table 1", "what": "chain", "model": "zoo:weight_chain@tiny"}
    change = {**given, "metric": "kernels", "method": "metaflow", "paper": [4, 2]}
    found = papers._figure(change, common, None)
    assert (found.ours, found.verdict, found.why) == ("2 → 1", "reproduced", "")
    found = papers._figure({**change, "paper": [4, 4]}, common, None)
    assert found.verdict == "not reproduced"
    variants = {"before": {"alpha": 1.0}, "after": {"alpha": 1.1}}
    found = papers._figure({**change, "variants": variants, "paper": [2, 2]}, common, None)
    assert (found.ours, found.verdict) == ("1 → 1", "reproduced")
    found = papers._figure(
        {**change, "variants": variants, "paper": {"before": 2, "after": 1}}, common, None
    )
    assert (found.ours, found.verdict) == ("before 1, after 1", "not reproduced")
    assert "before is equal to after here" in found.why
    order: dict[str, Any] = {
        **given,
        "metric": "cost",
        "methods": ["eqsat", "metaflow"],
        "must_end": ["metaflow"],
    }
    order["paper"] = {"eqsat": 1.0, "metaflow": 1.0}
    assert papers._figure(order, common, None).verdict == "reproduced"
    found = papers._figure({**order, "budget": "1"}, common, None)
    assert (found.verdict, found.ours) == ("not comparable", "")
    assert "metaflow ended by its limit" in found.why
