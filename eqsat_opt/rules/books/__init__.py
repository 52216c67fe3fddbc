"""The rulebook, one module per family; a rule reads as its equation."""

__all__: list[str] = []
