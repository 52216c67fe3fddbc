"""Axes of the terms of a rule: which are one axis, and which ranks must be tried."""

__all__: list[str] = []
