"""Simplification of an instance that keeps an optimum, with a split into independent parts.

Linear rules run over the whole instance at once, then those that compare options. Settled classes
cut the instance into connected parts, and the rounds go on with the parts that changed. Each rule
keeps at least one optimal solution of the instance that it is applied to, on cyclic graphs too;
costs must not be negative.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from eqsat_opt.extract.instance import Instance
from eqsat_opt.extract.simplify.domination import compare_options
from eqsat_opt.extract.simplify.draft import BoolArray, InstanceDraft
from eqsat_opt.extract.simplify.linear_rules import (
    Settled,
    contract,
    drop_duplicates,
    drop_impossible,
    drop_unreachable,
    force,
    settle_free,
)

__all__ = ["SimplifiedInstance", "simplify"]

_LINEAR_PASSES = 4  # greatest number of passes before options are compared again
_WORK = (5_000_000, 200)  # default budget of steps: a constant, and more for each option and edge
_LARGE = 5_000  # options and edges; larger drafts must shrink noticeably for another round
_NOTICEABLE = 0.005


@dataclass(frozen=True)
class SimplifiedInstance:
    """A simplified instance.

    Attributes:
        settled: class to option (numbers of the problem), already decided. A class that turns out
            not to be needed may be among them.
        cost: cost of the settled classes that every solution pays.
        parts: independent instances; their optima and `settled` make an optimum of the whole. An
            option may carry the cost and the children of settled classes that only it needs.
    """

    settled: Mapping[int, int]
    cost: float
    parts: tuple[Instance, ...]


def simplify(
    instance: Instance,
    *,
    start: Mapping[int, int] | None = None,
    work: int | None = None,
    until_s: float = math.inf,
) -> SimplifiedInstance | None:
    """Apply all rules to a fixpoint, or until they gain too little for their price.

    Args:
        instance: the instance to simplify.
        start: a known solution (class to option, numbers of the problem); where it covers a part,
            its cost prunes.
        work: rough count of elementary steps, by default in proportion to the size; when it is used
            up the remaining parts stay as they are.
        until_s: moment of `time.perf_counter` after which no further round begins, nor options are
            compared; the remaining parts stay as they are.

    Returns:
        The reduction, or None when no acyclic choice computes the roots.
    """
    settled = Settled()
    parts: list[Instance] = []
    draft = InstanceDraft.of(instance)
    if work is None:
        work = _WORK[0] + _WORK[1] * (draft.n_options + len(draft.child_ix))
    while draft.n_classes:
        before = draft
        possible = _linear_passes(draft, settled)
        if possible is None:
            return None
        draft = possible
        work -= _LINEAR_PASSES * sum(before.size)
        if work > 0 and draft.n_options and time.perf_counter() < until_s:
            draft, steps = compare_options(draft, start=start, work=work)
            work -= steps
            possible = drop_impossible(draft)  # no class may be left without an option
            if possible is None:
                return None
            draft = drop_unreachable(possible)
        done = _unchanged(before, draft)
        if work <= 0 or time.perf_counter() >= until_s or not _shrank(before, draft):
            done[:] = True
        parts.extend(draft.with_classes(done).instances())
        draft = draft.with_classes(~done)
    parts.sort(key=lambda part: part.class_ids[0])
    return SimplifiedInstance(
        settled=settled.option,
        cost=math.fsum(settled.costs),
        parts=tuple(parts),
    )


def _linear_passes(draft: InstanceDraft, settled: Settled) -> InstanceDraft | None:
    """Apply all linear-time rules a few times; None if a forced class has no option left."""
    for _ in range(_LINEAR_PASSES):
        size = draft.size
        possible = drop_impossible(draft)
        if possible is None:
            return None
        draft = drop_unreachable(settle_free(possible, settled))
        draft = force(drop_duplicates(draft), settled)
        draft = contract(drop_unreachable(draft), settled)
        if draft.size == size:
            break
    return draft


def _shrank(before: InstanceDraft, after: InstanceDraft) -> bool:
    """Return whether another round may be worth it."""
    old, new = sum(before.size[:2]), sum(after.size[:2])
    return new <= _LARGE or old - new > _NOTICEABLE * old


def _unchanged(before: InstanceDraft, after: InstanceDraft) -> BoolArray:
    """Return which classes of `after` are in unchanged connected parts, `[n_classes]`."""
    old, new = (dict(zip(*_sizes(d), strict=True)) for d in (before, after))
    return np.array([old.get(c) == size for c, size in new.items()], dtype=bool)


def _sizes(draft: InstanceDraft) -> tuple[list[int], list[tuple[int, ...]]]:
    """Return the problem's class numbers, and the size of the part of each."""
    part, n = draft.part, int(draft.part.max(initial=-1)) + 1
    counts = [
        np.bincount(part, minlength=n),
        np.bincount(part, weights=draft.forced, minlength=n),
        np.bincount(part[draft.option_class], minlength=n),
        np.bincount(part[draft.option_class[draft.edge_option]], minlength=n),
    ]
    rows: list[tuple[int, ...]] = [tuple(row) for row in np.stack(counts, axis=1)[part].tolist()]
    return draft.class_ids.tolist(), rows
