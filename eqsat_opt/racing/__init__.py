"""Races of models against each other, and verdicts on them."""

__all__: list[str] = []
