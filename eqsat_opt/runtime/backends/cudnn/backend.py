"""Convolutions of images and products by cuDNN, as kernels that an extraction can choose."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from eqsat_opt.common.precision import Precision
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.runtime.backends.cudnn.oracle import RECORDED_VERSION, Oracle
from eqsat_opt.runtime.backends.cudnn.products import ProductSpec
from eqsat_opt.runtime.backends.cudnn.spec import site_of
from eqsat_opt.runtime.backends.protocol import Implementation, KernelPattern
from eqsat_opt.runtime.backends.shared.elsewhere import Elsewhere
from eqsat_opt.runtime.backends.shared.epilogues import convolutions, products
from eqsat_opt.runtime.devices.description import DeviceDescription
from eqsat_opt.runtime.devices.profile import DeviceProfile

__all__ = ["CUDNN", "CudnnBackend"]

CUDNN = "cudnn"
"""What plans call this backend."""

_ACTIVATIONS = ("Relu", "Sigmoid", "Tanh")


@cache
def _oracle(description: DeviceDescription) -> Oracle:
    return Oracle(description)


class CudnnBackend(Elsewhere):
    """``act(conv [+ bias] [+ z])`` on images with channels innermost, and ``act(a @ b + bias)``.

    Args:
        profile: of a device that has a description.
        precision: in which float32 may be multiplied.
    """

    name = CUDNN

    def __init__(self, profile: DeviceProfile, precision: Precision = Precision.STRICT) -> None:
        super().__init__(profile, precision)
        assert profile.description is not None
        self._oracle = _oracle(profile.description)

    def version(self) -> str:
        """Of whose answers it offers, and for what."""
        return f"cudnn {RECORDED_VERSION} {self.profile.name} {self.precision}"

    def patterns(self) -> Sequence[KernelPattern]:
        """Epilogues."""
        return (*convolutions(_ACTIVATIONS), *products(("Relu", "Gelu")))

    def implementations(self, kernel: Kernel) -> Sequence[Implementation]:
        """What cuDNN ranks first of that which the precision allows; none if it has nothing.

        Nothing is known of the times of the others before they are measured. Images have their
        channels innermost, factors of products are as ONNX orders them.
        """
        site = site_of(kernel, precision=self.precision)
        choices = self._oracle.choices(site.spec) if site else ()
        found = (
            Implementation(
                one.name,
                workspace_bytes=one.workspace_bytes,
                strided=True,
                precision=self.multiplied_in(kernel),
            )
            for one in choices[:1]
        )
        is_product = site is not None and isinstance(site.spec, ProductSpec)
        return tuple(how if is_product else self.formed(kernel, how) for how in found)
