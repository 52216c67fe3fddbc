"""Maximal regions of elementwise nodes of a graph, each of which becomes one kernel.

The level of a value is the number of borders on the longest path to it. A border is an operator
that no kernel computes, or a value that several elements of the next operator read, since it would
be computed again for each of them. A node that reads no region node of its own level moves to the
level at which it is first needed. Connected nodes of one level form a region. A path that leaves a
region and returns would pass a higher level, so each region can be computed at once.

Nodes that only move data belong to no region: their readers index through them. Such nodes
disappear if only regions read them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from eqsat_opt.ir.graph.graph import Graph, Node
from eqsat_opt.ir.values.types import StaticType
from eqsat_opt.runtime.backends.generated.kernel import FUNCTIONS, FloatKernel
from eqsat_opt.runtime.backends.generated.lowering import Unfit, lowered

__all__ = ["MOST_PARTS", "Region", "regions"]

_VIEWS = frozenset({"Slice", "Reshape", "Transpose", "Expand", "Repeat"})
_JOINS = frozenset({"Concat", "Pad"})
_COMPUTED = (
    frozenset({"Add", "Sub", "Mul", "Div", "Neg", "Reciprocal", "Gelu"})
    | frozenset({"Scale", "Shift", "Square", "Rsqrt"})
    | FUNCTIONS.keys()
    | _JOINS
    | _VIEWS
)

_FEWEST = 2
"""Least number of nodes of a region; a single node saves less than a call of onnxruntime costs."""

_REPEATED = 2.0
"""Limit of the kernel's work relative to computing each element once.

Elements can be computed several times, because each output computes all that it needs.
"""

MOST_PARTS = 64
"""Limit of operands of a Concat in a kernel; each is a condition in all loops over the result."""

_DEEPEST = 50
"""Limit of the length of a chain in one kernel, nodes that move data included.

