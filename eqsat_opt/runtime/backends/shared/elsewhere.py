"""What backends of devices have in common that need not be here: forms, and nothing to measure."""

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
"""In which libraries of devices compute convolutions of images: channels innermost."""

_IMAGE_RANK = 4


class Elsewhere(ABC):
    """A backend of a device of which a profile is at hand.

    Args:
        profile: of the device.
        precision: in which libraries may multiply float32.

    Attributes:
        profile, precision: the same.
        interface: the form of what is no image, and of inputs and outputs.
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
        """See `Backend`."""

    @abstractmethod
    def patterns(self) -> Sequence[KernelPattern]:
        """See `Backend`."""

    @abstractmethod
    def implementations(self, kernel: Kernel) -> Sequence[Implementation]:
        """See `Backend`."""

    def carried(self) -> Sequence[CarriedForm]:
        """None: layouts are part of the problem."""
        return ()

    def multiplied_in(self, kernel: Kernel) -> str:
        """In which a library multiplies, as `Implementation.precision` has it."""
        found = self.precision.of(kernel.types[len(kernel.operands)].dtype)
        return "" if found is Precision.STRICT else found.peak

    def formed(self, kernel: Kernel, how: Implementation) -> Implementation:
        """The same with all images in the layout of convolutions; as it is if there are none."""
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
        """Nothing can be measured.

        Raises:
            PlanError: always.
        """
        raise PlanError(f"{self.profile.name} is not here: its kernels cannot be measured")

    def measure(self, request: bytes, threads: int, budget_s: float) -> Measurement:
        """Nothing can be measured.

        Raises:
            PlanError: always.
        """
        raise PlanError(f"{self.profile.name} is not here: its kernels cannot be measured")
