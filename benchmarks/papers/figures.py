"""Our side of published figures: comparisons, their numbers, and the verdict on each figure."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.papers.verdicts import (
    NOT_COMPARABLE,
    TIE,
    Figure,
    Judgement,
    change,
    falling,
    order,
)
from eqsat_opt import api
from eqsat_opt.errors import EqsatError
from eqsat_opt.lab.comparison import CompareSettings, Comparison, MethodResult, parse_budget
from eqsat_opt.pipeline.options import Options

__all__ = ["FOLDER", "comparison_of", "figure_of", "table_of", "tables"]

FOLDER = Path(__file__).parent

_BUDGETS = frozenset({"graphs", "substitutions", "cpu"})
"""What ends a search that might have gone on."""

_SETTINGS = (
    *("device", "energy_model", "level", "objective", "methods", "budget", "set", "seeds"),
    *("limits", "measure", "backends"),
)
_OPTIONS = ("rules", "numerics", "check", "threads")

_MEASURED = "measured"
"""The metric of a race: the median time over fresh sessions, µs."""

_USES = "uses of "
"""How a metric begins that counts the uses of a rule."""


def tables() -> tuple[str, ...]:
    """Names of the tables."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


@cache
def comparison_of(model: str, given: str) -> Comparison:
    value = json.loads(given)
    settings = {name: value[name] for name in _SETTINGS if name in value and name != "set"}
    for name in ("methods", "limits", "backends"):
        settings[name] = tuple(settings.get(name, ()))
    if "energy_model" in settings:
        settings["energy_model"] = str(FOLDER / settings["energy_model"])
    settings["budget"] = parse_budget([settings.get("budget", "1000")])
    options = {"check": 0, **{name: value[name] for name in _OPTIONS if name in value}}
    return api.compare(
        model,
        Options(**options),
        CompareSettings(parameters=value.get("set", {}), **settings),
        is_raced=value["metric"] == _MEASURED,
    )


def _number(found: Comparison, result: MethodResult | None, name: str) -> float:
    """A metric, or a number of the run, of a method or of the original."""
    if name == _MEASURED:
        return _measured_us(found, None if result is None else result.method)
    one: Any = found.original if result is None else result
    if name.startswith(_USES):
        return float(one.rules.get(name.removeprefix(_USES), 0))
    above, slash, below = name.partition("/")
    if slash:
        return float(one.metrics[above] / one.metrics[below])
    if name in one.metrics:
        return float(one.metrics[name])
    return float(getattr(one, name))


def _measured_us(found: Comparison, method: str | None) -> float:
    """The time of a method, or of the original.

    Raises:
        EqsatError: the race does not tell.
    """
    race = found.race
    if race is None or found.refusal:
        raise EqsatError(found.refusal or "no race was held")
    entry = race.entries[race.original if method is None else method]
    if entry.note:
        raise EqsatError(f"{entry.name} {entry.note}")
    return entry.median_us


def _tie(found: Comparison, metric: str) -> float:
    """The relative difference of our figures that tells nothing."""
    return found.race.threshold if metric == _MEASURED and found.race is not None else TIE


def _result(found: Comparison, method: str) -> MethodResult:
    runs = next(one for one in found.runs if one.method == method)
    if runs.median is None:
        raise EqsatError(f"{method} failed: {runs.failures[0].why}")
    return runs.median


def _spread(found: Comparison, method: str) -> str:
    """The range of costs of a method over its seeds; empty for one seed."""
    results = next(one.results for one in found.runs if one.method == method)
    if len(results) < 2:
        return ""
    costs = [one.cost for one in results]
    return f"{method} {_text(min(costs))} to {_text(max(costs))}"


def _cut(judged: Judgement, cut: Sequence[str]) -> Judgement:
    """Add the methods that the budget ended to a reason."""
    verdict, why = judged
    return verdict, f"{why}; {', '.join(cut)} ended by the budget" if why and cut else why


