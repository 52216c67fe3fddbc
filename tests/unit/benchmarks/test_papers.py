"""`python -m benchmarks.papers`: verdicts, and that its tables can be run."""

from __future__ import annotations

import json
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.papers import __main__ as papers
from benchmarks.papers import cells, figures, verdicts
from eqsat_opt import api
from eqsat_opt.errors import OptionError
from eqsat_opt.lab import zoo
from eqsat_opt.lab.comparison import CompareSettings, parse_budget


@pytest.mark.parametrize(
    ("paper", "ours", "verdict", "said"),
    [
        ((10.0, 8.0), (100.0, 82.0), "reproduced", ""),
        ((10.0, 8.0), (100.0, 65.0), "reproduced", ""),
        ((10.0, 8.0), (100.0, 60.0), "reproduced", "more than twice as far: ours falls to 0.600"),
        ((10.0, 8.0), (100.0, 95.0), "reproduced", "less than half as far: ours falls to 0.950"),
        ((10.0, 8.0), (100.0, 100.2), "not shown", "stays at 1.002, the paper's falls to 0.8"),
        ((10.0, 8.0), (100.0, 110.0), "opposite", "ours rises to 1.100"),
        ((8.0, 10.0), (80.0, 98.0), "reproduced", ""),
        ((10.0, 10.0), (80.0, 80.1), "reproduced", ""),
        (
            (10.0, 10.0),
            (80.0, 90.0),
            "not shown",
            "ours rises to 1.125, the paper's stays",
        ),
        ((10.0, 8.0), (0.0, 0.0), "not comparable", "no ratio"),
        ((10.0, 8.0), (float("inf"), 1.0), "not comparable", "no ratio"),
    ],
)
def test_a_change(
    paper: tuple[float, float], ours: tuple[float, float], verdict: str, said: str
) -> None:
    found, why = verdicts.change(paper, ours)
    assert found == verdict
    assert (said in why) if said else not why


@pytest.mark.parametrize(
    ("ours", "verdict", "said"),
    [
        ((3.0, 2.0, 2.0), "reproduced", ""),
        ((3.0, 2.0, 2.005), "reproduced", ""),
        ((3.0, 2.0, 2.1), "not shown", "b is below c here, and equal to it in the paper"),
        ((2.0, 2.0, 2.0), "not shown", "a is equal to b here, and above it in the paper"),
        ((2.0, 2.0, 3.0), "opposite", "a is below c here, and above it in the paper"),
    ],
)
def test_an_order(ours: tuple[float, ...], verdict: str, said: str) -> None:
    paper = {"a": 9.5, "b": 8.8, "c": 8.8}
    assert verdicts.order(paper, dict(zip(paper, ours, strict=True))) == (verdict, said)


def test_the_budget_from_which_a_verdict_holds() -> None:
    def figure(verdict: str, cpu_s: float, why: str = "") -> verdicts.Figure:
        return verdicts.Figure("", "", "", "1", verdict=verdict, cpu_s=cpu_s, why=why)

    same = verdicts.settled([figure("opposite", 1), figure("opposite", 4, "x")])
    assert (same.cpu_s, same.since_s, same.why) == (4, 1, "x")
    other = verdicts.settled(
        [figure("opposite", 1), figure("reproduced", 2), figure("reproduced", 4)]
    )
    assert (other.cpu_s, other.since_s, other.why) == (4, 2, "opposite with 1 s")
    assert [row[-1] for row in papers.rows_of([same, other])] == ["4, from 1", "4, from 2"]


FIGURE = verdicts.Figure("Figure 1", "it", "1", ours="1", verdict="reproduced")


def all_figures() -> list[tuple[str, dict[str, Any]]]:
    found = []
    for table in figures.tables():
        given = tomllib.loads((figures.FOLDER / f"{table}.toml").read_text(encoding="utf-8"))
        assert given["title"]
        assert "20" in given["source"]  # a year
        found += [(table, {**given.get("compare", {}), **one}) for one in given["figure"]]
    return found


def require_sides(one: dict[str, Any]) -> None:
    """Each side is a comparison of one method; a figure that is a number names them."""
    assert one["metric"]
    assert one["model"].removeprefix("zoo:").partition("@")[0] in zoo.names()
    assert isinstance(one["paper"], str) or one["paper"].keys() >= one["sides"].keys()
    for side in one["sides"].values():
        assert side.keys() <= {*figures._SETTINGS, *figures._OPTIONS}
        given = {**one, **side}
        (method,) = given["methods"]
        assert given.get("set", {}).keys() <= {method}
        names = ("device", "level", "objective", "measure")
        settings = {name: given[name] for name in names if name in given}
        if "energy_model" in given:
            settings["energy_model"] = str(figures.FOLDER / given["energy_model"])
        CompareSettings((method,), given.get("set", {}), **settings)


