"""Axes of the terms of a rule: which of them correspond, and which ranks must be tried."""

__all__: list[str] = []
