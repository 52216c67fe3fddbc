"""From candidates to the extraction problem: one row of metrics per implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from eqsat_opt.cost.metrics import METRICS, TIME, columns
from eqsat_opt.cost.quotes import Quote
from eqsat_opt.extract import Problem
from eqsat_opt.ir.dims import Dim, literal
from eqsat_opt.ir.extraordinary import is_epsilon, is_representable
from eqsat_opt.ir.kernel import Kernel
from eqsat_opt.ir.ops import IllTyped
from eqsat_opt.ir.types import TensorType
from eqsat_opt.runtime.backends.protocol import Backend, Implementation, Offer
from eqsat_opt.select.candidates import Candidate, Candidates

__all__ = [
    "Implementations",
    "PricedCandidates",
    "PricedProblem",
    "is_unpriced",
]

Implementations = tuple[tuple[str, Implementation], ...]
"""Ways to run one candidate: the name of a backend and its implementation."""

_T = TypeVar("_T")


def _at_sizes(kernel: Kernel, sizes: Mapping[str, int]) -> Kernel | None:
    """The kernel with symbolic dimensions replaced; ``None`` if it is not defined on such sizes."""
    if kernel.is_static:
        return kernel
    try:
        sized = kernel.with_sizes(dict(sizes))
        types = sized.types
    except IllTyped:
        return None
    return sized if all(size >= 0 for type_ in types for size in type_.static_shape()) else None


@dataclass(frozen=True)
class PricedCandidates:
    """Candidates with literal kernels, and how backends can run them.

    Attributes:
        candidates: what may be chosen.
        sizes: values of symbolic dimensions for pricing.
        roots: classes that must be computed.
        max_constant_bytes: constants that folding would make larger than this are not offered.
        implementations: of each candidate, each with the name of its backend; nothing for what has
            no kernel.
        refused: constant classes that are not offered either, unless they are the model's.
    """

    candidates: Candidates
    sizes: Mapping[str, int]
    roots: tuple[int, ...]
    max_constant_bytes: int
    implementations: tuple[Implementations, ...]
    refused: frozenset[int] = frozenset()

    @staticmethod
    def of(
        candidates: Candidates,
        backends: Sequence[Backend],
        roots: Sequence[int],
        *,
        sizes: Mapping[str, int] = MappingProxyType({}),
        max_constant_bytes: int,
    ) -> PricedCandidates:
        """Ask ``backends`` how they can run each candidate; the rest are attributes."""
        ways = _implementations(candidates, sizes, backends)
        return PricedCandidates(
            candidates=candidates,
            sizes=sizes,
            roots=tuple(roots),
            max_constant_bytes=max_constant_bytes,
            implementations=ways,
        )

    def run_by(self, backend: str) -> PricedCandidates:
        """The same with the implementations of one backend alone."""
        return self._keeping(lambda name, _: name == backend)

    def within(self, error: float) -> PricedCandidates:
        """The same without the implementations whose results may be farther off than ``error``."""
        return self._keeping(lambda _, how: how.error <= error)

    def _keeping(self, keeps: Callable[[str, Implementation], bool]) -> PricedCandidates:
        ways = (tuple(way for way in one if keeps(*way)) for one in self.implementations)
        return replace(self, implementations=tuple(ways))

    @cached_property
    def kernels(self) -> tuple[Kernel | None, ...]:
        """Kernels with literal sizes; ``None`` for what runs nothing or not at these sizes."""
        return _literal_kernels(self.candidates, self.sizes)

    @cached_property
    def offers(self) -> tuple[tuple[Offer, ...], ...]:
        """What backends offer for each candidate; nothing for what has no kernel."""
        return tuple(
            () if kernel is None else tuple(Offer(kernel, name, how) for name, how in ways)
            for kernel, ways in zip(self.kernels, self.implementations, strict=True)
        )

    @cached_property
    def _static(self) -> npt.NDArray[np.float64]:
        """[candidates, metrics] without the prices of kernels."""
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
        """Whether a constant is within the byte budget."""
        type_ = self.candidates.eclasses.types[cls]
        return not isinstance(type_, TensorType) or literal(type_.bytes) <= self.max_constant_bytes

    @cached_property
    def offered(self) -> npt.NDArray[np.bool_]:
        """[candidates] whether a candidate may be chosen.

        A kernel that no backend implements may not.
        A constant that is refused or beyond the byte budget may not, unless it is the model's, and
        neither may a literal that is no ordinary number in the type of what it is applied to.
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
        """Whether the numbers among its attributes are, in the type of the result."""
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
        """[candidates] whether a candidate uses only what the model had."""
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
    ) -> PricedProblem:
        """The extraction problem under some prices.

        Args:
            price: of each offer.
            only: `[candidates]`, which to choose from; all by default.
            given: the metrics in each quote.
        """
        names = columns(given)
        every = tuple(METRICS)
        static = self._static[:, [every.index(name) for name in names]]
        places = [i for i, name in enumerate(names) if name in given]
        chosen = self.offered if only is None else self.offered & only
        index = np.flatnonzero(chosen).tolist()
        prices: dict[Offer, list[float]] = {}
        rows: list[npt.NDArray[np.float64]] = []
        ptr = [0]
        for i in index:
            row = static[i]
            if not self.offers[i]:
                rows.append(row)
            for offer in self.offers[i]:
                if offer not in prices:
                    quote = price(offer).metrics
                    prices[offer] = [quote[names[place]] for place in places]
                timed = row.copy()
                timed[places] = prices[offer]
                rows.append(timed)
            ptr.append(len(rows))
        items = [self.candidates.items[i] for i in index]
        costs = np.array(rows).reshape(len(rows), len(names))
        return PricedProblem(
            _build(
                items,
                ptr,
                rows=costs,
                metrics=names,
                n_classes=self.candidates.n_classes,
                roots=self.roots,
            ),
            tuple(index),
        )


