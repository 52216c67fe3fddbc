"""Decisions of a run: what was found and chosen, to be made again without search or measurement."""

__all__: list[str] = []
