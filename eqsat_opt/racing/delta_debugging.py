"""The rules that broke a model, found by searches with fewer and fewer rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eqsat_opt.common.deadline import Deadline, OutOfTime
from eqsat_opt.common.delta_debugging import needed_items
from eqsat_opt.cost.pricing import Pricer
from eqsat_opt.errors import ExtractionError, RuntimeFailed
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.graph.handles import folding_s
from eqsat_opt.ir.graph.plain_names import plain_kernel
from eqsat_opt.ir.onnx.exporter import export_model
from eqsat_opt.racing.examination import RaceTerms
from eqsat_opt.runtime.source import ModelSource
from eqsat_opt.runtime.staging import Staging
from eqsat_opt.select.proposal import SearchOptions, propose
from eqsat_opt.select.rebuilding.raising import rules_used
from eqsat_opt.validation.compare import Reference, differences
from eqsat_opt.validation.judge import TO_EXCUSE

if TYPE_CHECKING:
    from eqsat_opt.rules import Rule

__all__ = [
    "ROUNDED_BY_SESSIONS",
    "Accusation",
    "accuse",
    "are_equal_unoptimised",
    "without_rules",
]


@dataclass(frozen=True)
class Accusation:
    """The rules to blame for a wrong candidate.

    Attributes:
        faulty: the rules that make outputs differ, none of which can be left out; empty if none was
            found.
        text: the finding as a sentence, with advice.
    """

    faulty: tuple[Rule, ...]
    text: str


def accuse(
    graph: Graph,
    wrong: Iterable[Graph],
    rules: Sequence[Rule],
    search: SearchOptions,
    terms: RaceTerms,
    reference: Reference,
    staging: Staging,
    deadline: Deadline,
    *,
    selection: str,
    backends: Sequence[str] = (),
) -> Accusation:
    """Name the rules that made the outputs differ.

    Args:
        graph: the graph that was searched.
        wrong: candidates that compute something else; rules that made a part of them are
            suspected before all others.
        rules: the rules of the search.
        search: options of the search.
        terms: terms on which outputs are compared.
        reference: outputs of the original.
        staging: stages models for sessions.
        deadline: when to give up; a search that has begun is completed.
        selection: the user's selection of rules, for advice on leaving one out.
        backends: backends that run kernels of the candidates, besides the original's.
    """
    session, terms = terms.session(), replace(terms, deadline=deadline)
    # The same prices choose the same graphs; measuring again would only take time.
    again = replace(search, measure=False, deadline=deadline)
    pricer = Pricer(None, terms.threads)

    known: dict[tuple[str, ...], bool] = {}

    def is_wrong(subset: Sequence[Rule]) -> bool:
        key = tuple(rule.name for rule in subset)
        if key not in known:
            known[key] = makes_wrong(subset)
        return known[key]

    def makes_wrong(subset: Sequence[Rule]) -> bool:
        if deadline.expired:
            raise OutOfTime
        try:
            found = propose(graph, subset, pricer, again)
        except ExtractionError:  # without the other rules no graph keeps the limits
            if search.objective.is_limited:
                return False
            raise
        for candidate in (found.best, *found.alternatives):
            if folding_s(candidate.constants.values()) + terms.bulk_s > deadline.left_s:
                raise OutOfTime
            model = staging.of(export_model(candidate))
            # Only wrong outputs count here, so a model that does not run is passed over.
            with suppress(RuntimeFailed):
                found_differences = differences(
                    reference,
                    model,
                    session,
                    terms.numerics,
                    open_session=terms.open_session,
                    precision=terms.precision,
                )
                if any(difference.why for difference in found_differences):
                    return True
        return False

    names = dict.fromkeys(name for candidate in wrong for name in rules_used(candidate))
    involved = ", ".join(names) or "normalisation"
    suspects = [rule for rule in rules if rule.name in names]
    try:
        faulty = needed_items(suspects, is_wrong) or needed_items(rules, is_wrong)
    except OutOfTime:
        if not names:
            return Accusation(
                (), "there was no time to find the rule at fault; allow more (--budget)"
            )
        remedy = f"leave one out with --rules {selection},-NAME"
        return Accusation((), f"involved, but not tried one by one: {involved}; {remedy}")
    if not faulty and backends:
        text = (
            f"no rule is at fault, but kernels of {', '.join(backends)} are involved; leave these "
            "out with --backends"
        )
        return Accusation((), text)
    if not faulty:
        return Accusation((), _without_faulty(is_wrong([]), reference, involved))
    names_text = ", ".join(rule.name for rule in faulty)
    if len(faulty) == 1:
        remedy = f"leave it out with --rules {selection},-{names_text}"
        equation = str(faulty[0])
        # An equation with operators that ONNX does not have would not help the user.
        told = f": {equation}" if equation == plain_kernel(equation) else ""
        return Accusation(faulty, f"rule {names_text} is at fault{told}; {remedy}")
    remedy = f"leave one out with --rules {selection},-NAME"
    return Accusation(faulty, f"rules {names_text} are at fault together; {remedy}")


ROUNDED_BY_SESSIONS = Accusation(
    (),
    "it is equal where sessions optimise nothing, so no rule is at fault: onnxruntime rounds this "
    "form further, as its kernels for weights of 4 bits do",
)
"""The finding on candidates that :func:`are_equal_unoptimised`."""


def are_equal_unoptimised(
    reference: Reference, models: Iterable[ModelSource], terms: RaceTerms
) -> bool:
    """Return whether models compute what the original does in sessions that optimise nothing.

    No equation is wrong then: the runtime chooses kernels that compute something else.

    Args:
        reference: outputs of the original.
        models: candidates that differ in optimised sessions.
        terms: terms on which outputs are compared.
    """
    try:
        return not any(
            difference.why
            for model in models
            for difference in differences(
                reference,
                model,
                terms.session("disabled"),
                terms.numerics,
                open_session=terms.open_session,
                precision=terms.precision,
            )
        )
    except (OutOfTime, RuntimeFailed):
        return False


def _without_faulty(is_wrong_alone: bool, reference: Reference, involved: str) -> str:
    """Return the sentence for a candidate that is wrong although no rule is at fault."""
    if not is_wrong_alone:
        return f"none is when the search is repeated, so no rule is at fault; involved: {involved}"
    return without_rules(reference)


def without_rules(reference: Reference) -> str:
    """Return the sentence for a candidate that is wrong without any rule."""
    if not reference.has_time(TO_EXCUSE):
        return (
            "it is so without any rule, and there was no time to see how far the original moves by "
            "itself; allow more with --budget"
        )
    return "it is so without any rule; please report this model"
