"""Prices of graphs: the prices of their kernels, summed as the objective defines.

A pricer asks for each kernel what its device can do, one row for each way. The metrics that the
objective reads become integers, millionths of their unit, so that totals do not depend on the order
in which they are summed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from eqsat_opt.cost.metrics import LAUNCH_US, METRICS, TIME
from eqsat_opt.cost.operators import analytic_price, operator_kernel
from eqsat_opt.cost.quotes import AnyPricer
from eqsat_opt.errors import OptionError
from eqsat_opt.extract.objective import CRITICAL_PATH, Objective, Product
from eqsat_opt.ir.graph.graph import OPAQUE, Attrs
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.ops import IllTyped
from eqsat_opt.ir.values.dims import literal
from eqsat_opt.ir.values.types import TensorType, ValueType
from eqsat_opt.lab.search.pricing.own_cost import SearchObjective
from eqsat_opt.runtime.backends.analytic.backend import VIEW
from eqsat_opt.runtime.backends.ort import NAME as ORT
from eqsat_opt.runtime.backends.protocol import DEFAULT, Implementation, Offer

__all__ = [
    "MILLIONTHS",
    "BackendPricer",
    "ImplementationRow",
    "KernelPricer",
    "PriceCache",
    "Quoted",
    "Usual",
    "Valuation",
    "counts_of",
]

MILLIONTHS = 1e6
"""Integer steps per unit of a metric: rows and totals count millionths."""

COUNTED = tuple(name for name in ("launches", "flops", "bytes") if METRICS[name].of_kernel)
"""Metrics that follow from the computation of a kernel, on any backend."""


@dataclass(frozen=True)
class Quoted:
    """One way to run a kernel.

    Attributes:
        backend: the backend that runs it.
        implementation: the implementation on that backend.
        metrics: metric to value, of one run.
    """

    backend: str
    implementation: Implementation
    metrics: Mapping[str, float]


class KernelPricer(Protocol):
    """The ways to run kernels on one device, with their metrics."""

    @property
    def metrics(self) -> Sequence[str]:
        """The metrics that every quote has."""

    def quotes(self, kernel: Kernel) -> Sequence[Quoted]:
        """Return the ways to run a kernel of literal sizes, at least one; always the same ones."""


def counts_of(kernel: Kernel) -> dict[str, float]:
    """Return the launches, operations and bytes of a kernel of literal sizes."""
    found: dict[str, float] = {}
    for name in COUNTED:
        count = METRICS[name].of_kernel
        assert count is not None
        found[name] = float(literal(count(kernel)))
    return found


class Timed(Protocol):
    """A price with a time."""

    @property
    def time_us(self) -> float:
        """Time of one run."""


@dataclass(frozen=True)
class Usual:
    """A pricer with one time for each kernel: by default its roofline on a CPU and a launch.

    Attributes:
        price: returns the price of a kernel of literal sizes.
    """

    price: Callable[[Kernel], Timed] = analytic_price

    @property
    def metrics(self) -> Sequence[str]:
        """Counts and the time."""
        return (*COUNTED, TIME)

    def quotes(self, kernel: Kernel) -> Sequence[Quoted]:
        """Return the only way to run a kernel."""
        metrics = {**counts_of(kernel), TIME: self.price(kernel).time_us}
        return (Quoted(ORT, DEFAULT, metrics),)


@dataclass(frozen=True)
class BackendPricer:
    """A pricer of the algorithms of backends, each in the layout that its backend names first.

    Views, which move data at no cost, are left out here, since a copy may be needed. So are offers
    that could not be measured, where another one could.

    Attributes:
        pricer: prices offers; an offer with no known price is measured on demand.
    """

    pricer: AnyPricer

    @property
    def metrics(self) -> Sequence[str]:
        """Counts, and the metrics of the pricer."""
        return (*COUNTED, *self.pricer.metrics)

    def quotes(self, kernel: Kernel) -> Sequence[Quoted]:
        """Return a quote for each backend and algorithm."""
        offers = {
            (backend.name, one.algorithm): Offer(kernel, backend.name, one)
            for backend in reversed(self.pricer.backends)
            for one in reversed(backend.implementations(kernel))
            if one.algorithm != VIEW.algorithm
        }
        unknown = [offer for offer in offers.values() if not self.pricer.is_known(offer)]
        self.pricer.recall(unknown)
        self.pricer.measure(unknown)
        counts = counts_of(kernel)
        told = [(offer, self.pricer.price(offer)) for offer in reversed(offers.values())]
        told = [one for one in told if not one[1].is_bound] or told
        return tuple(
            Quoted(offer.backend, offer.implementation, {**counts, **quote.metrics})
            for offer, quote in told
        )


@dataclass(frozen=True)
class Preferred:
    """A pricer in which some kernels have one way only.

    Attributes:
        pricer: prices all other kernels.
        chosen: kernel to its only way.
    """

    pricer: KernelPricer
    chosen: Mapping[Kernel, Quoted]

    @property
    def metrics(self) -> Sequence[str]:
        """The metrics of the pricer."""
        return self.pricer.metrics

    def quotes(self, kernel: Kernel) -> Sequence[Quoted]:
        """Return the only way to run a kernel, or all ways of the pricer."""
        known = self.chosen.get(kernel)
        return self.pricer.quotes(kernel) if known is None else (known,)


@dataclass(frozen=True, slots=True)
class ImplementationRow:
    """One way to run a kernel, under an objective.

    Attributes:
        costs: millionths of each column of the valuation; with caps, also 1 if the kernel exceeds
            one.
        length: millionths that the kernel adds to a chain.
        rank: where each kernel is chosen separately, the way of least rank is taken.
        quoted: backend and implementation; ``None`` for a kernel that is not priced.
    """

    costs: tuple[int, ...]
    length: int
    rank: float
    quoted: Quoted | None = None

    @property
    def metrics(self) -> Mapping[str, float]:
        """Metrics of one run."""
        assert self.quoted is not None
        return self.quoted.metrics


@dataclass(frozen=True)
class Valuation:
    """An objective over the metrics of one pricer.

    Attributes:
        objective: the objective that is minimised.
        metrics: available metrics.

    Raises:
        OptionError: the objective reads another metric.
    """

    objective: SearchObjective
    metrics: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in METRICS:
            if self.objective.uses(name) and name not in self.metrics:
                raise OptionError(
                    f"the objective reads {METRICS[name].alias or name}, which nothing here has; "
                    f"choose from {', '.join(METRICS[m].alias or m for m in self.metrics)}"
                )

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The metrics that the value, a limit or a cap depends on."""
        return tuple(name for name in self.metrics if self.objective.uses(name))

    @cached_property
    def _weights(self) -> tuple[float, ...] | None:
        """Weights by column, if the value is a sum without limits, caps or a path."""
        own = self.objective
        if not isinstance(own, Objective) or own.is_limited or own.needs_path:
            return None
        return tuple(own.weights.get(name, 0.0) / MILLIONTHS for name in self.columns)

    @property
    def is_sum(self) -> bool:
        """Whether the value of a graph is the sum of the values of its parts."""
        return self._weights is not None and not self.objective.caps

    @property
    def needs_path(self) -> bool:
        """Whether the longest chain matters."""
        return self.objective.needs_path

    @property
    def nothing(self) -> tuple[int, ...]:
        """The costs of a kernel that does not run."""
        return (0,) * (len(self.columns) + bool(self.objective.caps))

    def row(self, quoted: Quoted) -> ImplementationRow:
        """Return a quote in millionths."""
        own, metrics = self.objective, quoted.metrics
        above = any(metrics[name] > most for name, most in own.caps.items())
        return ImplementationRow(
            costs=(
                *(round(metrics[name] * MILLIONTHS) for name in self.columns),
                *(int(above) for _ in own.caps and (None,)),
            ),
            length=round(sum(w * metrics[name] for name, w in own.path.items()) * MILLIONTHS),
            rank=math.inf if above else self._rank(metrics),
            quoted=quoted,
        )

    def _rank(self, metrics: Mapping[str, float]) -> float:
        own = self.objective
        if isinstance(own, Objective):
            weights: Mapping[str, float] = own.weights
            if own.needs_path:
                share = own.critical_path or not any(weights.values())
                names = {*weights, *own.path}
                weights = {
                    name: weights.get(name, 0.0) + share * own.path.get(name, 0.0) for name in names
                }
            return math.fsum(weight * metrics[name] for name, weight in weights.items())
        if isinstance(own, Product):
            return math.prod(math.pow(metrics[n], power) for n, power in own.exponents.items())
        return own.value(metrics)

    def totals(self, costs: Sequence[int]) -> dict[str, float]:
        """Return metric to total of the columns."""
        return {name: cost / MILLIONTHS for name, cost in zip(self.columns, costs, strict=False)}

    def value(self, costs: Sequence[int], length: int) -> float:
        """Return the objective value; infinite where a limit or a cap is exceeded.

        Args:
            costs: totals in millionths.
            length: length of the longest chain, in millionths.
        """
        weights = self._weights
        if weights is not None:
            if len(weights) == 1:
                return costs[0] * weights[0]
            return sum([cost * weight for cost, weight in zip(costs, weights, strict=True)])
        if self.objective.caps and costs[-1]:
            return math.inf
        metrics = {**self.totals(costs), CRITICAL_PATH: length / MILLIONTHS}
        if self.objective.broken_limit(metrics):
            return math.inf
        return self.objective.value(metrics)


