"""Sizes of symbolic dimensions: what a user gives, what a model demands, and what follows."""

__all__: list[str] = []
