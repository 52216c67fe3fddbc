"""The extraction problem: an e-graph with priced implementations as immutable CSR arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract.objective import Objective

__all__ = ["FloatArray", "IntArray", "Problem", "ProblemBuilder"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Problem:
    """The problem to choose one e-node and one implementation for every class that the roots need.

    Attributes:
        n_classes: number of e-classes; classes are the integers below it.
        node_class: `[n_nodes]`, the class of each e-node.
        child_ptr: `[n_nodes + 1]`, row pointers into `child_ix`.
        child_ix: `[n_edges]`, the child classes of each e-node.
        impl_ptr: `[n_nodes + 1]`, row pointers into `impl_cost`; no row is empty.
        impl_cost: `[n_implementations, n_metrics]`, non-negative and finite.
        metrics: names of the columns of `impl_cost`.
        roots: the classes that must be computed; duplicates are dropped.
        peaks: metrics whose value for a solution is the largest of one implementation, not the sum,
            such as workspace that is freed again; an objective may only cap them.

    The arrays are copied and made read-only.

    Raises:
        ExtractionError: an array has the wrong shape, a child or root does not exist, a root has no
            e-node, an e-node has no implementation, or a cost is negative or not finite.
    """

    n_classes: int
    node_class: IntArray
    child_ptr: IntArray
    child_ix: IntArray
    impl_ptr: IntArray
    impl_cost: FloatArray
    metrics: tuple[str, ...]
    roots: tuple[int, ...]
    peaks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("node_class", "child_ptr", "child_ix", "impl_ptr"):
            self._freeze(name, np.int64)
        self._freeze("impl_cost", np.float64)
        object.__setattr__(self, "metrics", tuple(self.metrics))
        object.__setattr__(self, "peaks", tuple(self.peaks))
        object.__setattr__(self, "roots", tuple(dict.fromkeys(int(r) for r in self.roots)))
        self._validate_shapes()
        self._validate_values()

    def _freeze(self, name: str, dtype: type[Any]) -> None:
        array = np.array(getattr(self, name), dtype=dtype)
        array.setflags(write=False)
        object.__setattr__(self, name, array)

    def _validate_shapes(self) -> None:
        if self.node_class.ndim != 1 or self.child_ix.ndim != 1:
            raise ExtractionError("node_class and child_ix must be one-dimensional")
        if self.impl_cost.ndim != 2 or self.impl_cost.shape[1] != len(self.metrics):
            raise ExtractionError(
                f"impl_cost has shape {self.impl_cost.shape}; give one column for each of the "
                f"{len(self.metrics)} metrics"
            )
        if not self.metrics or len(set(self.metrics)) != len(self.metrics):
            raise ExtractionError("metrics must be one or more distinct names")
        for name in self.peaks:
            if name not in self.metrics:
                raise ExtractionError(f"{name} is a peak, but no metric of the problem")
        for name, pointers, end in (
            ("child_ptr", self.child_ptr, len(self.child_ix)),
            ("impl_ptr", self.impl_ptr, len(self.impl_cost)),
        ):
            if (
                pointers.shape != (self.n_nodes + 1,)
                or pointers[0] != 0
                or pointers[-1] != end
                or bool((np.diff(pointers) < 0).any())
            ):
                raise ExtractionError(
                    f"{name} must rise from 0 to {end} in {self.n_nodes + 1} steps"
                )

    def _validate_values(self) -> None:
        _first_bad(
            (self.node_class < 0) | (self.node_class >= self.n_classes),
            "e-node {} lies in a class that does not exist; add the class first",
        )
        dangling = (self.child_ix < 0) | (self.child_ix >= self.n_classes)
        if dangling.any():
            edge = int(np.flatnonzero(dangling)[0])
            node = int(np.searchsorted(self.child_ptr, edge, side="right")) - 1
            raise ExtractionError(
                f"e-node {node} has child class {int(self.child_ix[edge])}, which does not exist; "
                f"classes are 0 to {self.n_classes - 1}"
            )
        _first_bad(
            np.diff(self.impl_ptr) == 0,
            "e-node {} has no implementation; price it or leave it out",
        )
        bad = ~np.isfinite(self.impl_cost) | (self.impl_cost < 0)
        if bad.any():
            row, column = (int(i) for i in np.argwhere(bad)[0])
            node = int(np.searchsorted(self.impl_ptr, row, side="right")) - 1
            raise ExtractionError(
                f"e-node {node} costs {self.impl_cost[row, column]} {self.metrics[column]}; "
                "costs must be finite and not negative"
            )
        if not self.roots:
            raise ExtractionError("the problem has no root; name at least one class to compute")
        populated = np.zeros(self.n_classes, dtype=bool)
        populated[self.node_class] = True
        for root in self.roots:
            if not 0 <= root < self.n_classes:
                raise ExtractionError(
                    f"root class {root} does not exist; classes are 0 to {self.n_classes - 1}"
                )
            if not populated[root]:
                raise ExtractionError(f"root class {root} has no e-node, so it cannot be computed")

    @property
    def n_nodes(self) -> int:
        """Number of e-nodes."""
        return len(self.node_class)

    @property
    def n_implementations(self) -> int:
        """Number of implementations, all e-nodes together."""
        return len(self.impl_cost)

    def children(self, node: int) -> list[int]:
        """Return the child classes of one e-node, as given (order and repeats kept)."""
        begin, end = self.child_ptr[node], self.child_ptr[node + 1]
        return [int(c) for c in self.child_ix[begin:end]]

    def row(self, node: int, implementation: int) -> int:
        """Return the row of `impl_cost` of an e-node's implementation with this number."""
        return int(self.impl_ptr[node]) + implementation

    def implementation_node(self) -> IntArray:
        """Return the e-node that each row of `impl_cost` belongs to, `[n_implementations]`."""
        return np.repeat(np.arange(self.n_nodes, dtype=np.int64), np.diff(self.impl_ptr))

    def scalar(self, objective: Objective) -> tuple[FloatArray, IntArray]:
        """Return the cheapest implementation of each e-node under the linear part of the objective.

        Returns:
            `cost [n_nodes]` and `impl [n_nodes]`, the implementation's number within its e-node;
            the first one wins a tie.
        """
        cost = self.impl_cost @ objective.vector(self.metrics)
        best = self.cheapest(cost)
        return cost[best], best - self.impl_ptr[:-1]

    def cheapest(self, cost: FloatArray) -> IntArray:
        """Return each e-node's row of `impl_cost` with the least `cost [n_implementations]`."""
        if self.n_nodes == 0:
            return np.zeros(0, dtype=np.int64)
        owner = self.implementation_node()
        hits = np.flatnonzero(cost == np.minimum.reduceat(cost, self.impl_ptr[:-1])[owner])[::-1]
        best = np.empty(self.n_nodes, dtype=np.int64)
        best[owner[hits]] = hits  # assigned from last to first, so the first hit stays
        return best

    def __repr__(self) -> str:
        """Return one line with the sizes, because the arrays would fill the screen."""
        return (
            f"Problem({self.n_classes} classes, {self.n_nodes} e-nodes, "
            f"{self.n_implementations} implementations, {len(self.roots)} roots, "
            f"metrics={', '.join(self.metrics)})"
        )


