"""Comparisons and examinations: published searches, experiments, benchmark models, oracles."""

__all__: list[str] = []
