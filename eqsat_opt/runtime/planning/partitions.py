"""Convex connected groups of nodes: what one call of another runtime can compute.

A group is convex if no path leaves it and comes back; otherwise it would have to wait for itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

__all__ = ["segments"]


def segments(
    before: Sequence[Sequence[int]], labels: Sequence[Hashable | None]
) -> list[tuple[int, ...]]:
    """Nodes in groups of one label, each joined to the groups of what it reads where it can be.

    Args:
        before: by node, those that it reads; all of them have lower numbers.
        labels: by node; one without a label stays alone.

    Returns:
        Groups, in an order in which they can run; nodes of a group ascend.
    """
    group_of: list[int] = []
    members: list[list[int]] = []
    reads: list[set[int]] = []  # by group, those that it reads
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
    """Whether a path leads from ``other`` to ``own`` through a third group.

    Nothing reads ``own`` when it is asked.
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
    """Move what is in ``other``, and who reads it, to ``own``."""
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
