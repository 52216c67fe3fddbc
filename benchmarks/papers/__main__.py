"""What the papers report, what we find, and whether that agrees.

    python -m benchmarks.papers [TABLE …] [--cpu SECONDS] [--json FILE]

A table is a file beside this one: metaflow, ocggs, energy, autograph, collage. Each of its figures
is one of three. A *change* is a number before and after a method: reproduced if ours goes the same
way, and at least half and at most twice as far. An *order* is a number of several methods, or of
one method under several parameters (`variants`) or other settings (`sides`): reproduced if ours
stand in the same order, where half a percent is a tie; what never rises in the paper is, if ours
never rise from one to the next. Whatever needs what is not here, or compares with systems that are
not here, is *not comparable*, with the reason. Costs are predicted by the profile of the paper's
device, never measured on it, or measured on this processor; times of searches are CPU seconds of
this machine. What is *measured* ran in one race, in turns: on streams of this processor, beside the
model in one session of as many threads. What differs by less than the race can tell is a tie there,
and a race in which what runs twice differs from itself by more than 10 % is not comparable. `--cpu`
replaces the budgets of the files.
"""

from __future__ import annotations

import argparse
import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

from eqsat_opt import api
from eqsat_opt.errors import EqsatError
from eqsat_opt.lab.comparison import CompareSettings, Comparison, MethodResult, parse_budget
from eqsat_opt.pipeline.options import Options

__all__ = ["Figure", "change", "order", "tables"]

FOLDER = Path(__file__).parent

REPRODUCED, NOT_REPRODUCED, NOT_COMPARABLE = "reproduced", "not reproduced", "not comparable"

_TIE = 0.005
"""Relative difference of numbers that are taken for equal."""

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


@dataclass(frozen=True)
class Figure:
    """One published number, or several, and ours.

    Attributes:
        where: table or figure of the paper.
        what: is told, of which model.
        paper: its figure.
        ours: the same; empty where there is none.
        verdict: ``reproduced``, ``not reproduced`` or ``not comparable``.
        why: of the last two.
    """

    where: str
    what: str
    paper: str
    ours: str
    verdict: str
    why: str = ""


