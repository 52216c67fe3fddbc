"""The table of `eqsat-opt extract`, a row for each e-graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from eqsat_opt.cli.extract.files import FileOutcome
from eqsat_opt.common.text import count_text

if TYPE_CHECKING:
    from rich.console import Console

    from eqsat_opt.extract import Extraction

__all__ = ["SolvedFile", "name_text", "number_text", "print_notes", "print_solved"]

_NAME_WIDTH = 44  # names in the extraction gym are up to twice as long
_MIN_NAME, _MIN_STAGES = 12, 20
_SPACE = 2  # between columns
_SHOWN_S = 0.005  # two decimals
_TITLES = ("file", "e-nodes", "classes", "best greedy", "cost", "bound", "gap", "status", "time",
           "per stage")  # fmt: skip
_DISPENSABLE = ("per stage", "classes", "time", "e-nodes", "best greedy")
_STYLES = {"optimal": "green", "infeasible": "red", "error": "red"}


@dataclass(frozen=True, kw_only=True)
class SolvedFile(FileOutcome):
    """A file with its extraction, but without its e-graph, as a folder may have thousands of files.

    Attributes:
        n_nodes: number of e-nodes.
        n_classes: number of e-classes.
        extraction: the result.
        named: the result in the names of the file.
        greedy_cost: lower cost of the two greedy extractors; ``None`` where they do not apply.
        time_s: wall-clock seconds of the search.
        aim: the objective and the limits, as text.
    """

    n_nodes: int
    n_classes: int
    extraction: Extraction
    named: Mapping[str, Any]
    greedy_cost: float | None
    time_s: float
    aim: tuple[str, ...]

    @property
    def failure(self) -> str:
        """The reason why nothing is chosen; empty if something is."""
        found = self.extraction
        if found.status != "infeasible":
            return ""
        limited = found.objective.limits or found.objective.caps
        return (
            "infeasible: nothing meets the limits; loosen them"
            if limited
            else "infeasible: every way to compute the roots is cyclic"
        )

    @property
    def status(self) -> str:
        """The status of the extraction."""
        return self.extraction.status

    @property
    def stages_s(self) -> dict[str, float]:
        """Seconds of each stage, and of the rest, which belongs to no stage."""
        stages = dict(self.extraction.stages_s)
        rest_s = self.time_s - sum(stages.values())
        return {**stages, "rest": rest_s} if rest_s > _SHOWN_S else stages

    def to_json(self) -> dict[str, Any]:
        """Return the result in the names of the file, and the sizes of the e-graph."""
        return {
            **self.named,
            "objective": self.aim[0],
            "limits": list(self.aim[1:]),
            "stages_s": self.stages_s,
            "time_s": self.time_s,
            "greedy_cost": self.greedy_cost,
            "n_nodes": self.n_nodes,
            "n_classes": self.n_classes,
        }


def print_solved(console: Console, outcomes: Sequence[FileOutcome]) -> None:
    """Print a row for each file, then errors and files that were left out, then a summary."""
    lines = [_cells(outcome) for outcome in outcomes if not outcome.skipped]
    table = Table(box=None, pad_edge=False, header_style="dim")
    widths = _widths(lines, console.width)
    for title, width in widths.items():
        left = title in ("file", "status", "per stage")
        table.add_column(
            title,
            width=width,
            justify="left" if left else "right",
            no_wrap=title != "per stage",
            overflow="ellipsis" if title == "file" else "fold",
        )
    for line in lines:
        table.add_row(*(line.get(title, Text()) for title in widths))
    console.print(table)
    print_notes(console, outcomes)
    if len(outcomes) > 1:
        console.print(_sum(outcomes), style="bold", markup=False)


def print_notes(console: Console, outcomes: Sequence[FileOutcome]) -> None:
    """Print the errors, and the files that were left out."""
    for outcome in outcomes:
        if outcome.error and not outcome.skipped:
            console.print(outcome.error, style="red", markup=False)
    skipped = [outcome.name for outcome in outcomes if outcome.skipped]
    if skipped:
        console.print(f"no e-graph, left out: {', '.join(skipped)}", style="dim", markup=False)


def _cells(row: FileOutcome) -> dict[str, Text]:
    """Return the cells of a row by title; titles without a value are missing."""
    status = Text(row.status, style=_STYLES.get(row.status, "yellow"))
    if not isinstance(row, SolvedFile):
        return {"file": name_text(row.name), "status": status}
    found = row.extraction
    return {
        "file": name_text(row.name),
        "e-nodes": Text(count_text(row.n_nodes)),
        "classes": Text(count_text(row.n_classes)),
        "best greedy": Text("–" if row.greedy_cost is None else number_text(row.greedy_cost)),
        "cost": Text(number_text(found.cost)),
        "bound": Text(number_text(found.lower_bound)),
        "gap": Text(f"{found.gap:.2%}"),
        "status": status,
        "time": Text(f"{row.time_s:.2f} s"),
        "per stage": Text(_stages_text(row.stages_s), style="dim"),
    }


def _widths(lines: Sequence[Mapping[str, Text]], room: int) -> dict[str, int]:
    """Return titles and widths of the columns that fit, so that no number is cut.

    Names are shortened, and dispensable columns are left out.
    """
    widths = {
        title: max([len(title), *(len(line.get(title, "")) for line in lines)]) for title in _TITLES
    }
    least = {**widths, "file": min(widths["file"], _MIN_NAME), "per stage": _MIN_STAGES}
    for title in _DISPENSABLE:
        if sum(least.values()) + _SPACE * (len(least) - 1) <= room:
            break
        del least[title]
    spare = room - sum(least.values()) - _SPACE * (len(least) - 1)
    for title in ("file", "per stage"):
        if title in least:
            more = max(0, min(spare, widths[title] - least[title]))
            least[title] += more
            spare -= more
    return least


def name_text(name: str) -> Text:
    """Shorten a long name to its folder and its end, by which files differ."""
    if len(name) <= _NAME_WIDTH:
        return Text(name)
    head = name[: name.find("/") + 1][: _NAME_WIDTH // 2]
    return Text(f"{head}…{name[len(head) + 1 - _NAME_WIDTH :]}")


def _stages_text(stages: Mapping[str, float]) -> str:
    return ", ".join(f"{stage} {s:.2f}" for stage, s in stages.items() if s >= _SHOWN_S)


def number_text(x: float) -> str:
    """Format a number with seven digits, the precision of the proofs."""
    return f"{x:.7g}"


def _sum(outcomes: Sequence[FileOutcome]) -> str:
    counts = Counter(outcome.status for outcome in outcomes if not outcome.skipped)
    kinds = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    time_s = sum(outcome.time_s for outcome in outcomes if isinstance(outcome, SolvedFile))
    return f"{sum(counts.values())} files: {kinds}; {time_s:.1f} s"