def test_what_never_rises() -> None:
    assert verdicts.falling({"a": 3.0, "b": 2.0, "c": 2.001}) == ("reproduced", "")
    assert verdicts.falling({"a": 3.0, "b": 2.0, "c": 2.1}) == ("opposite", "c is above b")
    assert verdicts.falling({"a": 3.0, "b": 3.0})[0] == "not shown"


def test_every_figure_can_be_told() -> None:
    """Its model, metric and settings exist; one that is not run says why."""
    assert {table for table, _ in all_figures()} == set(figures.tables()) > {"metaflow", "ocggs"}
    keys = {"where", "what", "paper", "why", "model", "metric", "method", "unit", "our_unit"}
    keys |= {"must_end", "variants", "sides", *figures._SETTINGS, *figures._OPTIONS}
    for table, one in all_figures():
        assert one.keys() <= keys, table
        assert one["where"]
        if "sides" in one:
            require_sides(one)
            continue
        if isinstance(one["paper"], str):
            assert one["why"]
            continue
        assert one["model"].removeprefix("zoo:").partition("@")[0] in zoo.names()
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
            settings["energy_model"] = str(figures.FOLDER / one["energy_model"])
        variants = one.get("variants", {"": {}})
        if "variants" in one:
            assert list(variants) == (list(one["paper"]) if is_order else ["before", "after"])
        for varied in variants.values():
            every = {**parameters, one["method"]: varied} if varied else parameters
            CompareSettings(tuple(one["methods"]), every, **settings)


def test_a_table_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = 'title = "Some paper"\nsource = "2022"\n[[figure]]\nwhere = "§1"\nwhat = "speed"\n'
    (tmp_path / "some.toml").write_text(f'{text}paper = "twice"\nwhy = "no such device"\n')
    monkeypatch.setattr(figures, "FOLDER", tmp_path)
    output = tmp_path / "out.json"
    monkeypatch.setattr(sys, "argv", ["papers", "some", "--json", str(output)])
    papers.main()
    assert "## Some paper" in capsys.readouterr().out
    (found,) = json.loads(output.read_text(encoding="utf-8"))["some"]
    assert (found["verdict"], found["why"]) == ("not comparable", "no such device")
    folder = tmp_path / "cells"
    for _ in range(2):  # the second time it is read
        monkeypatch.setattr(sys, "argv", ["papers", "--cpu", "1", "2", "--save", str(folder)])
        papers.main()
        monkeypatch.setattr(cells, "figure_of", None)
    assert len(list(folder.iterdir())) == 1  # what is not run has no budget
    monkeypatch.setattr(sys, "argv", ["papers", "tables"])
    with pytest.raises(SystemExit, match="there is no table 'tables'; choose from some"):
        papers.main()


