"""From candidates to the extraction problem: one row of metrics per implementation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from eqsat_opt.cost.metrics import METRICS, SHAPE_US, TIME, columns
from eqsat_opt.cost.quotes import Quote
from eqsat_opt.ir.graph.kernel import Kernel, Operand
from eqsat_opt.ir.ops import IllTyped
from eqsat_opt.ir.passes.nonfinite import is_epsilon, is_representable
from eqsat_opt.ir.values.dims import Dim, literal
from eqsat_opt.ir.values.forms import PLAIN, Form
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.runtime.backends.protocol import Backend, Implementation, Offer
from eqsat_opt.select.choosing.forms import Conversion, Way, ways_of
from eqsat_opt.select.choosing.priced_problem import (
    PricedProblem,
    ProblemNode,
    formed_problem,
    problem_of,
)
from eqsat_opt.select.tiling.candidates import JOINT, Candidate, Candidates

__all__ = ["Implementations", "PricedCandidates", "conversion_kernel", "is_unpriced"]

Implementations = tuple[tuple[str, Implementation], ...]
"""Implementations of one candidate, each with the name of its backend."""

_T = TypeVar("_T")


def _at_sizes(kernel: Kernel, sizes: Mapping[str, int]) -> Kernel | None:
    """Return the kernel with literal sizes; ``None`` if it is not defined on such sizes."""
    if kernel.static_types is not None:
        return kernel
    try:
        sized = kernel.with_sizes(dict(sizes))
        types = sized.static_types
    except IllTyped:
        return None
    return (
        sized
        if types is not None and all(size >= 0 for type_ in types for size in type_.shape)
        else None
    )


@dataclass(frozen=True)
class PricedCandidates:
    """Candidates with literal kernels, and their implementations by backends.

    Attributes:
        candidates: the candidates to choose from.
        sizes: values of symbolic dimensions for pricing.
        roots: classes that must be computed.
        max_constant_bytes: greatest size of a folded constant; larger ones are not offered.
        implementations: implementations of each candidate, each with the name of its backend; empty
            without a kernel.
        refused: constant classes that are not offered either, unless they are the model's.
        interface: the form of the model's inputs and outputs, which is also that of implementations
            that name none.
        conversions: conversions of values between the forms that kernels require.
    """

    candidates: Candidates
    sizes: Mapping[str, int]
    roots: tuple[int, ...]
    max_constant_bytes: int
    implementations: tuple[Implementations, ...]
    refused: frozenset[int] = frozenset()
    interface: Form = PLAIN
    conversions: tuple[Conversion, ...] = ()

    @staticmethod
    def of(
        candidates: Candidates,
        backends: Sequence[Backend],
        roots: Sequence[int],
        *,
        sizes: Mapping[str, int] = MappingProxyType({}),
        max_constant_bytes: int,
        interface: Form = PLAIN,
    ) -> PricedCandidates:
        """Ask ``backends`` for implementations of candidates; other arguments are attributes."""
        ways = _implementations(candidates, sizes, backends)
        priced = PricedCandidates(
            candidates=candidates,
            sizes=sizes,
            roots=tuple(roots),
            max_constant_bytes=max_constant_bytes,
            implementations=ways,
            interface=interface,
        )
        if not priced.has_forms:
            return priced
        return replace(priced, conversions=tuple(_conversions(priced, backends)))

    @cached_property
    def has_forms(self) -> bool:
        """Whether any implementation names the form in which it reads or writes."""
        return any(how.reads or how.writes for ways in self.implementations for _, how in ways)

    @cached_property
    def ways(self) -> tuple[tuple[Way, ...], ...]:
        """The ways of each candidate, by the forms that its implementations read and write."""
        is_const = self.candidates.eclasses.is_const
        last = len(is_const)
        made: dict[int, tuple[Form, ...]] = {}
        result: dict[int, tuple[Way, ...]] = {}
        # The parts of a joint kernel have the forms that the kernel writes.
        items = self.candidates.items
        for number in sorted(range(len(items)), key=lambda n: items[n].kind == "part"):
            item = items[number]
            result[number] = ways_of(
                item,
                [how for _, how in self.implementations[number]],
                is_const=lambda cls: cls < last and bool(is_const[cls]),
                interface=self.interface,
                made=made,
            )
            if item.kind in JOINT:
                forms = (way.writes for way in result[number] if way.writes is not None)
                made[item.cls] = tuple(dict.fromkeys(forms))
        return tuple(result[number] for number in range(len(items)))

    def run_by(self, backend: str) -> PricedCandidates:
        """Return the candidates with the implementations of one backend alone."""
        return self._keeping(lambda name, _: name == backend)

    def within(self, error: float) -> PricedCandidates:
        """Return the candidates without implementations whose error may exceed ``error``."""
        return self._keeping(lambda _, how: how.error <= error)

    def _keeping(self, keeps: Callable[[str, Implementation], bool]) -> PricedCandidates:
        def kept(ways: Implementations) -> Implementations:
            return tuple(way for way in ways if keeps(*way))

        return replace(
            self,
            implementations=tuple(map(kept, self.implementations)),
            conversions=tuple(
                replace(one, implementations=kept(one.implementations)) for one in self.conversions
            ),
        )

    @cached_property
    def kernels(self) -> tuple[Kernel | None, ...]:
        """Kernels with literal sizes; ``None`` for a candidate without one at these sizes."""
        return _literal_kernels(self.candidates, self.sizes)

    @cached_property
    def offers(self) -> tuple[tuple[Offer, ...], ...]:
        """Offers of backends for each candidate; empty without a kernel."""
        return tuple(
            () if kernel is None else tuple(Offer(kernel, name, how) for name, how in ways)
            for kernel, ways in zip(self.kernels, self.implementations, strict=True)
        )

    @property
    def all_offers(self) -> Iterator[Offer]:
        """Offers for candidates and conversions; some more than once."""
        yield from chain.from_iterable(self.offers)
        yield from chain.from_iterable(one.offers for one in self.conversions)

    @cached_property
    def _static(self) -> npt.NDArray[np.float64]:
        """Values `[candidates, metrics]` without the prices of kernels."""
        rows = np.zeros((len(self.candidates.items), len(METRICS)))
        metrics = METRICS.values()
        cache: dict[Kernel, list[float]] = {}
        for i, (item, kernel) in enumerate(zip(self.candidates.items, self.kernels, strict=True)):
            if kernel is not None:
                if kernel not in cache:
                    cache[kernel] = [_value(metric.of_kernel, kernel) for metric in metrics]
                rows[i] = cache[kernel]
            elif item.kind == "const":
                type_ = self.candidates.eclasses.types[item.cls]
                if isinstance(type_, TensorType):
                    rows[i] = [_value(metric.of_constant, type_) for metric in metrics]
            elif is_unpriced(item):
                rows[i] = [metric.of_opaque for metric in metrics]
        return rows

    def _is_small(self, cls: int) -> bool:
        """Return whether a constant is within the byte budget."""
        type_ = self.candidates.eclasses.types[cls]
        return not isinstance(type_, TensorType) or literal(type_.bytes) <= self.max_constant_bytes

    @cached_property
    def offered(self) -> npt.NDArray[np.bool_]:
        """Whether each candidate `[candidates]` may be chosen.

        A kernel that no backend implements may not be chosen, nor may a constant that is refused or
        above the byte budget, unless it is the model's, nor a literal that is not an ordinary
        number in the type that it is applied to.
        """
        eclasses = self.candidates.eclasses
        own = set(eclasses.term_class.tolist())
        return np.array(
            [
                self._is_literal_ordinary(item) and (kernel is None or bool(offers))
                if item.kind != "const"
                else item.cls in own or (item.cls not in self.refused and self._is_small(item.cls))
                for item, kernel, offers in zip(
                    self.candidates.items, self.kernels, self.offers, strict=True
                )
            ],
            dtype=np.bool_,
        )

    def _is_literal_ordinary(self, item: Candidate) -> bool:
        """Return whether the literals in its attributes are ordinary in the result's type."""
        eclasses = self.candidates.eclasses
        type_ = eclasses.types[item.cls] if item.cls < eclasses.n_classes else None
        if not isinstance(type_, TensorType) or all(eclasses.origin[n] == 0 for n in item.nodes):
            return True
        return all(
            (is_epsilon if key == "epsilon" else is_representable)(value, type_.dtype)
            for step in item.steps
            for key, value in step.attrs
            if isinstance(value, float)
        )

    @cached_property
    def is_original(self) -> npt.NDArray[np.bool_]:
        """Whether each candidate `[candidates]` uses only e-nodes of the original model."""
        origin = self.candidates.eclasses.origin
        return np.array(
            [
                item.kind == "const" or all(origin[n] == 0 for n in item.nodes)
                for item in self.candidates.items
            ],
            dtype=np.bool_,
        )

    def problem(
        self,
        price: Callable[[Offer], Quote],
        only: npt.NDArray[np.bool_] | None = None,
        *,
        given: Sequence[str] = (TIME,),
        settled: bool = True,
        with_forms: bool = True,
    ) -> PricedProblem:
        """Build the extraction problem under some prices.

        Args:
            price: function that prices an offer.
            only: `[candidates]` whether a candidate may be chosen; all may by default.
            given: the metrics in each quote.
            settled: whether forms that cost no less may be left out; not for a ratio.
            with_forms: whether values have to be in the form in which they are read; otherwise no
                solution costs more than with forms.
        """
        table = _Table(self, price, given)
        chosen = self.offered if only is None else self.offered & only
        index = np.flatnonzero(chosen).tolist()
        if not (with_forms and self.has_forms):
            return self._without_forms(table, index)
        is_const = self.candidates.eclasses.is_const
        return formed_problem(
            {
                i: (self.candidates.items[i].cls, self.ways[i], table.rows(i))
                for i in np.flatnonzero(self.offered).tolist()
            },
            index,
            n_classes=self.candidates.n_classes,
            roots=[(root, None if is_const[root] else self.interface) for root in self.roots],
            conversions=[(one, table.conversion(one)) for one in self.conversions],
            metrics=table.names,
            settled=settled,
        )

    def _without_forms(self, table: _Table, index: Sequence[int]) -> PricedProblem:
        nodes = [
            ProblemNode(i, item.cls, item.reads, table.rows(i))
            for i, item in ((i, self.candidates.items[i]) for i in index)
        ]
        return problem_of(nodes, self.candidates.n_classes, self.roots, metrics=table.names)


