"""Prices for plans: kernels inside sessions, launches outside them, and the transfers between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.cost.metrics import TIME
from eqsat_opt.cost.quotes import AnyPricer, Quote
from eqsat_opt.cost.roofline import Roofline
from eqsat_opt.ir.graph.kernel import Kernel, Operand
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.values.forms import PLAIN, Form
from eqsat_opt.runtime.backends.generated import BACKEND as GENERATED
from eqsat_opt.runtime.backends.numpy import BACKEND as NUMPY
from eqsat_opt.runtime.backends.ort import NAME as ORT
from eqsat_opt.runtime.backends.protocol import DEFAULT, Backend, Delegate, Implementation, Offer

__all__ = ["IN_SESSION", "PlanPricer"]

IN_SESSION = Form(ORT)
"""Form of values between the kernels of one session."""

_NUMPY_US = 1.0
"""Least time to look up an operator of the registry, call it and copy its result, µs."""

_CALL_US = 0.01
"""Least time to call a function by its address, µs.

A generated kernel that is not known to be faster than a node of a session is not preferred to it.
"""


class _InSession(Delegate):
    """A backend whose kernels run inside sessions."""

    def implementations(self, kernel: Kernel) -> Sequence[Implementation]:
        if not kernel.steps:
            forms = {kernel.operands[0].form, kernel.writes}
            return (DEFAULT,) if self.name == ORT and forms == {PLAIN, IN_SESSION} else ()
        return tuple(
            replace(
                how,
                reads=tuple(PLAIN if one.const else IN_SESSION for one in kernel.operands),
                writes=(IN_SESSION,) * len(kernel.outputs),
            )
            for how in super().implementations(kernel)
        )


class PlanPricer:
    """Prices of kernels in a plan: an `AnyPricer` on top of another one.

    An elementwise operator in a generated kernel is priced at its lower bound, because it is not
    known before the plan is made which neighbours it is compiled with. A NumPy kernel or a
    generated kernel that has no measurement of its own is priced at its lower bound plus the least
    time of a call.

    A value that enters or leaves a session is free, because it is not known before the plan is made
    how many values share a call. The sum of these prices is therefore a lower bound on the cost of
    a plan, and plans are priced as wholes afterwards.

    Args:
        pricer: the pricer of single kernels; the first of its backends run inside sessions.
        inside: the names of the backends that run inside sessions.
    """

    def __init__(self, pricer: AnyPricer, inside: Sequence[str]) -> None:
        self._pricer = pricer
        self.backends: tuple[Backend, ...] = tuple(
            _InSession(one) if one.name in inside else one for one in pricer.backends
        )
        self.metrics = pricer.metrics
        self.interface = PLAIN

    @property
    def event_us(self) -> float:
        """Time that waiting for a kernel on another stream adds, µs."""
        return self._pricer.event_us

    @property
    def peaks(self) -> Roofline | None:
        """The rates that probes of the device reached; ``None`` where none were measured."""
        return self._pricer.peaks

    @property
    def n_measured(self) -> int:
        """Number of kernels that the underlying pricer measured in this run."""
        return self._pricer.n_measured

    @property
    def trouble(self) -> str:
        """A sentence on the trouble with the underlying pricer's store; empty if there is none."""
        return self._pricer.trouble

    @property
    def energy_text(self) -> str:
        """A phrase for the source of energies; empty where there is none."""
        return self._pricer.energy_text

    def usual(self, kernel: Kernel) -> Offer:
        """Return a kernel of literal sizes as it runs inside a session."""
        first = self.backends[0]
        return Offer(kernel, first.name, first.implementations(kernel)[0])

    def recall(self, offers: Iterable[Offer]) -> None:
        """Look up the stored prices of the offers."""
        self._pricer.recall([_plain(one) for one in offers if _is_priced_alone(one)])

    def price(self, offer: Offer) -> Quote:
        """Return the price of an offer, or a lower bound on it if there is no measurement."""
        return self._quoted(offer, self._pricer.price)

    def expect(self, offer: Offer) -> Quote:
        """Return the price of an offer, or the expected one where measuring could correct it."""
        ask = self._pricer.expect if _is_priced_alone(offer) else self._pricer.price
        return self._quoted(offer, ask)

    def _quoted(self, offer: Offer, ask: Callable[[Offer], Quote]) -> Quote:
        if not offer.kernel.steps:
            return Quote(dict.fromkeys(self.metrics, 0.0), "bound")
        quote = ask(_plain(offer))
        if quote.is_settled:
            return quote
        least_us = quote.time_us
        if offer.backend == NUMPY.launched_name:
            least_us += _NUMPY_US * len(offer.kernel.steps)
        elif offer.backend == GENERATED.launched_name and _is_priced_alone(offer):
            least_us = max(least_us + _CALL_US, self._inner_us(offer))
        return Quote({**quote.metrics, TIME: least_us}, quote.source)

    def _inner_us(self, offer: Offer) -> float:
        """Return the longest measured time of an operator of a kernel by itself, or 0, µs.

        The kernel takes hardly less, so it need not be compiled where this time is already too
        long.
        """
        if len(offer.kernel.steps) < 2:
            return 0.0
        alone = (replace(_plain(offer), kernel=one) for one in _operators(offer.kernel))
        quotes = [self._pricer.price(one) for one in alone if _is_priced_alone(one)]
        return max((quote.time_us for quote in quotes if not quote.is_bound), default=0.0)

    def is_known(self, offer: Offer) -> bool:
        """Return whether the price is settled, so that measuring would not change it."""
        return not _is_priced_alone(offer) or self._pricer.is_known(_plain(offer))

    def measure(
        self,
        offers: Iterable[Offer],
        progress: Callable[[int, int], None] | None = None,
        *,
        deadline: Deadline | None = None,
    ) -> None:
        """Settle the prices of the offers, as far as the deadline allows."""
        todo = [_plain(one) for one in offers if _is_priced_alone(one)]
        self._pricer.measure(todo, progress, deadline=deadline)

    def close(self) -> None:
        """Release the resources of the underlying pricer."""
        self._pricer.close()


def _is_priced_alone(offer: Offer) -> bool:
    """Return whether an offer has a price by itself: its operators are not compiled with others.

    This excludes generated kernels that consist of elementwise operators and movements.
    """
    kinds = {get_op(step.op).kind for step in offer.kernel.steps}
    if offer.backend == GENERATED.launched_name:
        return not kinds <= {"pointwise", "movement"}
    return bool(kinds)


def _operators(kernel: Kernel) -> Iterator[Kernel]:
    """Yield each operator of a kernel as a kernel of its own."""
    types, given = kernel.types, kernel.operands
    for step in kernel.steps:
        operands = tuple(
            given[i] if i < len(given) else Operand(types[i], const=False) for i in step.operands
        )
        inside = replace(step, operands=tuple(range(len(operands))))
        yield Kernel(operands, (inside,), (len(operands),))


def _plain(offer: Offer) -> Offer:
    """Return the offer as it is measured: forms inside a session do not affect its time."""
    return replace(offer, implementation=replace(offer.implementation, reads=(), writes=()))
