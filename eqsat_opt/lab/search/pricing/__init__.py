"""What graphs of a search cost."""

__all__: list[str] = []