def _first_bad(bad: npt.NDArray[np.bool_], message: str) -> None:
    if bad.any():
        raise ExtractionError(message.format(int(np.flatnonzero(bad)[0])))


class ProblemBuilder:
    """Builder of a `Problem` from classes and e-nodes that are added one by one."""

    def __init__(self, metrics: Sequence[str]) -> None:
        self._metrics = tuple(metrics)
        self._n_classes = 0
        self._node_class: list[int] = []
        self._child_ptr = [0]
        self._child_ix: list[int] = []
        self._impl_ptr = [0]
        self._impl_cost: list[tuple[float, ...]] = []

    def add_class(self) -> int:
        """Add an empty class and return its number."""
        self._n_classes += 1
        return self._n_classes - 1

    def add_node(
        self, cls: int, children: Iterable[int] = (), costs: Iterable[Sequence[float]] = ()
    ) -> int:
        """Add an e-node to a class and return its number.

        Args:
            cls: class that the e-node belongs to.
            children: child classes; they may be added later.
            costs: one row for each implementation, with one number for each metric.

        Raises:
            ExtractionError: a row has the wrong length. Everything else is checked by `build`.
        """
        rows = [tuple(float(x) for x in row) for row in costs]
        for row in rows:
            if len(row) != len(self._metrics):
                raise ExtractionError(
                    f"an implementation has {len(row)} costs; give one for each of "
                    f"{', '.join(self._metrics)}"
                )
        self._node_class.append(cls)
        self._child_ix.extend(children)
        self._child_ptr.append(len(self._child_ix))
        self._impl_cost.extend(rows)
        self._impl_ptr.append(len(self._impl_cost))
        return len(self._node_class) - 1

    def build(self, roots: Iterable[int]) -> Problem:
        """Freeze the classes and e-nodes that were added.

        Raises:
            ExtractionError: see `Problem`.
        """
        return Problem(
            n_classes=self._n_classes,
            node_class=np.array(self._node_class, dtype=np.int64),
            child_ptr=np.array(self._child_ptr, dtype=np.int64),
            child_ix=np.array(self._child_ix, dtype=np.int64),
            impl_ptr=np.array(self._impl_ptr, dtype=np.int64),
            impl_cost=np.array(self._impl_cost, dtype=np.float64).reshape(-1, len(self._metrics)),
            metrics=self._metrics,
            roots=tuple(roots),
        )