@dataclass
class PriceCache:
    """A cache of the prices of kernels.

    Attributes:
        pricer: pricer of the device.
        valuation: the objective.
        sizes: size of each symbolic dimension.
    """

    pricer: KernelPricer
    valuation: Valuation
    sizes: Mapping[str, int] = field(default_factory=dict)
    _rows: dict[Kernel, tuple[ImplementationRow, ...]] = field(default_factory=dict, repr=False)
    _operators: dict[object, tuple[ImplementationRow, ...]] = field(
        default_factory=dict, repr=False
    )

    @classmethod
    def of(
        cls,
        pricer: KernelPricer | None = None,
        objective: SearchObjective | None = None,
        sizes: Mapping[str, int] | None = None,
    ) -> PriceCache:
        """Build the prices of a device; by default the time on a CPU by its rooflines.

        Raises:
            OptionError: the objective reads a metric that the device has no source of.
        """
        pricer, objective = pricer or Usual(), objective or Objective({TIME: 1.0})
        return cls(pricer, Valuation(objective, tuple(pricer.metrics)), sizes or {})

    def rows(self, kernel: Kernel) -> tuple[ImplementationRow, ...]:
        """Return all ways to run a kernel, the way first that is best by itself."""
        known = self._rows.get(kernel)
        if known is None:
            known = self._rows[kernel] = self._quoted(kernel)
        return known

    def _quoted(self, kernel: Kernel) -> tuple[ImplementationRow, ...]:
        static = self.sized(kernel)
        if static.static_types is None:
            return (self.unknown,)
        found = map(self.valuation.row, self.pricer.quotes(static))
        return tuple(sorted(found, key=lambda row: row.rank))

    def sized(self, kernel: Kernel) -> Kernel:
        """Return a kernel of literal sizes; the kernel itself if some sizes are not known."""
        if kernel.static_types is not None:
            return kernel
        try:
            return kernel.with_sizes(dict(self.sizes))
        except (IllTyped, KeyError):
            return kernel

    @cached_property
    def unknown(self) -> ImplementationRow:
        """The row of an unknown operator that runs: a launch."""
        known = {"launches": 1.0, TIME: LAUNCH_US}
        metrics = {name: known.get(name, 0.0) for name in self.valuation.metrics}
        return self.valuation.row(Quoted("", DEFAULT, metrics))

    @cached_property
    def free(self) -> ImplementationRow:
        """The row of a node that is known at compile time, or renames a value."""
        return ImplementationRow(self.valuation.nothing, 0, 0.0)

    def operator(
        self, op: str, attrs: Attrs, operands: Sequence[tuple[ValueType, bool, object]]
    ) -> tuple[ImplementationRow, ...]:
        """Return all ways to run one operator as a kernel of its own, the best by itself first.

        Args:
            op: name of the operator.
            attrs: all attributes.
            operands: type, constness and identity of each operand.
        """
        if op == OPAQUE:
            return (self.unknown,)
        if all(const for _, const, _ in operands):
            return (self.free,)
        key = (op, attrs, *_numbered(operands))
        known = self._operators.get(key)
        if known is None:
            kernel = self.kernel(op, attrs, operands)
            known = (self.unknown,) if kernel is None else self.rows(kernel)
            self._operators[key] = known
        return known

    def kernel(
        self, op: str, attrs: Attrs, operands: Sequence[tuple[ValueType, bool, object]]
    ) -> Kernel | None:
        """Return one operator as a kernel of its own; ``None`` if an operand is no tensor."""
        distinct, pattern = _numbered(operands)
        tensors = [(type_, const) for type_, const in distinct if isinstance(type_, TensorType)]
        if len(tensors) != len(distinct):
            return None
        return operator_kernel(op, attrs, tensors, pattern)


def _numbered(
    operands: Sequence[tuple[ValueType, bool, object]],
) -> tuple[tuple[tuple[ValueType, bool], ...], tuple[int, ...]]:
    """Return the distinct operands, and the number of each operand among them."""
    distinct = {identity: (type_, const) for type_, const, identity in operands}
    numbers = {identity: i for i, identity in enumerate(distinct)}
    return tuple(distinct.values()), tuple([numbers[identity] for _, _, identity in operands])