def _value(of: Callable[[_T], Dim] | None, what: _T) -> float:
    """What a metric says of a kernel or a constant of literal sizes, and 0 if it says nothing."""
    return 0.0 if of is None else float(literal(of(what)))


def _implementations(
    candidates: Candidates, sizes: Mapping[str, int], backends: Sequence[Backend]
) -> tuple[Implementations, ...]:
    """All of them are asked, but for what only some of them fuse."""
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
    """Whether a candidate without a literal kernel runs nevertheless; only its launch is known."""
    return item.kind == "opaque" or bool(item.steps)


@dataclass(frozen=True)
class PricedProblem:
    """An extraction problem whose node ``i`` is candidate ``index[i]``.

    The implementations of a node are the offers for its candidate, in order.
    """

    problem: Problem
    index: tuple[int, ...]

    @cached_property
    def node_of(self) -> dict[int, int]:
        """Candidate number to problem node."""
        return {candidate: node for node, candidate in enumerate(self.index)}


def _build(
    items: Sequence[Candidate],
    implementations: Sequence[int],
    rows: npt.NDArray[np.float64],
    metrics: tuple[str, ...],
    n_classes: int,
    roots: Iterable[int],
) -> Problem:
    ptr = np.zeros(len(items) + 1, dtype=np.int64)
    np.cumsum([len(item.reads) for item in items], out=ptr[1:])
    return Problem(
        n_classes=n_classes,
        node_class=np.array([item.cls for item in items], dtype=np.int64),
        child_ptr=ptr,
        child_ix=np.array([c for item in items for c in item.reads], dtype=np.int64),
        impl_ptr=np.array(implementations, dtype=np.int64),
        impl_cost=rows,
        metrics=metrics,
        roots=tuple(roots),
        peaks=tuple(name for name in metrics if METRICS[name].is_peak),
    )
