"""The memory of values that operators read and write, by the order in which they run."""

__all__: list[str] = []
