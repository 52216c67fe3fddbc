"""The engine: egglog's compiled library and its driver; no other package uses egglog."""

__all__: list[str] = []
