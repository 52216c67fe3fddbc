"""Convolutions and products with their epilogues in cuDNN's graph API, planned without a GPU."""

__all__: list[str] = []
