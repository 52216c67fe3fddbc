"""Fused operators (attention, normalisations, Gelu …) found in windows cut out of a model."""

__all__: list[str] = []
