"""Products with their epilogues by cuBLASLt."""

__all__: list[str] = []
