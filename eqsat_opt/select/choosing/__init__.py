"""Choosing: from candidates to the extraction problem, prices, and the cheapest selection."""

__all__: list[str] = []
