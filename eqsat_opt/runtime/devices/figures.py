"""Figures: numbers with their sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from eqsat_opt.errors import StageError

__all__ = ["POSITIVE", "Figure", "check_figures", "figures_in"]

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

    value: int | float
    source: str

    @property
    def is_assumed(self) -> bool:
        """Whether it is neither measured nor stated by the manufacturer."""
        return self.source.startswith(_ASSUMED)


def figures_in(value: Any, name: str = "") -> Iterator[tuple[str, Figure]]:
    """Yield the figures in a value with their names, such as ``peak_tflops.fp32``."""
    if isinstance(value, Figure):
        yield name, value
        return
    parts: Mapping[Any, Any] = {}
    if isinstance(value, Mapping):
        parts = value
    elif isinstance(value, tuple):
        parts = dict(enumerate(value))
    elif is_dataclass(value):
        parts = {one.name: getattr(value, one.name) for one in fields(value)}
    for key, item in parts.items():
        yield from figures_in(item, f"{name}.{key}" if name else f"{key}")


def check_figures(value: Any, where: str, *, may_be_zero: tuple[str, ...] = ()) -> None:
    """Check that all figures in a value are plausible for a device, and have sources.

    Raises:
        StageError: a figure is not plausible, or has no source.
    """
    for name, figure in figures_in(value):
        if not (0.0 if name in may_be_zero else POSITIVE) <= figure.value <= _MOST:
            raise StageError(f"{name} of {where} is {figure.value!r:.20}, which no device has")
        if not figure.source:
            raise StageError(f"{name} of {where} does not say where it is from")
