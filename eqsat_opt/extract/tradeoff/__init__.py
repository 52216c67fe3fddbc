"""Objectives of two metrics: products and quotients, and the plane of the two totals."""

__all__: list[str] = []
