"""The foundations of a proof, written for others to check."""

__all__: list[str] = []
