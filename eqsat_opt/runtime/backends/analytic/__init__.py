"""Kernels of a device that need not be here, as its profile describes it."""

__all__: list[str] = []
