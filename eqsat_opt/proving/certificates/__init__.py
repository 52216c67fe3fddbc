"""Stored verdicts, and hashes of everything that they depend on."""

__all__: list[str] = []
