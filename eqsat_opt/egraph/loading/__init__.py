"""Loading of a graph into an e-graph: terms, concatenations of siblings, tables of facts."""

__all__: list[str] = []
