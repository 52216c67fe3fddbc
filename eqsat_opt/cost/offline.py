"""The common part of pricers that know all their prices and measure nothing."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.cost.energy import energy_text
from eqsat_opt.cost.metrics import ENERGY
from eqsat_opt.cost.quotes import Quote
from eqsat_opt.cost.roofline import Roofline
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.values.forms import Form
from eqsat_opt.runtime.backends.protocol import Backend, Offer
from eqsat_opt.runtime.devices.energy import EnergyModel
from eqsat_opt.runtime.devices.profile import DeviceProfile

__all__ = ["OfflinePricer"]


class OfflinePricer:
    """Base of pricers of a device that cannot be measured here; they add `price`.

    Args:
        profile: the profile of the device.
        backends: the backends whose kernels the device runs.
        interface: form of the model's inputs and outputs.
        metrics: the metrics in each quote, where there is a model of energy.
        precision: the precision of kernels whose implementation does not name one.
        energy: the model that derives energy from time, operations and bytes, in place of the
            profile's.

    Attributes:
        metrics: the given ones, without energy where there is no model of it.
        energy_text: a phrase for the source of energies; empty where there is none.
        peaks: ``None``, as no probe runs here.
        n_measured: 0.
        trouble: empty.

    Raises:
        OptionError: the profile or the model of energy does not know the precision.
    """

    peaks: Roofline | None = None
    n_measured = 0
    trouble = ""

    def __init__(
        self,
        profile: DeviceProfile,
        backends: Sequence[Backend],
        *,
        interface: Form,
        metrics: Sequence[str],
        precision: str,
        energy: EnergyModel | None,
    ) -> None:
        self.profile = profile
        self.backends = tuple(backends)
        self.interface = interface
        self.precision = precision
        self._energy = energy or profile.energy
        self.energy_text = energy_text(self._energy)
        has_energy = self._energy is not None
        self.metrics = tuple(name for name in metrics if name != ENERGY or has_energy)
        profile.require_precision(precision)
        if self._energy is not None:
            self._energy.require_precision(precision)

    @property
    def event_us(self) -> float:
        """Time that waiting for a kernel on another stream adds, µs."""
        return self.profile.event_us.value

    def usual(self, kernel: Kernel) -> Offer:
        """Return a kernel of literal sizes with the first implementation of the first backend."""
        first = self.backends[0]
        return Offer(kernel, first.name, first.implementations(kernel)[0])

    def recall(self, offers: Iterable[Offer]) -> None:
        """Do nothing: all prices are in memory."""

    @abstractmethod
    def price(self, offer: Offer) -> Quote:
        """Return the price of an offer, or a lower bound on it if no more is known."""

    def expect(self, offer: Offer) -> Quote:
        """Return the price of an offer: no measurement will correct it."""
        return self.price(offer)

    def is_known(self, offer: Offer) -> bool:
        """Return true: no price will change."""
        return True

    def measure(
        self,
        offers: Iterable[Offer],
        progress: Callable[[int, int], None] | None = None,
        *,
        deadline: Deadline | None = None,
    ) -> None:
        """Do nothing: the device cannot be measured here."""

    def close(self) -> None:
        """Do nothing: no resource is open."""
