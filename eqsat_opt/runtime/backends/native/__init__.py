"""Kernels of our own, run by onnxruntime as operators of the domain ``eqsat_opt``."""

__all__: list[str] = []
