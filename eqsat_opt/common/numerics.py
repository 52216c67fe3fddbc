"""The numerics classes: how far a rewrite may move a result."""

from __future__ import annotations

import enum

__all__ = ["Numerics"]


class Numerics(enum.IntEnum):
    """How far a rewrite may move the result; a user's class admits all classes below it.

    ``FINITE`` is ``REASSOCIATE`` wherever all values of the original are finite.
    """

    BITEXACT = 0
    REASSOCIATE = 1
    FINITE = 2
    REFACTOR = 3
    RELAXED = 4

    @classmethod
    def parse(cls, text: str) -> Numerics:
        """Return the class with the name that the option uses."""
        return cls[text.upper()]
