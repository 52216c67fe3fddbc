"""Rulesets run in phases, round by round, until nothing changes or a budget is used up.

A single step of the engine cannot be interrupted, so budgets act between small steps. A step is not
begun if it would end too late, judged by the time of the last one of its kind. The hard deadline
needs a child process (:mod:`eqsat_opt.egraph.saturation.worker`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.egraph.encoding.typing import SETTLED
from eqsat_opt.egraph.engine.driver import Engine
from eqsat_opt.egraph.saturation.program import EngineProgram
from eqsat_opt.rules.rule import Phase

__all__ = ["Budget", "Rounds"]

_MAY_EXPLODE = 10
"""Growth factor of a step against which a snapshot protects; a small e-graph is copied in
milliseconds."""

_OVERSHOOT = 1.5
"""Greatest size relative to the limit at which the result of a step is kept."""


@dataclass(frozen=True)
class Budget:
    """Limits of a saturation; counts make a run repeatable, a deadline does not.

    Attributes:
        nodes: number of e-nodes.
        iterations: number of rounds of all phases.
        deadline: no step begins that would end after it.
        algebra_iterations: number of rounds in which associativity and commutativity run; they
            never saturate.
        match_limit: matches per algebra rule and round before the scheduler bans it for a while.
        recognition_nodes: number of e-nodes of the windows in which fused operators are searched.
        recognition_iterations: number of rounds in these windows.
    """

    nodes: int = 20_000
    iterations: int = 16
    deadline: Deadline = field(default_factory=Deadline.never)
    algebra_iterations: int = 2
    match_limit: int = 1_000
    recognition_nodes: int = 20_000
    recognition_iterations: int = 40


class Rounds:
    """The saturation of one e-graph.

    Attributes:
        size: number of e-nodes.
        matches: number of new matches by rule name.
    """

    def __init__(
        self,
        engine: Engine,
        program: EngineProgram,
        budget: Budget,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self.size = 0
        self.matches: Counter[str] = Counter()
        self._engine = engine
        self._phases = program.phases
        self._schema = program.schema
        self._budget = budget
        self._progress = progress
        self._snapshots: list[int] = []
        self._last: dict[Phase, tuple[int, float]] = {}

    def _step(self, schedule: str, iteration: int = 0) -> bool:
        """Run one schedule, count e-nodes, and return whether anything changed."""
        # A single call runs all commands, since each call crosses the border of the engine.
        commands = [f"(set (now) {iteration})", f"(run-schedule {schedule})", "(print-size)"]
        *_, ran, counted = self._engine.run(commands)
        for name, count in ran.report.num_matches_per_rule.items():
            self.matches[name] += count
        self.size = self._schema.enodes(dict(counted.sizes))
        return bool(ran.report.updated)

    def _take_snapshot(self) -> None:
        """Save the state if the next step might explode; a small e-graph has room to grow."""
        if self.size * _MAY_EXPLODE > self._budget.nodes:
            self._engine.push()
            self._snapshots.append(self.size)

    def _undo_overshoot(self) -> None:
        """Undo the last step if it went far beyond the limit; a running step cannot be stopped."""
        if self.size > _OVERSHOOT * self._budget.nodes and self._snapshots:
            self._engine.pop()
            self.size = self._snapshots.pop()

    def close(self) -> None:
        """Drop the snapshots, so that the state of the caller is on top again."""
        while self._snapshots:
            self._engine.pop()
            self._snapshots.pop()

    def _step_of(self, phase: Phase, iteration: int) -> bool:
        """Run and time one step of a phase; return whether it changed anything."""
        clock, size = self._budget.deadline.clock, max(1, self.size)
        started = clock()
        changed = self._step(self._schedule(phase), iteration)
        self._last[phase] = (size, clock() - started)
        return changed

    def _would_be_late(self, phase: Phase) -> bool:
        """Return whether the next step of a phase would end too late.

        Joins are expected to grow as the square of the e-graph.
        """
        size, seconds = self._last.get(phase, (1, 0.0))
        deadline = self._budget.deadline
        return deadline.expired or seconds * (self.size / size) ** 2 > deadline.left_s

    def _schedule(self, phase: Phase) -> str:
        if phase is not Phase.ALGEBRA:
            return f"(run {phase}) {SETTLED}"
        return (
            "(let-scheduler back-off_ (back-off"
            f" :match-limit {self._budget.match_limit} :ban-length 2))"
            f" (run-with back-off_ {phase}) {SETTLED}"
        )

    def _iterate(self, phases: Sequence[Phase], iteration: int) -> tuple[bool, str | None]:
        """Run one round; return whether it changed anything, and the budget that ended it."""
        changed = False
        for phase in phases:
            if self._would_be_late(phase):
                return changed, "time"
            self._take_snapshot()
            changed |= self._step_of(phase, iteration)
            if self.size > self._budget.nodes:
                self._undo_overshoot()
                return changed, "nodes"
        return changed, None

    def saturate(self) -> tuple[int, str]:
        """Run all rounds; return how many ran, and what stopped them.

        ``algebra`` means that only associativity and commutativity might still find something.
        """
        self._step(SETTLED)
        for iteration in range(1, self._budget.iterations + 1):
            phases = [Phase.SIMPLIFY, Phase.EXPLORE, Phase.ALGEBRA]
            phases = [phase for phase in phases if phase in self._phases]
            without_algebra = iteration > self._budget.algebra_iterations
            if skipped := without_algebra and Phase.ALGEBRA in phases:
                phases.remove(Phase.ALGEBRA)
            changed, stop = self._iterate(phases, iteration)
            if self._progress is not None:
                self._progress(f"iteration {iteration}: {self.size} e-nodes")
            if stop is not None:
                return iteration, stop
            if not changed:
                return iteration, "algebra" if skipped else "saturated"
        return self._budget.iterations, "iterations"

    def saturate_windows(self) -> tuple[int, str]:
        """Run the rules of recognition alone; return how many rounds ran, and what stopped them."""
        self._step(SETTLED)
        for iteration in range(1, self._budget.recognition_iterations + 1):
            if self._would_be_late(Phase.RECOGNISE):
                return iteration, "time"
            if not self._step_of(Phase.RECOGNISE, iteration):
                return iteration, "saturated"
            if self.size > self._budget.recognition_nodes:
                return iteration, "nodes"
        return self._budget.recognition_iterations, "iterations"
