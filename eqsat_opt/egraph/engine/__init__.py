"""The engine: egglog's compiled library and what runs commands on it; only this touches egglog."""

from __future__ import annotations

__all__: list[str] = []
