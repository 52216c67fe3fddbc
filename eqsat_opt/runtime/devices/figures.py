"""Figures, numbers with their sources, and functions that read and check them."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat_opt.common.codecs import Entry
from eqsat_opt.errors import StageError

__all__ = ["POSITIVE", "Figure", "count_of", "figure_of", "figure_table", "number_of"]

POSITIVE = 1e-9
"""Lower limit of figures of a device that are not zero."""

_MOST = 1e18
"""Upper limit of figures of a device in the units used here; sums of derived values stay finite."""

_ASSUMED = "assumed"
"""Beginning of the source of a figure that is neither measured nor stated by the manufacturer."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number and its source.

    Attributes:
        value: the number, in the unit that the figure's name has as a suffix.
        source: ``data sheet: …``, ``measured: …`` with date and versions, ``derived: …`` or
            ``assumed: …``.
    """

    value: float
    source: str

    @property
    def is_assumed(self) -> bool:
        """Whether it is neither measured nor stated by the manufacturer."""
        return self.source.startswith(_ASSUMED)


def number_of(entry: Entry, name: str, where: str = "", least: float = POSITIVE) -> float:
    """Read a number that is plausible for a device.

    Args:
        entry: the object that holds it.
        name: name of the field.
        where: its place, for messages; by default that of the field.
        least: smallest value that it may have.

    Raises:
        StageError: it is no number, or is implausible.
    """
    value = entry.number(name)
    if not least <= value <= _MOST:
        raise StageError(f"{where or entry.place(name)} is {value}, which no device has")
    return value


def figure_of(entry: Entry, least: float = POSITIVE) -> Figure:
    """Read a figure with its source.

    Raises:
        StageError: value or source is missing, or the value is implausible.
    """
    entry.require_all("value", "source")
    source = entry.text("source")
    value = number_of(entry, "value", entry.where, least)
    if not source:
        raise StageError(f"{entry.where} does not say where it is from")
    return Figure(value, source)


def count_of(entry: Entry) -> Figure:
    """Read a figure that is a count: a whole number of 1 or more.

    Raises:
        StageError: it is no such number.
    """
    found = figure_of(entry)
    if found.value < 1 or found.value % 1:
        raise StageError(f"{entry.where} is {found.value:g}; it is a whole number of 1 or more")
    return found


def figure_table(entry: Entry) -> dict[str, Figure]:
    """Read figures by name."""
    return {name: figure_of(entry.mapping(name)) for name in entry.value}
