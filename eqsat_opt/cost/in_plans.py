"""Prices for plans: kernels inside sessions, launches beside them, and what lies between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.cost.metrics import TIME
from eqsat_opt.cost.quotes import AnyPricer, Quote
from eqsat_opt.ir.graph.kernel import Kernel, Operand
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.values.forms import PLAIN, Form
from eqsat_opt.runtime.backends.protocol import (
    DEFAULT,
    Backend,
    CarriedForm,
    Implementation,
    KernelPattern,
    Offer,
)
from eqsat_opt.runtime.measure import Measurement

__all__ = ["IN_SESSION", "PlanPricer"]

IN_SESSION = Form("ort")
"""Values between kernels of one session."""


_GENERATED, _NUMPY = "launched:generated", "launched:numpy"

_NUMPY_US = 1.0
"""No operator of the registry is looked up, called and copied from in less."""

_CALL_US = 0.01
"""No function is called by its address in less; what is not known to be faster than a node of a
session is not chosen before it."""


class _InSession:
    """A backend whose kernels run inside sessions."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.name = backend.name

    def version(self) -> str:
        return self.backend.version()

    def patterns(self) -> Sequence[KernelPattern]:
        return self.backend.patterns()

    def carried(self) -> Sequence[CarriedForm]:
        return self.backend.carried()

    def implementations(self, kernel: Kernel) -> Sequence[Implementation]:
        if not kernel.steps:
            forms = {kernel.operands[0].form, kernel.writes}
            return (DEFAULT,) if self.name == "ort" and forms == {PLAIN, IN_SESSION} else ()
        return tuple(
            replace(
                how,
                reads=tuple(PLAIN if one.const else IN_SESSION for one in kernel.operands),
                writes=(IN_SESSION,) * len(kernel.outputs),
            )
            for how in self.backend.implementations(kernel)
        )

    def request(self, offer: Offer) -> bytes:
        return self.backend.request(offer)

    def measure(self, request: bytes, threads: int, budget_s: float) -> Measurement:
        return self.backend.measure(request, threads, budget_s)


class PlanPricer:
    """What kernels cost in a plan: an `AnyPricer` on top of another one.

    An elementwise operator in a generated kernel costs no more than its lower bound: which
    neighbours it is compiled with is not known before the plan is made. What is not measured in
    NumPy, or as a generated kernel by itself, costs what it takes to get there at least.

    A value that comes from outside a session, or leaves it, costs nothing by itself: how many
    values share a call is not known before the plan is made. So no plan costs less than this says,
    and plans are priced as wholes afterwards.

    Args:
        pricer: of the kernels; of its backends the first ones run inside sessions.
        inside: the names of these.
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
        """As the other one says."""
        return self._pricer.event_us

    @property
    def n_measured(self) -> int:
        """As the other one says."""
        return self._pricer.n_measured

    @property
    def trouble(self) -> str:
        """As the other one says."""
        return self._pricer.trouble

    @property
    def energy_text(self) -> str:
        """As the other one says."""
        return self._pricer.energy_text

    def usual(self, kernel: Kernel) -> Offer:
        """A kernel of literal sizes inside a session."""
        first = self.backends[0]
        return Offer(kernel, first.name, first.implementations(kernel)[0])

    def recall(self, offers: Iterable[Offer]) -> None:
        """Look up what is stored."""
        self._pricer.recall([_plain(one) for one in offers if _is_priced_alone(one)])

    def price(self, offer: Offer) -> Quote:
        """What is known of an offer."""
        if not offer.kernel.steps:
            return Quote(dict.fromkeys(self.metrics, 0.0), "bound")
        quote = self._pricer.price(_plain(offer))
        if not quote.is_bound:
            return quote
        least_us = quote.time_us
        if offer.backend == _NUMPY:
            least_us += _NUMPY_US * len(offer.kernel.steps)
        elif offer.backend == _GENERATED and _is_priced_alone(offer):
            least_us = max(least_us + _CALL_US, self._inner_us(offer))
        return Quote({**quote.metrics, TIME: least_us}, "bound")

    def _inner_us(self, offer: Offer) -> float:
        """What the longest operator of a kernel takes by itself, as far as that is measured.

        The kernel takes hardly less, so where that is too much it need not be compiled.
        """
        if len(offer.kernel.steps) < 2:
            return 0.0
        alone = (replace(_plain(offer), kernel=one) for one in _operators(offer.kernel))
        quotes = [self._pricer.price(one) for one in alone if _is_priced_alone(one)]
        return max((quote.time_us for quote in quotes if not quote.is_bound), default=0.0)

    def is_known(self, offer: Offer) -> bool:
        """Whether measuring would change nothing."""
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
        """Give back what it holds."""
        self._pricer.close()


def _is_priced_alone(offer: Offer) -> bool:
    """Whether nothing else is compiled with it: all but elementwise operators and movements."""
    kinds = {get_op(step.op).kind for step in offer.kernel.steps}
    if offer.backend == _GENERATED:
        return not kinds <= {"pointwise", "movement"}
    return bool(kinds)


def _operators(kernel: Kernel) -> Iterator[Kernel]:
    """Each operator of a kernel as one by itself."""
    types, given = kernel.types, kernel.operands
    for step in kernel.steps:
        operands = tuple(
            given[i] if i < len(given) else Operand(types[i], const=False) for i in step.operands
        )
        inside = replace(step, operands=tuple(range(len(operands))))
        yield Kernel(operands, (inside,), (len(operands),))


def _plain(offer: Offer) -> Offer:
    """The offer as it is measured: its time does not depend on where the session's values lie."""
    return replace(offer, implementation=replace(offer.implementation, reads=(), writes=()))
