"""Products with their epilogues, computed by cuBLASLt."""

from eqsat_opt.runtime.backends.record import BackendRecord, Lazy

__all__ = ["BACKEND", "NAME"]

NAME = "cublaslt"

BACKEND = BackendRecord(
    name=NAME,
    launcher=Lazy("eqsat_opt.runtime.backends.cublaslt.launcher:CublasLtLauncher"),
    runner=Lazy("eqsat_opt.runtime.backends.cublaslt.running:CublasLtRunner"),
    alignment_bytes=16,  # for the widest loads and stores
)
