"""Graphs and algorithms that need the least energy, or time, or power, together.

"Energy-Aware DNN Graph Optimization" (Wang et al., 2020, §3.3). The outer search is MetaFlow's
backtracking. The inner search assigns an algorithm to every kernel of each graph that is met: it
changes up to d kernels at once while that helps. Either can be switched off (Table 5).

For a sum d = 1 is exact. For products and ratios an exact method is known too, and takes less time
(see `assignment`). It can replace the inner search, and a note compares both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Literal

from eqsat_opt.cost.metrics import ENERGY
from eqsat_opt.errors import OptionError
from eqsat_opt.lab.search.assigned import AssignedFrame, Goal, given_goal, own_goal
from eqsat_opt.lab.search.frame import Frame
from eqsat_opt.lab.search.methods.metaflow import backtrack
from eqsat_opt.lab.search.running import Run
from eqsat_opt.lab.search.search import Budget, SearchResult

__all__ = ["Energy"]


@dataclass(frozen=True)
class Energy:
    """The search and its parameters.

    Attributes:
        goal: ``given`` is the objective of the comparison; ``linear`` weighs time and energy,
            ``product`` raises them to the power of the weights, ``power`` weighs the mean power and
            the energy, each as a share of the original's.
        weight: weight of the time or the power, from 0 to 1; the energy has the rest.
        inner: ``walk`` is the published search, ``exact`` an optimal assignment, ``off`` leaves
            every kernel its fastest algorithm.
        radius: the paper's d, 1 or 2; 0 for the paper's choice, which is 1 for sums and else 2.
        outer: whether graphs are rewritten.
        alpha: a graph is followed if it costs less than this many times the best.
        growth: graphs with at least this many times as many operators as the original are dropped.
    """

    name: ClassVar[str] = "energy"
    exact: ClassVar[bool] = False
    places: ClassVar[bool] = True

    goal: Literal["given", "linear", "product", "power"] = "given"
    weight: float = 0.5
    inner: Literal["walk", "exact", "off"] = "walk"
    radius: int = 0
    outer: bool = True
    alpha: float = 1.05
    growth: float = 2.0

    def __post_init__(self) -> None:
        if self.goal not in ("given", "linear", "product", "power"):
            raise OptionError(f"unknown goal {self.goal!r}; choose given, linear, product or power")
        if self.inner not in ("walk", "exact", "off"):
            raise OptionError(f"unknown inner search {self.inner!r}; choose walk, exact or off")
        if not 0 <= self.weight <= 1:
            raise OptionError(f"weight is {self.weight:g}; give a number from 0 to 1")
        if self.radius not in (0, 1, 2):
            raise OptionError(f"radius is {self.radius}; give 1 or 2, or 0 for that of the paper")
        if not self.alpha >= 1:
            raise OptionError(
                f"alpha is {self.alpha:g}; give at least 1, which follows cheaper graphs only"
            )
        if not self.growth > 1:
            raise OptionError(f"growth is {self.growth:g}; give more than 1")
        if self.inner == "exact" and self.goal == "power" and self.weight < 1:
            raise OptionError(
                "no exact answer is known for power and energy together; give weight 1, or the "
                "inner search walk"
            )

    def run(self, frame: Frame, budget: Budget, seed: int = 0) -> SearchResult:
        """Return the best graph found under its assignment; the search is deterministic.

        Raises:
            OptionError: kernels have no energy, run on several streams, or the objective is no
                function of totals.
        """
        own = self._frame(frame)
        run = Run(own, budget)
        with run:
            if self.outer:
                backtrack(run, own.start, self.alpha, growth=self.growth)
        found = run.result()
        notes = [*found.notes]
        if own.goal.solve is not None:
            walk, best = (
                own.goal.value(*own.totals(run.best, inner)) for inner in ("walk", "exact")
            )
            notes.append(f"energy: of this graph the walk finds {walk:g}, the best is {best:g}")
        if self.goal == "given":
            return replace(found, notes=tuple(notes))
        notes.append(f"energy: {own.start.value:g} became {run.best.value:g} by its own goal")
        trace = tuple(replace(one, value=found.outcome.value) for one in found.trace[-1:])
        return replace(found, trace=trace, notes=tuple(notes))

    def _frame(self, frame: Frame) -> AssignedFrame:
        if frame.level not in ("operators", "kernels"):
            raise OptionError(
                "the energy search adds up kernels that run one after another; give level "
                "operators or kernels"
            )
        given = {one.name: getattr(frame, one.name) for one in fields(Frame) if one.init}
        goal = given_goal(frame.objective) if self.goal == "given" else self._own(frame, given)
        return AssignedFrame(**given, goal=goal, inner=self.inner, radius=self.radius)

    def _own(self, frame: Frame, given: dict[str, object]) -> Goal:
        """Build a goal of the paper that counts the original, with the fastest algorithms, as 1."""
        assert self.goal != "given"
        if ENERGY not in frame.prices.valuation.metrics:
            raise OptionError(
                "nothing tells the energy of kernels here; give --energy-model a file, or --device "
                "a profile that has a model of it"
            )
        plain = own_goal("linear", 1.0, (1.0, 1.0))
        own = AssignedFrame(**given, goal=plain, inner="off")  # type: ignore[arg-type]
        time, energy = own.totals(own.start, "off")
        if not (time > 0 and energy > 0 and math.isfinite(time * energy)):
            raise OptionError(
                f"the model takes {time:g} µs and {energy:g} µJ; nothing can be saved"
            )
        return own_goal(self.goal, self.weight, (time, energy))
