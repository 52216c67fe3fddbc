"""Generated CUDA kernels, as kernels that an extraction can choose."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.ops import get_op
from eqsat_opt.runtime.backends.analytic.backend import conversions, in_all_forms
from eqsat_opt.runtime.backends.analytic.patterns import chains
from eqsat_opt.runtime.backends.generated.gpu import NAME
from eqsat_opt.runtime.backends.protocol import Backend, Implementation, KernelPattern
from eqsat_opt.runtime.backends.shared.elsewhere import Elsewhere
from eqsat_opt.runtime.devices.profile import DeviceProfile

__all__ = ["CudaBackend"]


class CudaBackend(Elsewhere):
    """Kernels of single operators that no library has, and of chains of elementwise operators.

    Chains of two or three elementwise operators are priced as one kernel; in a plan, chains of any
    length become one kernel.

    Args:
        profile: profile of the device.
        libraries: backends of the libraries that run kernels on the device.
    """

    name = NAME

    def __init__(self, profile: DeviceProfile, libraries: Sequence[Backend]) -> None:
        super().__init__(profile)
        self._libraries = tuple(libraries)

    def version(self) -> str:
        """Return the version, which names the device."""
        return f"{NAME} {self.profile.name}"

    def patterns(self) -> Sequence[KernelPattern]:
        """Return patterns of chains of elementwise operators."""
        return tuple(chains())

    def implementations(self, kernel: Kernel) -> Sequence[Implementation]:
        """Return the implementations of a kernel: one, or a copy and a view if it only moves data.

        Kernels that allow any layout have them in several forms. A kernel without steps is a
        conversion of forms.
        """
        if not kernel.steps:
            return conversions(self, kernel)
        is_fused = len(kernel.steps) > 1
        if is_fused and any(get_op(step.op).kind == "contraction" for step in kernel.steps):
            return ()
        if any(one.implementations(kernel) for one in self._libraries):
            return ()
        return in_all_forms(self, kernel, is_strided=True)
