"""From a graph to a loaded e-graph: terms, concatenations of siblings, tables of facts."""

from __future__ import annotations

__all__: list[str] = []
