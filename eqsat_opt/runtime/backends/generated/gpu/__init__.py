"""Generated kernels for GPUs."""

from eqsat_opt.runtime.backends.record import BackendRecord, Lazy

__all__ = ["BACKEND", "NAME"]

NAME = "cuda"

BACKEND = BackendRecord(
    name=NAME,
    launcher=Lazy("eqsat_opt.runtime.backends.generated.gpu.cuda_launcher:CudaLauncher"),
    runner=Lazy("eqsat_opt.runtime.backends.generated.gpu.cuda_running:CudaRunner"),
    generates=Lazy("eqsat_opt.runtime.backends.generated.gpu.cuda_launcher:has_cuda_kernel"),
    takes_views=True,
    copies=True,
)
