"""Rebuilding: from a selection back to a graph, and to a backend for each node."""

__all__: list[str] = []
