"""Kernels whose source is generated from the registry's index functions, for onnxruntime."""

__all__: list[str] = []
