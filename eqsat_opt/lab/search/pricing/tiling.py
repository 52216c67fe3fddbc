"""The cheapest kernels of a graph, as level ``kernels`` prices them.

Every value that is an output or is read by a kernel needs a kernel that computes it; values inside
a kernel need none of their own. Terms that no kernel covers together are independent of each other,
so the graph falls into regions, and the least cost is the sum of theirs. Within a region, values
are decided from the last to the first. The only relevant result of the decisions so far is the set
of earlier values that they read, the frontier of Collage's dynamic program (Jeon et al., 2022,
§5.1). Unlike in Collage, a value may be computed twice, as an extraction may choose it; so the
cover and the extraction agree where there are no rules.

A product or a ratio of two totals is no sum over regions, but the best totals lie at a corner of
the hull of all totals, which is the Minkowski sum of the hulls of the regions. So each region keeps
the covers at the corners of its own, and one cover of each region is chosen, all together. So it is
with a sum whose one total is limited; there a cover between corners may be better.

After a substitution only the regions around it are solved again.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from eqsat_opt.common.union_find import UnionFind
from eqsat_opt.lab.search.pricing.assignment import Point, corners
from eqsat_opt.lab.search.pricing.kernel_ways import (
    KernelWay,
    KernelWays,
    has_siblings,
    is_computed,
)
from eqsat_opt.lab.search.rewriting.rewriting import Rewritten
from eqsat_opt.lab.search.rewriting.terms import TermGraph

__all__ = ["Cover", "Covering"]


@dataclass(frozen=True)
class _Region:
    """Values that kernels may cover together.

    Attributes:
        keys: keys of the values, operands first.
        corners: for a goal over two totals the kernels at each corner of their hull; for a sum the
            best kernels alone.
    """

    keys: tuple[bytes, ...]
    corners: tuple[tuple[KernelWay, ...], ...]


class Covering(KernelWays):
    """The solver that covers graphs by kernels."""

    def cover(self, graph: TermGraph, before: tuple[Cover, Rewritten] | None = None) -> Cover:
        """Return the cheapest kernels of a graph.

        Args:
            graph: the graph.
            before: the cover of the graph before, and the substitution that led to this one.
        """
        return Cover(self, graph, before)


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
        self._keys = tuple(key for key in graph.order if is_computed(known[key]))
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
            self._ways[pseudo] = (*self._ways.get(pseudo, ()), split)
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
        if self._covering.goal is None:
            return _Region(tuple(keys), (self._least(keys, always, _rank),))

        def solved(first: float, second: float) -> tuple[float, float, tuple[KernelWay, ...]]:
            """Return the cover whose weighted sum of the two totals is least."""

            def weighed(way: KernelWay) -> float:
                a, b = self._point(way)
                return first * a + second * b

            ways = self._least(keys, always, weighed)
            points = [self._point(way) for way in ways]
            return math.fsum(a for a, _ in points), math.fsum(b for _, b in points), ways

        return _Region(tuple(keys), tuple(ways for *_, ways in corners(solved)))

    def _point(self, way: KernelWay) -> Point:
        """Return the two numbers of a kernel, of both of which less is better."""
        covering = self._covering
        assert covering.goal is not None
        first, second = covering.point(way.row)
        return covering.goal.sign * first, second

    def _least(
        self, keys: Sequence[bytes], always: Set[bytes], price: Callable[[KernelWay], float]
    ) -> tuple[KernelWay, ...]:
        """Return the kernels of a region of least price, operands first.

        Args:
            keys: the values of the region, operands first.
            always: those that need a kernel whatever else is chosen.
            price: price of a kernel; it may be negative.
        """
        if len(keys) == 1:
            return (min(self._ways[keys[0]], key=price),)
        own = set(keys)
        states: dict[frozenset[bytes], tuple[float, tuple[object, ...]]] = {
            frozenset(always): (0.0, ())
        }
        prices = {id(way): price(way) for key in keys for way in self._ways[key]}
        for key in reversed(keys):
            following: dict[frozenset[bytes], tuple[float, tuple[object, ...]]] = {}
            for wanted, (cost, chosen) in states.items():
                if key not in wanted:
                    if cost < following.get(wanted, (math.inf,))[0]:
                        following[wanted] = (cost, chosen)
                    continue
                for way in self._ways[key]:
                    total = cost + prices[id(way)]
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
        return tuple(ways)

    # Costs ----------------------------------------------------------------------------------------

    @cached_property
    def _chosen(self) -> tuple[KernelWay, ...]:
        """All kernels, in no order."""
        distinct = {id(region): region for region in self.regions.values()}
        corners = [region.corners for region in distinct.values()]
        places = [0] * len(corners)
        goal = self._covering.goal
        if goal is not None:
            assert goal.solve is not None
            points = [[self._total(ways) for ways in one] for one in corners]
            places = goal.solve(points)
        return tuple(way for one, i in zip(corners, places, strict=True) for way in one[i])

    def _total(self, ways: Iterable[KernelWay]) -> Point:
        points = [self._covering.point(way.row) for way in ways]
        return math.fsum(a for a, _ in points), math.fsum(b for _, b in points)

    @cached_property
    def ways(self) -> tuple[KernelWay, ...]:
        """All kernels, in an order in which they can run."""
        chosen = {way.root: way for way in self._chosen}
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
        rows = [way.row.costs for way in self._chosen]
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


def _rank(way: KernelWay) -> float:
    return way.row.rank


def _renamed(
    region: _Region, image: Mapping[bytes, bytes], moved: Mapping[bytes, bytes]
) -> _Region:
    """Return the region with the keys that it has after a substitution elsewhere."""

    def now(key: bytes) -> bytes:
        return moved.get(key, key)

    kernels = [way for corner in region.corners for way in corner]
    if all(key not in moved for way in kernels for key in (*way.covers, *way.operands)):
        return region
    renamed = tuple(
        tuple(
            KernelWay(
                now(way.root),
                reads=tuple(map(now, way.reads)),
                covers=frozenset(map(now, way.covers)),
                row=way.row,
                kernel=way.kernel,
                operands=tuple(map(now, way.operands)),
            )
            for way in corner
        )
        for corner in region.corners
    )
    return _Region(tuple(image.get(key, key) for key in region.keys), renamed)
