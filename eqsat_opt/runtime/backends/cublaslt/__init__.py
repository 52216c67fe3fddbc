"""Products with their epilogues, computed by cuBLASLt."""

__all__: list[str] = []
