"""onnxruntime on a CPU: its sessions, what it fuses, and what its kernels cost."""

__all__: list[str] = []
