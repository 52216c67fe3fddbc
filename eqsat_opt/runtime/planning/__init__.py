"""Planning, from a graph to a plan: segments, views, streams and memory."""

__all__: list[str] = []
