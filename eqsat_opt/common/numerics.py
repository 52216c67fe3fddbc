"""The numerics classes: how far a result may move."""

from __future__ import annotations

import enum

__all__ = ["Numerics"]


class Numerics(enum.IntEnum):
    """How far a rewrite may move the result; a user's class admits all classes below it."""

    BITEXACT = 0
    REASSOCIATE = 1
    REFACTOR = 2
    RELAXED = 3

    @classmethod
    def parse(cls, text: str) -> Numerics:
        """From the option's spelling."""
        return cls[text.upper()]
