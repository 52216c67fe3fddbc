"""Prices of the graphs of a search."""

__all__: list[str] = []
