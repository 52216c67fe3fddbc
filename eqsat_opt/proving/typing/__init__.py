"""The most general typing of a pattern: shapes of unknown extents, attributes with open values."""

__all__: list[str] = []