def _varied(
    given: Mapping[str, Any], settings: Mapping[str, Any]
) -> tuple[Mapping[str, float], Judgement, str]:
    """One comparison for each side, its numbers, the verdict, and the spread over seeds."""
    paper, own, cut, spread = given["paper"], {}, [], []
    sides = given.get("sides") or {
        name: {"methods": [given["method"]], "set": {given["method"]: parameters}}
        for name, parameters in given["variants"].items()
    }
    for name in paper if isinstance(paper, dict) else sides:
        one = {**settings, **sides.get(name, {"methods": [name]})}
        found = comparison_of(given["model"], json.dumps(one, sort_keys=True))
        result = _result(found, one["methods"][0])
        own[name] = _number(found, result, given["metric"])
        cut += [name] if result.stopped_by in _BUDGETS else []
        if ranged := _spread(found, one["methods"][0]):
            spread.append(f"{name}: {ranged}")
    if isinstance(paper, str):
        judged = falling(own)
    elif isinstance(paper, dict):
        judged = order(paper, own)
    else:
        judged = change((paper[0], paper[1]), (own["before"], own["after"]))
    return own, _cut(judged, cut), "; ".join(spread)


def _text(number: float) -> str:
    return f"{number:.4g}"


def figure_of(given: Mapping[str, Any], common: Mapping[str, Any], cpu_s: float | None) -> Figure:
    where, what, unit = given["where"], given["what"], given.get("unit", "")
    paper = given["paper"]
    if isinstance(paper, str) and "sides" not in given:
        return Figure(where, what, paper, ours="", verdict=NOT_COMPARABLE, why=given["why"])
    told = " → " if isinstance(paper, list) else ", "
    their = paper
    if not isinstance(paper, str):
        pairs = paper.items() if isinstance(paper, dict) else zip(["", ""], paper, strict=True)
        their = f"{told.join(f'{name} {_text(x)}'.strip() for name, x in pairs)} {unit}".strip()
    settings = {**common, **{k: v for k, v in given.items() if k in (*_SETTINGS, *_OPTIONS)}}
    settings["metric"] = _MEASURED if given["metric"] == _MEASURED else ""
    if cpu_s is not None:
        settings["budget"] = f"graphs=0,cpu={cpu_s:g}"
    blank = Figure(where, what, their, ours="", verdict=NOT_COMPARABLE, cpu_s=cpu_s or 0.0)
    spread = ""
    try:
        if "variants" in given or "sides" in given:
            own, judged, spread = _varied(given, settings)
            if isinstance(paper, list):
                own = {"": own["before"], " ": own["after"]}
        else:
            found = comparison_of(given["model"], json.dumps(settings, sort_keys=True))
            names = list(paper) if isinstance(paper, dict) else [given["method"]]
            results = {name: _result(found, name) for name in names}
            if why := _incomparable(given, results):
                return replace(blank, why=why)
            if isinstance(paper, dict):
                own = {name: _number(found, one, given["metric"]) for name, one in results.items()}
                judged = order(paper, own, _tie(found, given["metric"]))
            else:
                (result,) = results.values()
                numbers = [_number(found, one, given["metric"]) for one in (None, result)]
                own = {"": numbers[0], " ": numbers[1]}
                judged = change((paper[0], paper[1]), (numbers[0], numbers[1]))
            judged = _cut(judged, [n for n, one in results.items() if one.stopped_by in _BUDGETS])
            spread = "; ".join(filter(None, (_spread(found, name) for name in names)))
            if given["metric"] == _MEASURED:
                own["one session"] = _measured_us(found, None)
    except EqsatError as error:
        return replace(blank, why=str(error))
    ours = told.join(f"{name} {_text(x)}".strip() for name, x in own.items())
    ours = f"{ours} {given.get('our_unit', unit)}".strip()
    return replace(blank, ours=ours, verdict=judged[0], why=judged[1], spread=spread)


def _incomparable(given: Mapping[str, Any], results: Mapping[str, MethodResult]) -> str:
    """Why the results of searches tell nothing; empty if they do."""
    for name in given.get("must_end", ()):
        if results[name].stopped_by != "exhausted":
            return f"{name} ended by its limit ({results[name].stopped_by})"
    if len(results) > 1 and not any(one.tried for one in results.values()):
        return "no rule applies here, so neither searches"
    return ""


def table_of(name: str) -> dict[str, Any]:
    """Return the content of a table's file."""
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
