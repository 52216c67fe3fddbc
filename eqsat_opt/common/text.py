"""Numbers, races and sizes as text, for all reports and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

__all__ = [
    "amount_text",
    "bytes_text",
    "change_text",
    "count_text",
    "counted",
    "entrant_text",
    "percent_text",
    "plain_table",
    "quantity_text",
    "race_text",
    "shortened",
    "sizes_text",
    "stage_text",
    "time_text",
]

_MANY_SYMBOLS = 6
_NONE = slice(0)

_STAGES = {"choose": "choose kernels", "raise": "build", "tile": "match kernels"}
"""Stages whose names are terms of this package, in plain words."""


def quantity_text(value: float) -> str:
    """Return a number with three digits and a decimal prefix: `24.5 M`."""
    for limit, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g} {prefix}"
    return f"{value:g}"


def count_text(value: float) -> str:
    """Return a whole number with separators: `12,345`."""
    return f"{value:,.0f}"


def counted(count: int, noun: str) -> str:
    """Return a number with a noun that has a regular plural: `1 rule`, `12,345 rules`."""
    return f"{count_text(count)} {noun}{'' if count == 1 else 's'}"


def bytes_text(value: float) -> str:
    """Return a number of bytes with a decimal prefix: `24.5 MB`."""
    return amount_text(value, "B")


def amount_text(value: float, unit: str) -> str:
    """Return a value in the most readable prefix of its unit: `24.5 MB`, `1.5 ms`.

    A value without a unit is a count.
    """
    if unit in ("µs", "µJ"):
        return _micro_text(value, unit[1:])
    if not unit:
        return count_text(value)
    text = quantity_text(value)
    return f"{text}{unit}" if abs(value) >= 1e3 else f"{text} {unit}"


def time_text(value_us: float) -> str:
    """Return a time in the most readable unit; it is given in microseconds."""
    return _micro_text(value_us, "s")


def _micro_text(value: float, unit: str) -> str:
    """Return a value, given in millionths of a unit, with four digits and the best prefix."""
    for limit, prefix in ((1e6, ""), (1e3, "m")):
        if abs(value) >= limit:
            return f"{value / limit:.4g} {prefix}{unit}"
    return f"{value:.4g} µ{unit}"


def race_text(race: Mapping[str, Any], *, decides: bool) -> str:
    """Describe a race: all entrants relative to the original, and what a win required."""
    if not race:
        return ""
    limit, needed = 1 / (1 + race["threshold"]), race["needed"]
    entrants = []
    for name, entry in race["entries"].items():
        if name == race["original"]:
            continue
        text = entry["note"] or f"{entry['ratio']:.3f}"
        if not entry["note"] and not entry["wins"] and entry["ratio"] < limit:
            text += f" (ahead in {entry['ahead']})"
        entrants.append(f"{entrant_text(name)} {text}")
    parts = [f"{', '.join(entrants)} of the original's time" if entrants else "the original alone"]
    if decides:
        parts.append(
            f"a win is below {limit:.3f} (noise {race['noise']:.1%}) and ahead of both sessions of "
            f"the original in {needed} of {counted(race['builds'], 'build')}"
        )
        if race["is_open"]:
            parts.append("more builds might decide otherwise")
    else:
        parts.append("the predicted cost decides, not the race")
    return "; ".join(parts)


def entrant_text(name: str) -> str:
    """Return the name of an entrant in words."""
    graph, _, level = name.partition("@")
    words = {"clean": "only simplified", "previous": "earlier result"}.get(graph)
    text = words or graph.replace("-", " ")
    return f"{text} at level {level}" if level else text


def stage_text(name: str) -> str:
    """Return the name of a stage in plain words."""
    return _STAGES.get(name, name)


def shortened(text: str, most: int) -> str:
    """Return a text of at most this many characters, with a mark where it was cut."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def percent_text(share: float) -> str:
    """Return a positive share as a percentage: `0.3%`."""
    return f"{share:.1%}" if share >= 0.001 else "less than 0.1%"


def sizes_text(sets: Sequence[Mapping[str, Mapping[str, int]]]) -> str:
    """Return the sizes by symbol, and which of them are assumed."""
    texts = []
    for one in sets:
        parts = [", ".join(f"{name}={size}" for name, size in one["given"].items())]
        pairs = [f"{name}={size}" for name, size in one["assumed"].items()]
        if len(pairs) > _MANY_SYMBOLS:
            pairs = [*pairs[:_MANY_SYMBOLS], f"{len(pairs) - _MANY_SYMBOLS} more"]
        if pairs:
            parts.append(f"{', '.join(pairs)} (assumed; --input-shape gives others)")
        if found := sorted(set(one["data"].values())):  # under names that users cannot give
            values = f"{found[0]} to {found[-1]}" if len(found) > 1 else str(found[0])
            what = counted(len(one["data"]), "size")
            parts.append(f"{what} that the data decide assumed to be {values}")
        texts.append(", ".join(filter(None, parts)))
    return "; then ".join(filter(None, texts))


def change_text(before: float, after: float) -> str:
    """Return the relative change: `-10.5%`; empty if it rounds to zero."""
    text = f"{after / before - 1:+.1%}" if before else ""
    return "" if text in ("+0.0%", "-0.0%") else text


def plain_table(*titles: str, right: slice = _NONE) -> Table:
    """Return a table without lines; the columns of a slice are aligned right."""
    from rich.table import Table  # takes a while to load: only imported to print

    table = Table(*titles, box=None, pad_edge=False, header_style="dim")
    for column in table.columns[right]:
        column.justify = "right"
    return table
