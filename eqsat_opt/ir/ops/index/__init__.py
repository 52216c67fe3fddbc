"""Index semantics: one element of a result as a term over elements of the operands."""

__all__: list[str] = []
