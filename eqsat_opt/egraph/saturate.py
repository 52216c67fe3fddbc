"""Saturation: a model is loaded into an e-graph, rules are applied, and the e-graph is read out."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from eqsat_opt.egraph.compile import compile_rule, rule_numbers
from eqsat_opt.egraph.engine import compiled_engine
from eqsat_opt.egraph.frozen import EClasses, freeze
from eqsat_opt.egraph.loading import load
from eqsat_opt.egraph.lowering import Lowered, lower
from eqsat_opt.egraph.readout import FUSED
from eqsat_opt.egraph.recognise import Recognition, recognise
from eqsat_opt.egraph.relevance import relevant
from eqsat_opt.egraph.rounds import Budget, Rounds
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
        run = Rounds(engine, schema, budget, progress)
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
_ELSEWHERE = (Phase.SIBLINGS, Phase.RECOGNISE, Phase.DERIVATION)
"""Phases whose rules do not run on the whole model, whoever named them."""


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
        run = Rounds(engine, schema, budget, None)
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
