"""Graphs and algorithms that need the least energy, or time, or power, together.

"Energy-Aware DNN Graph Optimization" (Wang et al., 2020, §3.3). The outer search is MetaFlow's
backtracking. The inner search assigns an algorithm to every kernel of each graph that is met: it
changes up to d kernels at once while that helps. Either can be switched off (Table 5).

A limit on one total, such as the time, is kept by halving the range of weights between that total
and what is minimised: each weight is a search of its own, with its part of the budget (§4.4).

For a sum d = 1 is exact. For products and ratios an exact method is known too, and takes less time
(see `assignment`). It can replace the inner search, and a note compares both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Literal

from eqsat_opt.cost.metrics import ENERGY
from eqsat_opt.errors import OptionError
from eqsat_opt.lab.search.assigned import AssignedFrame
from eqsat_opt.lab.search.frame import Frame
from eqsat_opt.lab.search.methods.metaflow import backtrack
from eqsat_opt.lab.search.pricing.goals import Goal, given_goal, own_goal
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
        radius: the paper's d; 0 for the paper's choice, which is 1 for sums and else 2.
        outer: whether graphs are rewritten.
        alpha: a graph is followed if it costs less than this many times the best.
        growth: graphs with at least this many times as many operators as the original are dropped.
        halvings: how often the range of weights is halved under a limit.
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
    halvings: int = 6

    def __post_init__(self) -> None:
        if self.goal not in ("given", "linear", "product", "power"):
            raise OptionError(f"unknown goal {self.goal!r}; choose given, linear, product or power")
        if self.inner not in ("walk", "exact", "off"):
            raise OptionError(f"unknown inner search {self.inner!r}; choose walk, exact or off")
        if not 0 <= self.weight <= 1:
            raise OptionError(f"weight is {self.weight:g}; give a number from 0 to 1")
        if self.radius < 0:
            raise OptionError(f"radius is {self.radius}; give a count, or 0 for that of the paper")
        if self.halvings < 0:
            raise OptionError(f"halvings is {self.halvings}; give a count")
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
        own.is_over = run.is_over
        if self.goal == "given" and frame.objective.is_limited:
            return self._within_limit(own, run, budget)
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

    def _within_limit(self, own: AssignedFrame, run: Run, budget: Budget) -> SearchResult:
        """Return the best graph within a limit on one total, by halving the range of weights."""
        first, second = own.totals(own.start, "off")
        scale = (first or 1.0, second or 1.0)
        best, steps = own.outcome(own.start), tuple[str, ...]()
        halving, compared, trace = _Halving(self.halvings), 0, []
        least = math.inf
        share = _share(budget, self.halvings + 2)
        with run:
            for weight in halving:
                goal = replace(own_goal("linear", weight, scale), point=own.goal.point)
                frame = replace(own, goal=goal)
                # The last weight gets the rest of the budget.
                part = Run(frame, Budget() if halving.is_over else share, part_of=run)
                with part:
                    if self.outer:
                        backtrack(part, frame.start, self.alpha, growth=self.growth)
                found = part.result()
                compared += found.compared
                # The graph may keep the limit with other algorithms, or cost less with them.
                for one in (found.outcome, own.judged(found.graph)):
                    total, _ = own.goal.point(one.metrics)
                    least = min(least, total)
                    if one.value < best.value:
                        best, steps = one, found.steps
                        trace.append(run.moment(one.value))
                halving.told(is_kept=math.isfinite(found.outcome.value), is_cut=part.is_spent)
                run.tick()
        notes = []
        if math.isinf(best.value):
            notes.append(f"energy: no graph was found within the limit; the least is {least:g}")
        return run.result(
            outcome=best, steps=steps, compared=compared, trace=tuple(trace), notes=tuple(notes)
        )

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


class _Halving:
    """Weights of a limited total, each halving the range in which the best one lies.

    Attributes:
        is_over: whether no other weight comes after this one.
    """

    def __init__(self, halvings: int) -> None:
        """Begin without weight, which is best where no limit is broken."""
        self.is_over = self._is_kept = self._is_cut = False
        self._halvings = halvings

    def told(self, *, is_kept: bool, is_cut: bool) -> None:
        """Take whether the limit was kept under the last weight, and its search ended early."""
        self._is_kept, self._is_cut = is_kept, is_cut

    def __iter__(self) -> Iterator[float]:
        """Yield the weights: none, all, and halves; the best one again if its search was cut."""
        yield 0.0
        best, cut = (0.0 if self._is_kept else 1.0), self._is_cut
        if not self._is_kept:
            yield 1.0
            low, cut = 0.0, self._is_cut
            for _ in range(self._halvings if self._is_kept else 0):
                weight = (low + best) / 2
                yield weight
                if self._is_kept:
                    best, cut = weight, self._is_cut
                else:
                    low = weight
        if cut:
            self.is_over = True
            yield best


def _share(budget: Budget, count: int) -> Budget:
    """Return one of equal shares of a budget."""
    return replace(
        budget,
        graphs=-(-budget.graphs // count),
        substitutions=-(-budget.substitutions // count),
        cpu_s=budget.cpu_s / count,
    )
