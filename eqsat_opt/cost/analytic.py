"""Prices from the profile of a device, which need not be present; nothing is measured."""

from __future__ import annotations

from dataclasses import replace

from eqsat_opt.cost.metrics import ENERGY, TIME, WORKSPACE
from eqsat_opt.cost.offline import OfflinePricer
from eqsat_opt.cost.quotes import Quote
from eqsat_opt.runtime.backends.analytic.backend import VIEW, AnalyticBackend
from eqsat_opt.runtime.backends.protocol import Offer
from eqsat_opt.runtime.backends.shared.elsewhere import Elsewhere
from eqsat_opt.runtime.devices.energy import EnergyModel
from eqsat_opt.runtime.devices.profile import DeviceProfile

__all__ = ["ProfilePricer"]


class ProfilePricer(OfflinePricer):
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
        offered = backend or AnalyticBackend(profile)
        super().__init__(
            profile,
            (offered,),
            interface=offered.interface,
            metrics=(TIME, ENERGY, WORKSPACE),
            precision=precision,
            energy=energy,
        )
        self._known: dict[Offer, Quote] = {}

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
