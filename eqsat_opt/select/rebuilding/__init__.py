"""Rebuilding: from a selection back to a graph, and to who runs each node."""

__all__: list[str] = []
