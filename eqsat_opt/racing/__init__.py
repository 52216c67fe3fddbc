"""Races models against each other, and judges what a race shows."""

__all__: list[str] = []
