"""Our own kernels, which onnxruntime runs as operators of the domain ``eqsat_opt``."""

from eqsat_opt.runtime.backends.record import BackendRecord, Lazy

__all__ = ["BACKEND", "NAME"]

NAME = "native"

BACKEND = BackendRecord(
    name=NAME,
    kernels=Lazy("eqsat_opt.runtime.backends.native.backend:NativeBackend"),
    runtime=Lazy("eqsat_opt.runtime.backends.native.runtime:NativeRuntime"),
    is_trusted=True,
    launcher=Lazy("eqsat_opt.runtime.backends.native.launcher:NativeLauncher"),
    has_kernel=Lazy("eqsat_opt.runtime.backends.native.launcher:can_run"),
    launches=Lazy("eqsat_opt.runtime.backends.native.launcher:can_run"),
)
