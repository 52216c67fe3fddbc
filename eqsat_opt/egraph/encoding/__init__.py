"""Encoding of extents, operators, types and rules as text for the engine; nothing runs here."""

__all__: list[str] = []
