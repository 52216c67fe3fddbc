"""The cheapest kernels of a graph, as level ``kernels`` prices them.

Every value that is an output or is read by a kernel needs a kernel that computes it; values inside
a kernel need none of their own. Terms that no kernel covers together are independent of each other,
so the graph falls into regions, and the least cost is the sum of theirs. Within a region, values
are decided from the last to the first. The only relevant result of the decisions so far is the set
of earlier values that they read, the frontier of Collage's dynamic program (Jeon et al., 2022,
§5.1). Unlike in Collage, a value may be computed twice, as an extraction may choose it; so the
cover and the extraction agree where there are no rules.

After a substitution only the regions around it are solved again.

It is long because one dynamic program has all its transitions side by side.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from eqsat_opt.common.union_find import UnionFind
from eqsat_opt.errors import OptionError
from eqsat_opt.extract.objective import Objective
from eqsat_opt.ir.graph.graph import OPAQUE, Attrs
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.graph.outputs import application
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.values.types import TensorType, ValueType
from eqsat_opt.lab.search.pricing.pricing import ImplementationRow
from eqsat_opt.lab.search.rewriting.rewriting import Rewritten
from eqsat_opt.lab.search.rewriting.terms import INPUT, OUTPUT, WEIGHT, Term, TermGraph, Terms
from eqsat_opt.rules.patterns import literal, operators_of
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

__all__ = ["Cover", "Covering", "KernelWay", "has_siblings"]


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


class _TermClasses:
    """The terms of a search as classes of one e-node each, numbered in order of first use."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self.key: list[bytes] = []
        self.op: list[str] = []
        self.attrs: list[Attrs] = []
        self.types: list[ValueType] = []
        self.is_const: list[bool] = []
        self.nodes_of: list[tuple[int, ...]] = []
        self.class_of: list[int] = []
        self._children: list[tuple[int, ...]] = []
        self._number: dict[bytes, int] = {}

    def number(self, term: Term) -> int:
        """Return the number of a term, and number all terms below it."""
        known = self._number.get(term.key)
        if known is not None:
            return known
        stack = [term]
        while stack:
            one = stack[-1]
            missing = [c for c in one.operands if c not in self._number]
            if missing:
                stack += [self._terms.known[c] for c in missing]
                continue
            stack.pop()
            if one.key not in self._number:
                self._add(one)
        return self._number[term.key]

    def _add(self, term: Term) -> None:
        number = self._number[term.key] = len(self.key)
        op, attrs, value = term.op, term.attrs, self._terms.scalar(term)
        if value is not None and isinstance(term.type, TensorType):
            enode = literal(number, value, term.type.dtype)
            op, attrs = enode.op, enode.attrs
        self.key.append(term.key)
        self.op.append(op)
        self.attrs.append(attrs)
        self.types.append(term.type)
        self.is_const.append(term.const)
        self.nodes_of.append((number,))
        self.class_of.append(number)
        self._children.append(tuple(self._number[c] for c in term.operands))

    def children(self, node: int) -> tuple[int, ...]:
        """Return the operands of a term."""
        return self._children[node]

    def scalar(self, cls: int) -> float | None:
        """Return the value of a uniform constant; ``None`` for other terms."""
        return self._terms.scalar(self._terms.known[self.key[cls]])


