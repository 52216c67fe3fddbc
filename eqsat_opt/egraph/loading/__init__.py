"""From a graph to a loaded e-graph: terms, concatenations of siblings, tables of facts."""

__all__: list[str] = []
