"""The tables of `eqsat-opt compare`: a column for each method."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from eqsat_opt.lab.comparison import Comparison, MethodResult, Runs

__all__ = ["print_comparison"]

_NONE = "–"

_LIMITS = {
    "algebra": "limit of reordering rounds",
    "graphs": "limit of graphs",
    "iterations": "limit of rounds",
    "nodes": "limit of e-nodes",
    "cpu": "limit of CPU time",
    "length": "limit of length",
    "substitutions": "limit of substitutions",
    "time": "limit of time",
}
"""Texts for the reasons that ended a method, where the name of a reason is not clear alone."""

_METRICS = {"flops": ("FLOPs", ""), "bytes": ("bytes", "B"), "energy_uj": ("energy", "µJ")}
"""Metrics that are shown besides the cost, with their titles and units."""

_KERNELS: Mapping[str, str] = {
    "operators": "one kernel per operator",
    "kernels": "fused kernels",
    "streams": "fused kernels on streams",
}
"""The kernels that each level prices, in words."""

_WIDTH = 26
"""Width of the column of a method; longer texts wrap."""

_UNLIMITED = 10_000
"""A width that no table exceeds, in columns."""

_Row = tuple[str, str, list[str]]


def print_comparison(console: Console, found: Comparison) -> None:
    """Print a heading, tables that fit the width of the console, and the reasons of failed runs."""
    console.print(_heading(found))
    for runs in _fitting(console, found):
        console.print(_table(found, runs, _rows(found, runs)))
        uses = _uses(runs)
        if uses:
            console.print()
            console.print(_table(found, runs, uses, "uses of rules"))
        console.print()
    for failure in found.failures:
        seed = f", seed {failure.seed}" if found.settings.seeds > 1 else ""
        console.print(f"{failure.method}{seed} failed: {failure.why}", style="red", markup=False)
    if found.race is not None:
        console.print(_race_terms(found))
        if found.refusal:
            console.print(found.refusal, style="yellow", markup=False)
        if found.race.is_busy:
            console.print(found.race.busy_text, style="yellow", markup=False)
    if found.original is not None and found.original.assumed_sizes:
        console.print(_assumption(found.original.assumed_sizes), style="yellow", markup=False)


def _fitting(console: Console, found: Comparison) -> Iterator[Sequence[Runs]]:
    """Yield groups of methods, each of which fits into a table of the console's width."""
    from rich.measure import Measurement

    unlimited = console.options.update(max_width=_UNLIMITED)
    group: list[Runs] = []
    for one in found.runs:
        wider = [*group, one]
        table = _table(found, wider, [*_rows(found, wider), *_uses(wider)])
        if group and Measurement.get(console, unlimited, table).maximum > console.width:
            yield group
            wider = [one]
        group = wider
    if group:
        yield group


def _heading(found: Comparison) -> str:
    from eqsat_opt.common.text import counted

    kernels = _KERNELS[found.settings.level]
    original, seeds = found.original, found.settings.seeds
    if original is None:
        return f"{found.model}: no method ended\n"
    return (
        f"{found.model}: {counted(original.operators, 'operator')}, "
        f"{counted(original.n_rules, 'rule')}, {original.prices} prices, {kernels}"
        f"{f', medians of {seeds} seeds' if seeds > 1 else ''}\n"
    )


def _assumption(assumed: Mapping[str, int]) -> str:
    sizes = ", ".join(f"{name} = {size}" for name, size in assumed.items())
    first = next(iter(assumed))
    return f"note: priced at the assumed sizes {sizes}; give others with --input-shape {first}:SIZE"


def _table(found: Comparison, runs: Sequence[Runs], rows: Iterable[_Row], title: str = "") -> Table:
    """Return a table with a column for each method; empty rows are left out."""
    from eqsat_opt.common.text import plain_table

    table = plain_table(title, "original", *(one.method for one in runs), right=slice(1, None))
    for column in table.columns[2:]:
        column.max_width = _WIDTH
    for name, before, cells in rows:
        if before or any(cells):
            table.add_row(name, before, *cells)
    return table


