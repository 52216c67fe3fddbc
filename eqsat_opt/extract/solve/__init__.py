"""Searches and bounds for weighted sums: greedies, neighbourhoods, cutting planes, CP-SAT."""

__all__: list[str] = []
