"""`eqsat-opt extract --pareto`: the trade-off between two metrics, as a table and as a plot."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from eqsat_opt.cli.extract.files import FileOutcome, Tell
from eqsat_opt.cli.extract.table import number_text, print_notes
from eqsat_opt.cli.plotting import check_plot, save_figure
from eqsat_opt.errors import OptionError
from eqsat_opt.extract.gym.result import result_json
from eqsat_opt.extract.objective import CRITICAL_PATH
from eqsat_opt.extract.pareto import Front, pareto
from eqsat_opt.extract.spec import parse_objective
from eqsat_opt.extract.tradeoff.plane import Box

if TYPE_CHECKING:
    from rich.console import Console

    from eqsat_opt.extract import GymFile

__all__ = ["Traded", "draw", "print_fronts", "trader"]

_PROVEN = 1e-6  # largest gap that counts as none
_CURVE_POINTS = 400


@dataclass(frozen=True, kw_only=True)
class Traded(FileOutcome):
    """A file with its trade-off.

    Attributes:
        front: the solutions.
        named: the solutions in the names of the file.
        time_s: wall-clock seconds of the search.
    """

    front: Front
    named: Sequence[Mapping[str, Any]]
    time_s: float

    @property
    def failure(self) -> str:
        """The reason why there is no point; empty if there is one."""
        return "" if self.front.points else "infeasible: nothing computes the roots in the limits"

    @property
    def status(self) -> str:
        """The status, one word: `optimal` if every solution on the front is known."""
        if not self.front.points:
            return "infeasible"
        return "optimal" if self.front.gap <= _PROVEN else "feasible"

    def to_json(self) -> dict[str, Any]:
        """Return plain values, with the points in the names of the file."""
        return {
            "metrics": list(self.front.metrics),
            "gap": self.front.gap,
            "status": self.status,
            "time_s": self.time_s,
            "points": list(self.named),
        }


def trader(
    metrics: str,
    limits: Sequence[str],
    points: int,
    search: Mapping[str, Any],
    plot: str | None,
) -> Callable[[str, GymFile, Tell], FileOutcome]:
    """Return the function that solves each file; ``search`` has further options of `pareto`.

    Raises:
        OptionError: the text does not name two metrics, a limit has no meaning, or the plot cannot
            be drawn.
    """
    names = [name.strip() for name in metrics.split(",")]
    if len(names) != 2 or not all(names):
        raise OptionError(
            f"--pareto {metrics!r} is not two metrics; write for instance time,energy"
        )
    first, second = names
    aim = parse_objective(f"{first}+{second}", limits)
    if CRITICAL_PATH in aim.limits:
        raise OptionError("a trade-off under a limit on the critical path is not supported")
    if plot is not None:
        check_plot(plot)

    def solve(name: str, file: GymFile, tell: Tell) -> FileOutcome:
        def progress(front: Front) -> None:
            tell(f"{len(front.points)} points, gap {front.gap:.2%}")

        start_s = perf_counter()
        front = pareto(
            file.problem,
            first,
            second,
            points=points,
            limits=aim.limits,
            caps=aim.caps,
            interruptible=True,
            progress=progress,
            **search,
        )
        time_s = perf_counter() - start_s
        front.check(file.problem)
        if front.points and plot is not None:
            draw(front, plot, name)
        named = [result_json(file, point) for point in front.points]
        return Traded(name=name, front=front, named=named, time_s=time_s)

    return solve


def print_fronts(console: Console, outcomes: Sequence[FileOutcome]) -> None:
    """Print a table for each file."""
    for outcome in outcomes:
        if isinstance(outcome, Traded) and outcome.front.points:
            front = outcome.front
            gap = f"{front.gap:.2%}" if math.isfinite(front.gap) else "unknown"
            console.print(f"{outcome.name}: gap {gap}, {outcome.time_s:.2f} s", markup=False)
            table = Table("", *front.metrics, "classes", box=None, header_style="dim")
            for column in table.columns:
                column.justify = "right"
            for number, (point, totals) in enumerate(
                zip(front.points, front.totals, strict=True), 1
            ):
                cells = (str(number), *map(number_text, totals), str(len(point.choice)))
                table.add_row(*map(Text, cells))
            console.print(table)
    print_notes(console, outcomes)


def draw(front: Front, path: str, title: str) -> None:
    """Draw the points and the region that is proven to hold no solution; needs matplotlib.

    Raises:
        OptionError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    totals = front.totals
    xs = [x for x, _ in totals]
    ys = [y for _, y in totals]
    figure = Figure(figsize=(6.4, 4.8), layout="constrained")
    axes = figure.add_subplot()
    low, high = min(xs), max(xs)
    margin = 0.05 * (high - low) or 0.05 * high or 1.0
    curve = [low + (high - low) * i / _CURVE_POINTS for i in range(_CURVE_POINTS + 1)]
    floor = [_least(front, x) for x in curve]
    axes.fill_between(curve, floor, color="0.9", label="proven to hold no solution")
    axes.step(xs, ys, where="post", color="tab:blue", linewidth=1)
    axes.plot(xs, ys, "o", color="tab:blue", label="solutions")
    axes.set_xlim(low - margin, high + margin)
    bottom = min(*floor, *ys)
    axes.set_ylim(bottom - 0.05 * (max(ys) - bottom or 1.0), None)
    axes.set_xlabel(front.metrics[0])
    axes.set_ylabel(front.metrics[1])
    axes.set_title(title)
    axes.legend()
    save_figure(figure, path)


def _least(front: Front, x: float) -> float:
    """Return the least second total that the cuts admit at the first total ``x``."""
    least = 0.0
    for cut in front.cuts:
        if isinstance(cut, Box):
            least = max(least, cut.second if x <= cut.first else 0.0)
        elif cut.second > 0:
            least = max(least, (cut.bound - cut.first * x) / cut.second)
    return least
