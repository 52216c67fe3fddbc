"""Objectives with a critical path, and limits with Lagrangian prices."""

__all__: list[str] = []
