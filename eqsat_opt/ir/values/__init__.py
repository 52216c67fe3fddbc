"""Types of values, with sizes that may be symbolic."""

__all__: list[str] = []
