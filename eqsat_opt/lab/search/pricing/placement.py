"""Kernels of one graph by the patterns of a registry, and by the backend of offloaded operators."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace

from eqsat_opt.lab.search.pricing.kernel_ways import KernelWay
from eqsat_opt.lab.search.pricing.pricing import ImplementationRow
from eqsat_opt.lab.search.pricing.regions import PatternRegistry, grown
from eqsat_opt.lab.search.pricing.tiling import Covering
from eqsat_opt.lab.search.rewriting.terms import Term, TermGraph, Terms
from eqsat_opt.rules.patterns import operators_of
from eqsat_opt.select.tiling.matching import PatternMatch
from eqsat_opt.select.tiling.tiling import candidate_of

__all__ = ["PlacedKernels", "Registered"]


class Registered(Covering):
    """Kernels by the patterns and the rules of a registry, on one graph."""

    def __init__(self, terms: Terms, registry: PatternRegistry, graph: TermGraph) -> None:
        """Collect the patterns and regions of the registry on a graph."""
        super().__init__(terms, ())
        by_root = defaultdict(list)
        for name, pattern in registry.patterns:
            for op in operators_of(pattern.pattern):
                by_root[op].append((name, pattern))
        self._by_root = by_root
        running = {key: terms.known[key] for key in graph.order if terms.known[key].runs}
        self._regions: dict[bytes, list[tuple[str, frozenset[bytes]]]] = defaultdict(list)
        for rule in registry.rules:
            for last, region in grown(rule, running, graph.outputs, terms.known):
                self._regions[last].append((rule.backend, region))

    def _found(self, term: Term) -> Iterator[KernelWay]:
        yield from super()._found(term)
        for backend, region in self._regions.get(term.key, ()):
            numbers = [self._classes.number(self.terms.known[key]) for key in region]
            match = PatternMatch(self._classes.number(term), {number: number for number in numbers})
            for way in self._of(candidate_of(self._classes, f"{backend} region", match)):
                placed = _by(self, way, backend)
                if placed is not None:
                    yield placed


class PlacedKernels(Covering):
    """Kernels where some terms must run on one backend, and no kernel mixes them with others.

    A term that this backend cannot run stays where it is cheapest.
    """

    def __init__(self, base: Covering, offloaded: Set[bytes], backend: str) -> None:
        """Restrict the kernels of ``base``."""
        super().__init__(base.terms, ())
        self._base, self._offloaded, self._backend = base, offloaded, backend

    def ways(self, term: Term) -> tuple[KernelWay, ...]:
        """Return the kernels that compute a term, at least one."""
        found = self._base.ways(term)
        return tuple(self._kept(found)) or tuple(way for way in found if len(way.covers) == 1)

    def splits(self, source: bytes, slices: tuple[bytes, ...]) -> tuple[KernelWay, ...]:
        """Return the kernels that split a value into these Slices."""
        return tuple(self._kept(self._base.splits(source, slices)))

    def _kept(self, ways: Sequence[KernelWay]) -> Iterator[KernelWay]:
        for way in ways:
            if way.covers.isdisjoint(self._offloaded):
                yield way
            elif way.covers <= self._offloaded and (one := _by(self, way, self._backend)):
                yield one


def _by(covering: Covering, way: KernelWay, backend: str) -> KernelWay | None:
    """Return the kernel on one backend; ``None`` if the backend lacks it.

    Opaque operators are returned unchanged.
    """
    if way.kernel is None:
        return way
    rows: Sequence[ImplementationRow] = covering.terms.prices.rows(way.kernel)
    row = next((one for one in rows if one.quoted and one.quoted.backend == backend), None)
    return None if row is None else replace(way, row=row)
