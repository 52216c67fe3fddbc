"""Comparison of models: designed inputs, tolerances, and the noise of the original."""

__all__: list[str] = []
