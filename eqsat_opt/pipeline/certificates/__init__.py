"""Certificates of results: which rules make the result of the original, where, and with what."""

__all__: list[str] = []