def tables() -> tuple[str, ...]:
    """Names of the tables."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


# ** verdicts **


def change(paper: tuple[float, float], ours: tuple[float, float]) -> str:
    """Why ours is no such change as the paper's; empty if it is at least half and at most twice.

    Changes are compared as logarithms of ratios.
    """
    theirs, own = _ratio(*paper), _ratio(*ours)
    if not 0 < own < math.inf:
        return "ours has no ratio"
    if _sign(theirs, 1.0) == _sign(own, 1.0) == 0:
        return ""
    if _sign(theirs, 1.0) == _sign(own, 1.0) and 0.5 <= math.log(own) / math.log(theirs) <= 2:
        return ""
    return f"ours {_way(own)}, the paper's {_way(theirs)}"


def order(paper: Mapping[str, float], ours: Mapping[str, float], tie: float = _TIE) -> str:
    """Why ours are in another order than the paper's; empty if they are not.

    Args:
        paper: its figures.
        ours: the same.
        tie: relative difference of ours that are taken for equal.
    """
    for one, other in combinations(paper, 2):
        theirs, own = _sign(paper[one], paper[other]), _sign(ours[one], ours[other], tie)
        if theirs != own:
            words = {-1: "below", 0: "equal to", 1: "above"}
            return f"{one} is {words[own]} {other} here, and {words[theirs]} it in the paper"
    return ""


def falling(ours: Mapping[str, float]) -> str:
    """Why ours rise somewhere; empty if each is at most the one before."""
    for one, other in pairwise(ours):
        if _sign(ours[one], ours[other]) < 0:
            return f"{other} is above {one}"
    return ""


def _ratio(before: float, after: float) -> float:
    return after / before if before else math.nan


def _sign(one: float, other: float, tie: float = _TIE) -> int:
    if one == other or math.isclose(one, other, rel_tol=tie):
        return 0
    return 1 if one > other else -1


def _way(ratio: float) -> str:
    return {-1: "falls to", 0: "stays at", 1: "rises to"}[_sign(ratio, 1.0)] + f" {ratio:.3f}"


# ** our side **


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
    return found.race.threshold if metric == _MEASURED and found.race is not None else _TIE


def _result(found: Comparison, method: str) -> MethodResult:
    runs = next(one for one in found.runs if one.method == method)
    if runs.median is None:
        raise EqsatError(f"{method} failed: {runs.failures[0].why}")
    return runs.median


def _varied(
    given: Mapping[str, Any], settings: Mapping[str, Any]
) -> tuple[Mapping[str, float], str]:
    """One comparison for each side, and why they are not as in the paper."""
    paper, own, cut = given["paper"], {}, []
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
    if isinstance(paper, str):
        why = falling(own)
    elif isinstance(paper, dict):
        why = order(paper, own)
    else:
        why = change((paper[0], paper[1]), (own["before"], own["after"]))
    return own, f"{why}; {', '.join(cut)} ended by a limit of the budget" if why and cut else why


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
    try:
        if "variants" in given or "sides" in given:
            own, why = _varied(given, settings)
            if isinstance(paper, list):
                own = {"": own["before"], " ": own["after"]}
            ours = told.join(f"{name} {_text(x)}".strip() for name, x in own.items())
            ours = f"{ours} {given.get('our_unit', unit)}".strip()
            verdict = NOT_REPRODUCED if why else REPRODUCED
            return Figure(where, what, their, ours, verdict=verdict, why=why)
        found = comparison_of(given["model"], json.dumps(settings, sort_keys=True))
        if isinstance(paper, dict):
            results = {name: _result(found, name) for name in paper}
            for name in given.get("must_end", ()):
                if results[name].stopped_by != "exhausted":
                    why = f"{name} ended by its limit ({results[name].stopped_by})"
                    return Figure(where, what, their, ours="", verdict=NOT_COMPARABLE, why=why)
            if given["metric"] == "cpu_s" and not any(one.tried for one in results.values()):
                why = "no rule applies here, so neither searches"
                return Figure(where, what, their, ours="", verdict=NOT_COMPARABLE, why=why)
            own = {name: _number(found, one, given["metric"]) for name, one in results.items()}
            why = order(paper, own, _tie(found, given["metric"]))
            cut = [name for name, one in results.items() if one.stopped_by in _BUDGETS]
            if why and cut:
                why += f"; {', '.join(cut)} ended by a limit of the budget"
        else:
            result = _result(found, given["method"])
            pair = _number(found, None, given["metric"]), _number(found, result, given["metric"])
            own = {"": pair[0], " ": pair[1]}
            why = change((paper[0], paper[1]), pair)
            if why and result.stopped_by in _BUDGETS:
                why += f"; {result.method} ended by a limit of the budget"
    except EqsatError as error:
        return Figure(where, what, their, ours="", verdict=NOT_COMPARABLE, why=str(error))
    if given["metric"] == _MEASURED:
        own["one session"] = _measured_us(found, None)
    ours = told.join(f"{name} {_text(x)}".strip() for name, x in own.items())
    ours = f"{ours} {given.get('our_unit', unit)}".strip()
    return Figure(where, what, their, ours, verdict=NOT_REPRODUCED if why else REPRODUCED, why=why)


def figures(table: str, cpu_s: float | None = None) -> Iterator[Figure]:
    """All figures of a table, one after the other."""
    given = tomllib.loads((FOLDER / f"{table}.toml").read_text(encoding="utf-8"))
    for one in given["figure"]:
        yield figure_of(one, given.get("compare", {}), cpu_s)


def _print(table: str, cpu_s: float | None) -> Sequence[Figure]:
    given = tomllib.loads((FOLDER / f"{table}.toml").read_text(encoding="utf-8"))
    print(f"## {given['title']}\n\n{given['source']}\n")
    print("| where | what | paper | ours | verdict |\n|---|---|---|---|---|")
    found = []
    for one in figures(table, cpu_s):
        verdict = f"{one.verdict} ({one.why})" if one.why else one.verdict
        print(f"| {one.where} | {one.what} | {one.paper} | {one.ours} | {verdict} |", flush=True)
        found.append(one)
    counts = {name: sum(one.verdict == name for one in found) for name in _VERDICTS}
    print("\n" + ", ".join(f"{count} {name}" for name, count in counts.items()) + "\n")
    return found


_VERDICTS = (REPRODUCED, NOT_REPRODUCED, NOT_COMPARABLE)


def main() -> None:
    """The command line of this package."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(tables()))
    parser.add_argument("--cpu", type=float, default=None, help="seconds of each search")
    parser.add_argument("--json", default=None, help="write all figures to a file")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.tables if name not in tables()]:
        raise SystemExit(f"there is no table {unknown[0]!r}; choose from {', '.join(tables())}")
    found = {
        name: [asdict(one) for one in _print(name, arguments.cpu)]
        for name in arguments.tables or tables()
    }
    if arguments.json is not None:
        Path(arguments.json).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
