"""How extents, operators, types and rules are written as text for the engine; nothing runs here."""

from __future__ import annotations

__all__: list[str] = []
