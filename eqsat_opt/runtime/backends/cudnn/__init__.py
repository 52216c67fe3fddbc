"""Convolutions and products with their epilogues in cuDNN's graph API, planned without a GPU."""

from eqsat_opt.runtime.backends.record import BackendRecord, Lazy

__all__ = ["BACKEND", "NAME"]

NAME = "cudnn"

BACKEND = BackendRecord(
    name=NAME,
    launcher=Lazy("eqsat_opt.runtime.backends.cudnn.launcher:CudnnLauncher"),
    runner=Lazy("eqsat_opt.runtime.backends.cudnn.running:CudnnRunner"),
    alignment_bytes=16,  # for the widest loads and stores, which cuDNN always assumes
)
