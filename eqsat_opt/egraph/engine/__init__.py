"""The engine: egglog's compiled library and what runs commands on it; only this touches egglog."""

__all__: list[str] = []
