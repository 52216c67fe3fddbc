"""Saturation: rulesets run in phases until nothing changes or a budget ends it.

A single step of the engine cannot be interrupted, so budgets act between small steps; the hard
deadline is a child process (:mod:`eqsat_opt.egraph.worker`).
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from eqsat_opt.egraph.compile import compile_rule, rule_numbers
from eqsat_opt.egraph.engine import Engine, compiled_engine
from eqsat_opt.egraph.frozen import EClasses, freeze
from eqsat_opt.egraph.loading import load
from eqsat_opt.egraph.lowering import Lowered, lower
from eqsat_opt.egraph.readout import FUSED
from eqsat_opt.egraph.recognise import Recognition, recognise
from eqsat_opt.egraph.relevance import relevant
from eqsat_opt.egraph.schema import Schema
from eqsat_opt.egraph.siblings import SEED_RULE, Seeds, sibling_seeds
from eqsat_opt.egraph.typing import typing_rules
from eqsat_opt.ir.graph import Graph
from eqsat_opt.rules.rule import Phase, Rule, directed

__all__ = [
    "Budget",
    "Saturation",
    "SaturationReport",
    "saturate",
    "saturate_terms",
    "saturate_windows",
]

_log = logging.getLogger(__name__)

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


@dataclass(frozen=True)
class SaturationReport:
    """What saturation did.

    Attributes:
        enodes, eclasses: size at the end.
        enodes_loaded: size of the model.
        iterations: rounds that ran.
        stopped_by: ``saturated``, ``nodes``, ``iterations`` or ``time``.
        matches: rule name to number of matches.
        time_s: seconds for recognising, compiling, loading, saturating and freezing.
        recognised: fused operator to the number of places where recognition put it.
    """

    enodes: int
    eclasses: int
    enodes_loaded: int
    iterations: int
    stopped_by: str
    matches: dict[str, int] = field(default_factory=dict)
    time_s: dict[str, float] = field(default_factory=dict)
    recognised: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return (
            f"{self.enodes_loaded} -> {self.enodes} e-nodes in {self.eclasses} e-classes, "
            f"{self.iterations} iterations, {self.stopped_by}"
        )


@dataclass(frozen=True)
class Saturation:
    """A saturated e-graph, read out."""

    lowered: Lowered
    eclasses: EClasses
    report: SaturationReport


class _Run:
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


def saturate(
    graph: Graph,
    rules: Sequence[Rule],
    budget: Budget | None = None,
    *,
    progress: Callable[[str], None] | None = None,
) -> Saturation:
    """Load ``graph``, apply ``rules`` and read the e-graph out.

    Raises:
        RuleError: if a rule cannot be compiled.
        SaturationError: if the engine fails, for instance because a rule unites tensors of
            different type.
    """
    start = time.perf_counter()
    lowered = lower(graph)
    seconds = time.perf_counter() - start
    eclasses, report = saturate_terms(lowered, rules, budget or Budget(), progress)
    report.time_s["lower"] = seconds
    return Saturation(lowered, eclasses, report)


def saturate_terms(
    lowered: Lowered,
    rules: Sequence[Rule],
    budget: Budget,
    progress: Callable[[str], None] | None = None,
) -> tuple[EClasses, SaturationReport]:
    """The same on terms that are lowered already; it never reads a weight."""
    clock = time.perf_counter
    times: dict[str, float] = {}
    start = clock()
    seeds = sibling_seeds(lowered) if rules else Seeds((), ())
    found = _recognised(lowered, len(lowered.terms) + len(seeds.terms), rules, budget)
    times["recognise"] = clock() - start

    start = clock()
    # Two-root rules over siblings are for searches on graphs; here the seeds and the slice laws do
    # their work. General equations are for derivations of other rules.
    terms = (*lowered.terms, *seeds.terms, *found.terms)
    one_way = relevant(
        directed([rule for rule in rules if rule.phase not in _ELSEWHERE]),
        {term.op for term in terms},
    )
    numbers = {**rule_numbers(one_way), SEED_RULE: len(one_way) + 1}
    for rule in dict.fromkeys(found.rules):
        numbers[rule] = len(numbers) + 1
    seeded_by = [numbers[SEED_RULE]] * len(seeds.terms) + [numbers[rule] for rule in found.rules]
    seeds = Seeds(
        (*seeds.terms, *found.terms), (*seeds.equal, *found.equal), seeds.constant | found.constant
    )
    arity = max([len(term.children) for term in (*lowered.terms, *seeds.terms)], default=0)
    schema = _schema(one_way, arity)
    with compiled_engine(_program(schema, one_way, numbers)) as engine:
        run = _Run(engine, schema, budget, progress)
        times["compile"] = clock() - start

        start = clock()
        load(engine, schema, lowered, seeds, seeded_by)
        loaded = run.size()
        times["load"] = clock() - start

        start = clock()
        run.started = start
        run.settle()
        iterations, stopped_by = run.saturate()
        times["saturate"] = clock() - start

        start = clock()
        eclasses = freeze(engine, schema, lowered, {n: name for name, n in numbers.items()})
        times["freeze"] = clock() - start
        run.close()
    names = {rule.name for rule in one_way}
    report = SaturationReport(
        eclasses.n_nodes, eclasses.n_classes, loaded, iterations, stopped_by,
        {name: count for name, count in sorted(run.matches.items()) if count and name in names},
        times, _fused_counts(found),
    )  # fmt: skip
    _log.info("%s", report)
    return eclasses, report


_WINDOW_ARITY = 4
_WINDOW_GROWTH = 4
"""E-nodes of a saturated window per term, at most about; measured over all spellings."""
_ELSEWHERE = (Phase.SIBLINGS, Phase.RECOGNISE)


def _schema(rules: Sequence[Rule], arity: int) -> Schema:
    # A power of two, so that graphs of similar arity share one compiled program.
    return Schema.of(rules, 1 << max(2, (arity - 1).bit_length()))


def _program(schema: Schema, rules: Sequence[Rule], numbers: Mapping[str, int]) -> list[str]:
    compiled = [compile_rule(rule, numbers[rule.name], schema) for rule in rules]
    return [*schema.declarations(), *typing_rules(schema), *compiled, "(set (now) 0)"]


def _fused_counts(found: Recognition) -> dict[str, int]:
    return dict(sorted(Counter(term.op for term in found.terms if term.op in FUSED).items()))


def _recognised(lowered: Lowered, first: int, rules: Sequence[Rule], budget: Budget) -> Recognition:
    chosen = [rule for rule in rules if rule.phase is Phase.RECOGNISE]
    if not chosen:
        return Recognition()
    return recognise(
        lowered,
        first,
        lambda windows: saturate_windows(windows, chosen, budget).eclasses,
        max_terms=budget.recognition_nodes // _WINDOW_GROWTH,
    )


@lru_cache(maxsize=4)
def _recognition_program(
    rules: tuple[Rule, ...],
) -> tuple[Schema, list[str], dict[str, int]]:
    """The program of the rules of recognition; no operator in a window has more operands."""
    one_way = directed(rules)
    numbers = rule_numbers(one_way)
    schema = _schema(one_way, _WINDOW_ARITY)
    return schema, _program(schema, one_way, numbers), numbers


def saturate_windows(windows: Lowered, rules: Sequence[Rule], budget: Budget) -> Saturation:
    """Saturate cut-out parts of a model under the rules of phase ``recognise`` and nothing else.

    Raises:
        RuleError: if a rule cannot be compiled.
        SaturationError: if the engine fails.
    """
    start = time.perf_counter()
    chosen = tuple(rule for rule in rules if rule.phase is Phase.RECOGNISE)
    schema, program, numbers = _recognition_program(chosen)
    with compiled_engine(program) as engine:
        run = _Run(engine, schema, budget, None)
        load(engine, schema, windows, Seeds((), ()), ())
        loaded = run.size()
        run.settle()
        iterations, stopped_by = run.saturate_windows()
        eclasses = freeze(engine, schema, windows, {n: name for name, n in numbers.items()})
    report = SaturationReport(
        eclasses.n_nodes, eclasses.n_classes, loaded, iterations, stopped_by,
        {name: count for name, count in sorted(run.matches.items()) if count and name in numbers},
        {"recognise": time.perf_counter() - start},
    )  # fmt: skip
    _log.info("windows: %s", report)
    return Saturation(windows, eclasses, report)
