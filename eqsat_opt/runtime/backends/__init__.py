"""Backends, which offer and run kernels; one folder or package each."""

__all__: list[str] = []
