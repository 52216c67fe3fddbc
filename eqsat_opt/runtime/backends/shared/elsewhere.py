"""Base of backends for devices that need not be present: forms, and no measurements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from eqsat_opt.common.precision import Precision
from eqsat_opt.errors import PlanError
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.values.forms import Form
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.runtime.backends.protocol import (
    CarriedForm,
    Implementation,
    KernelPattern,
    Offer,
)
from eqsat_opt.runtime.devices.profile import DeviceProfile
from eqsat_opt.runtime.measure import Measurement

__all__ = ["Elsewhere"]

_IMAGES = "nhwc"
"""Layout in which libraries of devices compute convolutions of images: channels innermost."""

_IMAGE_RANK = 4


class Elsewhere(ABC):
    """A backend of a device that is known by its profile.

    Args:
        profile: the profile of the device.
        precision: the precision in which libraries may multiply float32.

    Attributes:
        profile, precision: the arguments.
        interface: the form of inputs, outputs and all tensors that are not images.
        images: the form of images with their channels innermost.
    """

    name: str

    def __init__(self, profile: DeviceProfile, precision: Precision = Precision.STRICT) -> None:
        self.profile = profile
        self.precision = precision
        space = "host" if profile.kind == "cpu" else profile.kind
        self.interface = Form(space)
        self.images = Form(space, _IMAGES)

    @abstractmethod
    def version(self) -> str:
        """Return name and version of the library; see `Backend`."""

    @abstractmethod
    def patterns(self) -> Sequence[KernelPattern]:
        """Return the patterns that run as one kernel; see `Backend`."""

    @abstractmethod
    def implementations(self, kernel: Kernel) -> Sequence[Implementation]:
        """Return the ways to run a kernel of literal sizes; see `Backend`."""

    def carried(self) -> Sequence[CarriedForm]:
        """Return no forms: layouts are part of the extraction problem."""
        return ()

    def multiplied_in(self, kernel: Kernel) -> str:
        """Return the precision in which a library multiplies, as in `Implementation.precision`."""
        found = self.precision.of(kernel.types[len(kernel.operands)].dtype)
        return "" if found is Precision.STRICT else found.peak

    def formed(self, kernel: Kernel, how: Implementation) -> Implementation:
        """Return an implementation with all images in the layout of convolutions.

        The implementation is unchanged if there are no images.
        """
        reads = tuple(
            self._form(operand.type, is_image=not operand.const) for operand in kernel.operands
        )
        writes = tuple(self._form(kernel.types[number]) for number in kernel.outputs)
        if {*reads, *writes} == {self.interface}:
            return how
        return replace(how, reads=reads, writes=writes)

    def _form(self, type_: TensorType, *, is_image: bool = True) -> Form:
        return self.images if is_image and type_.rank == _IMAGE_RANK else self.interface

    def request(self, offer: Offer) -> bytes:
        """Refuse, since the device is not here and nothing can be measured.

        Raises:
            PlanError: always.
        """
        raise PlanError(f"{self.profile.name} is not here: its kernels cannot be measured")

    def measure(self, request: bytes, threads: int, budget_s: float) -> Measurement:
        """Refuse, since the device is not here and nothing can be measured.

        Raises:
            PlanError: always.
        """
        raise PlanError(f"{self.profile.name} is not here: its kernels cannot be measured")
