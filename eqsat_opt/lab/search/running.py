"""One run of a search: the spent budget, and the best graph so far."""

from __future__ import annotations

import time
from collections.abc import Sequence, Set
from types import TracebackType
from typing import Any, NoReturn

from eqsat_opt.lab.search.frame import Frame
from eqsat_opt.lab.search.rewriting.matching import Substitution
from eqsat_opt.lab.search.rewriting.rewriting import RewriteTrial
from eqsat_opt.lab.search.rewriting.state import State
from eqsat_opt.lab.search.search import Budget, SearchResult, SearchTrace, StopReason

__all__ = ["Run"]


class _Spent(Exception):
    pass


class Run:
    """Counters of a search, used in a ``with`` statement that ends it when its budget is spent.

    Attributes:
        frame: the frame of the search.
        best: the best graph so far.
        graphs: number of graphs whose substitutions were listed.
        tried: number of substitutions tried.
        duplicates, pruned: counted by the search; see `SearchResult`.
        notes: further remarks.
    """

    def __init__(self, frame: Frame, budget: Budget, *, part_of: Run | None = None) -> None:
        """Begin to count.

        Args:
            frame: the frame of the graph that is searched.
            budget: the budget of the run.
            part_of: a run that is charged for all that this one spends, too.
        """
        self._started, self._cpu = time.perf_counter(), time.process_time()
        self.frame, self._budget = frame, budget
        self.best = frame.start
        self.graphs = self.tried = self.duplicates = self.pruned = 0
        self.notes: list[str] = []
        self._stopped_by: StopReason = "exhausted"
        self._trace: list[SearchTrace] = []
        self._compared = frame.matching.compared
        self._is_cut = False
        self._part_of = part_of

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        return isinstance(error, _Spent)

    @property
    def cpu_s(self) -> float:
        """CPU seconds of the process since the run began."""
        return time.process_time() - self._cpu

    def _end(self, reason: StopReason) -> NoReturn:
        self._stopped_by = reason
        raise _Spent

    @property
    def is_spent(self) -> bool:
        """Whether the budget has ended the search."""
        return self._stopped_by != "exhausted"

    def is_over(self) -> bool:
        """Return whether the time is spent."""
        return bool(self._budget.cpu_s) and self.cpu_s > self._budget.cpu_s

    def tick(self) -> None:
        """End the search if its time is spent."""
        if self._part_of is not None:
            self._part_of.tick()
        if self.is_over():
            self._end("cpu")

    def visit(self) -> None:
        """Count a graph whose substitutions are to be listed."""
        self.tick()
        if self._budget.graphs and self.graphs >= self._budget.graphs:
            self._end("graphs")
        if self._part_of is not None:
            self._part_of.visit()
        self.graphs += 1

    def may_follow(self, state: State) -> bool:
        """Return whether the budget allows one more substitution in a row from a graph."""
        return self.may_take(state.length + 1)

    def may_take(self, length: int) -> bool:
        """Return whether the budget allows this many substitutions in a row."""
        if not self._budget.length or length <= self._budget.length:
            return True
        self._is_cut = True
        if self._part_of is not None:
            self._part_of._is_cut = True
        return False

    def substitutions(
        self, state: State, *, within: Set[bytes] | None = None, after: State | None = None
    ) -> Sequence[Substitution]:
        """Return the substitutions of a graph in the frame, and count the graph as visited."""
        if not self.may_follow(state):
            return ()
        self.visit()
        return self.frame.substitutions(state, within=within, after=after)

    def attempt(self, state: State, substitution: Substitution) -> RewriteTrial:
        """Evaluate a graph after a substitution, without building it, and count the trial."""
        self.charge()
        return self.frame.attempt(state, substitution)

    def charge(self) -> None:
        """Count a substitution that is tried."""
        self.tick()
        if self._budget.substitutions and self.tried >= self._budget.substitutions:
            self._end("substitutions")
        if self._part_of is not None:
            self._part_of.charge()
        self.tried += 1

    def apply(
        self, state: State, substitution: Substitution, trial: RewriteTrial | None = None
    ) -> State:
        """Return the graph after a substitution, and keep it as the best one if it costs less.

        Args:
            state: the graph before.
            substitution: a substitution of it.
            trial: the result of `attempt`, if known.
        """
        trial = trial or self.attempt(state, substitution)
        found = self.frame.apply(state, substitution, trial)
        self.consider(found)
        return found

    def consider(self, state: State) -> None:
        """Keep a graph as the best one if it costs less, and can be written."""
        if state.value < self.best.value and state.is_result:
            self.best = state
            self._trace.append(self.moment(state.value))

    def moment(self, value: float) -> SearchTrace:
        """Return a record of the budget that is spent when a graph of this value is found."""
        now = time.perf_counter() - self._started
        return SearchTrace(self.graphs, self.tried, cpu_s=self.cpu_s, time_s=now, value=value)

    def result(self, **named: Any) -> SearchResult:
        """Return the result of the search; ``named`` are further fields of `SearchResult`."""
        outcome = self.frame.outcome(self.best)
        original = (
            outcome if self.best is self.frame.start else self.frame.outcome(self.frame.start)
        )
        stopped_by = self._stopped_by
        if self._is_cut and stopped_by == "exhausted":
            stopped_by = "length"
        return SearchResult(**{
            "outcome": outcome,
            "original": original,
            "steps": self.best.steps,
            "trace": tuple(self._trace),
            "stopped_by": stopped_by,
            "cpu_s": self.cpu_s,
            "time_s": time.perf_counter() - self._started,
            "graphs": self.graphs,
            "tried": self.tried,
            "duplicates": self.duplicates,
            "pruned": self.pruned,
            "compared": self.frame.matching.compared - self._compared,
            "notes": tuple(self.notes),
            **named,
        })  # fmt: skip
