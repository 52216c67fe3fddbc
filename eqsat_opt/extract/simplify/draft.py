"""An instance as flat arrays, which the rules of simplification read and make."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt
import rustworkx as rx

from eqsat_opt.extract.instance import Instance, options_by_class
from eqsat_opt.extract.problem import FloatArray, IntArray

__all__ = ["BoolArray", "InstanceDraft", "sums"]

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class InstanceDraft:
    """Options in CSR form, in ascending order of their class.

    Attributes:
        option_class: `[n_options]`, ascending.
        child_ptr: `[n_options + 1]`, row pointers into `child_ix`.
        child_ix: `[n_edges]`, distinct child classes of each option, ascending.
        cost: `[n_options]`.
        forced: `[n_classes]`, classes that every solution contains and whose options are paid here.
        class_ids: `[n_classes]`, the problem's numbers.
        option_ids: `[n_options]`, the problem's numbers.
    """

    option_class: IntArray
    child_ptr: IntArray
    child_ix: IntArray
    cost: FloatArray
    forced: BoolArray
    class_ids: IntArray
    option_ids: IntArray

    @classmethod
    def of(cls, instance: Instance) -> InstanceDraft:
        """Build the arrays of an instance."""
        rows = np.array([i for m in instance.members for i in m], dtype=np.int64)
        children = [instance.children[i] for i in rows.tolist()]
        forced = np.zeros(instance.n_classes, dtype=bool)
        forced[list(instance.roots)] = True
        return cls(
            option_class=np.array(instance.option_class, dtype=np.int64)[rows],
            child_ptr=pointers(np.fromiter(map(len, children), np.int64, len(children))),
            child_ix=np.fromiter(chain.from_iterable(children), np.int64),
            cost=np.array(instance.cost, dtype=np.float64)[rows],
            forced=forced,
            class_ids=np.array(instance.class_ids, dtype=np.int64),
            option_ids=np.array(instance.option_ids, dtype=np.int64)[rows],
        )

    @property
    def n_classes(self) -> int:
        """Number of classes, those without options included."""
        return len(self.forced)

    @property
    def n_options(self) -> int:
        """Number of options."""
        return len(self.option_class)

    @property
    def size(self) -> tuple[int, int, int]:
        """Numbers of options, edges and forced classes: rules lower the first two, or the last."""
        return self.n_options, len(self.child_ix), int(self.forced.sum())

    @cached_property
    def members(self) -> IntArray:
        """`[n_classes]`, number of options of each class."""
        return np.bincount(self.option_class, minlength=self.n_classes)

    @cached_property
    def class_ptr(self) -> IntArray:
        """`[n_classes + 1]`: the options of class `c` are `class_ptr[c]` to `class_ptr[c + 1]`."""
        return pointers(self.members)

    @cached_property
    def edge_option(self) -> IntArray:
        """`[n_edges]`, the option that each edge belongs to."""
        return np.repeat(np.arange(self.n_options), np.diff(self.child_ptr))

    @cached_property
    def users(self) -> tuple[IntArray, IntArray]:
        """`[n_edges]` options by their child, and `[n_classes + 1]` row pointers."""
        order = np.argsort(self.child_ix, kind="stable")
        counts = np.bincount(self.child_ix, minlength=self.n_classes)
        return self.edge_option[order], pointers(counts)

    @cached_property
    def class_edges(self) -> tuple[IntArray, IntArray, IntArray]:
        """Class, child class and number of options with that child, for each pair once."""
        pairs, uses = np.unique(
            self.option_class[self.edge_option] * self.n_classes + self.child_ix, return_counts=True
        )
        return pairs // max(self.n_classes, 1), pairs % max(self.n_classes, 1), uses

    @cached_property
    def component(self) -> IntArray:
        """`[n_classes]`, strongly connected component; children's have smaller numbers."""
        return self._labels(rx.strongly_connected_components(self.graph))

    @cached_property
    def part(self) -> IntArray:
        """`[n_classes]`, connected component of the class graph without directions."""
        return self._labels(rx.weakly_connected_components(self.graph))

    @cached_property
    def graph(self) -> rx.PyDiGraph[None, None]:
        """The class graph; not to be changed."""
        tails, heads, _ = self.class_edges
        return self._graph(tails, heads)

    def _graph(self, tails: IntArray, heads: IntArray) -> rx.PyDiGraph[None, None]:
        graph: rx.PyDiGraph[None, None] = rx.PyDiGraph()
        graph.add_nodes_from([None] * self.n_classes)
        graph.extend_from_edge_list(list(zip(tails.tolist(), heads.tolist(), strict=True)))
        return graph

    def reached(self, start: BoolArray, chosen: BoolArray | None = None) -> BoolArray:
        """Return `start` and the classes reached from it by the chosen `class_edges`."""
        tails, heads, _ = self.class_edges
        graph = self.graph.copy() if chosen is None else self._graph(tails[chosen], heads[chosen])
        source = graph.add_node(None)
        graph.extend_from_edge_list([(source, c) for c in np.flatnonzero(start).tolist()])
        reached = start.copy()
        reached[list(rx.descendants(graph, source))] = True
        return reached

    def _labels(self, groups: Iterable[Iterable[int]]) -> IntArray:
        sizes: list[int] = []
        flat: list[int] = []
        for group in groups:
            before = len(flat)
            flat.extend(group)
            sizes.append(len(flat) - before)
        label = np.empty(self.n_classes, dtype=np.int64)
        label[flat] = np.repeat(np.arange(len(sizes)), sizes)
        return label

    def with_options(self, keep: BoolArray) -> InstanceDraft:
        """Return the draft with only the options to keep."""
        if keep.all():
            return self
        edges = keep[self.edge_option]
        return replace(
            self,
            option_class=self.option_class[keep],
            child_ptr=pointers(np.diff(self.child_ptr)[keep]),
            child_ix=self.child_ix[edges],
            cost=self.cost[keep],
            option_ids=self.option_ids[keep],
        )

    def with_edges(self, keep: BoolArray) -> InstanceDraft:
        """Return the draft with only the edges to keep."""
        if keep.all():
            return self
        left = np.bincount(self.edge_option[keep], minlength=self.n_options)
        return replace(self, child_ptr=pointers(left), child_ix=self.child_ix[keep])

    def with_classes(self, keep: BoolArray) -> InstanceDraft:
        """Return the draft with some classes only, renumbered; kept options must need no others."""
        if keep.all():
            return self
        number = np.cumsum(keep) - 1
        fewer = self.with_options(keep[self.option_class])
        return replace(
            fewer,
            option_class=number[fewer.option_class],
            child_ix=number[fewer.child_ix],
            forced=self.forced[keep],
            class_ids=self.class_ids[keep],
        )

    def children_lists(self) -> list[tuple[int, ...]]:
        """Return the children of each option as tuples, for loops that NumPy cannot do."""
        flat, bounds = self.child_ix.tolist(), self.child_ptr.tolist()
        return [tuple(flat[a:b]) for a, b in pairwise(bounds)]

    def member_ranges(self) -> list[range]:
        """Return the options of each class."""
        bounds = self.class_ptr.tolist()
        return [range(a, b) for a, b in pairwise(bounds)]

    def instances(self) -> list[Instance]:
        """Return one instance for each connected part that has a forced class."""
        order = np.lexsort((np.arange(self.n_classes), self.part))
        bounds = pointers(np.bincount(self.part)) if self.n_classes else pointers(order)
        position = np.empty(self.n_classes, dtype=np.int64)
        position[order] = np.arange(self.n_classes)
        number = position - bounds[self.part]  # within the part
        rows = np.argsort(position[self.option_class], kind="stable")
        tuples = self._with_children(number)
        parts = []
        option_bounds = pointers(self.members[order])[bounds].tolist()
        classes = bounds.tolist()
        flat = {
            "class": number[self.option_class[rows]].tolist(),
            "row": rows.tolist(),
            "class_ids": self.class_ids[order].tolist(),
            "option_ids": self.option_ids[rows].tolist(),
            "cost": self.cost[rows].tolist(),
            "forced": self.forced[order].tolist(),
        }
        for k in range(len(classes) - 1):
            a, b = classes[k], classes[k + 1]
            roots = tuple(c for c, is_forced in enumerate(flat["forced"][a:b]) if is_forced)
            if not roots:
                continue  # nothing needs it any more
            lo, hi = option_bounds[k], option_bounds[k + 1]
            option_class = flat["class"][lo:hi]
            parts.append(
                Instance(
                    members=options_by_class(option_class, b - a),
                    option_class=option_class,
                    children=[tuples[i] for i in flat["row"][lo:hi]],
                    cost=flat["cost"][lo:hi],
                    roots=roots,
                    class_ids=flat["class_ids"][a:b],
                    option_ids=flat["option_ids"][lo:hi],
                )
            )
        return parts

    def _with_children(self, number: IntArray) -> list[tuple[int, ...]]:
        return replace(self, child_ix=number[self.child_ix]).children_lists()


def pointers(counts: IntArray) -> IntArray:
    """Return row pointers of a CSR array from the number of entries in each row."""
    result = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=result[1:])
    return result


def sums(values: FloatArray, groups: IntArray, n_groups: int) -> FloatArray:
    """Return the sum of the values of each group, `[n_groups]`."""
    return np.bincount(groups, values, n_groups).astype(np.float64)  # integers without groups
