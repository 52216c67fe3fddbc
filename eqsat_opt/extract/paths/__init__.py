"""Objectives with a critical path, and limits, which have their price."""

from __future__ import annotations

__all__: list[str] = []
