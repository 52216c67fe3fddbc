"""Rounds: rulesets run in phases until nothing changes or a budget ends it.

A single step of the engine cannot be interrupted, so budgets act between small steps; the hard
deadline is a child process (:mod:`eqsat_opt.egraph.worker`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eqsat_opt.egraph.engine import Engine
from eqsat_opt.egraph.schema import Schema
from eqsat_opt.rules.rule import Phase

__all__ = ["Budget", "Rounds"]

_MAY_EXPLODE = 10
"""Growth of one step against which a snapshot protects; a small e-graph copies in milliseconds."""

_OVERSHOOT = 1.5
"""Relative size above the limit that is still kept."""


@dataclass(frozen=True)
class Budget:
    """When to stop; counts make a run repeatable, seconds do not.

    Attributes:
        nodes: e-nodes.
        iterations: rounds of all phases.
        time_s: seconds of saturation.
        algebra_iterations: rounds in which associativity and commutativity run; they never
            saturate.
        match_limit: matches per algebra rule and round before the scheduler bans it for a while.
        recognition_nodes: e-nodes of the windows in which fused operators are looked for.
        recognition_iterations: rounds there.
    """

    nodes: int = 20_000
    iterations: int = 16
    time_s: float = 30.0
    algebra_iterations: int = 2
    match_limit: int = 1_000
    recognition_nodes: int = 20_000
    recognition_iterations: int = 40


class Rounds:
    """One e-graph being saturated."""

    def __init__(
        self, engine: Engine, schema: Schema, budget: Budget, progress: Callable[[str], None] | None
    ) -> None:
        self.schema = schema
        self.budget = budget
        self.progress = progress
        self.engine = engine
        self.matches: Counter[str] = Counter()
        self.names = list(schema.constructors())
        self.started = time.perf_counter()
        self.snapshots = 0

    def size(self) -> int:
        sizes = self.engine.sizes()
        return sum(sizes.get(name, 0) for name in self.names)

    def take_snapshot(self) -> None:
        """Remember the state if the next step might explode; a small e-graph has room to grow."""
        if self.size() * _MAY_EXPLODE > self.budget.nodes:
            self.engine.push()
            self.snapshots += 1

    def undo_overshoot(self, size: int) -> None:
        """Undo the last step if it went far beyond the limit, which no step can be kept from."""
        if size > _OVERSHOOT * self.budget.nodes and self.snapshots:
            self.engine.pop()
            self.snapshots -= 1

    def close(self) -> None:
        """Drop the snapshots, so that what the caller had stands on top again."""
        for _ in range(self.snapshots):
            self.engine.pop()

    def step(self, command: str) -> bool:
        """Run one schedule; whether it changed anything."""
        (output,) = self.engine.run([command])
        report = output.report
        for name, count in report.num_matches_per_rule.items():
            self.matches[name] += count
        return bool(report.updated)

    def settle(self) -> bool:
        """Type what is new, then unite what has equal types, until nothing moves."""
        self.step("(run-schedule (saturate (run typing)))")
        return self.step("(run-schedule (saturate (run commit) (saturate (run typing))))")

    def iterate(self, phases: Sequence[Phase], iteration: int) -> tuple[bool, str | None]:
        """One round; whether it changed anything, and the budget that ended it."""
        self.engine.run([f"(set (now) {iteration})"])
        changed = False
        for phase in phases:
            if phase is Phase.ALGEBRA:
                limit = self.budget.match_limit
                command = (
                    "(run-schedule"
                    f" (let-scheduler back-off_ (back-off :match-limit {limit} :ban-length 2))"
                    f" (run-with back-off_ {phase}))"
                )
            else:
                command = f"(run-schedule (run {phase}))"
            self.take_snapshot()
            changed |= self.step(command)
            changed |= self.settle()
            size = self.size()
            if size > self.budget.nodes:
                self.undo_overshoot(size)
                return changed, "nodes"
            if time.perf_counter() - self.started > self.budget.time_s:
                return changed, "time"
        return changed, None

    def saturate(self) -> tuple[int, str]:
        """Run all rounds; how many, and what stopped them."""
        for iteration in range(1, self.budget.iterations + 1):
            phases = [Phase.SIMPLIFY, Phase.EXPLORE]
            with_algebra = iteration <= self.budget.algebra_iterations
            if with_algebra:
                phases.append(Phase.ALGEBRA)
            changed, stop = self.iterate(phases, iteration)
            if self.progress is not None:
                self.progress(f"iteration {iteration}: {self.size()} e-nodes")
            if stop is not None:
                return iteration, stop
            if not changed and not with_algebra:
                return iteration, "saturated"
        return self.budget.iterations, "iterations"

    def saturate_windows(self) -> tuple[int, str]:
        """Run the rules of recognition alone; an iteration is one call, for there are many."""
        types = "(saturate (run typing))"
        settled = f"{types} (saturate (run commit) {types})"
        for iteration in range(1, self.budget.recognition_iterations + 1):
            self.engine.run([f"(set (now) {iteration})"])
            if not self.step(f"(run-schedule (run {Phase.RECOGNISE}) {settled})"):
                return iteration, "saturated"
            if self.size() > self.budget.recognition_nodes:
                return iteration, "nodes"
            if time.perf_counter() - self.started > self.budget.time_s:
                return iteration, "time"
        return self.budget.recognition_iterations, "iterations"
