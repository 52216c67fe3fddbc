"""Linear-time simplification: impossible and needless options, and forced classes.

Each rule keeps at least one optimal solution, on cyclic graphs too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from eqsat_opt.extract.problem import IntArray
from eqsat_opt.extract.simplify.draft import BoolArray, InstanceDraft, pointers

__all__ = [
    "Settled",
    "contract",
    "drop_duplicates",
    "drop_impossible",
    "drop_unreachable",
    "force",
    "settle_free",
]

_EXTRA_EDGES = 4  # greatest number of edges that a contraction may add


@dataclass
class Settled:
    """Decisions collected by the rules.

    Attributes:
        option: class to option, in the problem's numbers.
        costs: costs of the decided classes that every solution pays.
    """

    option: dict[int, int] = field(default_factory=dict)
    costs: list[float] = field(default_factory=list)

    def decide(self, classes: IntArray, options: IntArray) -> None:
        """Record an option for each class."""
        self.option.update(zip(classes.tolist(), options.tolist(), strict=True))


def drop_impossible(draft: InstanceDraft) -> InstanceDraft | None:
    """Drop options that no acyclic choice can contain; None if a forced class has no other."""
    loops = draft.option_class[draft.edge_option] == draft.child_ix
    allowed = np.ones(draft.n_options, dtype=bool)
    allowed[draft.edge_option[loops]] = False
    first = derivable(draft, allowed)
    if (first[draft.forced] < 0).any():
        return None
    missing = first[draft.child_ix] < 0
    allowed[draft.edge_option[missing]] = False
    return draft.with_options(allowed)


def derivable(draft: InstanceDraft, allowed: BoolArray) -> IntArray:
    """Return an allowed option of each class, `[n_classes]`; -1 if no acyclic choice has one.

    The options form no cycle.
    """
    first = [-1] * draft.n_classes
    option_class = draft.option_class.tolist()
    users, bounds = (a.tolist() for a in draft.users)
    degree = np.diff(draft.child_ptr)
    missing = np.where(allowed, degree, degree + 1).tolist()  # a forbidden option stays unready
    ready: list[int] = np.flatnonzero(allowed & (degree == 0)).tolist()
    for option in ready:  # grows while it runs
        c = option_class[option]
        if first[c] >= 0:
            continue
        first[c] = option
        for user in users[bounds[c] : bounds[c + 1]]:
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    return np.array(first, dtype=np.int64)


def settle_free(draft: InstanceDraft, settled: Settled) -> InstanceDraft:
    """Settle each class with a tree of cost 0: no choice elsewhere can make it cheaper."""
    first = derivable(draft, draft.cost == 0)
    free = first >= 0
    if not free.any():
        return draft
    settled.decide(draft.class_ids[free], draft.option_ids[first[free]])
    return _without(draft, free)


def _without(draft: InstanceDraft, gone: BoolArray) -> InstanceDraft:
    """Drop classes and all edges to them: they no longer cost anything."""
    draft = replace(draft, forced=draft.forced & ~gone)
    draft = draft.with_options(~gone[draft.option_class])
    return draft.with_edges(~gone[draft.child_ix])


def drop_unreachable(draft: InstanceDraft) -> InstanceDraft:
    """Drop classes that no forced class can need."""
    return draft.with_classes(draft.reached(draft.forced))


def drop_duplicates(draft: InstanceDraft) -> InstanceDraft:
    """Keep the cheapest of all options with the same class and children."""
    order, repeats = _same_as_before(draft)
    keep = np.ones(draft.n_options, dtype=bool)
    keep[order[repeats]] = False
    return draft.with_options(keep)


def _same_as_before(draft: InstanceDraft) -> tuple[IntArray, BoolArray]:
    """Sort options with equal children side by side, cheapest first; return also which repeat."""
    n = draft.n_options
    degree = np.diff(draft.child_ptr)
    key = np.random.default_rng(0).integers(2**63, size=draft.n_classes)[draft.child_ix]
    mark = np.zeros(n, dtype=np.int64)
    np.add.at(mark, draft.edge_option, key)  # wraps around, which does not matter
    order = np.lexsort((draft.cost, mark, degree, draft.option_class))
    repeats = np.zeros(n, dtype=bool)
    a, b = order[:-1], order[1:]
    repeats[1:] = (
        (draft.option_class[a] == draft.option_class[b])
        & (degree[a] == degree[b])
        & (mark[a] == mark[b])
    )
    # Equal sums of hashes are no proof: compare the children themselves.
    rows = np.flatnonzero(repeats)
    lengths = degree[order[rows]]
    offset = np.arange(int(lengths.sum())) - np.repeat(pointers(lengths)[:-1], lengths)
    left = draft.child_ix[np.repeat(draft.child_ptr[order[rows - 1]], lengths) + offset]
    right = draft.child_ix[np.repeat(draft.child_ptr[order[rows]], lengths) + offset]
    repeats[np.repeat(rows, lengths)[left != right]] = False
    return order, repeats


def force(draft: InstanceDraft, settled: Settled) -> InstanceDraft:
    """Find classes that every solution has, and stop paying for them in child lists.

    An edge to a forced class matters only for acyclicity, so only within a strongly connected
    component. A forced class with one option and no child left is decided.
    """
    tails, _, uses = draft.class_edges
    forced = draft.reached(draft.forced, uses == draft.members[tails])
    component = draft.component
    inside = component[draft.option_class[draft.edge_option]] == component[draft.child_ix]
    draft = replace(draft, forced=forced).with_edges(inside | ~forced[draft.child_ix])
    alone = forced & (draft.members == 1)
    options = draft.class_ptr[:-1][alone]
    childless = draft.child_ptr[options] == draft.child_ptr[options + 1]
    if not childless.any():
        return draft
    options, classes = options[childless], np.flatnonzero(alone)[childless]
    settled.decide(draft.class_ids[classes], draft.option_ids[options])
    settled.costs.extend(draft.cost[options].tolist())
    gone = np.zeros(draft.n_classes, dtype=bool)
    gone[classes] = True
    return _without(draft, gone)


def contract(draft: InstanceDraft, settled: Settled) -> InstanceDraft:
    """Put a class with one option into the options that use it, if these are all of one class.

    Only one of these can be chosen, so the class is paid once. It is decided for the case that it
    is needed.
    """
    _, heads, uses = draft.class_edges
    users = np.bincount(heads, minlength=draft.n_classes)
    spread = np.zeros(draft.n_classes, dtype=np.int64)
    spread[heads] = uses
    degree = np.diff(draft.child_ptr)
    first = np.minimum(draft.class_ptr[:-1], max(draft.n_options - 1, 0))
    growth = spread * (degree[first] - 1) - degree[first] if draft.n_options else spread
    candidates = (users == 1) & (draft.members == 1) & ~draft.forced & (growth <= _EXTRA_EDGES)
    if not candidates.any():
        return draft
    order = np.flatnonzero(candidates)
    order = order[np.argsort(draft.component[order], kind="stable")]
    work = _Contraction(draft, first.tolist())
    for c in order.tolist():
        work.dissolve(c)
    settled.decide(draft.class_ids[order], draft.option_ids[first[order]])
    return work.result(~candidates)


class _Contraction:
    """Child sets and costs of the options that absorbed a class."""

    def __init__(self, draft: InstanceDraft, first: list[int]) -> None:
        self.draft, self.first = draft, first
        self.flat, self.ptr = draft.child_ix.tolist(), draft.child_ptr.tolist()
        self.users, self.user_ptr = (a.tolist() for a in draft.users)
        self.cost = draft.cost.tolist()
        self.changed: dict[int, set[int]] = {}
        self.heirs: dict[int, list[int]] = {}  # options that absorbed a parent of the class

    def dissolve(self, c: int) -> None:
        """Move the only option of a class into its users."""
        option = self.first[c]
        taken = self._children(option)
        direct = self.users[self.user_ptr[c] : self.user_ptr[c + 1]]
        for i in (*direct, *self.heirs.get(c, ())):
            children = self._children(i)
            if c in children:
                self.changed[i] = (children - {c}) | taken
                self.cost[i] += self.cost[option]
                for d in taken:
                    self.heirs.setdefault(d, []).append(i)

    def _children(self, option: int) -> set[int]:
        known = self.changed.get(option)
        return set(self.flat[self.ptr[option] : self.ptr[option + 1]]) if known is None else known

    def result(self, kept_classes: BoolArray) -> InstanceDraft:
        """Return the draft with the new child sets, without the dissolved classes."""
        old = self.draft
        degree = np.diff(old.child_ptr)
        rows = np.array(sorted(self.changed), dtype=np.int64)
        untouched = np.ones(old.n_options, dtype=bool)
        untouched[rows] = False
        degree[rows] = [len(self.changed[i]) for i in rows.tolist()]
        child_ptr = pointers(degree)
        child_ix = np.empty(int(child_ptr[-1]), dtype=np.int64)
        stays = np.repeat(untouched, degree)
        child_ix[stays] = old.child_ix[untouched[old.edge_option]]
        child_ix[~stays] = [d for i in rows.tolist() for d in sorted(self.changed[i])]
        draft = replace(
            old,
            child_ptr=child_ptr,
            child_ix=child_ix,
            cost=np.array(self.cost, dtype=np.float64),
        )
        return draft.with_classes(kept_classes)