def _rows(found: Comparison, runs: Sequence[Runs]) -> Iterator[_Row]:
    from eqsat_opt.common.text import bytes_text, count_text, time_text

    settings, original = found.settings, found.original

    def shown(cost: float) -> str:
        if math.isinf(cost):
            return "above a limit" if settings.goal.is_limited else "infinite"
        return time_text(cost) if settings.is_time else f"{cost:.4g}"

    def of_median(text: Callable[[MethodResult], str], otherwise: str = "") -> list[str]:
        return [otherwise if one.median is None else text(one.median) for one in runs]

    def count(value: int | None) -> str:
        return "" if value is None else count_text(value)

    def seconds(of: Callable[[MethodResult], float | None]) -> list[str]:
        return [_seconds(one.seconds(map(of, one.results))) for one in runs]

    def bounded(one: Runs) -> tuple[str, str]:
        return ("", "") if one.median is None else _bound(one.median, shown)

    def peak(one: Runs) -> str:
        most = max((result.peak_bytes for result in one.results), default=0)
        return bytes_text(most) if most else ""

    start = math.nan if original is None else original.cost
    yield (
        "cost",
        "" if original is None else shown(start),
        of_median(lambda r: shown(r.cost), _NONE),
    )
    if settings.seeds > 1:
        ranges = [_range(one, shown) for one in runs]
        yield "range", "", ranges
    yield "of original", _share(start, start), of_median(lambda r: _share(r.cost, start))
    yield "bound", "", [bound for bound, _ in map(bounded, runs)]
    yield "gap", "", [gap for _, gap in map(bounded, runs)]
    before = "" if original is None else count_text(original.operators)
    yield "operators", before, of_median(lambda r: count(r.operators))
    before = "" if original is None else count_text(original.kernels)
    yield "kernels", before, of_median(lambda r: count(r.kernels))
    for name, (title, unit) in _METRICS.items():
        before = "" if original is None else _metric_text(unit, original.metrics.get(name))
        totals = [{} if one.median is None else one.median.metrics for one in runs]
        yield title, before, [_metric_text(unit, one.get(name)) for one in totals]
    yield "graphs visited", "", of_median(lambda r: count(r.graphs))
    yield "substitutions tried", "", of_median(lambda r: count(r.tried))
    yield "left sides compared", "", of_median(lambda r: count(r.compared))
    yield "e-nodes", "", of_median(lambda r: count(r.enodes))
    yield "CPU time", "", seconds(lambda r: r.cpu_s)
    yield "wall time", "", seconds(lambda r: r.time_s)
    yield "best after, CPU", "", seconds(lambda r: r.best_after_s)
    yield "as cheap after, CPU", "", seconds(found.as_cheap_after_s)
    yield "peak memory", "", [peak(one) for one in runs]
    yield from _measured(found, runs)
    yield "ended", "", [_ended(one) for one in runs]
    yield "outputs", "", [_verdict(one) for one in runs]


def _metric_text(unit: str, value: float | None) -> str:
    from eqsat_opt.common.text import amount_text, quantity_text

    if value is None:
        return ""
    return amount_text(value, unit) if unit else quantity_text(value)


def _measured(found: Comparison, runs: Sequence[Runs]) -> Iterator[_Row]:
    """Yield the rows with times of the race, if one was held."""
    from eqsat_opt.common.text import time_text

    race = found.race
    if race is None:
        return
    if found.refusal:
        yield "measured", "refused", ["refused" for _ in runs]
        return
    entries = [race.entries.get(one.method) for one in runs]
    before = race.entries[race.original]
    times = ["" if one is None or one.note else time_text(one.median_us) for one in entries]
    yield "measured", time_text(before.median_us), times
    shares = ["" if one is None else one.note or f"{one.ratio:.3f}" for one in entries]
    yield "of original's", "1.000", shares


def _race_terms(found: Comparison) -> str:
    race = found.race
    assert race is not None
    here = f", whatever {found.settings.device} would need" if found.settings.device else ""
    how = "on streams, the original by" if found.settings.runs_streams else "by"
    return (
        f"measured here {how} onnxruntime{here}: noise {race.noise:.1%}, a difference below "
        f"{race.threshold:.1%} tells nothing; {race.builds} builds, {race.rounds} rounds, "
        f"{race.clock} clock, {race.seconds:.0f} s"
    )


def _uses(runs: Sequence[Runs]) -> list[_Row]:
    """Return a row for each rule: its uses by each method in the run of the median cost."""
    used = [{} if one.median is None else one.median.rules for one in runs]
    names = sorted({name for one in used for name in one})
    return [(name, "", [str(one[name]) if name in one else "" for one in used]) for name in names]


def _range(one: Runs, shown: Callable[[float], str]) -> str:
    if not one.results:
        return ""
    least, most = one.costs
    return shown(least) if least == most else f"{shown(least)}–{shown(most)}"


def _share(cost: float, original: float) -> str:
    """Return a cost as a share of the original's; empty where either is infinite."""
    is_known = original > 0 and math.isfinite(cost) and math.isfinite(original)
    return f"{cost / original:.3f}" if is_known else ""


def _bound(result: MethodResult, shown: Callable[[float], str]) -> tuple[str, str]:
    bound = result.lower_bound
    if bound is None:
        return _NONE, ""
    if math.isinf(bound):
        return "no graph", ""
    return shown(bound), f"{1 - bound / result.cost:.1%}" if result.cost else "0.0%"


def _ended(one: Runs) -> str:
    result = one.median
    if result is None:
        return "failed"
    ended = _LIMITS.get(result.stopped_by, result.stopped_by)
    if result.extraction is not None:
        # A proof covers only graphs in the e-graph, and a limit may have kept others out of it.
        partly = result.extraction == "optimal" and result.stopped_by != "saturated"
        ended = f"{ended}, {result.extraction}{' in what it holds' * partly}"
    total = len(one.results) + len(one.failures)
    return f"{ended}; {len(one.failures)} of {total} failed" if one.failures else ended


def _seconds(time_s: float | None) -> str:
    from eqsat_opt.common.text import time_text

    return "" if time_s is None else time_text(float(f"{1e6 * time_s:.3g}"))


def _verdict(one: Runs) -> str:
    if not one.results:
        return _NONE
    wrong = next((result.why for result in one.results if result.why), "")
    if any(result.max_error is None for result in one.results):
        return wrong or "not checked"
    return wrong or "agree"