def test_cells_go_to_other_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers find them by their module, and what came back is stored though one is lost."""
    own = list(cells.cells_of("collage", [1.0, 2.0]))
    assert {cells.told.__module__, cells.PaperCell.__module__} == {"benchmarks.papers.cells"}
    assert len({one.file for one in own}) == len(own)
    monkeypatch.setattr(cells, "told", lambda cell: asdict(FIGURE) if cell != own[1] else 1 / 0)
    with ThreadPoolExecutor(1) as executor, pytest.raises(SystemExit, match="run again"):
        cells.computed(own[:3], tmp_path, executor)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_figure_of_several_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    from eqsat_opt.lab.experiments import whole, worker

    monkeypatch.setattr(whole, "run_apart", worker.run_here)
    common = {"methods": ["metaflow"], "rules": "matmul/assoc", "budget": "20", "device": "v100"}
    given: dict[str, Any] = {
        "where": "Figure 1",
        "what": "chain",
        "model": "zoo:weight_chain@tiny",
        "metric": "uses of matmul/assoc",
        "sides": {"without": {"rules": "concat/add"}},
    }
    found = figures.figure_of({**given, "paper": {"without": 0, "metaflow": 3}}, common, None)
    assert (found.verdict, found.paper) == ("reproduced", "without 0, metaflow 3")
    given["sides"]["with"] = {"budget": "20"}
    found = figures.figure_of({**given, "paper": "falls", "metric": "cost"}, common, None)
    assert (found.verdict, found.paper) == ("reproduced", "falls")


def test_a_figure_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours comes from a comparison with the settings of the table."""
    from eqsat_opt.lab.experiments import whole, worker

    monkeypatch.setattr(whole, "run_apart", worker.run_here)
    common = {"methods": ["metaflow"], "rules": "matmul/assoc", "budget": "20", "device": "v100"}
    given = {"where": "Table 1", "what": "chain", "model": "zoo:weight_chain@tiny"}
    change = {**given, "metric": "kernels", "method": "metaflow", "paper": [4, 2]}
    found = figures.figure_of(change, common, None)
    assert (found.ours, found.verdict, found.why) == ("2 → 1", "reproduced", "")
    found = figures.figure_of({**change, "paper": [4, 4]}, common, None)
    assert found.verdict == "not shown"
    variants = {"before": {"alpha": 1.0}, "after": {"alpha": 1.1}}
    found = figures.figure_of({**change, "variants": variants, "paper": [2, 2]}, common, None)
    assert (found.ours, found.verdict) == ("1 → 1", "reproduced")
    found = figures.figure_of(
        {**change, "variants": variants, "paper": {"before": 2, "after": 1}}, common, None
    )
    assert (found.ours, found.verdict) == ("before 1, after 1", "not shown")
    assert "before is equal to after here" in found.why
    order: dict[str, Any] = {
        **given,
        "metric": "cost",
        "methods": ["eqsat", "metaflow"],
        "must_end": ["metaflow"],
    }
    order["paper"] = {"eqsat": 1.0, "metaflow": 1.0}
    assert figures.figure_of(order, common, None).verdict == "reproduced"
    found = figures.figure_of({**order, "budget": "1"}, common, None)
    assert (found.verdict, found.ours) == ("not comparable", "")
    assert "metaflow ended by its limit" in found.why
    idle = {**order, "metric": "cpu_s", "rules": "softmax", "methods": ["taso", "metaflow"]}
    found = figures.figure_of({**idle, "paper": {"taso": 2.0, "metaflow": 1.0}}, common, None)
    assert (found.verdict, found.why) == (
        "not comparable",
        "no rule applies here, so neither searches",
    )


@pytest.mark.parametrize(
    ("times", "said", "verdict", "why"),
    [
        ((100.0, 110.0), {}, "reproduced", ""),
        ((100.0, 102.0), {}, "not shown", "fast is equal to slow here"),
        ((100.0, 110.0), {"refusal": "too busy"}, "not comparable", "too busy"),
        ((100.0, 110.0), {"note": "left early"}, "not comparable", "slow left early"),
        ((100.0, 110.0), {"race": None}, "not comparable", "no race was held"),
    ],
)
def test_a_measured_figure(
    times: tuple[float, float],
    said: dict[str, Any],
    verdict: str,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A race tells, in which small differences are ties, unless it was refused."""
    paper = {"fast": 1.0, "slow": 2.0}
    told = {"original": 90.0, **dict(zip(paper, times, strict=True))}
    entries = {
        name: SimpleNamespace(name=name, median_us=time_us, note="")
        for name, time_us in told.items()
    }
    entries["slow"].note = said.get("note", "")
    race = SimpleNamespace(original="original", threshold=0.03, entries=entries)
    results = [SimpleNamespace(method=name, stopped_by="exhausted", tried=1) for name in paper]
    runs = [
        SimpleNamespace(method=one.method, median=one, results=(one,), failures=())
        for one in results
    ]
    asked = []

    def compared(model: str, given: str) -> Any:
        asked.append(json.loads(given)["metric"])
        return SimpleNamespace(
            runs=runs, race=said.get("race", race), refusal=said.get("refusal", "")
        )

    monkeypatch.setattr(figures, "comparison_of", compared)
    figure = {"where": "Table 2", "what": "it", "model": "m", "metric": "measured", "unit": "µs"}
    found = figures.figure_of({**figure, "paper": paper}, {"methods": list(paper)}, None)
    assert asked == ["measured"]
    assert (found.verdict, why in found.why) == (verdict, True)
    if verdict != "not comparable":
        assert found.ours == f"fast 100, slow {times[1]:g}, one session 90 µs"


def test_a_measured_figure_is_raced(monkeypatch: pytest.MonkeyPatch) -> None:
    raced = []
    monkeypatch.setattr(
        api, "compare", lambda *given, is_raced: raced.append((given[2].level, is_raced))
    )
    for metric in ("measured", "cost"):
        given = {"methods": ["nimble"], "level": "streams", "metric": metric}
        figures.comparison_of("a model of this test", json.dumps(given))
    assert raced == [("streams", True), ("streams", False)]
