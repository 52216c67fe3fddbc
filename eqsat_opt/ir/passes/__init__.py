"""Passes: functions from a graph to an equal graph, or to a fact about it."""

__all__: list[str] = []
