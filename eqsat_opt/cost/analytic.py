"""Prices by the profile of a device that need not be here; nothing is measured."""

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
    """What kernels cost on a device by the model of its profile: an `AnyPricer`.

    The model knows arithmetic by algorithm, memory traffic, waves of output tiles over the units,
    and launches. Every quote says ``analytic``, but for one: what a plan may do by views costs
    nothing, which is a ``bound``, because a plan has to copy where two views are in conflict.

    `usual` is the first way in which the device runs a kernel, a convolution ``direct`` and a
    concatenation as a copy: what searches that know one price for each operator ask.

    Args:
        profile: of the device.
        precision: in which kernels compute whose implementations do not say: ``fp32``, or another
            one of the profile.
        energy: what energy follows from time, operations and bytes, in place of the profile's.
        backend: what the device offers; by default what any could run, by the figures alone.

    Attributes:
        backends: what the device offers.
        metrics: time and workspace, and energy where there is a model of it.
        energy_text: how energy is known, in words; empty where it is not.
        interface: inputs and outputs lie in the memory of the device, as ONNX orders them.
        n_measured: none.
        trouble: none.

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
        """What waiting for a kernel on another stream adds, µs."""
        return self.profile.event_us.value

    def usual(self, kernel: Kernel) -> Offer:
        """A kernel of literal sizes in the first way that the device has."""
        backend = self.backends[0]
        return Offer(kernel, backend.name, backend.implementations(kernel)[0])

    def recall(self, offers: Iterable[Offer]) -> None:
        """Nothing is stored."""

    def price(self, offer: Offer) -> Quote:
        """What the model says."""
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
        """Always: nothing more can be found out here."""
        return True

    def measure(
        self,
        offers: Iterable[Offer],
        progress: Callable[[int, int], None] | None = None,
        *,
        deadline: Deadline | None = None,
    ) -> None:
        """Nothing can be measured."""

    def close(self) -> None:
        """Nothing is open."""
