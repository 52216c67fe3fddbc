"""onnxruntime on a CPU: its sessions, its fusions, and the prices of its kernels."""

from eqsat_opt.runtime.backends.record import BackendRecord, Lazy

__all__ = ["BACKEND", "NAME"]

NAME = "ort"

BACKEND = BackendRecord(
    name=NAME,
    title="onnxruntime",
    kernels=Lazy("eqsat_opt.runtime.backends.ort.backend:OrtBackend"),
    is_portable=True,
    runtime=Lazy("eqsat_opt.runtime.backends.ort.runtime:OrtRuntime"),
    is_trusted=True,
    runs_models=True,
    launcher=Lazy("eqsat_opt.runtime.backends.ort.launcher:OrtLauncher"),
)
