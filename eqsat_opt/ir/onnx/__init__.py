"""Import from ONNX and export to it."""

__all__: list[str] = []
