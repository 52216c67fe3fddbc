"""How extents, operators, types and rules are written as text for the engine; nothing runs here."""

__all__: list[str] = []
