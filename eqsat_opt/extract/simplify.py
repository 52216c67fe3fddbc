"""Shrink an instance without losing every optimum, and split it into independent parts.

Cheap rules run first and until nothing changes; what they settle cuts the instance into connected
parts, and the rules that need necessity sets then work on each part alone, so their bit sets stay
short. Each rule keeps at least one optimal solution of the instance that it is applied to, on
cyclic graphs too; costs must not be negative. Rules that compare options compare every limited
metric.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import rustworkx as rx

from eqsat_opt.extract.greedy import cheapest_trees
from eqsat_opt.extract.instance import Instance, dag_cost, strong_components
from eqsat_opt.extract.necessity import bits, necessity, union

__all__ = ["Reduction", "simplify"]


@dataclass(frozen=True)
class Reduction:
    """What is left of an instance.

    Attributes:
        settled: class to option (numbers of the problem), already decided. A class that turns out
            not to be needed may be among them.
        cost: cost of the settled classes that every solution pays.
        load: what they use of each limited metric.
        parts: independent instances; their optima and `settled` make an optimum of the whole.
    """

    settled: Mapping[int, int]
    cost: float
    load: tuple[float, ...]
    parts: tuple[Instance, ...]


@dataclass
class _Settled:
    """Decisions collected over all parts."""

    option: dict[int, int] = field(default_factory=dict)
    costs: list[float] = field(default_factory=list)
    loads: list[tuple[float, ...]] = field(default_factory=list)


class _Draft:
    """Mutable copy of an instance while one round of rules runs over it."""

    def __init__(self, base: Instance) -> None:
        self.base = base
        self.members = [list(m) for m in base.members]
        self.children = list(base.children)
        self.forced = set(base.roots)

    def size(self) -> tuple[int, int, int]:
        """Options, edges and forced classes: rules only make the first two smaller."""
        alive = [i for m in self.members for i in m]
        return len(alive), sum(len(self.children[i]) for i in alive), len(self.forced)

    def keep(self, alive: bytearray) -> None:
        self.members = [[i for i in m if alive[i]] for m in self.members]

    def unlink(self, gone: bytearray) -> None:
        """Drop classes from all child lists; they no longer cost anything."""
        for m in self.members:
            for i in m:
                if any(gone[d] for d in self.children[i]):
                    self.children[i] = tuple(d for d in self.children[i] if not gone[d])


def simplify(
    instance: Instance, *, start: Mapping[int, int] | None = None, work: int = 6_000_000
) -> Reduction | None:
    """Apply all rules to a fixpoint.

    Args:
        instance: what to shrink.
        start: a known solution (class to option, numbers of the problem); where it covers a part,
            its cost prunes. Ignored under limits, since they couple the parts.
        work: rough count of elementary steps; when it is used up the remaining parts stay as they
            are.

    Returns:
        The reduction, or None when no acyclic choice computes the roots.
    """
    settled = _Settled()
    finished: list[Instance] = []
    queue = deque([instance])
    while queue:
        part = queue.popleft()
        draft = _Draft(part)
        size = draft.size()
        if not _cheap_rules(draft, settled):
            return None
        if draft.size() == size:
            if work > 0:
                work -= _deep_rules(draft, start, work)
            if draft.size() == size:
                finished.append(part)
                continue
        work -= sum(size)
        queue.extend(_split(draft))
    finished.sort(key=lambda part: part.class_ids[0])
    return Reduction(
        settled=settled.option,
        cost=math.fsum(settled.costs),
        load=tuple(
            math.fsum(load[k] for load in settled.loads)
            for k in range(len(instance.load[0]) if instance.load else 0)
        ),
        parts=tuple(finished),
    )


def _cheap_rules(draft: _Draft, settled: _Settled) -> bool:
    """Rules in linear time; False when a root cannot be computed."""
    base = draft.base
    # Costs and loads together, so that a tree is free only if it uses nothing that counts.
    weight = [c + sum(load) for c, load in zip(base.cost, base.load, strict=True)]
    value, choice = cheapest_trees(draft.members, base.option_class, draft.children, weight)
    if any(math.isinf(value[r]) for r in draft.forced):
        return False
    _drop_impossible(draft, value)
    _settle_free(draft, value, choice, settled)
    _drop_unreachable(draft)
    _drop_duplicates(draft)
    _force(draft, settled)
    return True


def _drop_impossible(draft: _Draft, value: list[float]) -> None:
    alive = bytearray(draft.base.n_options)
    for c, m in enumerate(draft.members):
        for i in m:
            ch = draft.children[i]
            alive[i] = c not in ch and not any(math.isinf(value[d]) for d in ch)
    draft.keep(alive)


def _settle_free(draft: _Draft, value: list[float], choice: list[int], settled: _Settled) -> None:
    """A class with a tree of cost 0 takes it: no choice elsewhere can make it cheaper."""
    free = bytearray(v == 0 for v in value)
    if not any(free):
        return
    base = draft.base
    for c, is_free in enumerate(free):
        if is_free and draft.members[c]:
            settled.option[base.class_ids[c]] = base.option_ids[choice[c]]
            draft.members[c] = []
            draft.forced.discard(c)
    draft.unlink(free)


def _drop_unreachable(draft: _Draft) -> None:
    seen = set(draft.forced)
    stack = list(seen)
    while stack:
        for i in draft.members[stack.pop()]:
            for d in draft.children[i]:
                if d not in seen:
                    seen.add(d)
                    stack.append(d)
    for c in range(len(draft.members)):
        if c not in seen:
            draft.members[c] = []


def _drop_duplicates(draft: _Draft) -> None:
    """Of options with the same class and children keep those that no other beats."""
    base = draft.base
    for c, m in enumerate(draft.members):
        if len(m) < 2:
            continue
        kept: dict[tuple[int, ...], list[int]] = {}
        for i in sorted(m, key=lambda i: (base.cost[i], base.load[i], i)):
            rivals = kept.setdefault(draft.children[i], [])
            if not any(_uses_no_more(base, j, i) for j in rivals):
                rivals.append(i)
        draft.members[c] = sorted(i for group in kept.values() for i in group)


def _uses_no_more(base: Instance, i: int, j: int) -> bool:
    return base.cost[i] <= base.cost[j] and all(
        a <= b for a, b in zip(base.load[i], base.load[j], strict=True)
    )


def _force(draft: _Draft, settled: _Settled) -> None:
    """Find classes that every solution has, and stop paying for them in child lists.

    An edge to a forced class matters only for acyclicity, so only within a strongly connected
    component. A forced class with one option and no child left is decided.
    """
    base, members, children, forced = draft.base, draft.members, draft.children, draft.forced
    stack = list(forced)
    while stack:
        m = members[stack.pop()]
        common = set(children[m[0]])
        for i in m[1:]:
            common.intersection_update(children[i])
        stack.extend(common - forced)
        forced |= common
    component = strong_components(members, children)
    for c, m in enumerate(members):
        for i in m:
            if any(d in forced and component[d] != component[c] for d in children[i]):
                children[i] = tuple(
                    d for d in children[i] if d not in forced or component[d] == component[c]
                )
    for c in sorted(forced):
        if len(members[c]) == 1 and not children[members[c][0]]:
            option = members[c][0]
            settled.option[base.class_ids[c]] = base.option_ids[option]
            settled.costs.append(base.cost[option])
            settled.loads.append(base.load[option])
            members[c] = []
            forced.remove(c)


def _deep_rules(draft: _Draft, start: Mapping[int, int] | None, work: int) -> int:
    """Rules that need necessity sets; returns the steps used.

    Reads the forced classes as free: `_force` has cut all edges to them from other components.
    """
    base, members, children = draft.base, draft.members, draft.children
    component = strong_components(members, children)
    order = sorted(range(len(members)), key=component.__getitem__)
    masks = necessity(members, children, order, work=work)
    if masks is None:
        return work
    n_options, n_edges, _ = draft.size()
    words = 1 + len(members) // 256
    used = words * (n_options + n_edges)
    below = {i: union(masks, children[i]) for m in members for i in m}
    alive = bytearray(b"\1") * base.n_options
    for c, m in enumerate(members):
        for i in m:
            if below[i] >> c & 1:
                alive[i] = 0  # needs its own class
    draft.keep(alive)
    for root in list(draft.forced):
        draft.forced.update(bits(masks[root]))
    used += _drop_dominated(draft, below, alive, words, work - used)
    if used < work and not any(base.load):
        used += _drop_dominated_by_trees(draft, below, alive, component, words, work - used)
        _drop_too_dear(draft, below, alive, start)
    return used


def _drop_dominated(
    draft: _Draft, below: Mapping[int, int], alive: bytearray, words: int, work: int
) -> int:
    """Drop A if a B of its class uses no more, and needs only what lies below A anyway.

    Below A means below its class too, so B cannot close a cycle.
    """
    base, used = draft.base, 0
    for m in draft.members:
        if len(m) < 2 or used + len(m) ** 2 * words > work:
            continue
        used += len(m) ** 2 * words
        wants = [(i, sum(1 << d for d in draft.children[i])) for i in m]
        wants.sort(key=lambda pair: (base.cost[pair[0]], pair[0]))
        for a, _ in reversed(wants):
            reach = ~below[a]
            for b, want in wants:
                if base.cost[b] > base.cost[a]:
                    break
                if b != a and alive[b] and not want & reach and _uses_no_more(base, b, a):
                    alive[a] = 0
                    break
    draft.keep(alive)
    return used


def _drop_dominated_by_trees(
    draft: _Draft,
    below: Mapping[int, int],
    alive: bytearray,
    component: list[int],
    words: int,
    work: int,
) -> int:
    """Drop A if B with whole trees for the children that A lacks costs no more.

    The trees must lie in other components, so that they cannot close a cycle. Trees end at forced
    classes, which are paid anyway. No option of a tree is dropped, so the trees stay valid while
    the rule runs.
    """
    base, used = draft.base, 0
    value, choice = cheapest_trees(
        draft.members, base.option_class, draft.children, base.cost, draft.forced
    )
    for c, m in enumerate(draft.members):
        if len(m) < 2 or used + len(m) ** 2 * words > work:
            continue
        used += len(m) ** 2 * words
        wants = [(i, sum(1 << d for d in draft.children[i])) for i in m]
        wants.sort(key=lambda pair: (base.cost[pair[0]], pair[0]))
        for a, _ in reversed(wants):
            if a == choice[c]:
                continue
            reach = ~below[a]
            for b, want in wants:
                room = base.cost[a] - base.cost[b]
                if room < 0:
                    break
                if b == a or not alive[b]:
                    continue
                for d in bits(want & reach):
                    room -= math.inf if component[d] == component[c] else value[d]
                    if room < 0:
                        break
                if room >= 0:
                    alive[a] = 0
                    break
    draft.keep(alive)
    return used


def _drop_too_dear(
    draft: _Draft, below: Mapping[int, int], alive: bytearray, start: Mapping[int, int] | None
) -> None:
    """Drop an option if the classes that it needs cost more than a known solution."""
    base, members, forced = draft.base, draft.members, draft.forced
    upper = _known_cost(draft, start)
    if math.isinf(upper):
        return
    upper *= 1 + 1e-9  # sums in another order must not prune the known solution
    least = [min((base.cost[i] for i in m), default=math.inf) for m in members]
    paid = math.fsum(least[c] for c in forced)
    forced_mask = sum(1 << c for c in forced)
    for c, m in enumerate(members):
        others = paid - least[c] if c in forced else paid
        for i in m:
            bound = others + base.cost[i]
            if bound <= upper:
                for d in bits(below[i] & ~forced_mask):
                    bound += least[d]
                    if bound > upper:
                        break
            if bound > upper:
                alive[i] = 0
    draft.keep(alive)


def _known_cost(draft: _Draft, start: Mapping[int, int] | None) -> float:
    """Cost of the better of the tree greedy and the given solution, as far as they fit."""
    base = draft.base
    _, choice = cheapest_trees(draft.members, base.option_class, draft.children, base.cost)
    upper = dag_cost(draft.children, base.cost, choice, draft.forced)
    if start is not None:
        known = [-1] * len(choice)
        for c, m in enumerate(draft.members):
            wanted = start.get(base.class_ids[c])
            known[c] = next((i for i in m if base.option_ids[i] == wanted), -1)
        upper = min(upper, dag_cost(draft.children, base.cost, known, draft.forced))
    return upper


def _split(draft: _Draft) -> list[Instance]:
    """The connected parts of what is left, as instances of their own."""
    live = [c for c, m in enumerate(draft.members) if m]
    graph: rx.PyGraph[None, None] = rx.PyGraph(multigraph=False)
    graph.add_nodes_from([None] * len(draft.members))
    graph.extend_from_edge_list([(c, d) for c in live for d in _successors(draft, c)])
    parts = [sorted(part) for part in rx.connected_components(graph)]
    return [
        _extract_part(draft, part)
        for part in sorted(parts)
        if any(c in draft.forced for c in part)  # else nothing needs it any more
    ]


def _successors(draft: _Draft, c: int) -> Iterable[int]:
    return {d for i in draft.members[c] for d in draft.children[i]}


def _extract_part(draft: _Draft, classes: list[int]) -> Instance:
    base = draft.base
    local = {c: k for k, c in enumerate(classes)}
    options = [i for c in classes for i in draft.members[c]]
    option_class = [local[base.option_class[i]] for i in options]
    members: list[list[int]] = [[] for _ in classes]
    for k, c in enumerate(option_class):
        members[c].append(k)
    return Instance(
        members=members,
        option_class=option_class,
        children=[tuple(local[d] for d in draft.children[i]) for i in options],
        cost=[base.cost[i] for i in options],
        load=[base.load[i] for i in options],
        roots=tuple(local[c] for c in classes if c in draft.forced),
        class_ids=[base.class_ids[c] for c in classes],
        option_ids=[base.option_ids[i] for i in options],
    )
