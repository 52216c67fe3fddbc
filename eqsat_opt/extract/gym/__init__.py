"""egraph-serialize JSON, the format of the public extraction-gym: e-graphs and results."""

from __future__ import annotations

__all__: list[str] = []
