"""Operators that move data and compute nothing."""

__all__: list[str] = []
