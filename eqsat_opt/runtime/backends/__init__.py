"""Backends: what runs kernels, and what each of them knows; one folder or package each."""

__all__: list[str] = []