class _Table:
    """Costs of candidates and conversions, one row for each implementation."""

    def __init__(
        self, priced: PricedCandidates, price: Callable[[Offer], Quote], given: Sequence[str]
    ) -> None:
        self.names = columns(given)
        every = tuple(METRICS)
        self._static = priced._static[:, [every.index(name) for name in self.names]]
        self._places = [i for i, name in enumerate(self.names) if name in given]
        self._priced = priced
        self._price = price
        self._prices: dict[Offer, list[tuple[int, float]]] = {}

    def rows(self, candidate: int) -> list[npt.NDArray[np.float64]]:
        """Return the costs of a candidate's offers, or a single row if it runs nothing priced."""
        row, offers = self._static[candidate], self._priced.offers[candidate]
        rows = [self._timed(row, offer) for offer in offers]
        kernel = self._priced.candidates.kernels[candidate]
        if kernel is not None and kernel.open_shapes and TIME in self.names:
            for one in rows:
                one[self.names.index(TIME)] += SHAPE_US * kernel.open_shapes
        return rows or [row]

    def conversion(self, conversion: Conversion) -> list[npt.NDArray[np.float64]]:
        """Return the costs of a conversion's offers."""
        kernel = conversion.kernel
        row = np.array([_value(METRICS[name].of_kernel, kernel) for name in self.names])
        return [self._timed(row, offer) for offer in conversion.offers]

    def _timed(self, row: npt.NDArray[np.float64], offer: Offer) -> npt.NDArray[np.float64]:
        prices = self._prices.get(offer)
        if prices is None:
            quote = self._price(offer).metrics
            prices = self._prices[offer] = [(i, quote[self.names[i]]) for i in self._places]
        timed = row.copy()
        for place, value in prices:
            timed[place] = value
        return timed


