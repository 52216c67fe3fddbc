"""Convolutions with their epilogues by cuDNN's graph API, planned without a GPU."""

__all__: list[str] = []
