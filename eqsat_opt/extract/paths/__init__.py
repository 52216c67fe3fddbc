"""Objectives with a critical path, and limits with several implementations."""

from __future__ import annotations

__all__: list[str] = []
