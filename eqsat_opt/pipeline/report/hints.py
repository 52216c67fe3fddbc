"""Hints on further runs: options that might gain more, and why.

Nothing is measured for a hint. Its gain is estimated from the prices of this run, from those of
earlier runs in the store, or by a search in a few hundredths of the budget.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import onnx_ir

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.common.text import counted, percent_text
from eqsat_opt.cost.metrics import LAUNCH_US, TIME
from eqsat_opt.cost.operators import analytic_price
from eqsat_opt.cost.pricing import Pricer
from eqsat_opt.cost.store import ProfileStore
from eqsat_opt.egraph.recognition.fragments import fragments
from eqsat_opt.egraph.saturation.program import relevant
from eqsat_opt.errors import ModelError
from eqsat_opt.extract import Objective
from eqsat_opt.ir.graph.plain_names import axis_name
from eqsat_opt.ir.onnx.exporter import export_model
from eqsat_opt.ir.onnx.files.content import operator_counts
from eqsat_opt.ir.onnx.fixed_sizes import fixed_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.values.dim_names import plain_names
from eqsat_opt.pipeline.report.report import Report
from eqsat_opt.pipeline.report.values import Hint
from eqsat_opt.pipeline.request import Request
from eqsat_opt.racing.finding import Job
from eqsat_opt.rules.rule import Rule, directed
from eqsat_opt.runtime.backends.native import NAME as NATIVE
from eqsat_opt.runtime.backends.native.library import missing
from eqsat_opt.runtime.backends.protocol import Offer
from eqsat_opt.select.choosing.choose import ChoiceResult
from eqsat_opt.select.proposal import Proposal, propose

__all__ = ["find_hints", "more_time_hint"]

_LEAST = 0.01
"""Least gain that is worth another run, as a share of the cost."""

_SHARE = 0.03
"""Share of the budget, and of the time left, for repeating a search or an import for a hint."""

_MOST_S = 1.0
"""Seconds that a hint may take however long the budget is: it is worth no more to anybody."""

_MORE = 4
"""Factor by which a hint raises the budget or the limit of e-nodes that ended the search."""


def find_hints(
    report: Report, model: onnx_ir.Model, job: Job, proposal: Proposal, *, request: Request
) -> tuple[Hint, ...]:
    """Return hints of all kinds, by descending gain; those without a known gain come last."""
    hints = (
        *_fixed_sizes(report, model, job, request=request),
        *_weaker_class(job, proposal, request=request),
        *_tuned(report, proposal, request=request),
        *more_time_hint(report, request=request),
    )
    return tuple(sorted(hints, key=lambda one: -1.0 if one.gain is None else -one.gain))


def _has_time(expected_s: float, job: Job, request: Request) -> bool:
    """Return whether work of the expected duration may be done for a hint alone."""
    share_s = _SHARE * min(request.budget_s, job.terms.deadline.left_s)
    return expected_s <= min(share_s, _MOST_S)


# Fixed sizes ------------------------------------------------------------------------------------


def _fixed_sizes(
    report: Report, model: onnx_ir.Model, job: Job, request: Request
) -> Iterator[Hint]:
    """Suggest fixed sizes where these fold operators, by importing the model with such sizes."""
    sizes = {axis_name(name): size for name, size in job.terms.sizes[0].inputs.items()}
    is_open = sizes and not request.fixed and len(job.terms.sizes) == 1
    if not is_open or not _has_time(report.stages_s.get("load", math.inf), job, request):
        return
    named = plain_names(name for value in model.graph.inputs for name in _names(value))
    if not named.issuperset(sizes):  # an axis without a name, or a part of a formula
        return
    try:
        there = normalise(
            import_model(fixed_model(model, sizes), exact=request.exact), numerics=request.numerics
        )
    except ModelError:  # sizes at which the model never ran may contradict it
        return
    # A search at these sizes might gain more; only folding is counted.
    after = sum(report.operators_after.values())
    folded = after - operator_counts(export_model(there)).total()
    cost = report.original_cost
    gain = folded * LAUNCH_US / cost if cost and report.goal == TIME else 0.0
    if folded <= 0 or (report.goal == TIME and gain < _LEAST):
        return
    text = ", ".join(f"{name}={size}" for name, size in sizes.items())
    yield Hint(
        kind="fixed_sizes",
        why=(
            f"with fixed sizes, such as {text}, {folded} of {counted(after, 'operator')} are not "
            "needed"
        ),
        flags=tuple(
            part for name, size in sizes.items() for part in ("--fix-shape", f"{name}:{size}")
        ),
        gain=gain or None,
    )


def _names(value: onnx_ir.Value) -> Iterator[str]:
    for dim in value.shape or ():
        if not isinstance(dim, int) and dim.value:
            yield dim.value


# A weaker class ---------------------------------------------------------------------------------


def _weaker_class(job: Job, proposal: Proposal, request: Request) -> Iterator[Hint]:
    """Suggest the strongest of the weaker classes whose rules lead to a cheaper graph.

    The search with these rules is repeated without measuring, where its duration permits: with
    the prices of the target where it has a profile, and for this processor by the least times of
    operations and bytes. The weakest class comes first, whose rules are all of them: where it gains
    nothing, none does.
    """
    spent_s = sum(proposal.stages_s.get(name, 0.0) for name in ("saturate", "tile", "extract"))
    objective = job.search.objective
    pricer = Pricer(None, request.threads) if request.device is None else job.pricer
    cost = _bound_us if request.device is None else _objective_value
    how = " by its operations and bytes" if request.device is None else ""
    now = cost(proposal.choice)
    if not isinstance(objective, Objective) or objective.is_limited or not now:
        return
    found: Hint | None = None
    *others, weakest = Numerics
    for weaker in (weakest, *others):
        if weaker <= request.numerics or not _has_time(spent_s, job, request):
            continue
        rules = request.rules_of(weaker)
        if not _may_add(rules, proposal):
            if weaker is weakest:
                return
            continue
        start = time.perf_counter()
        search = replace(
            job.search,
            measure=False,
            alternatives=0,
            deadline=job.terms.deadline.share(_SHARE).earlier(Deadline.after(_MOST_S)),
        )
        there = propose(job.clean, rules, pricer, search)
        spent_s = max(spent_s, time.perf_counter() - start)
        gain = 1 - cost(there.choice) / now
        if gain >= _LEAST:
            found = Hint(
                kind="numerics",
                why=(
                    f"rules of the class {weaker.name.lower()} lead to a graph that costs "
                    f"{percent_text(gain)} less{how}"
                ),
                flags=("--numerics", weaker.name.lower()),
                gain=gain,
            )
        if (gain >= _LEAST) != (weaker is weakest):
            break
    if found is not None:
        yield found


def _may_add(rules: Sequence[Rule], proposal: Proposal) -> bool:
    """Return whether rules that the search did not have may match in the model."""
    lowered = proposal.saturation.lowered
    terms = [*lowered.terms, *(term for piece in fragments(lowered) for term in piece.terms)]
    known = {rule.name for rule in directed(proposal.rules)}
    found = relevant(directed(rules), {term.op for term in terms})
    return any(rule.name not in known for rule in found)


def _kernels(choice: ChoiceResult) -> list[Offer]:
    """Return the kernels of the best graph with their backends and implementations."""
    priced = choice.priced
    kernels = {
        id(item): kernel
        for item, kernel in zip(priced.candidates.items, priced.kernels, strict=True)
    }
    return [
        Offer(kernel, one.backend, one.implementation)
        for one in choice.best.values()
        if (kernel := kernels.get(id(one.candidate))) is not None
    ]


def _objective_value(choice: ChoiceResult) -> float:
    """Return what the best graph costs by the prices that chose it."""
    return choice.extraction.cost


def _bound_us(choice: ChoiceResult) -> float:
    """Return the time of the best graph by its operations and bytes alone, µs."""
    return math.fsum(analytic_price(offer.kernel).time_us for offer in _kernels(choice))


# The tuned form ---------------------------------------------------------------------------------


def _tuned(report: Report, proposal: Proposal, request: Request) -> Iterator[Hint]:
    """Suggest the tuned form by the known gain of our kernels, or by the time that they cover."""
    if request.tuned is not None or not request.is_here or not request.measure or missing():
        return
    prices = proposal.choice.prices
    times_us = [
        (offer, prices[offer].time_us) for offer in _kernels(proposal.choice) if offer in prices
    ]
    total_us = math.fsum(time_us for _, time_us in times_us)
    if not total_us:
        return
    store = None if request.store == "" else ProfileStore(request.store)
    pricer = Pricer(store, request.threads, (NATIVE,))
    try:
        (native,) = pricer.backends
        ways = {
            offer: [
                Offer(offer.kernel, native.name, how)
                for how in native.implementations(offer.kernel)
            ]
            for offer, _ in times_us
        }
        pricer.recall(way for some in ways.values() for way in some)
        saved_us, matched_us = 0.0, 0.0
        for offer, own_us in times_us:
            known = [pricer.price(way).time_us for way in ways[offer] if pricer.is_known(way)]
            matched_us += own_us if ways[offer] else 0.0
            saved_us += max(0.0, own_us - min(known, default=own_us))
    finally:
        if store is not None:
            store.close()
    gain = saved_us / total_us
    stem = os.path.basename(report.model).removeprefix("zoo:").removesuffix(".onnx")
    flags = ("--tuned", f"{stem}.tuned.onnx")
    if gain >= _LEAST:
        why = f"kernels of our own were measured to take {percent_text(gain)} of the time less"
        yield Hint(kind="tuned", why=why, flags=flags, gain=gain)
    elif matched_us / total_us >= _MATCHED:
        share = percent_text(matched_us / total_us)
        why = f"kernels of our own could compute what takes {share} of the predicted time"
        yield Hint(kind="tuned", why=why, flags=flags)


_MATCHED = 0.25
"""Least share of the predicted time in kernels that ours could compute, for a hint."""


# More time --------------------------------------------------------------------------------------


def more_time_hint(report: Report, request: Request) -> Iterator[Hint]:
    """Suggest more time or more e-nodes if a limit ended the rules.

    More time is also suggested where the search ended with a gap to the bound.
    """
    if report.stopped_by == "nodes":
        yield Hint(
            kind="nodes",
            why=f"the rules had not ended at {request.nodes:,} e-nodes",
            flags=("--nodes", str(_MORE * request.nodes)),
        )
    result = report.result_cost
    is_open = report.extraction_status != "optimal" and result and report.lower_bound > 0
    left = 1 - report.lower_bound / result if is_open and result else 0.0
    if left < max(_LEAST, request.gap) and report.stopped_by != "time":
        return
    why = (
        f"a graph may be up to {percent_text(left)} cheaper, the search ended before that was known"
        if left >= _LEAST
        else "the rules had not ended when their time was over"
    )
    yield Hint(
        kind="time",
        why=why,
        flags=("--budget", f"{_MORE * request.budget_s:g}"),
        gain=left if left >= _LEAST else None,
    )
