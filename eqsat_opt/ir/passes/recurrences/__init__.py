"""Recurrent layers that were written step by step, found and written as operators."""

__all__: list[str] = []
