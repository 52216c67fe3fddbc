"""Sums of guarded products in normal form, and decisions about them."""

__all__: list[str] = []
