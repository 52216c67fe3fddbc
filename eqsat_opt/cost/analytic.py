"""Prices from the profile of a device, which need not be present; nothing is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.cost.energy import energy_text
from eqsat_opt.cost.metrics import ENERGY, TIME, WORKSPACE
from eqsat_opt.cost.quotes import Quote
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.runtime.backends.analytic.backend import VIEW, AnalyticBackend
from eqsat_opt.runtime.backends.protocol import Offer
from eqsat_opt.runtime.backends.shared.elsewhere import Elsewhere
from eqsat_opt.runtime.devices.energy import EnergyModel
from eqsat_opt.runtime.devices.profile import DeviceProfile

__all__ = ["ProfilePricer"]


class ProfilePricer:
    """Prices of kernels by the model of a device profile: an `AnyPricer`.

    The model accounts for arithmetic by algorithm, memory traffic, waves of output tiles over the
    units, and launches. The source of every quote is ``analytic``, with one exception: a kernel
    that a plan may run as a view costs nothing, and its quote is a ``bound``, because a plan has to
    copy where two views are in conflict.

    `usual` gives the first implementation that the device has for a kernel: a convolution is
    ``direct`` and a concatenation is a copy. Searches that use one price per operator ask for it.

    Args:
        profile: the profile of the device.
        precision: the precision of kernels whose implementation does not name one: ``fp32``, or
            another one of the profile.
        energy: the model that derives energy from time, operations and bytes, in place of the
            profile's.
        backend: the kernels that the device offers; by default those that any device of these
            figures could run.

    Attributes:
        backends: the backend whose kernels the device runs.
        metrics: time and workspace, and energy where there is a model of it.
        energy_text: a phrase for the source of energies; empty where there is none.
        interface: form of the model's inputs and outputs: in the memory of the device, in the order
            of ONNX.
        n_measured: 0.
        trouble: empty.

    Raises:
        OptionError: the profile or the model of energy does not know the precision.
    """

    def __init__(
        self,
        profile: DeviceProfile,
        precision: str = "fp32",
        energy: EnergyModel | None = None,
        backend: Elsewhere | None = None,
    ) -> None:
        self.profile = profile
        self.precision = precision
        offered = backend or AnalyticBackend(profile)
        self.backends: tuple[Elsewhere, ...] = (offered,)
        self.interface = offered.interface
        self._energy = energy or profile.energy
        self.metrics = (TIME, WORKSPACE) if self._energy is None else (TIME, ENERGY, WORKSPACE)
        self.energy_text = energy_text(self._energy)
        self.n_measured = 0
        self.trouble = ""
        self._known: dict[Offer, Quote] = {}
        profile.require_precision(precision)
        if self._energy is not None:
            self._energy.require_precision(precision)

    @property
    def event_us(self) -> float:
        """Time that waiting for a kernel on another stream adds, µs."""
        return self.profile.event_us.value

    def usual(self, kernel: Kernel) -> Offer:
        """Return a kernel of literal sizes with the first implementation that the device has."""
        backend = self.backends[0]
        return Offer(kernel, backend.name, backend.implementations(kernel)[0])

    def recall(self, offers: Iterable[Offer]) -> None:
        """Do nothing: no prices are stored."""

    def price(self, offer: Offer) -> Quote:
        """Return the price of an offer by the model, from the cache if it was asked before."""
        known = self._known.get(offer)
        if known is None:
            known = self._known[offer] = self._quote(offer)
        return known

    def _quote(self, offer: Offer) -> Quote:
        how = offer.implementation
        if how == replace(VIEW, reads=how.reads, writes=how.writes):
            return Quote(dict.fromkeys(self.metrics, 0.0), "bound")
        precision = how.precision or self.precision
        time_us = self.profile.kernel_us(
            offer.body, how.algorithm, precision, workspace_bytes=how.workspace_bytes
        )
        metrics = {TIME: time_us, WORKSPACE: float(how.workspace_bytes)}
        if self._energy is not None:
            work = self.profile.work(offer.body, how.algorithm, how.workspace_bytes)
            metrics[ENERGY] = self._energy.energy_uj(
                time_us, *work, precision, algorithm=how.algorithm
            )
        return Quote(metrics, "analytic")

    def is_known(self, offer: Offer) -> bool:
        """Return true: no measurement can improve a price of the model."""
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
