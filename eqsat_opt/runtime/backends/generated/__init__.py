"""Kernels generated from the registry's index functions, for onnxruntime, plans and GPUs."""

__all__: list[str] = []