class Covering:
    """Kernels of the terms of one search on one device."""

    def __init__(self, terms: Terms, backends: Sequence[Backend], *, joins: bool = True) -> None:
        """Collect the patterns of backends.

        Args:
            terms: terms of the search, with their prices.
            backends: backends whose patterns are kernels.
            joins: whether a contraction may be fused with a value that another kernel computes, a
                residual connection for instance, and so has to wait for it.

        Raises:
            OptionError: the objective is no sum, so that kernels cannot be chosen one by one.
        """
        if not isinstance(terms.prices.valuation.objective, Objective):
            raise OptionError(
                "fused kernels are chosen for sums only; give another objective, or level operators"
            )
        self.terms = terms
        self._classes = _TermClasses(terms)
        self._tiled = Tiled(self._classes)
        self._by_root = patterns_of(backends)
        self._joins = joins
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
                yield self._way(concatenation(classes, number, operands, nodes))
            return
        for candidate in kernels_at(self._tiled, number, self._by_root):
            way = self._way(candidate)
            if self._joins or way.kernel is None or not _joins(way.kernel):
                yield way

    def _way(self, candidate: Candidate) -> KernelWay:
        classes, prices = self._classes, self.terms.prices
        kernel = kernel_of(classes, candidate)
        row = prices.unknown if kernel is None else prices.rows(kernel)[0]
        operands = tuple(classes.key[c] for c in candidate.reads)
        covers = frozenset(classes.key[int(classes.class_of[n])] for n in candidate.nodes)
        running = self._running(operands)
        return KernelWay(
            classes.key[candidate.cls],
            reads=running,
            covers=covers,
            row=row,
            kernel=kernel,
            operands=operands,
        )

    def splits(self, source: bytes, slices: tuple[bytes, ...]) -> tuple[KernelWay, ...]:
        """Return the kernels that split a value into some of its Slices; their root is no Slice."""
        known = self._splits.get((source, slices))
        if known is None:
            known = self._splits[source, slices] = tuple(self._split(slices))
        return known

    def _split(self, slices: tuple[bytes, ...]) -> Iterator[KernelWay]:
        numbers = [self._classes.number(self.terms.known[key]) for key in slices]
        prices = self.terms.prices
        sliced = [n for n in numbers if self._classes.op[n] == "Slice"]
        found = (*neighbours(self._classes, sliced), *applications(self._classes, numbers))
        for one in found:
            candidate = joint_kernel(self._classes, one)
            kernel = kernel_of(self._classes, candidate)
            row = prices.unknown if kernel is None else prices.rows(kernel)[0]
            covered = frozenset(self._classes.key[n] for n in one)
            operands = tuple(self._classes.key[c] for c in candidate.reads)
            root = b"split" + b"".join(sorted(covered))
            reads = self._running(operands)
            yield KernelWay(
                root, reads=reads, covers=covered, row=row, kernel=kernel, operands=operands
            )

    def _running(self, keys: Iterable[bytes]) -> tuple[bytes, ...]:
        known = self.terms.known
        return tuple(dict.fromkeys(key for key in keys if _computed(known[key])))

    def cover(self, graph: TermGraph, before: tuple[Cover, Rewritten] | None = None) -> Cover:
        """Return the cheapest kernels of a graph.

        Args:
            graph: the graph.
            before: the cover of the graph before, and the substitution that led to this one.
        """
        return Cover(self, graph, before)


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


def _computed(term: Term) -> bool:
    """Return whether a kernel has to run for a term."""
    return not term.const and term.op not in (INPUT, WEIGHT)


@dataclass(frozen=True)
class _Region:
    """Values that kernels may cover together.

    Attributes:
        keys: keys of the values, operands first.
        ways: the best kernels.
    """

    keys: tuple[bytes, ...]
    ways: tuple[KernelWay, ...]


