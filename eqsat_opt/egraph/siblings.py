"""Which values may be merged side by side, and in which order.

Merging every subset of a group of siblings is what makes two-root rules blow up. Here each group gets an order, and a
merge extends a run of neighbours by the next one (egraph.md §2). In large groups runs start at the first member only,
so that growth stays linear in the number of runs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from eqsat_opt.egraph.lowering import Lowered
from eqsat_opt.ir.types import TensorType

__all__ = ["Siblings", "find_siblings"]

_ALL_RUNS = 4
"""Groups up to this size try every contiguous run, n(n+1)/2 of them."""


@dataclass(frozen=True)
class Siblings:
    """Terms that take part in merging, and which may follow which."""

    members: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]
    starts: tuple[int, ...]


def _groups(lowered: Lowered) -> list[list[int]]:
    """Weights that share their data, and data that share their weight."""
    by_data: dict[object, list[int]] = defaultdict(list)
    by_weight: dict[object, list[int]] = defaultdict(list)
    # How many products with weight w lie on the longest path to a term: equal counts cannot depend on each other.
    uses = Counter(
        t.children[1] for t in lowered.terms if t.op == "MatMul" and lowered.constant(t.children[1])
    )
    counted = {weight for weight, count in uses.items() if count > 1}
    below: list[dict[int, int]] = []
    for term in lowered.terms:
        counts: dict[int, int] = {}
        for child in term.children:
            for weight, count in below[child].items():
                counts[weight] = max(counts.get(weight, 0), count)
        if term.op in ("MatMul", "Conv") and len(term.children) == 2:
            data, weight = term.children
            if lowered.constant(weight) is not None:
                type_ = lowered.terms[weight].type
                assert isinstance(type_, TensorType)
                by_data[(data, term.op)].append(weight)
                if term.op == "Conv":
                    by_data[(data, term.attrs, type_.shape[2:])].append(weight)
                elif weight in counted:
                    by_weight[(weight, counts.get(weight, 0))].append(data)
                    counts[weight] = counts.get(weight, 0) + 1
        below.append(counts)
    # Data of one level are siblings of one another for every weight they share, in one common order.
    unique: dict[tuple[int, ...], None] = {}
    for group in (*by_data.values(), *by_weight.values()):
        ordered = tuple(sorted(set(group)))
        if len(ordered) > 1:
            unique[ordered] = None
    return [list(group) for group in unique]


def find_siblings(lowered: Lowered) -> Siblings:
    """The sibling facts of a lowered graph."""
    members: dict[int, None] = {}
    pairs: dict[tuple[int, int], None] = {}
    starts: dict[int, None] = {}
    for group in _groups(lowered):
        members.update(dict.fromkeys(group))
        pairs.update(dict.fromkeys(zip(group, group[1:], strict=False)))
        starts.update(dict.fromkeys(_starts(group)))
    return Siblings(tuple(sorted(members)), tuple(sorted(pairs)), tuple(sorted(starts)))


def _starts(group: Sequence[int]) -> Sequence[int]:
    return group if len(group) <= _ALL_RUNS else group[:1]
