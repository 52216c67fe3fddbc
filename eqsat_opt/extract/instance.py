"""The scalar DAG-cost problem that the algorithms work on, as plain lists for inner loops.

An *option* is one e-node with its cheapest implementation; in `paths.instance`, where limits or a
critical path matter, each implementation is an option.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import rustworkx as rx

from eqsat_opt.extract.problem import FloatArray, IntArray, Problem

__all__ = [
    "Instance",
    "active_classes",
    "children_of",
    "closes_cycle",
    "dag_cost",
    "from_problem",
    "from_rows",
    "options_by_class",
    "possible_classes",
    "strong_components",
]

Children = Sequence[Sequence[int]]


@dataclass(frozen=True, eq=False)
class Instance:
    """The problem to choose one option for each needed class, acyclic, at the least total cost.

    Attributes:
        members: options of each class.
        option_class: class of each option.
        children: distinct child classes of each option, ascending.
        cost: cost of each option, not negative.
        roots: classes that every solution contains.
        class_ids: the problem's number of each class.
        option_ids: the problem's row of `impl_cost` of each option.
    """

    members: list[list[int]]
    option_class: list[int]
    children: list[tuple[int, ...]]
    cost: list[float]
    roots: tuple[int, ...]
    class_ids: list[int]
    option_ids: list[int]

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.members)

    @property
    def n_options(self) -> int:
        """Number of options."""
        return len(self.option_class)

    def evaluate(self, choice: Sequence[int]) -> float:
        """Return a choice's DAG cost; the choice is `[n_classes]` (-1: none).

        The cost is infinite if the choice is incomplete or cyclic.
        """
        return dag_cost(self.children, self.cost, choice, self.roots)

    def trivial_bound(self) -> float:
        """Return the cost of the cheapest options of the roots, which every solution pays."""
        return math.fsum(min(self.cost[i] for i in self.members[c]) for c in self.roots)

    def shape(self) -> tuple[object, ...]:
        """Return a key that is independent of the problem's numbers of classes and options."""
        return (
            tuple(self.option_class),
            tuple(self.children),
            tuple(self.cost),
            self.roots,
        )


def from_problem(problem: Problem, cost: FloatArray) -> Instance:
    """Build the instance of a problem; an infinite `cost [n_implementations]` forbids."""
    rows = problem.cheapest(cost)
    return from_rows(problem, cost, rows[np.isfinite(cost[rows])])


def from_rows(problem: Problem, cost: FloatArray, rows: IntArray) -> Instance:
    """Build the instance with some rows of `cost [n_implementations]` as its options."""
    nodes: list[int] = problem.implementation_node()[rows].tolist()
    option_class: list[int] = problem.node_class[nodes].tolist()
    return Instance(
        members=options_by_class(option_class, problem.n_classes),
        option_class=option_class,
        children=children_of(problem, nodes),
        cost=cost[rows].tolist(),
        roots=problem.roots,
        class_ids=list(range(problem.n_classes)),
        option_ids=rows.tolist(),
    )


def children_of(problem: Problem, nodes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the distinct child classes of some e-nodes, ascending."""
    bounds, flat = problem.child_ptr.tolist(), problem.child_ix.tolist()
    return [tuple(sorted(set(flat[bounds[n] : bounds[n + 1]]))) for n in nodes]


def options_by_class(option_class: Sequence[int], n_classes: int) -> list[list[int]]:
    """Return the options of each class, from the class of each option."""
    members: list[list[int]] = [[] for _ in range(n_classes)]
    for option, cls in enumerate(option_class):
        members[cls].append(option)
    return members


def possible_classes(members: Children, children: Children, roots: Iterable[int]) -> set[int]:
    """Return the classes that the roots need under some choice."""
    seen = set(roots)
    stack = list(seen)
    while stack:
        for i in members[stack.pop()]:
            for d in children[i]:
                if d not in seen:
                    seen.add(d)
                    stack.append(d)
    return seen


def active_classes(
    children: Children, choice: Sequence[int], roots: Iterable[int]
) -> list[int] | None:
    """Return the classes that a choice needs, children first; None if incomplete or cyclic."""
    order: list[int] = []
    state = bytearray(len(choice))  # 1: entered, 2: left
    for root in roots:
        if state[root]:
            continue
        stack = [root]
        while stack:
            cls = stack[-1]
            if state[cls]:
                stack.pop()
                if state[cls] == 1:
                    state[cls] = 2
                    order.append(cls)
                continue
            if choice[cls] < 0:
                return None
            state[cls] = 1
            for child in children[choice[cls]]:
                if state[child] == 1:
                    return None
                if state[child] == 0:
                    stack.append(child)
    return order


def closes_cycle(children: Children, chosen: Sequence[int], cls: int, option: int) -> bool:
    """Return whether an option needs its own class, given the other choices (-1: none)."""
    seen: set[int] = set()
    stack = list(children[option])
    while stack:
        d = stack.pop()
        if d == cls:
            return True
        if d not in seen:
            seen.add(d)
            if chosen[d] >= 0:
                stack.extend(children[chosen[d]])
    return False


def dag_cost(
    children: Children, cost: Sequence[float], choice: Sequence[int], roots: Iterable[int]
) -> float:
    """Return a choice's cost, each needed class paid once; infinite if incomplete or cyclic."""
    order = active_classes(children, choice, roots)
    return math.inf if order is None else math.fsum(cost[choice[c]] for c in order)


def strong_components(members: Sequence[Sequence[int]], children: Children) -> list[int]:
    """Return the strongly connected component of each class in the class graph.

    Components are numbered with children before parents.
    """
    graph: rx.PyDiGraph[None, None] = rx.PyDiGraph(multigraph=False)
    graph.add_nodes_from([None] * len(members))
    graph.extend_from_edge_list(
        [(c, d) for c, options in enumerate(members) for i in options for d in children[i]]
    )
    component = [0] * len(members)
    for number, classes in enumerate(rx.strongly_connected_components(graph)):
        for cls in classes:
            component[cls] = number
    return component
