"""Searches and bounds for weighted sums: greedies, neighbourhoods, cutting planes, CP-SAT."""

from __future__ import annotations

__all__: list[str] = []
