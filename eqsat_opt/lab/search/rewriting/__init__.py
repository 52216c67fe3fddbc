"""Substitutions on graphs: where rules apply, and what they make there."""

__all__: list[str] = []
