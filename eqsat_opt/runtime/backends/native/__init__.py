"""Our own kernels, which onnxruntime runs as operators of the domain ``eqsat_opt``."""

__all__: list[str] = []
