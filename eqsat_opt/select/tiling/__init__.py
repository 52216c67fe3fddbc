"""Tiling: the kernels that could compute each e-class."""

__all__: list[str] = []
