"""The kernels by which a term can be computed, on its own or with terms around it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from eqsat_opt.ir.graph.graph import OPAQUE
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.graph.outputs import application
from eqsat_opt.ir.ops import get_op
from eqsat_opt.lab.search.pricing.assignment import Point
from eqsat_opt.lab.search.pricing.goals import cover_goal
from eqsat_opt.lab.search.pricing.pricing import ImplementationRow
from eqsat_opt.lab.search.pricing.term_classes import TermClasses
from eqsat_opt.lab.search.rewriting.terms import INPUT, OUTPUT, WEIGHT, Term, Terms
from eqsat_opt.rules.patterns import operators_of
from eqsat_opt.rules.term import Apply
from eqsat_opt.rules.term import Term as Pattern
from eqsat_opt.runtime.backends.protocol import Backend
from eqsat_opt.select.tiling.candidates import Candidate, kernel_of
from eqsat_opt.select.tiling.concatenations import (
    applications,
    concatenation,
    flat_operands,
    joint_kernel,
    neighbours,
)
from eqsat_opt.select.tiling.matching import Tiled
from eqsat_opt.select.tiling.tiling import kernels_at, patterns_of

__all__ = ["KernelWay", "KernelWays", "has_siblings", "is_computed"]


@dataclass(frozen=True, slots=True)
class KernelWay:
    """One kernel that computes a value.

    Attributes:
        root: key of the value.
        reads: keys of the operands that need a kernel.
        covers: keys of all values that it computes, inner ones included.
        row: price of the way to run it that is best by itself.
        kernel: the computation; ``None`` for a kernel that is not priced.
        operands: keys of its operands, constants included.
    """

    root: bytes
    reads: tuple[bytes, ...]
    covers: frozenset[bytes]
    row: ImplementationRow
    kernel: Kernel | None = None
    operands: tuple[bytes, ...] = ()


class KernelWays:
    """The kernels that can compute the terms of one search on one device."""

    def __init__(
        self,
        terms: Terms,
        backends: Sequence[Backend],
        *,
        joins: bool = True,
        adds_up: bool = True,
    ) -> None:
        """Collect the patterns of backends.

        Args:
            terms: terms of the search, with their prices.
            backends: backends whose patterns are kernels.
            joins: whether a contraction may be fused with a value that another kernel computes, a
                residual connection for instance, and so has to wait for it.
            adds_up: whether kernels run one after another, so that totals are those of the graph.
        """
        self.terms = terms
        self._classes = TermClasses(terms)
        self._tiled = Tiled(self._classes)
        self._by_root = patterns_of(backends)
        self._joins = joins
        self.goal = cover_goal(terms.prices.valuation.objective) if adds_up else None
        self._ways: dict[bytes, tuple[KernelWay, ...]] = {}
        self._splits: dict[tuple[bytes, tuple[bytes, ...]], tuple[KernelWay, ...]] = {}
        self._pairs = {("Concat", "Concat")}
        for found in self._by_root.values():
            for _, one in found:
                self._pairs.update(_pairs(one.pattern))

    def may_cover(self, reader: Term, operand: Term) -> bool:
        """Return whether a kernel may compute two terms, of which one reads the other."""
        return (reader.op, operand.op) in self._pairs

    def ways(self, term: Term) -> tuple[KernelWay, ...]:
        """Return the kernels that compute a term, the plain operator among them."""
        known = self._ways.get(term.key)
        if known is None:
            known = self._ways[term.key] = tuple(self._found(term))
        return known

    def _found(self, term: Term) -> Iterator[KernelWay]:
        if term.op in (OPAQUE, OUTPUT):
            reads = self._running(term.operands)
            yield KernelWay(
                term.key,
                reads=reads,
                covers=frozenset((term.key,)),
                row=term.row,
                operands=term.operands,
            )
            return
        number, classes = self._classes.number(term), self._classes
        if term.op == "Concat" and len(term.operands) == 2:
            for operands, nodes in flat_operands(classes, number):
                yield from self._of(concatenation(classes, number, operands, nodes))
            return
        for candidate in kernels_at(self._tiled, number, self._by_root):
            for way in self._of(candidate):
                if self._joins or way.kernel is None or not _joins(way.kernel):
                    yield way

    def _of(self, candidate: Candidate) -> Iterator[KernelWay]:
        """Yield a kernel with each of its implementations that may be chosen."""
        classes = self._classes
        kernel = kernel_of(classes, candidate)
        operands = tuple(classes.key[c] for c in candidate.reads)
        covers = frozenset(classes.key[int(classes.class_of[n])] for n in candidate.nodes)
        running = self._running(operands)
        for row in self._rows(kernel):
            yield KernelWay(
                classes.key[candidate.cls],
                reads=running,
                covers=covers,
                row=row,
                kernel=kernel,
                operands=operands,
            )

    def _rows(self, kernel: Kernel | None) -> Sequence[ImplementationRow]:
        """Return the implementations of a kernel that a goal may choose: for a sum, the best."""
        if kernel is None:
            return (self.terms.prices.unknown,)
        rows = self.terms.prices.rows(kernel)
        if self.goal is None:
            return rows[:1]
        return tuple(row for row in rows if row.rank < math.inf) or rows[:1]

    def point(self, row: ImplementationRow) -> Point:
        """Return the two numbers of a kernel under the goal."""
        assert self.goal is not None
        return self.goal.point(self.terms.prices.valuation.totals(row.costs))

    def splits(self, source: bytes, slices: tuple[bytes, ...]) -> tuple[KernelWay, ...]:
        """Return the kernels that split a value into some of its Slices; their root is no Slice."""
        known = self._splits.get((source, slices))
        if known is None:
            known = self._splits[source, slices] = tuple(self._split(slices))
        return known

    def _split(self, slices: tuple[bytes, ...]) -> Iterator[KernelWay]:
        numbers = [self._classes.number(self.terms.known[key]) for key in slices]
        sliced = [n for n in numbers if self._classes.op[n] == "Slice"]
        found = (*neighbours(self._classes, sliced), *applications(self._classes, numbers))
        for one in found:
            candidate = joint_kernel(self._classes, one)
            kernel = kernel_of(self._classes, candidate)
            covered = frozenset(self._classes.key[n] for n in one)
            operands = tuple(self._classes.key[c] for c in candidate.reads)
            root = b"split" + b"".join(sorted(covered))
            reads = self._running(operands)
            for row in self._rows(kernel):
                yield KernelWay(
                    root, reads=reads, covers=covered, row=row, kernel=kernel, operands=operands
                )

    def _running(self, keys: Iterable[bytes]) -> tuple[bytes, ...]:
        known = self.terms.known
        return tuple(dict.fromkeys(key for key in keys if is_computed(known[key])))


def _joins(kernel: Kernel) -> bool:
    """Return whether a contraction waits for values that it does not read itself."""
    count, own = len(kernel.operands), set[int]()
    for step in kernel.steps:
        if get_op(step.op).kind == "contraction":
            own.update(step.operands)
    running = {i for i in range(count) if not kernel.operands[i].const}
    return bool(own) and not running <= own


def has_siblings(term: Term) -> bool:
    """Return whether one kernel may compute the term and others on the same operands."""
    return term.op == "Slice" or application(term.op, term.attrs, term.operands) is not None


def _pairs(pattern: Pattern) -> Iterator[tuple[str, str]]:
    """Yield the pairs of operators in a pattern of which the first reads the second."""
    for one in pattern.walk():
        for arg in one.args if isinstance(one, Apply) else ():
            yield from product(operators_of(one), operators_of(arg))


def is_computed(term: Term) -> bool:
    """Return whether a kernel has to run for a term."""
    return not term.const and term.op not in (INPUT, WEIGHT)
