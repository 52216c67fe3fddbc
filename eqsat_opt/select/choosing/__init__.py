"""Choosing: the extraction problem of candidates, prices, and the cheapest selection."""

__all__: list[str] = []
