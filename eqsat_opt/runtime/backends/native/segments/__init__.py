"""Our own kernels inside the sessions of a plan, in the layouts of onnxruntime."""

from eqsat_opt.runtime.backends.record import BackendRecord, Lazy

__all__ = ["BACKEND", "NAME"]

NAME = "ort+native"

BACKEND = BackendRecord(
    name=NAME,
    launcher=Lazy("eqsat_opt.runtime.backends.native.segments.launcher:SegmentLauncher"),
)
