"""Convolutions of images and products in cuDNN, as kernels that an extraction can choose."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from eqsat_opt.common.precision import Precision
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.runtime.backends.cudnn import NAME
from eqsat_opt.runtime.backends.cudnn.oracle import RECORDED_VERSION, Oracle
from eqsat_opt.runtime.backends.cudnn.products import ProductSpec
from eqsat_opt.runtime.backends.cudnn.spec import site_of
from eqsat_opt.runtime.backends.protocol import Implementation, KernelPattern
from eqsat_opt.runtime.backends.shared.elsewhere import Elsewhere
from eqsat_opt.runtime.backends.shared.epilogues import convolutions, products
from eqsat_opt.runtime.devices.description import DeviceDescription
from eqsat_opt.runtime.devices.profile import DeviceProfile

__all__ = ["CudnnBackend"]

_ACTIVATIONS = ("Relu", "Sigmoid", "Tanh")


@cache
def _oracle(description: DeviceDescription) -> Oracle:
    return Oracle(description)


class CudnnBackend(Elsewhere):
    """The backend of ``act(conv [+ bias] [+ z])`` and ``act(a @ b + bias)``.

    Convolutions are of images with channels innermost.

    Args:
        profile: the profile of a device that has a description.
        precision: the precision in which float32 may be multiplied.
    """

    name = NAME

    def __init__(self, profile: DeviceProfile, precision: Precision = Precision.STRICT) -> None:
        super().__init__(profile, precision)
        assert profile.description is not None
        self._oracle = _oracle(profile.description)

    def version(self) -> str:
        """Return the version of cuDNN whose answers are offered, the device and the precision."""
        return f"cudnn {RECORDED_VERSION} {self.profile.name} {self.precision}"

    def patterns(self) -> Sequence[KernelPattern]:
        """Return the epilogues of convolutions and products."""
        return (*convolutions(_ACTIVATIONS), *products(("Relu", "Gelu")))

    def implementations(self, kernel: Kernel) -> Sequence[Implementation]:
        """Return the plan that cuDNN ranks first within the precision; none if it has no plan.

        The times of lower-ranked plans are unknown until they are measured. Images have their
        channels innermost, and factors of products are in the order of ONNX.
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
