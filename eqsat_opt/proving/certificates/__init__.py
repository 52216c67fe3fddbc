"""Verdicts that are kept, and what they rest on."""

__all__: list[str] = []
