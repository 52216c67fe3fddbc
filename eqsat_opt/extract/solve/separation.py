"""Rows that a solution of the relaxation violates, found by minimum cuts.

Nested cuts, back cuts and creep flow as in Koch and Martin, "Solving Steiner Tree Problems in
Graphs to Optimality" (Networks 1998, section 4) give many different rows from each solution.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from eqsat_opt.extract.instance import Instance, strong_components
from eqsat_opt.extract.problem import FloatArray, IntArray
from eqsat_opt.extract.solve.relaxation import ChildArrays, Mask

__all__ = ["Separator"]

_UNIT = 10**6  # capacity of a whole option in the integer flow network
_VIOLATED = 1e-3  # least violation of a new row
_NEEDED = 0.2  # classes that are needed more than this are targets
_TARGETS, _ROOTS = 12, 4  # needed classes and roots that are targets in one round
_NESTED = 6  # greatest number of cuts behind each other for one target


class Separator:
    """The flow network of the options: an arc from one child of each option to its class.

    The child is chosen anew for each target: any choice finds valid sets. The child that is needed
    least finds violated ones, and one on a cycle finds those that break cycles.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._n = instance.n_classes
        self._option_class = np.array(instance.option_class, dtype=np.int64)
        self._children = ChildArrays(instance)

    def violated(self, taken: FloatArray, rng: random.Random) -> list[tuple[Mask, int]]:
        """Return sets with their targets, from few targets; none only after all have been tried."""
        need = np.bincount(self._option_class, weights=taken, minlength=self._n).astype(np.float64)
        needed = np.flatnonzero(need > _NEEDED).tolist()
        roots = list(self._instance.roots)
        targets = rng.sample(roots, min(len(roots), _ROOTS))
        targets += rng.sample(needed, min(len(needed), _TARGETS))
        key = need[self._children.flat]
        found = self._for_targets(targets, taken, need, key, rng=rng, nested=_NESTED)
        if not found:
            targets = rng.sample(needed, len(needed))
            found = self._for_targets(targets, taken, need, key, rng=rng, nested=1)
        if not found:
            key = key - 2.0 * self._on_cycle(taken)
            found = self._for_targets(targets, taken, need, key, rng=rng, nested=1)
        return found

    def _on_cycle(self, taken: FloatArray) -> Mask:
        """Return the edges within a strongly connected component of taken options, `[n_edges]`."""
        children = self._instance.children
        support = [[i for i in m if taken[i] > _VIOLATED] for m in self._instance.members]
        component = np.array(strong_components(support, children), dtype=np.int64)
        above = self._option_class[self._children.owner]
        same: Mask = component[above] == component[self._children.flat]
        return same

    def _for_targets(
        self,
        targets: Sequence[int],
        taken: FloatArray,
        need: FloatArray,
        key: FloatArray,
        rng: random.Random,
        nested: int,
    ) -> list[tuple[Mask, int]]:
        found: dict[tuple[bytes, int], tuple[Mask, int]] = {}
        noise = np.random.default_rng(rng.getrandbits(32))
        for target in dict.fromkeys(targets):
            child = self._children.first_least(key + noise.random(len(key)) * 1e-7, self._n)
            # One extra unit on each arc selects, among all smallest cuts, the one with the fewest
            # arcs.
            capacity = (taken * _UNIT).astype(np.int64) + 1
            for _ in range(nested):
                sides = self._cut(child, capacity, target)
                if sides is None:
                    break
                before = len(found)
                for inside in sides:
                    if inside[target] and self._flow(inside, taken) < need[target] - _VIOLATED:
                        found.setdefault((inside.tobytes(), target), (inside, target))
                if len(found) == before:
                    break
                # The next cut must be behind this one.
                outside = np.append(~sides[0], True)
                crossing = outside[child] & ~outside[self._option_class]
                capacity = np.where(crossing, _UNIT, capacity)
            if nested == 1 and len(found) >= _TARGETS:
                break
        return list(found.values())

    def _flow(self, inside: Mask, taken: FloatArray) -> float:
        return float(taken[self._children.leaving(inside)].sum())

    def _cut(self, child: IntArray, capacity: IntArray, target: int) -> tuple[Mask, Mask] | None:
        """Return the classes on the target's side of a minimum cut: the most and the fewest."""
        from ortools.graph.python import max_flow

        flow = max_flow.SimpleMaxFlow()
        flow.add_arcs_with_capacity(child, self._option_class, capacity)
        if flow.solve(self._n, target) != flow.OPTIMAL:
            return None
        far = np.ones(self._n + 1, dtype=bool)
        far[flow.get_source_side_min_cut()] = False
        near = np.zeros(self._n + 1, dtype=bool)
        near[flow.get_sink_side_min_cut()] = True
        return far[: self._n], near[: self._n]
