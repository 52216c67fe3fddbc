"""Numbers that say where they are from, and how they are read."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat_opt.common.codecs import Entry
from eqsat_opt.errors import StageError

__all__ = ["POSITIVE", "Figure", "count_of", "figure_of", "figure_table", "number_of"]

POSITIVE = 1e-9
"""Below any figure of a device that is not zero."""

_MOST = 1e18
"""Beyond any figure of a device in the units here, and sums of what follows from it stay finite."""

_ASSUMED = "assumed"
"""How the source of a figure begins that is neither measured nor stated by the manufacturer."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number, and where it is from.

    Attributes:
        value: in the unit that its name says.
        source: ``data sheet: …``, ``measured: …`` with date and versions, ``derived: …`` or
            ``assumed: …``.
    """

    value: float
    source: str

    @property
    def is_assumed(self) -> bool:
        """Whether nobody has measured or stated it."""
        return self.source.startswith(_ASSUMED)


def number_of(entry: Entry, name: str, where: str = "", least: float = POSITIVE) -> float:
    """A number that a device can have.

    Args:
        entry: the object that holds it.
        name: of the field.
        where: its place, for messages; by default that of the field.
        least: that it may be.

    Raises:
        StageError: it is no number, or no device has it.
    """
    value = entry.number(name)
    if not least <= value <= _MOST:
        raise StageError(f"{where or entry.place(name)} is {value}, which no device has")
    return value


def figure_of(entry: Entry, least: float = POSITIVE) -> Figure:
    """A figure with its source.

    Raises:
        StageError: it lacks one of them, or no device has such a value.
    """
    entry.require_all("value", "source")
    source = entry.text("source")
    value = number_of(entry, "value", entry.where, least)
    if not source:
        raise StageError(f"{entry.where} does not say where it is from")
    return Figure(value, source)


def count_of(entry: Entry) -> Figure:
    """A whole number of things, one at least.

    Raises:
        StageError: it is none.
    """
    found = figure_of(entry)
    if found.value < 1 or found.value % 1:
        raise StageError(f"{entry.where} is {found.value:g}; it is a whole number of 1 or more")
    return found


def figure_table(entry: Entry) -> dict[str, Figure]:
    """Figures by name."""
    return {name: figure_of(entry.mapping(name)) for name in entry.value}
