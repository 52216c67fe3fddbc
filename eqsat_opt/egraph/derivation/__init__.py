"""Rules derived from other rules: both sides in one e-graph, until they meet."""

from __future__ import annotations

__all__: list[str] = []
