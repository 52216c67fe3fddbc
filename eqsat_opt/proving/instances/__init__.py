"""Instances of a rule: types and attributes at which its left side types."""

__all__: list[str] = []
