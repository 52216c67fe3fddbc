"""Prices of offers, their sources, and the interface of pricers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.cost.metrics import TIME
from eqsat_opt.cost.roofline import Roofline
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.values.forms import Form
from eqsat_opt.runtime.backends.protocol import Backend, Offer

__all__ = ["SOURCES", "AnyPricer", "Quote", "Source"]

Source = Literal["measured", "recorded", "analytic", "expected", "bound"]

SOURCES: tuple[Source, ...] = ("measured", "recorded", "analytic", "expected", "bound")
"""Sources of a price: timed on this device, timed on another one and stored, predicted by the model
of a device profile, expected from measured kernels of the kind, or only a lower bound on the true
price."""


@dataclass(frozen=True, slots=True)
class Quote:
    """Price of one kernel inside a session or a plan, its launch included.

    Attributes:
        metrics: values by metric, in the units of :data:`~eqsat_opt.cost.metrics.METRICS`:
            ``time_us`` always, and any others that the pricer knows.
        source: the source of the time.
    """

    metrics: Mapping[str, float]
    source: Source

    @property
    def time_us(self) -> float:
        """Time, µs."""
        return self.metrics[TIME]

    @property
    def is_settled(self) -> bool:
        """Whether the price is more than a lower bound or an expectation."""
        return self.source not in ("expected", "bound")

    @property
    def is_bound(self) -> bool:
        """Whether the price is only a lower bound."""
        return self.source == "bound"


class AnyPricer(Protocol):
    """The interface of pricers: prices of offers, measured here or from the profile of a device.

    `choose` and the searches accept any pricer.
    """

    @property
    def backends(self) -> Sequence[Backend]:
        """The backends whose kernels may be chosen; the first runs everything."""

    @property
    def metrics(self) -> Sequence[str]:
        """The metrics in each of its quotes."""

    @property
    def energy_text(self) -> str:
        """A phrase for the source of energies; empty where there is none."""

    @property
    def interface(self) -> Form:
        """The form of the inputs and outputs of models."""

    @property
    def event_us(self) -> float:
        """Time that waiting for a kernel on another stream adds, µs."""

    @property
    def peaks(self) -> Roofline | None:
        """The rates that probes of the device reached; ``None`` where none were measured."""

    @property
    def n_measured(self) -> int:
        """Number of kernels that were measured in this run."""

    @property
    def trouble(self) -> str:
        """A sentence on the trouble with its store; empty if there is none."""

    def usual(self, kernel: Kernel) -> Offer:
        """Return a kernel of literal sizes with the first implementation of the first backend."""

    def recall(self, offers: Iterable[Offer]) -> None:
        """Look up the stored prices of the offers."""

    def price(self, offer: Offer) -> Quote:
        """Return the price of an offer, or a lower bound on it if no more is known."""

    def expect(self, offer: Offer) -> Quote:
        """Return the price of an offer, or the expected one if no more than a bound is known."""

    def is_known(self, offer: Offer) -> bool:
        """Return whether the price is settled for this run, so that measuring cannot change it."""

    def measure(
        self,
        offers: Iterable[Offer],
        progress: Callable[[int, int], None] | None = None,
        *,
        deadline: Deadline | None = None,
    ) -> None:
        """Settle the prices of the offers, as far as the deadline allows."""

    def close(self) -> None:
        """Release the resources of the pricer."""
