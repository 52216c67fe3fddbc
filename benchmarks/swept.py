"""The e-graph beside the best published search of a sweep, as one table and one plot.

    python -m benchmarks.swept CELLS [--results FILE] [--plot FILE]

CELLS is the folder of a sweep (`eqsat-opt compare --sweep benchmarks/sweep.toml --save CELLS`),
which may still go on. For each model and device the e-graph stands beside the cheapest of the other
methods, of equally cheap ones the quickest; a model on a device counts when all methods of the
folder have been there. `--results` writes the table for `benchmarks.tables`, and `--plot` draws the
e-graph's cost as a share of the best search's.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eqsat_opt.cli.plotting import save_figure
from eqsat_opt.common.codecs import write_document

__all__ = ["SweptRow", "counts_of", "draw", "is_equal", "rows_of"]

_NOISE, _ROUNDING = 1e-9, 1e-6
"""Difference of costs that is a rounding: relative, of sums; and of the prices of each kernel."""

_COLUMNS = (
    *("model", "device", ">e-graph, µs", ">bound, µs", ">best search, µs", "which", "e-graph is"),
    *(">e-graph, CPU s", ">search, CPU s"),
)
_SHOWN = 1e-4
"""Relative difference below which two costs look equal in the table, and count as equal."""


@dataclass(frozen=True)
class SweptRow:
    """One model on one device.

    Attributes:
        model: the model.
        device: the device.
        eqsat: the e-graph's result, as the cell has it.
        best: the result of the cheapest other method.
    """

    model: str
    device: str
    eqsat: Mapping[str, Any]
    best: Mapping[str, Any]

    @property
    def share(self) -> float:
        """The e-graph's cost as a share of the best search's."""
        return float(self.eqsat["cost"] / self.best["cost"]) if self.best["cost"] else 1.0

    @property
    def verdict(self) -> str:
        """One of cheaper, equal, dearer."""
        if is_equal(self.eqsat, self.best) or abs(self.share - 1) < _SHOWN:
            return "equal"
        return "cheaper" if self.share < 1 else "dearer"

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of the table."""
        bound = self.eqsat["lower_bound"]
        told = self.verdict
        if told != "equal":
            told = f"{abs(1 - self.share):.2%} {told}"
        return (
            self.model.removeprefix("zoo:"), self.device, f"{self.eqsat['cost']:.2f}",
            "–" if bound is None else f"{bound:.2f}", f"{self.best['cost']:.2f}",
            self.best["method"], told, f"{self.eqsat['cpu_s']:.2f}", f"{self.best['cpu_s']:.2f}",
        )  # fmt: skip


def is_equal(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether the costs of two results differ by rounding alone."""
    rounding = _ROUNDING * max(one["kernels"], other["kernels"])
    return math.isclose(one["cost"], other["cost"], rel_tol=_NOISE, abs_tol=rounding)


def rows_of(folder: Path) -> Iterator[SweptRow]:
    """Read the rows of a folder of cells, by model and device."""
    found: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    methods = set()
    for path in sorted(folder.glob("*.cell.json")):
        value = json.loads(path.read_text(encoding="utf-8"))
        cell, result = value["cell"], value["reply"].get("result")
        methods.add(cell["method"])
        own = found.setdefault((cell["model"], cell["device"]), {})
        own[cell["method"]] = result or {}
    for (model, device), results in found.items():
        eqsat = results.pop("eqsat", None)
        others = [one for one in results.values() if one]
        if not eqsat or not others or {"eqsat", *results} != methods:
            continue
        least = min(others, key=lambda one: one["cost"])
        cheap = [one for one in others if is_equal(one, least)]
        best = min(cheap, key=lambda one: (one["cpu_s"], one["method"]))
        yield SweptRow(model, device, eqsat, best)


def counts_of(rows: Sequence[SweptRow]) -> str:
    """How often the e-graph is cheaper, equal and dearer, and on how many models cheaper."""
    counts = Counter(row.verdict for row in rows)
    models = {row.model for row in rows if row.verdict == "cheaper"}
    proven = sum(is_equal(row.eqsat, {**row.eqsat, "cost": row.eqsat["lower_bound"]})
                 for row in rows if row.eqsat["lower_bound"] is not None)  # fmt: skip
    return (
        f"{len(rows)} rows of {len({row.model for row in rows})} models: e-graph cheaper in "
        f"{counts['cheaper']} (on {len(models)} models), equal in {counts['equal']}, dearer in "
        f"{counts['dearer']}; proven in {proven}"
    )


def draw(rows: Sequence[SweptRow], path: str) -> None:
    """Draw the e-graph's cost as a share of the best search's, by model and device.

    Raises:
        OptionError: the file cannot be written.
    """
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.hashsalt"] = "sweep"  # the same file for the same rows
    least = {model: min(row.share for row in rows if row.model == model)
             for model in dict.fromkeys(row.model for row in rows)}  # fmt: skip
    place = {model: i for i, model in enumerate(sorted(least, key=lambda one: -least[one]))}
    figure = Figure(figsize=(6.4, 1.2 + 0.22 * len(place)), layout="constrained")
    axes = figure.subplots()
    for mark, device in zip("os^Dv*", dict.fromkeys(row.device for row in rows), strict=False):
        own = [row for row in rows if row.device == device]
        ys = [place[row.model] for row in own]
        axes.plot([row.share for row in own], ys, mark, label=device, alpha=0.7)
    axes.axvline(1.0, color="grey", linewidth=0.8)
    axes.set_yticks(range(len(place)), [model.removeprefix("zoo:") for model in place])
    axes.set_xlabel("e-graph's predicted time, as a share of the best published search's")
    axes.legend(loc="lower left")
    save_figure(figure, path)


def main() -> None:
    """The command line of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="of the sweep's cells")
    parser.add_argument("--results", default=None, help="JSON file for benchmarks.tables")
    parser.add_argument("--plot", default=None, help="file of the plot, .svg for instance")
    arguments = parser.parse_args()
    rows = sorted(rows_of(arguments.folder), key=lambda row: (row.model, row.device))
    if not rows:
        raise SystemExit(f"{arguments.folder} has no model with all methods; run the sweep first")
    titles = [column.removeprefix(">") for column in _COLUMNS]
    print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
    print("\n".join(f"| {' | '.join(row.cells)} |" for row in rows))
    print(f"\n{counts_of(rows)}")
    if arguments.results is not None:
        table = {
            "command": "eqsat-opt compare --sweep benchmarks/sweep.toml --save CELLS, then "
            "python -m benchmarks.swept CELLS",
            "machine": "two cores of a shared virtual machine, AMD EPYC, AVX-512",
            "columns": list(_COLUMNS),
            "rows": [list(row.cells) for row in rows],
        }
        write_document(arguments.results, table)
    if arguments.plot is not None:
        draw(rows, arguments.plot)


if __name__ == "__main__":
    main()