Terms of longer chains would exceed Python's recursion limit, and longer chains gain nothing.
"""

_LOADS = 2
"""Work of an element besides that of its function."""


@dataclass(frozen=True)
class Region:
    """Nodes of a model that one kernel computes.

    Attributes:
        nodes: names of the nodes.
        inputs: values that the kernel reads, in its order.
        begins: number of the first element that it reads of each input.
        outputs: values that it defines, in its order.
        kernel: the kernel.
        views: names of the nodes that move data and that it indexes through.
    """

    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    begins: tuple[int, ...]
    outputs: tuple[str, ...]
    kernel: FloatKernel
    views: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Source:
    """A node of the model.

    Attributes:
        name: name of the node.
        reads: values that it reads, by their names in the graph.
        outputs: values that it defines.
        parts: nodes of the graph that the import made from it.
        kind: "view" if it only moves data, "region" if a kernel can compute it, else "other".
    """

    name: str
    reads: tuple[str, ...]
    outputs: tuple[str, ...]
    parts: tuple[Node, ...]
    kind: str


def regions(
    graph: Graph, *, allowed: Container[str] | None = None, fewest: int = _FEWEST
) -> Iterator[Region]:
    """Yield the disjoint regions of a graph.

    Args:
        graph: a result of :func:`~eqsat_opt.runtime.backends.generated.typed.typed_graph`; without
            a model, all its values may be read.
        allowed: names of the nodes that may be computed; all by default.
        fewest: least number of nodes of a region.
    """
    return _Finder(graph, allowed).found(fewest)


class _Finder:
    def __init__(self, graph: Graph, allowed: Container[str] | None) -> None:
        self.graph = graph
        self.allowed = allowed
        self.sources = tuple(self._sources())
        self.producer = {name: source for source in self.sources for name in source.outputs}
        self.readers: dict[str, list[_Source]] = defaultdict(list)
        for source in self.sources:
            for name in source.reads:
                self.readers[name].append(source)

    def found(self, fewest: int) -> Iterator[Region]:
        for group in self._shallow(self._connected(self._levels())):
            if len(group) >= fewest:
                try:
                    yield self._region(group)
                except Unfit:
                    continue

    def _region(self, group: Sequence[_Source]) -> Region:
        names = frozenset(source.name for source in group)
        outputs = tuple(
            name for source in group for name in source.outputs if self._is_needed(name, names)
        )
        views = self._views(group)
        wanted = {id(part) for source in (*group, *views) for part in source.parts}
        nodes = [node for node in self.graph.nodes if id(node) in wanted]
        kernel, inputs, begins = lowered(self.graph, nodes, outputs)
        if not inputs or any(not self._is_of_model(name) for name in inputs):
            raise Unfit("it reads what the model does not have")
        once = sum(
            self._size(part.output) * (_LOADS + getattr(FUNCTIONS.get(part.op), "work", 1))
            for source in group
            for part in source.parts
        )
        if kernel.work > _REPEATED * once:
            raise Unfit("too much would be computed again and again")
        return Region(
            tuple(source.name for source in group),
            inputs,
            begins,
            outputs,
            kernel=kernel,
            views=tuple(source.name for source in views),
        )

    def _is_of_model(self, name: str) -> bool:
        """Return whether a value exists in the model; the import adds constants of its own."""
        if name not in self.graph.constants:
            return True
        model = self.graph.model
        return model is None or name in model.graph.initializers

    def _size(self, name: str) -> int:
        type_ = self.graph.tensor_type(name)
        return type_.size if isinstance(type_, StaticType) else 0

    def _sources(self) -> Iterator[_Source]:
        """Yield the nodes of the model, in order."""
        groups: dict[str, list[Node]] = {}
        for i, node in enumerate(self.graph.nodes):
            name = node.sources[0] if len(node.sources) == 1 else f"eqsat_opt.{i}"
            groups.setdefault(name, []).append(node)
        for name, parts in groups.items():
            made = {output for part in parts for output in part.outputs if output}
            reads = dict.fromkeys(r for part in parts for r in part.reads if r not in made)
            kind = "other"
            is_allowed = self.allowed is None or name in self.allowed
            if is_allowed and all(map(self._is_float, (*made, *reads))):
                if all(part.op in _VIEWS for part in parts):
                    kind = "view"
                elif all(part.op in _COMPUTED and len(part.inputs) <= MOST_PARTS for part in parts):
                    kind = "region"
            yield _Source(name, tuple(reads), tuple(sorted(made)), tuple(parts), kind=kind)

    def _is_float(self, name: str) -> bool:
        type_ = self.graph.tensor_type(name)
        return type_ is not None and type_.dtype == "float32" and self._size(name) > 0

    def _levels(self) -> dict[str, int]:
        """Return the level of each node by its name."""
        levels: dict[str, int] = {}
        for source in self.sources:
            above = [(name, self.producer[name]) for name in source.reads if name in self.producer]
            levels[source.name] = max(
                (levels[one.name] + self._is_border(source, name, one) for name, one in above),
                default=0,
            )
        for source in reversed(self.sources):
            if source.kind == "view" or (
                source.kind == "region" and self._is_first(source, levels)
            ):
                levels[source.name] = self._latest(source, levels)
        return levels

    def _is_first(self, source: _Source, levels: Mapping[str, int]) -> bool:
        """Return whether a node reads no region node of its level, so that it may move later."""
        above = (self._behind_views(self.producer.get(name)) for name in source.reads)
        return not any(
            one is not None and one.kind == "region" and levels[one.name] == levels[source.name]
            for one in above
        )

    def _latest(self, source: _Source, levels: Mapping[str, int]) -> int:
        """Return the level at which the readers first need a node.

        It is the node's own level if it is pinned, or if a node that no kernel computes reads it.
        """
        own = levels[source.name]
        if any(name in self.graph.pinned for name in source.outputs):
            return own
        readers = [(name, one) for name in source.outputs for one in self.readers[name]]
        if source.kind == "region" and any(one.kind == "other" for _, one in readers):
            return own
        needed = (levels[one.name] - self._is_border(one, name, source) for name, one in readers)
        return min(needed, default=own)

    def _is_border(self, source: _Source, name: str, above: _Source) -> bool:
        """Return whether a value has to be computed before the node that reads it."""
        if above.kind == "other":
            return True
        if source.kind == "other" or any(part.op in _JOINS for part in source.parts):
            return False
        widest = max(self._size(part.output) for part in source.parts)
        first = self._behind_views(above)
        return widest > self._size(name) and first is not None and first.kind == "region"

    def _behind_views(self, source: _Source | None) -> _Source | None:
        """Return the node that computes the data of a view, or the node; ``None`` for an input."""
        while source is not None and source.kind == "view":
            source = self.producer.get(source.reads[0])
        return source

    def _connected(self, levels: Mapping[str, int]) -> Iterator[list[_Source]]:
        """Yield groups of nodes of one level that read one another, directly or through views."""
        group: dict[str, list[_Source]] = {}
        for source in self.sources:
            if source.kind == "other":
                continue
            group[source.name] = [source]
            for name in source.reads:
                above = self.producer.get(name)
                if above is None or above.name not in group:
                    continue
                mine, other = group[source.name], group[above.name]
                if levels[above.name] == levels[source.name] and other is not mine:
                    other.extend(mine)
                    group.update((one.name, other) for one in mine)
        order = {source.name: i for i, source in enumerate(self.sources)}
        for members in {id(members): members for members in group.values()}.values():
            computed = [one for one in members if one.kind == "region"]
            yield sorted(computed, key=lambda one: order[one.name])

    def _shallow(self, groups: Iterable[Sequence[_Source]]) -> Iterator[list[_Source]]:
        """Yield the groups, with long chains split into consecutive parts."""
        depth: dict[str, int] = {}
        for source in self.sources:
            above = (self.producer.get(name) for name in source.reads)
            known = (depth[one.name] for one in above if one is not None and one.kind != "other")
            depth[source.name] = 1 + max(known, default=0)
        for group in groups:
            first = min((depth[one.name] for one in group), default=0)
            bands: dict[int, list[_Source]] = defaultdict(list)
            for source in group:
                bands[(depth[source.name] - first) // _DEEPEST].append(source)
            yield from bands.values()

    def _is_needed(self, name: str, names: frozenset[str]) -> bool:
        """Return whether a value is pinned, or read outside a region, also through views."""
        left = [name]
        while left:
            one = left.pop()
            if one in self.graph.pinned:
                return True
            for reader in self.readers[one]:
                if reader.kind == "view":
                    left += reader.outputs
                elif reader.name not in names:
                    return True
        return False

    def _views(self, group: Sequence[_Source]) -> list[_Source]:
        """Return the nodes that move data to the nodes of a group."""
        found: dict[str, _Source] = {}
        left = [name for source in group for name in source.reads]
        while left:
            above = self.producer.get(left.pop())
            if above is not None and above.kind == "view" and above.name not in found:
                found[above.name] = above
                left += above.reads
        return list(found.values())
