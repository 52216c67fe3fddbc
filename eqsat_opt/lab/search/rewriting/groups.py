"""Groups of adjacent parts of a graph, and the cheapest ways to take all parts in groups.

AutoGraph (Zhao et al., AAAI 2023, equation 2) takes next any part that is adjacent to those before:
whatever has been taken is closed, so that no part of it reads another part, and each closed set is
solved once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Group", "GroupSequence", "adjacent_groups", "best_sequences"]

Group = frozenset[int]
"""Numbers of the parts that are searched together."""

GroupSequence = tuple[tuple[Group, int], ...]
"""Groups in an order in which none reads a later one, each with the number of its graph."""

_Members = frozenset[tuple[Group, int]]
"""The same in no order."""

_GROUPS, _CLOSED = 500, 500
"""Groups, and closed sets of parts, at most; beyond, parts stay in the given order."""


def adjacent_groups(
    reads: Mapping[int, Iterable[int]], sizes: Sequence[int], most: int
) -> list[Group]:
    """Return the groups of adjacent parts that can be one part, the smallest first.

    A group is convex: nothing outside is read by one of its parts and reads another one.

    Args:
        reads: part to the parts that it reads, all of them with a smaller number.
        sizes: size of each part.
        most: size of a group of several parts, at most.
    """
    near: dict[int, set[int]] = {part: set(reads[part]) for part in reads}
    for part, operands in reads.items():
        for operand in operands:
            near[operand].add(part)
    below = _below(reads)
    found = [frozenset((part,)) for part in reads]
    known, waiting = set(found), list(found)
    for group in waiting:  # grows while it is read
        if len(known) > _GROUPS:
            break
        size = sum(sizes[part] for part in group)
        for part in sorted(set[int]().union(*(near[one] for one in group)) - group):
            wider = group | {part}
            if size + sizes[part] <= most and wider not in known:
                known.add(wider)
                waiting.append(wider)
    return [group for group in waiting if _is_convex(group, below)]


def best_sequences(
    reads: Mapping[int, Iterable[int]], values: Mapping[Group, Sequence[float]], most: int
) -> list[tuple[float, GroupSequence]]:
    """Return the cheapest ways to take all parts in groups.

    Args:
        reads: part to the parts that it reads, all of them with a smaller number.
        values: group to the costs of its graphs; each part alone is a group.
        most: number of ways, at most.

    Returns:
        Totals and sequences, cheapest first; no two differ in the order of groups alone.
    """
    needs = {part: frozenset(reads[part]) for part in reads}
    if _is_wide(needs):
        needs = {part: frozenset((part - 1,)) if part else frozenset[int]() for part in reads}
    groups = {
        group: frozenset[int]().union(*(needs[part] for part in group)) - group for group in values
    }
    levels: list[dict[Group, dict[_Members, tuple[float, GroupSequence]]]]
    levels = [{} for _ in range(len(needs) + 1)]
    levels[0][frozenset()] = {frozenset(): (0.0, ())}
    for count, level in enumerate(levels):
        for taken, ways in level.items():
            kept = sorted(ways.items(), key=lambda one: one[1][0])[:most]
            if count == len(needs):
                return [way for _, way in kept]
            for group, needed in groups.items():
                if not needed <= taken or not taken.isdisjoint(group):
                    continue
                after = levels[count + len(group)].setdefault(taken | group, {})
                for number, value in enumerate(values[group]):
                    for key, (total, sequence) in kept:
                        one = (group, number)
                        after.setdefault(key | {one}, (total + value, (*sequence, one)))
    return [(0.0, ())]


def _below(reads: Mapping[int, Iterable[int]]) -> dict[int, frozenset[int]]:
    """Return all parts that each part depends on."""
    found: dict[int, frozenset[int]] = {}
    for part in sorted(reads):
        found[part] = frozenset(reads[part]).union(*(found[one] for one in reads[part]))
    return found


def _is_convex(group: Group, below: Mapping[int, frozenset[int]]) -> bool:
    between = set[int]().union(*(below[part] for part in group)) - group
    return all(below[part].isdisjoint(group) for part in between)


def _is_wide(needs: Mapping[int, frozenset[int]]) -> bool:
    """Return whether there are too many closed sets of parts to solve each of them."""
    level, count = {frozenset[int]()}, 0
    while level:
        count += len(level)
        if count > _CLOSED:
            return True
        level = {
            taken | {part}
            for taken in level
            for part in needs
            if part not in taken and needs[part] <= taken
        }
    return False
