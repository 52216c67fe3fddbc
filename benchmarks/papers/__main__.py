"""What the papers report, what we find, and whether that agrees.

    python -m benchmarks.papers [TABLE …] [--cpu SECONDS …] [--save FOLDER] [--workers N]
        [--cluster ADDRESS] [--results FOLDER] [--json FILE]

A table is a file beside this one: metaflow, ocggs, energy, autograph, streams, collage. Each of its
figures is a *change*, a number before and after a method, or an *order*, a number of several
methods, or of one method under several parameters (`variants`) or other settings (`sides`). It is
*reproduced* if ours goes the paper's way, where the reason says if it goes less than half or more
than twice as far; *opposite* if it goes the other way; *not shown* if ours differ by half a percent
at most where the paper's do, or by more where the paper's are equal. Whatever needs what is not
here, or compares with systems that are not here, is *not comparable*, with the reason. Costs are
predicted by the profile of the paper's device, never measured on it, or measured on this processor;
times of searches are CPU seconds of this machine. What is *measured* ran in one race, in turns: on
streams of this processor, beside the model in one session of as many threads. What differs by less
than the race can tell is a tie there, and a race in which what runs twice differs from itself by
more than 10 % is not comparable.

`--cpu` replaces the budgets of the files; of several the largest counts, and the table says from
which one on the verdict is the same. With `--save` each figure under each budget is a file, and a
command that was ended goes on where it was. `--results` writes the tables for `benchmarks.tables`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.papers.verdicts import (
    NOT_COMPARABLE,
    TIE,
    VERDICTS,
    Figure,
    Judgement,
    change,
    falling,
    order,
    settled,
)
from eqsat_opt import __version__, api
from eqsat_opt.cli.automation.executors import open_executor, require_workers
from eqsat_opt.common.codecs import read_document, write_document
from eqsat_opt.errors import EqsatError
from eqsat_opt.lab.comparison import CompareSettings, Comparison, MethodResult, parse_budget
from eqsat_opt.lab.experiments.gathering import gathered_parts
from eqsat_opt.lab.experiments.worker import end_running
from eqsat_opt.pipeline.options import Options

__all__ = ["figure_of", "tables"]

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


# ** figures as cells **


@dataclass(frozen=True)
class PaperCell:
    """One figure of a table under one budget.

    Attributes:
        table: name of the table.
        number: place of the figure in it.
        given: the figure, as JSON.
        common: settings of the whole table, as JSON.
        cpu_s: budget of each search; ``None`` for that of the table.
    """

    table: str
    number: int
    given: str
    common: str
    cpu_s: float | None

    @property
    def file(self) -> str:
        """Name of the file of its result: another one where anything that it depends on changed."""
        digest = hashlib.sha256(repr((self, __version__)).encode()).hexdigest()[:10]
        return f"{self.table}-{self.number:02}-{digest}.json"


def told(cell: PaperCell) -> dict[str, Any]:
    """Compute a cell; any worker may call this."""
    return asdict(figure_of(json.loads(cell.given), json.loads(cell.common), cell.cpu_s))


def cells_of(table: str, budgets: Sequence[float | None]) -> Iterator[PaperCell]:
    """All cells of a table, budget by budget."""
    given = _table(table)
    common = json.dumps(given.get("compare", {}), sort_keys=True)
    for cpu_s in budgets:
        for number, one in enumerate(given["figure"]):
            text = json.dumps(one)  # the order of sides is theirs
            is_told = isinstance(one["paper"], str) and "sides" not in one
            if not is_told or cpu_s == budgets[-1]:
                yield PaperCell(table, number, text, common, cpu_s)


def computed(
    cells: Sequence[PaperCell], folder: Path | None, executor: Executor
) -> dict[PaperCell, Figure]:
    """Return the figures of cells, of which those in a folder are read and the others computed.

    Raises:
        SystemExit: some cells did not come back; those that did are stored.
    """
    found = {}
    for cell in cells:
        if folder is not None and (folder / cell.file).exists():
            found[cell] = Figure(**read_document(str(folder / cell.file)))

    def take(cell: PaperCell, value: dict[str, Any]) -> None:
        if folder is not None:
            write_document(str(folder / cell.file), value)
        found[cell] = Figure(**value)
        print(f"{len(found)} of {len(cells)}: {value['what']}", file=sys.stderr, flush=True)

    missing = [cell for cell in cells if cell not in found]
    lost = gathered_parts(missing, lambda cell: executor.submit(told, cell), take, end_running)
    if lost:
        raise SystemExit(f"{len(lost)} figures did not come back ({lost[0][1]}); run again")
    return found


def _table(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


_COLUMNS = ("where", "what", "paper", "ours", "verdict", "seconds")


def rows_of(figures: Sequence[Figure]) -> Iterator[tuple[str, ...]]:
    """The cells of the rows of a table."""
    for one in figures:
        whys = filter(None, (one.why, one.spread and f"seeds: {one.spread}"))
        why = "; ".join(whys)
        verdict = f"{one.verdict} ({why})" if why else one.verdict
        seconds = f"{one.cpu_s:g}" if one.cpu_s and one.ours else ""
        if seconds and one.since_s < one.cpu_s:
            seconds += f", from {one.since_s:g}"
        yield one.where, one.what, one.paper, one.ours, verdict, seconds


def counts_of(figures: Sequence[Figure]) -> str:
    """How many figures have each verdict, in words."""
    counts = {name: sum(one.verdict == name for one in figures) for name in VERDICTS}
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def main() -> None:
    """The command line of this package."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(tables()))
    parser.add_argument("--cpu", type=float, nargs="+", default=[None], help="budgets in seconds")
    parser.add_argument("--save", type=Path, default=None, help="folder of the figures")
    parser.add_argument("--workers", type=int, default=1, help="figures side by side")
    parser.add_argument("--cluster", default="", help="a dask scheduler")
    parser.add_argument("--results", type=Path, default=None, help="folder of tables")
    parser.add_argument("--json", default=None, help="write all figures to a file")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.tables if name not in tables()]:
        raise SystemExit(f"there is no table {unknown[0]!r}; choose from {', '.join(tables())}")
    names = arguments.tables or tables()
    budgets = sorted(arguments.cpu) if arguments.cpu != [None] else arguments.cpu
    if arguments.save is not None:
        arguments.save.mkdir(parents=True, exist_ok=True)
    cells = [cell for name in names for cell in cells_of(name, budgets)]
    require_workers(arguments.workers, arguments.cluster)
    with open_executor(arguments.workers, arguments.cluster) as executor:
        known = computed(cells, arguments.save, executor)
    found: dict[str, list[Figure]] = {}
    for name in names:
        own = [cell for cell in cells if cell.table == name]
        numbers = sorted({cell.number for cell in own})
        found[name] = [
            settled([known[cell] for cell in own if cell.number == number]) for number in numbers
        ]
        given = _table(name)
        print(f"## {given['title']}\n\n{given['source']}\n")
        print(f"| {' | '.join(_COLUMNS)} |\n|{'---|' * len(_COLUMNS)}")
        rows = list(rows_of(found[name]))
        print("\n".join(f"| {' | '.join(row)} |" for row in rows))
        print(f"\n{counts_of(found[name])}\n")
        if arguments.results is not None:
            command = f"python -m benchmarks.papers {name}"
            if arguments.cpu != [None]:
                command += f" --cpu {' '.join(f'{one:g}' for one in budgets)}"
            table = {
                "command": command,
                "machine": "two cores of a shared virtual machine, AMD EPYC",
                "columns": [*_COLUMNS[:-1], f">{_COLUMNS[-1]}"],
                "rows": [list(row) for row in rows],
            }
            write_document(str(arguments.results / f"papers_{name}.json"), table)
    if arguments.json is not None:
        value = {name: [asdict(one) for one in figures] for name, figures in found.items()}
        Path(arguments.json).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
