"""egraph-serialize JSON, the format of the public extraction-gym: e-graphs and results."""

__all__: list[str] = []
