"""What an offer costs, how that is known, and who tells it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.cost.metrics import TIME
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.values.forms import Form
from eqsat_opt.runtime.backends.protocol import Backend, Offer

__all__ = ["SOURCES", "AnyPricer", "Quote", "Source"]

Source = Literal["measured", "recorded", "analytic", "bound"]

SOURCES: tuple[Source, ...] = ("measured", "recorded", "analytic", "bound")
"""How a price is known: timed on this device, timed on another one and stored, by the model of a
device profile, or only that the true price is not lower."""


@dataclass(frozen=True, slots=True)
class Quote:
    """What one kernel costs inside a session or a plan, its launch included.

    Attributes:
        metrics: by name, in the units of :data:`~eqsat_opt.cost.metrics.METRICS`: ``time_us``
            always, and what else the pricer knows.
        source: how the time is known.
    """

    metrics: Mapping[str, float]
    source: Source

    @property
    def time_us(self) -> float:
        """Time, µs."""
        return self.metrics[TIME]

    @property
    def is_bound(self) -> bool:
        """Whether no more is known than that the kernel is not cheaper."""
        return self.source == "bound"


class AnyPricer(Protocol):
    """Who tells what offers cost: by measuring here, or by the profile of another device.

    `choose` and the searches take any.
    """

    @property
    def backends(self) -> Sequence[Backend]:
        """Whose kernels may be chosen; the first runs everything."""

    @property
    def metrics(self) -> Sequence[str]:
        """The metrics in each of its quotes."""

    @property
    def energy_text(self) -> str:
        """How energies are known, in words; empty where they are not."""

    @property
    def interface(self) -> Form:
        """The form in which inputs of models arrive and outputs are left."""

    @property
    def event_us(self) -> float:
        """What waiting for a kernel on another stream adds, µs."""

    @property
    def n_measured(self) -> int:
        """Kernels that were measured in this run."""

    @property
    def trouble(self) -> str:
        """What is wrong with what it stores, as a sentence; empty if nothing is."""

    def usual(self, kernel: Kernel) -> Offer:
        """A kernel of literal sizes as the first backend runs it."""

    def recall(self, offers: Iterable[Offer]) -> None:
        """Look up what is stored of the offers."""

    def price(self, offer: Offer) -> Quote:
        """What is known of an offer; a lower bound where that is all."""

    def is_known(self, offer: Offer) -> bool:
        """Whether the price is settled for this run, so that measuring would change nothing."""

    def measure(
        self,
        offers: Iterable[Offer],
        progress: Callable[[int, int], None] | None = None,
        *,
        deadline: Deadline | None = None,
    ) -> None:
        """Settle the prices of the offers, as far as the deadline allows."""

    def close(self) -> None:
        """Give back what it holds."""
