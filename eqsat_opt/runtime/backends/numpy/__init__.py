"""The backend that runs every kernel as the operator registry defines it, in NumPy."""

__all__: list[str] = []
