"""Level 1: comparisons at instances, and the numerics class that a rule earns."""

__all__: list[str] = []
