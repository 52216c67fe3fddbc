"""Products by cuBLASLt, as kernels that an extraction can choose."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat_opt.common.precision import Precision
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.runtime.backends.cublaslt.launcher import CUBLASLT, are_aligned
from eqsat_opt.runtime.backends.cublaslt.recorded import (
    HEURISTIC,
    MARGIN_BYTES,
    NO_SUPPORT,
    Choice,
    Support,
    product_key,
    recorded,
)
from eqsat_opt.runtime.backends.protocol import Implementation, KernelPattern
from eqsat_opt.runtime.backends.shared.elsewhere import Elsewhere
from eqsat_opt.runtime.backends.shared.epilogues import products
from eqsat_opt.runtime.backends.shared.products import product_of
from eqsat_opt.runtime.devices.profile import DeviceProfile

__all__ = ["CUBLASLT", "CublasLtBackend"]

_GELU = {"gelu": "none", "gelu_tanh": "tanh"}


class CublasLtBackend(Elsewhere):
    """``relu(a @ b + bias)``, parts of it, and the Gelu that a device test found it to compute.

    Args:
        profile: of a device.
        precision: in which float32 may be multiplied.
        support: what was recorded of it; by default what ships with the package.
    """

    name = CUBLASLT

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
        """Of which library, if it was asked, and of which device."""
        told = f" {self._support.version}" if self._support.version else ""
        return f"{CUBLASLT}{told} {self.profile.name} {self.precision}"

    def patterns(self) -> Sequence[KernelPattern]:
        """Epilogues."""
        return tuple(products(("Relu", "Gelu") if self._support.gelu else ("Relu",)))

    def implementations(self, kernel: Kernel) -> Sequence[Implementation]:
        """What was recorded first, on tensors as ONNX orders them, or what it ranks first there.

        None for what it does not have, or would write where it cannot.
        """
        product = product_of(kernel)
        if (
            product is None
            or not are_aligned(kernel, product)
            or _GELU.get(product.activation, "") not in ("", self._support.gelu)
        ):
            return ()
        key = product_key(kernel, product, self.precision)
        choices = self._support.choices.get(key, (Choice(HEURISTIC),))
        return tuple(
            Implementation(
                one.name,
                workspace_bytes=one.workspace_bytes and one.workspace_bytes + MARGIN_BYTES,
                strided=True,
                precision=self.multiplied_in(kernel),
            )
            for one in choices[:1]
        )