class Cover:
    """A graph with its cheapest kernels.

    Attributes:
        graph: the graph.
        regions: value to its region.
    """

    def __init__(
        self, covering: Covering, graph: TermGraph, before: tuple[Cover, Rewritten] | None = None
    ) -> None:
        self.graph = graph
        self._covering = covering
        known = covering.terms.known
        self._keys = tuple(key for key in graph.order if _computed(known[key]))
        self._rank = {key: i for i, key in enumerate(self._keys)}
        self._readers: dict[bytes, list[bytes]] = defaultdict(list)
        for key in self._keys:
            for operand in known[key].operands:
                self._readers[operand].append(key)
        self._outputs = frozenset(graph.outputs)
        self._ways: dict[bytes, tuple[KernelWay, ...]] = {}
        self.regions: dict[bytes, _Region] = {}
        kept = self._kept(*before) if before is not None else frozenset()
        self._solve([key for key in self._keys if key not in kept])

    # Regions that a substitution leaves unchanged -------------------------------------------------

    def _kept(self, old: Cover, made: Rewritten) -> frozenset[bytes]:
        """Take over the regions that a change does not affect; return the keys in them."""
        consts = self._covering.terms.known
        if any(consts[one].const != consts[made.moved[one]].const for one in made.consumed):
            return frozenset()
        # A change affects its direct readers, and terms that a kernel may cover with them.
        near = set(made.consumed)
        front = {reader for key in near for reader in old._readers.get(key, ())}
        while front:
            near |= front
            front = {
                reader
                for key in front
                for reader in old._readers.get(key, ())
                if reader not in near and self._covering.may_cover(consts[reader], consts[key])
            }
        image = {key: made.moved.get(key, key) for key in old._keys}
        values = list(image.values())
        if len(set(values)) < len(values):
            return frozenset()
        origin = {now: key for key, now in image.items() if key not in near}
        changed = {key for key in self._keys if key not in origin}
        lost = {key for key, now in image.items() if key in near or now not in self._rank}
        # Values that have new readers, or fewer, may begin or cease to need a kernel.
        known = self._covering.terms.known
        touched = {c for key in changed for c in known[key].operands}
        stale = lost | {c for key in lost for c in known[key].operands}
        stale |= {origin[key] for key in touched if key in origin}
        stale |= {  # Slices of one value may become one Split.
            origin[reader]
            for key in touched
            for reader in self._readers.get(key, ())
            if reader in origin and has_siblings(known[reader])
        }
        spoilt = {id(old.regions[key]) for key in stale if key in old.regions}
        kept = set()
        renamed: dict[int, _Region] = {}
        for now, key in origin.items():
            region = old.regions[key]
            if id(region) in spoilt:
                continue
            if id(region) not in renamed:
                renamed[id(region)] = _renamed(region, image, made.moved)
            self.regions[now] = renamed[id(region)]
            kept.add(now)
        return frozenset(kept)

    # Regions --------------------------------------------------------------------------------------

    def _solve(self, keys: Sequence[bytes]) -> None:
        known = self._covering.terms.known
        for key in keys:
            self._ways[key] = self._covering.ways(known[key])
        joint = self._splits(keys)
        solved = set(keys)
        linked = UnionFind[bytes]()
        for key in keys:
            for way in self._ways[key]:
                linked.join((key, *(solved & way.covers)))
        extra: dict[bytes, list[tuple[float, KernelWay]]] = defaultdict(list)
        for pseudo, split, slices in joint:
            linked.join(slices)
            place = min(self._rank[key] for key in slices) - 0.5
            extra[pseudo] = [(place, split)]
            for key in slices:
                part = KernelWay(
                    key,
                    reads=(pseudo,),
                    covers=frozenset((key,)),
                    row=self._covering.terms.prices.free,
                )
                self._ways[key] = (*self._ways[key], part)
        groups: dict[bytes, list[tuple[float, bytes]]] = defaultdict(list)
        for key in keys:
            groups[linked.find(key)].append((float(self._rank[key]), key))
        for pseudo, _, slices in joint:
            place, split = extra[pseudo][0]
            groups[linked.find(slices[0])].append((place, pseudo))
            self._ways[pseudo] = (split,)
        for group in groups.values():
            region = self._best([key for _, key in sorted(group)])
            for key in region.keys:
                self.regions[key] = region

    def _splits(self, keys: Sequence[bytes]) -> list[tuple[bytes, KernelWay, list[bytes]]]:
        """Return kernels of neighbouring Slices of one value, with their roots and Slices."""
        known, covering = self._covering.terms.known, self._covering
        sources = {known[key].operands[0] for key in keys if has_siblings(known[key])}
        found = []
        for source in sources:
            slices = [
                k for k in self._readers[source] if has_siblings(known[k]) and k in self._ways
            ]
            if len(slices) > 1:
                ways = covering.splits(source, tuple(sorted(slices)))
                found += [(way.root, way, sorted(way.covers)) for way in ways]
        return found

    def _best(self, keys: Sequence[bytes]) -> _Region:
        """Return the cheapest kernels of a region, operands first."""
        own = set(keys)
        always = {
            key
            for key in keys
            if key in self._outputs
            or any(reader not in own for reader in self._readers.get(key, ()))
        }
        if len(keys) == 1:
            way = min(self._ways[keys[0]], key=lambda one: one.row.rank)
            return _Region(tuple(keys), (way,))
        states: dict[frozenset[bytes], tuple[float, tuple[object, ...]]] = {
            frozenset(always): (0.0, ())
        }
        for key in reversed(keys):
            following: dict[frozenset[bytes], tuple[float, tuple[object, ...]]] = {}
            for wanted, (cost, chosen) in states.items():
                if key not in wanted:
                    if cost < following.get(wanted, (math.inf,))[0]:
                        following[wanted] = (cost, chosen)
                    continue
                for way in self._ways[key]:
                    total = cost + way.row.rank
                    left = (wanted - {key}).union(c for c in way.reads if c in own)
                    if left not in following or total < following[left][0]:
                        following[left] = (total, (way, chosen))
            states = following
        ((_, picked),) = states.values()
        ways = []
        while picked:
            way, picked = picked  # type: ignore[assignment]
            assert isinstance(way, KernelWay)
            ways.append(way)
        return _Region(tuple(keys), tuple(ways))

    # Costs ----------------------------------------------------------------------------------------

    @cached_property
    def ways(self) -> tuple[KernelWay, ...]:
        """All kernels, in an order in which they can run."""
        distinct = {id(region): region for region in self.regions.values()}
        chosen = {way.root: way for region in distinct.values() for way in region.ways}
        order: dict[bytes, KernelWay] = {}
        stack = [(key, False) for key in reversed(self.graph.outputs)]
        while stack:
            key, is_ready = stack.pop()
            way = chosen.get(key)
            if way is None or key in order:
                continue
            if is_ready:
                order[key] = way
            else:
                stack.append((key, True))
                stack += [(c, False) for c in reversed(way.reads) if c not in order]
        return tuple(order.values())

    @cached_property
    def costs(self) -> tuple[int, ...]:
        """Totals by column of the valuation."""
        distinct = {id(region): region for region in self.regions.values()}
        rows = [way.row.costs for region in distinct.values() for way in region.ways]
        nothing = self._covering.terms.prices.valuation.nothing
        return tuple(map(sum, zip(nothing, *rows, strict=True)))

    @cached_property
    def length(self) -> int:
        """Length of the longest chain."""
        until: dict[bytes, int] = {}
        for way in self.ways:
            until[way.root] = way.row.length + max((until[c] for c in way.reads), default=0)
        return max(until.values(), default=0)

    @property
    def value(self) -> float:
        """The objective value."""
        valuation = self._covering.terms.prices.valuation
        return valuation.value(self.costs, self.length if valuation.needs_path else 0)


def _renamed(
    region: _Region, image: Mapping[bytes, bytes], moved: Mapping[bytes, bytes]
) -> _Region:
    """Return the region with the keys that it has after a substitution elsewhere."""

    def now(key: bytes) -> bytes:
        return moved.get(key, key)

    if all(key not in moved for way in region.ways for key in (*way.covers, *way.operands)):
        return region
    ways = tuple(
        KernelWay(
            now(way.root),
            reads=tuple(map(now, way.reads)),
            covers=frozenset(map(now, way.covers)),
            row=way.row,
            kernel=way.kernel,
            operands=tuple(map(now, way.operands)),
        )
        for way in region.ways
    )
    return _Region(tuple(image.get(key, key) for key in region.keys), ways)
