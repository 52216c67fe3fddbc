"""onnxruntime on a CPU: its sessions, its fusions, and the prices of its kernels."""

__all__: list[str] = []
