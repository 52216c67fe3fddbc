"""All backends together for a GPU whose profile describes it to CUDA libraries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eqsat_opt.common.precision import Precision
from eqsat_opt.errors import OptionError
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.runtime.backends.analytic.backend import AnalyticBackend
from eqsat_opt.runtime.backends.cublaslt.backend import CublasLtBackend
from eqsat_opt.runtime.backends.cudnn.backend import CudnnBackend
from eqsat_opt.runtime.backends.generated.gpu import NAME as CUDA
from eqsat_opt.runtime.backends.generated.gpu.cuda_backend import CudaBackend
from eqsat_opt.runtime.backends.protocol import Implementation, KernelPattern
from eqsat_opt.runtime.backends.shared.elsewhere import Elsewhere
from eqsat_opt.runtime.devices.profile import DeviceProfile

__all__ = ["GpuBackend", "device_backend", "runner_of"]


class GpuBackend(Elsewhere):
    """cuDNN for convolutions, cuDNN and cuBLASLt for products, generated kernels for all others.

    The name of a library's algorithm begins with that of the library.

    Args:
        profile: the profile of a device that has a description.
        precision: the precision in which libraries may multiply float32; generated kernels never
            reduce it.
    """

    name = "gpu"

    def __init__(self, profile: DeviceProfile, precision: Precision = Precision.STRICT) -> None:
        super().__init__(profile, precision)
        # The first of equal prices wins, and kernels of cuBLASLt are already compiled.
        self._libraries = CublasLtBackend(profile, precision), CudnnBackend(profile, precision)
        self._generated = CudaBackend(profile, self._libraries)

    def version(self) -> str:
        """Return the versions of all these backends."""
        return ", ".join(one.version() for one in (*self._libraries, self._generated))

    def patterns(self) -> Sequence[KernelPattern]:
        """Return epilogues, and chains of elementwise operators."""
        parts = (*self._libraries, self._generated)
        return tuple(dict.fromkeys(pattern for one in parts for pattern in one.patterns()))

    def implementations(self, kernel: Kernel) -> Sequence[Implementation]:
        """Return the implementations of all these backends."""
        return (
            *(
                replace(how, algorithm=f"{one.name} {how.algorithm}")
                for one in self._libraries
                for how in one.implementations(kernel)
            ),
            *self._generated.implementations(kernel),
        )


def runner_of(algorithm: str) -> tuple[str, str]:
    """Return the launcher of an algorithm of `GpuBackend`, and the launcher's name for it."""
    library, _, own = algorithm.partition(" ")
    return (library, own) if own else (CUDA, algorithm)


def device_backend(profile: DeviceProfile, precision: Precision = Precision.STRICT) -> Elsewhere:
    """Return the backend of a device; the model of its profile if no library runs on it.

    Raises:
        OptionError: the device does not have that precision.
    """
    if profile.description is not None:
        known = [one for one in Precision if one.peak in profile.peak_tflops]
        if precision not in known:
            raise OptionError(
                f"{profile.name} has no precision {precision}; it has {', '.join(known)}"
            )
        return GpuBackend(profile, precision)
    if precision is not Precision.STRICT:
        raise OptionError(
            f"{precision} is for GPUs of compute capability 7.5 and later, and the target is "
            f"{profile.name}; leave --precision out"
        )
    return AnalyticBackend(profile)
