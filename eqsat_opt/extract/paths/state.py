"""The best solution and bound of a search with a critical path and limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from eqsat_opt.extract.extraction import relative_gap
from eqsat_opt.extract.instance import active_classes
from eqsat_opt.extract.paths.instance import PathInstance
from eqsat_opt.extract.solve.weighted_sum import Rows

__all__ = ["Note", "PathState"]

Note = Callable[[str, float, float], None]
"""Function that is called with a stage, the best value and the bound."""

_TIE = 1e-12  # relative difference below which the incumbent stays
_ROUNDING = 1e-8  # relative gap that the solver's integers may leave open


@dataclass
class PathState:
    """The best solution and bound so far.

    Attributes:
        raw: the instance that evaluates every offered solution.
        note: function that is called on progress.
        path_value: part of the objective that the least critical path contributes.
        rows, value: the best solution; an earlier one stays unless a later one is clearly better.
        total_bound: lower bound on the total cost of every solution.
        bound: lower bound on the objective of every solution.
        multipliers, priced_bound: prices of the limits and the bound on the total that they prove.
    """

    raw: PathInstance
    note: Note
    path_value: float = 0.0
    rows: Rows | None = None
    value: float = math.inf
    total_bound: float = 0.0
    bound: float = 0.0
    multipliers: tuple[float, ...] = ()
    priced_bound: float = 0.0
    _option: dict[int, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._option = {row: i for i, row in enumerate(self.raw.option_ids)}

    def offer(self, rows: Mapping[int, int]) -> None:
        """Take a solution in the problem's numbers, if it is valid and better."""
        choice = [-1] * self.raw.n_classes
        for c, row in rows.items():
            choice[c] = self._option.get(row, -1)
        value = self.raw.value(choice)
        if value < self.value * (1 - _TIE) or (self.rows is None and math.isfinite(value)):
            order = active_classes(self.raw.children, choice, self.raw.roots) or []
            self.rows = {c: self.raw.option_ids[choice[c]] for c in order}
            self.value = value

    def offer_choice(self, instance: PathInstance, choice: Sequence[int]) -> None:
        """Take a solution in the options of a simplified instance."""
        if instance.measure(choice) is not None:
            self.offer(instance.rows(choice))

    def raise_bound(self, total: float, value: float = 0.0) -> None:
        """Take lower bounds on the total cost and on the objective of every solution."""
        self.total_bound = max(self.total_bound, total)
        self.bound = max(self.bound, value, self.total_bound + self.path_value)

    def closed(self, gap: float) -> bool:
        """Return whether the gap is small enough to stop, or there is no solution."""
        found = (
            math.isfinite(self.value) and relative_gap(self.value, self.bound) <= gap + _ROUNDING
        )
        return found or math.isinf(self.bound)

    def tell(self, stage: str) -> None:
        """Report progress."""
        self.note(stage, self.value, min(self.bound, self.value))