def _value(of: Callable[[_T], Dim] | None, what: _T) -> float:
    """Return the value of a metric for a kernel or constant of literal sizes; 0 if it has none."""
    return 0.0 if of is None else float(literal(of(what)))


def _implementations(
    candidates: Candidates, sizes: Mapping[str, int], backends: Sequence[Backend]
) -> tuple[Implementations, ...]:
    """Return the implementations by all backends, or by those that fuse a candidate."""
    known: dict[tuple[Kernel, tuple[str, ...]], Implementations] = {}
    result: list[Implementations] = []
    kernels = _literal_kernels(candidates, sizes)
    for item, kernel in zip(candidates.items, kernels, strict=True):
        if kernel is None:
            result.append(())
            continue
        key = (kernel, item.fused_by)
        if key not in known:
            known[key] = tuple(
                (backend.name, how)
                for backend in backends
                if not item.fused_by or backend.name in item.fused_by
                for how in backend.implementations(kernel)
            )
        result.append(known[key])
    return tuple(result)


def _literal_kernels(candidates: Candidates, sizes: Mapping[str, int]) -> tuple[Kernel | None, ...]:
    shared: dict[Kernel, Kernel | None] = {}
    result: list[Kernel | None] = []
    for kernel in candidates.kernels:
        if kernel is not None and kernel not in shared:
            shared[kernel] = _at_sizes(kernel, sizes)
        result.append(None if kernel is None else shared[kernel])
    return tuple(result)


