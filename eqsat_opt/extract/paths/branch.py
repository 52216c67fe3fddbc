"""Branch and bound for path instances so small that starting the solver would take longer."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat_opt.extract.bitsets import union
from eqsat_opt.extract.paths.instance import PathInstance
from eqsat_opt.extract.paths.rules import necessary
from eqsat_opt.extract.solve.branch import BranchSearch

__all__ = ["branch_paths"]

_MOST_CLASSES = 200  # larger instances are not tried


def branch_paths(
    instance: PathInstance, choice: Sequence[int] | None, *, max_steps: int = 3000
) -> tuple[list[int] | None, bool]:
    """Search all choices, bounded by the cheapest options of the classes known to be needed.

    Returns:
        The best choice found (the given one unless something is cheaper), and whether that is
        proven: optimal, or None where no solution exists.
    """
    known = list(choice) if choice is not None else None
    if instance.n_classes > _MOST_CLASSES:
        return known, False
    masks = necessary(instance)
    if masks is None:
        return known, False
    finish = instance.finish()
    search = BranchSearch(
        instance,
        masks,
        value=instance.value,
        best=known,
        max_steps=max_steps,
        tail=instance.alpha * max((finish[r] for r in instance.roots), default=0.0),
        load=instance.load,
        capacity=instance.capacity,
    )
    search.run(union(masks, instance.roots))
    return search.best, search.steps <= max_steps
