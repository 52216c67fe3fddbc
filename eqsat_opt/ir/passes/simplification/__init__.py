"""The pass that drops, folds and merges nodes: one walk, and a list of cases."""

__all__: list[str] = []
