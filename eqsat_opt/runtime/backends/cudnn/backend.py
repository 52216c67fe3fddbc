"""Convolutions of images by cuDNN, as kernels that an extraction can choose."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from eqsat_opt.ir.kernel import Kernel
from eqsat_opt.runtime.backends.cudnn.oracle import RECORDED_VERSION, Oracle
from eqsat_opt.runtime.backends.cudnn.spec import site_of
from eqsat_opt.runtime.backends.elsewhere import Elsewhere
from eqsat_opt.runtime.backends.epilogues import convolutions
from eqsat_opt.runtime.backends.protocol import Implementation, KernelPattern
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
    """``act(conv [+ bias] [+ z])`` on images with channels innermost.

    Args:
        profile: of a device that has a description.
    """

    name = CUDNN

    def __init__(self, profile: DeviceProfile) -> None:
        super().__init__(profile)
        assert profile.description is not None
        self._oracle = _oracle(profile.description)

    def version(self) -> str:
        """Of whose answers it offers, and for what."""
        return f"cudnn {RECORDED_VERSION} {self.profile.name}"

    def patterns(self) -> Sequence[KernelPattern]:
        """Epilogues."""
        return tuple(convolutions(_ACTIVATIONS))

    def implementations(self, kernel: Kernel) -> Sequence[Implementation]:
        """What cuDNN ranks first of that which computes in float32; none if it has nothing.

        Nothing is known of the times of the others before they are measured.
        """
        site = site_of(kernel)
        choices = self._oracle.choices(site.spec) if site else ()
        return tuple(
            self.formed(
                kernel,
                Implementation(one.name, workspace_bytes=one.workspace_bytes, strided=True),
            )
            for one in choices[:1]
        )
