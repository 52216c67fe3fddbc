"""ONNX files: loading, saving, and tensors that are stored elsewhere."""

__all__: list[str] = []
