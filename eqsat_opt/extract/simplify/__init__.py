"""Shrinking a problem without losing every optimum: the rules, and what they share."""

__all__: list[str] = []
