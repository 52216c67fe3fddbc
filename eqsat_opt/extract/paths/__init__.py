"""Objectives with a critical path, and limits, which have their price."""

__all__: list[str] = []
