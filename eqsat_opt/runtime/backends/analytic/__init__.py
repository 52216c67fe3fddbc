"""Kernels of a device that need not be present, modelled from its profile."""

__all__: list[str] = []
