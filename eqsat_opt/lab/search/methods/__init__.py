"""The published searches, one module each."""

__all__: list[str] = []
