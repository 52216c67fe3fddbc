"""Sizes of symbolic dimensions: given by a user, demanded by a model, or derived from others."""

__all__: list[str] = []
