"""Fused operators (attention, normalisations, Gelu …) found in windows cut out of a model."""

from __future__ import annotations

__all__: list[str] = []
