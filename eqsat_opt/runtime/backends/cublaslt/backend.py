"""Products of cuBLASLt, as kernels that an extraction can choose."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat_opt.common.precision import Precision
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.runtime.backends.cublaslt import NAME
from eqsat_opt.runtime.backends.cublaslt.launcher import are_aligned
from eqsat_opt.runtime.backends.cublaslt.recorded import (
    HEURISTIC,
    MARGIN_BYTES,
    NO_SUPPORT,
    CublasLtChoice,
    Support,
    product_key,
    recorded,
)
from eqsat_opt.runtime.backends.protocol import Implementation, KernelPattern
from eqsat_opt.runtime.backends.shared.elsewhere import Elsewhere
from eqsat_opt.runtime.backends.shared.epilogues import products
from eqsat_opt.runtime.backends.shared.products import product_of
from eqsat_opt.runtime.devices.profile import DeviceProfile

__all__ = ["CublasLtBackend"]

_GELU = {"gelu": "none", "gelu_tanh": "tanh"}


class CublasLtBackend(Elsewhere):
    """The backend of ``relu(a @ b + bias)``, of parts of it, and of Gelu in place of Relu.

    Gelu is offered only in the form that a device test found cuBLASLt to compute.

    Args:
        profile: the profile of a device.
        precision: the precision in which float32 may be multiplied.
        support: the recorded support of cuBLASLt; by default the record that ships with the
            package.
    """

    name = NAME

    def __init__(
        self,
        profile: DeviceProfile,
        precision: Precision = Precision.STRICT,
        support: Support | None = None,
    ) -> None:
        super().__init__(profile, precision)
        described = profile.description
        if support is None:
            support = NO_SUPPORT if described is None else recorded(described.architecture)
        self._support = support

    def version(self) -> str:
        """Return the version of the library, if its support was recorded, and the device."""
        told = f" {self._support.version}" if self._support.version else ""
        return f"{NAME}{told} {self.profile.name} {self.precision}"

    def patterns(self) -> Sequence[KernelPattern]:
        """Return the epilogues of products."""
        return tuple(products(("Relu", "Gelu") if self._support.gelu else ("Relu",)))

    def implementations(self, kernel: Kernel) -> Sequence[Implementation]:
        """Return the algorithm recorded as best, or the one that cuBLASLt ranks first at run time.

        Tensors are in the order of ONNX. Nothing is offered for a kernel that cuBLASLt does not
        have, or whose results it would have to write to unaligned memory.
        """
        product = product_of(kernel)
        if (
            product is None
            or not are_aligned(kernel, product)
            or _GELU.get(product.activation, "") not in ("", self._support.gelu)
        ):
            return ()
        key = product_key(kernel, product, self.precision)
        choices = self._support.choices.get(key, (CublasLtChoice(HEURISTIC),))
        return tuple(
            Implementation(
                one.name,
                workspace_bytes=one.workspace_bytes and one.workspace_bytes + MARGIN_BYTES,
                strided=True,
                precision=self.multiplied_in(kernel),
            )
            for one in choices[:1]
        )
