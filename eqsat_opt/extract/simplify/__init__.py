"""Simplification of a problem that keeps an optimum: the rules and the data that they share."""

__all__: list[str] = []
