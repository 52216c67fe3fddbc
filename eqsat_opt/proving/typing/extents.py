"""Unknown extents, and extents computed from them: unification with an occurs check.

A typing of the left side leaves some extents open. They are unknowns; extents that follow from them
(the positions of a window, the length of a concatenation) are derived. Equal extents are unified.
An equation that cannot be solved that way is kept, and the values must satisfy it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Derived", "Extent", "Extents", "Shape", "Unknown", "apply", "resolve"]


class Unknown:
    """An extent that is open, at least ``low``, or bound to another one."""

    __slots__ = ("bound", "low")

    def __init__(self, low: int = 1) -> None:
        self.low = low
        self.bound: Extent | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Derived:
    """An extent that is ``function`` of other extents."""

    function: Callable[..., int]
    args: tuple[Extent, ...]


Extent: TypeAlias = "int | Unknown | Derived"
Shape: TypeAlias = "tuple[Extent, ...]"


def resolve(extent: Extent) -> Extent:
    """Follow the bindings of an extent."""
    while isinstance(extent, Unknown) and extent.bound is not None:
        extent = extent.bound
    return extent


def apply(function: Callable[..., int], *args: Extent) -> Extent:
    """Apply ``function`` to extents, at once where all are numbers."""
    resolved = tuple(resolve(arg) for arg in args)
    if all(isinstance(arg, int) for arg in resolved):
        return function(*resolved)
    return Derived(function, resolved)


def _occurs(unknown: Unknown, extent: Extent) -> bool:
    extent = resolve(extent)
    return extent is unknown or (
        isinstance(extent, Derived) and any(_occurs(unknown, arg) for arg in extent.args)
    )


def _multiple(extent: Extent) -> tuple[Unknown, int] | None:
    """Return the unknown and the factor of a product with a number, if the extent is one."""
    if not isinstance(extent, Derived) or extent.function is not operator.mul:
        return None
    parts = [resolve(arg) for arg in extent.args]
    factors = [part for part in parts if isinstance(part, int)]
    unknowns = [part for part in parts if isinstance(part, Unknown)]
    return (unknowns[0], factors[0]) if len(factors) == len(unknowns) == 1 and factors[0] else None


class Extents:
    """The unknowns of one typing and the equations between them."""

    def __init__(self) -> None:
        self._unknowns: list[Unknown] = []
        self.equations: list[tuple[Extent, Extent]] = []

    def new(self, low: int = 1) -> Unknown:
        """Return a fresh unknown."""
        unknown = Unknown(low)
        self._unknowns.append(unknown)
        return unknown

    def unify(self, a: Extent, b: Extent) -> bool:
        """Make both extents equal; return ``False`` if they cannot be."""
        a, b = resolve(a), resolve(b)
        if a is b:
            return True
        if isinstance(b, Unknown) and not isinstance(a, Unknown):
            a, b = b, a
        if isinstance(a, Unknown) and not _occurs(a, b):
            if isinstance(b, int) and b < a.low:
                return False
            if isinstance(b, Unknown):
                b.low = max(a.low, b.low)
            a.bound = b
            return True
        if isinstance(a, int) and isinstance(b, int):
            return a == b
        multiple = _multiple(a) or _multiple(b)
        if multiple is not None:
            part, factor = multiple
            other = b if _multiple(a) else a
            if isinstance(other, int):
                return other % factor == 0 and self.unify(part, other // factor)
            if (same := _multiple(other)) is not None and same[1] == factor:
                return self.unify(part, same[0])
        # x = f(x), or two derived extents: nothing to solve for, so values are tested.
        self.equations.append((a, b))
        return True

    def free(self) -> list[Unknown]:
        """Return the unknowns that are still open."""
        return [unknown for unknown in self._unknowns if unknown.bound is None]

    def derived_bounds(self) -> list[tuple[Derived, int]]:
        """Return the derived extents that unknowns are bound to, each with its least value."""
        bounds = [(resolve(unknown), unknown.low) for unknown in self._unknowns]
        return [(extent, low) for extent, low in bounds if isinstance(extent, Derived)]
