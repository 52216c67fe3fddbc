"""The rulebook, one module per family; a rule reads as its equation."""

from __future__ import annotations

__all__: list[str] = []
