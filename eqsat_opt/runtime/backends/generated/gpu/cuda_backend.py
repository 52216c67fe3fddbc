"""Generated CUDA kernels, as kernels that an extraction can choose."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.ops import get_op
from eqsat_opt.runtime.backends.analytic.backend import conversions, in_all_forms
from eqsat_opt.runtime.backends.analytic.patterns import chains
from eqsat_opt.runtime.backends.generated.gpu.cuda_launcher import CUDA
from eqsat_opt.runtime.backends.protocol import Backend, Implementation, KernelPattern
from eqsat_opt.runtime.backends.shared.elsewhere import Elsewhere
from eqsat_opt.runtime.devices.profile import DeviceProfile

__all__ = ["CudaBackend"]


class CudaBackend(Elsewhere):
    """Single operators, but for those that a library has, and chains of elementwise ones.

    Chains of two or three elementwise operators are priced as one kernel; in a plan those of any
    length are.

    Args:
        profile: of the device.
        libraries: what else runs kernels there.
    """

    name = CUDA

    def __init__(self, profile: DeviceProfile, libraries: Sequence[Backend]) -> None:
        super().__init__(profile)
        self._libraries = tuple(libraries)

    def version(self) -> str:
        """Of which device."""
        return f"{CUDA} {self.profile.name}"

    def patterns(self) -> Sequence[KernelPattern]:
        """Chains of elementwise operators."""
        return tuple(chains())

    def implementations(self, kernel: Kernel) -> Sequence[Implementation]:
        """One, or a copy and a view of what is only moved, in all forms that do not matter to it.

        A kernel without steps is a conversion.
        """
        if not kernel.steps:
            return conversions(self, kernel)
        is_fused = len(kernel.steps) > 1
        if is_fused and any(get_op(step.op).kind == "contraction" for step in kernel.steps):
            return ()
        if any(one.implementations(kernel) for one in self._libraries):
            return ()
        return in_all_forms(self, kernel, is_strided=True)
