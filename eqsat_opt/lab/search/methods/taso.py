"""TASO's search (Jia et al., SOSP 2019): backtracking over whole graphs under its own cost model.

The source differs from MetaFlow in four ways. A graph is not split. Graphs are identified by a hash
that takes some different ones for equal. The budget counts graphs that are taken from the queue,
and a graph that has become too expensive while it waited is followed nevertheless. Splitting,
enlarging, reshaping and transposing cost nothing, so a merge that moves data may seem to pay.

The search is led by that cost model, or by the full prices of the comparison, under which its
result is priced in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from eqsat_opt.errors import OptionError
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.lab.search.frame import Frame
from eqsat_opt.lab.search.methods.metaflow import backtrack
from eqsat_opt.lab.search.pricing.pricing import KernelPricer, PriceCache, Quoted
from eqsat_opt.lab.search.rewriting.hashing import TasoHash
from eqsat_opt.lab.search.running import Run
from eqsat_opt.lab.search.search import Budget, SearchResult

__all__ = ["Published", "Taso"]

_FREE = frozenset({"Slice", "Pad", "Reshape", "Transpose"})
"""Operators that cost nothing in TASO: splits, enlarged kernels, views and transposes."""


@dataclass(frozen=True)
class Published:
    """The prices of TASO's cost model: kernels that only move data are free.

    Attributes:
        pricer: prices all other kernels.
    """

    pricer: KernelPricer

    @property
    def metrics(self) -> Sequence[str]:
        """The metrics of the pricer."""
        return self.pricer.metrics

    def quotes(self, kernel: Kernel) -> Sequence[Quoted]:
        """Return the quotes of the pricer, or one of zeros for a kernel that only moves data."""
        found = self.pricer.quotes(kernel)
        if not all(step.op in _FREE for step in kernel.steps):
            return found
        return [replace(found[0], metrics=dict.fromkeys(found[0].metrics, 0.0))]


@dataclass(frozen=True)
class Taso:
    """The search and its parameters.

    Attributes:
        alpha: a graph is followed if it costs less than this many times the best; 1.05 in the
            paper, 1 in the source.
        prices: prices that lead the search: ``published``, or ``honest`` for the prices of the
            comparison.
        hash: ``taso``, which loses graphs, or ``canonical``.
        growth: graphs with at least this many times as many operators as the original are dropped.
    """

    name: ClassVar[str] = "taso"
    exact: ClassVar[bool] = False

    alpha: float = 1.05
    prices: Literal["published", "honest"] = "published"
    hash: Literal["taso", "canonical"] = "taso"
    growth: float = 2.0

    def __post_init__(self) -> None:
        if not self.alpha >= 1:
            raise OptionError(
                f"alpha is {self.alpha:g}; give at least 1, which follows cheaper graphs only"
            )
        if self.prices not in ("published", "honest"):
            raise OptionError(f"unknown prices {self.prices!r}; choose published or honest")
        if self.hash not in ("taso", "canonical"):
            raise OptionError(f"unknown hash {self.hash!r}; choose taso or canonical")
        if not self.growth > 1:
            raise OptionError(f"growth is {self.growth:g}; give more than 1")

    def run(self, frame: Frame, budget: Budget, seed: int = 0) -> SearchResult:
        """Return the cheapest graph by the leading prices; the search is deterministic."""
        led = frame if self.prices == "honest" else _published(frame)
        run = Run(led, budget)
        taso = TasoHash(led.terms.known) if self.hash == "taso" else None
        with run:
            backtrack(
                run, led.start, self.alpha, growth=self.growth, taso=taso, drops_waiting=False
            )
        found = run.result()
        if led is frame:
            return found
        outcome = frame.judged(found.graph)
        # Other moments had other prices, so only the last one is known.
        trace = tuple(replace(one, value=outcome.value) for one in found.trace[-1:])
        note = (
            f"taso: by the published prices {found.original.value:g} became {found.value:g}, "
            f"honestly {frame.start.value:g} became {outcome.value:g}"
        )
        return replace(
            found,
            outcome=outcome,
            original=frame.outcome(frame.start),
            trace=trace,
            notes=(*found.notes, note),
        )


def _published(frame: Frame) -> Frame:
    """Return the frame with TASO's prices."""
    own = frame.prices
    return replace(frame, prices=PriceCache(Published(own.pricer), own.valuation, own.sizes))
