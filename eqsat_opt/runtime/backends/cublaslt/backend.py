"""Products by cuBLASLt, as kernels that an extraction can choose."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat_opt.ir.kernel import Kernel
from eqsat_opt.runtime.backends.cublaslt.product import product_of
from eqsat_opt.runtime.backends.elsewhere import Elsewhere
from eqsat_opt.runtime.backends.epilogues import products
from eqsat_opt.runtime.backends.protocol import Implementation, KernelPattern

__all__ = ["CUBLASLT", "HEURISTIC", "CublasLtBackend"]

CUBLASLT = "cublaslt"
"""What plans call this backend."""

HEURISTIC = "heuristic"
"""What cuBLASLt ranks first where it runs, without a workspace: it answers to no question
without a driver, and no table of a device was recorded."""


class CublasLtBackend(Elsewhere):
    """``relu(a @ b + bias)`` and parts of it."""

    name = CUBLASLT

    def version(self) -> str:
        """Of which device."""
        return f"cublaslt {self.profile.name}"

    def patterns(self) -> Sequence[KernelPattern]:
        """Epilogues."""
        return tuple(products(("Relu",)))

    def implementations(self, kernel: Kernel) -> Sequence[Implementation]:
        """One, on tensors as ONNX orders them; none for what it does not have."""
        return () if product_of(kernel) is None else (Implementation(HEURISTIC, strided=True),)