def is_unpriced(item: Candidate) -> bool:
    """Return whether a candidate without a literal kernel still runs; only its launch is known."""
    return item.kind == "opaque" or bool(item.steps)


def _conversions(priced: PricedCandidates, backends: Sequence[Backend]) -> Iterator[Conversion]:
    """Yield conversions between the forms in which a value is made and is read."""
    eclasses = priced.candidates.eclasses
    made: dict[int, set[Form]] = defaultdict(set)
    read: dict[int, set[Form]] = defaultdict(set)
    for item, ways in zip(priced.candidates.items, priced.ways, strict=True):
        for way in ways:
            for cls, form in ((item.cls, way.writes), *way.reads):
                if form is not None:
                    (made if (cls, form) == (item.cls, way.writes) else read)[cls].add(form)
    for root in priced.roots:
        read[root].add(priced.interface)
    able = [one for one in backends if _knows_forms(one.name, priced.implementations)]
    for cls in sorted(read):
        type_ = eclasses.types[cls] if cls < eclasses.n_classes else None
        if not isinstance(type_, TensorType):
            continue
        for before in sorted(made[cls]):
            for after in sorted(read[cls] - {before}):
                kernel = conversion_kernel(type_, before, after, priced.sizes)
                if kernel is None:
                    continue
                found = tuple(
                    (one.name, how) for one in able for how in one.implementations(kernel)
                )
                yield Conversion(cls, before, after, kernel=kernel, implementations=found)


def conversion_kernel(
    type_: TensorType, made: Form, read: Form, sizes: Mapping[str, int]
) -> Kernel | None:
    """Return the kernel that converts a value of this type; ``None`` if the sizes allow none."""
    return _at_sizes(Kernel((Operand(type_, const=False, form=made),), (), (0,), read), sizes)


def _knows_forms(backend: str, implementations: Iterable[Implementations]) -> bool:
    return any(
        name == backend and (how.reads or how.writes)
        for ways in implementations
        for name, how in ways
    )
