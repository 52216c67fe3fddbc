"""The contest: what was found is checked against the original and raced against it."""

__all__: list[str] = []
