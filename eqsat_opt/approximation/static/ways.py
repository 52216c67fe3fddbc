"""The ways to compute a unit on integers."""

from __future__ import annotations

from types import MappingProxyType

from eqsat_opt.approximation.static.rewriting import Static
from eqsat_opt.approximation.static.units import Unit

__all__ = ["WAYS", "ways_of"]

# Without VNNI, sums of two products of 8 bits saturate; one bit less leaves room.
_WITH_WEIGHTS = (Static("static int8", 8), Static("static int7", 7))
_TO_FLOATS = (
    Static("static int8 to floats", 8, gives_floats=True),
    Static("static int7 to floats", 7, gives_floats=True),
)
_OTHERS = (Static("static"),)

WAYS = MappingProxyType({one.name: one for one in (*_WITH_WEIGHTS, *_TO_FLOATS, *_OTHERS)})
"""All ways by name."""


def ways_of(unit: Unit) -> tuple[Static, ...]:
    """Return the ways to compute a unit; those that leave floats are last."""
    if not unit.has_weight:
        return _OTHERS
    return _WITH_WEIGHTS if unit.is_convolution else (*_WITH_WEIGHTS, *_TO_FLOATS)
