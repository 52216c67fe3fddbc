"""Convex connected groups of nodes, each of which one call of another runtime can compute.

A group is convex if no path leaves it and returns; otherwise the call would have to wait for its
own result.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

__all__ = ["segments"]


def segments(
    before: Sequence[Sequence[int]], labels: Sequence[Hashable | None]
) -> list[tuple[int, ...]]:
    """Group nodes of equal labels, each with the nodes that it reads where convexity allows.

    Args:
        before: by node, the nodes that it reads; all of them have lower numbers.
        labels: by node, its label; a node without a label stays alone.

    Returns:
        Groups, in an order in which they can run; nodes of a group ascend.
    """
    group_of: list[int] = []
    members: list[list[int]] = []
    reads: list[set[int]] = []  # by group, the groups that it reads
    for node, sources in enumerate(before):
        group_of.append(len(members))
        members.append([node])
        reads.append({group_of[one] for one in sources})
        label = labels[node]
        if label is None:
            continue
        own = group_of[node]
        for other in sorted(reads[own], reverse=True):
            alike = labels[members[other][0]] == label
            if alike and not _comes_back(own, other, reads):
                _join(own, other, members, reads, group_of=group_of)
    return _ordered(members, reads)


def _comes_back(own: int, other: int, reads: Sequence[set[int]]) -> bool:
    """Return whether a path leads from ``other`` to ``own`` through a third group.

    No group reads ``own`` yet when this is called.
    """
    seen: set[int] = set()
    stack = [group for group in reads[own] if group != other]
    while stack:
        group = stack.pop()
        if group == other:
            return True
        if group not in seen:
            seen.add(group)
            stack.extend(reads[group])
    return False


def _join(
    own: int, other: int, members: list[list[int]], reads: list[set[int]], group_of: list[int]
) -> None:
    """Merge group ``other``, and the reads of it, into ``own``."""
    for node in members[other]:
        group_of[node] = own
    members[own] = sorted(members[own] + members[other])
    members[other] = []
    reads[own] = (reads[own] | reads[other]) - {own, other}
    reads[other] = set()
    for one in reads:
        if other in one:
            one.remove(other)
            one.add(own)


def _ordered(members: Sequence[Sequence[int]], reads: Sequence[set[int]]) -> list[tuple[int, ...]]:
    done: set[int] = set()
    result = []
    for start in range(len(members)):
        stack = [start]
        while stack:
            group = stack[-1]
            missing = [one for one in sorted(reads[group]) if one not in done]
            if group in done or not missing:
                stack.pop()
                if group not in done and members[group]:
                    result.append(tuple(members[group]))
                done.add(group)
            else:
                stack.extend(missing)
    return result
