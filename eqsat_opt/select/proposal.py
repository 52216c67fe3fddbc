"""From a normalised graph to candidate graphs: saturate, tile, price, choose, raise."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import TYPE_CHECKING

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.cost.metrics import PEAK, WEIGHT_BYTES
from eqsat_opt.cost.quotes import AnyPricer
from eqsat_opt.egraph import Budget, Saturation, saturate
from eqsat_opt.egraph.saturation.worker import saturate_isolated
from eqsat_opt.extract import AnyObjective
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.graph.handles import folding_room
from eqsat_opt.ir.sizes.sizes import Sizes
from eqsat_opt.select.choosing.choose import ChoiceResult, choose
from eqsat_opt.select.choosing.pricing import PricedCandidates
from eqsat_opt.select.peak_memory import (
    MemoryModel,
    SearchedGraphs,
    least_held_bytes,
    with_less_memory,
)
from eqsat_opt.select.rebuilding.assignment import PlacedGraph
from eqsat_opt.select.rebuilding.constants import Constants, late_constants, spoilt_constants
from eqsat_opt.select.rebuilding.raising import raised
from eqsat_opt.select.tiling.candidates import Candidates
from eqsat_opt.select.tiling.tiling import tile

if TYPE_CHECKING:
    from eqsat_opt.rules import Rule

__all__ = ["Proposal", "SearchOptions", "propose", "repropose"]

Progress = Callable[[str, str], None]
"""Function that is called with a stage and a detail."""

_SATURATION = 0.4
"""Share of the time that saturation gets; most graphs need far less."""

_TILING = 0.3
"""Share of the time then left that tiling gets: pricing its candidates and choosing from them takes
about as long."""

_LARGE = 2_000
"""Number of e-nodes of a model from which on the time of its tiling is more than chance."""

_AFTER_TILING = 3.0
"""Least ratio of the time of tiling, pricing and choosing together to that of tiling."""

_CHOICE = 0.95
"""Share of the time left that measuring and extraction get; raising needs little."""

_FOLDING_S = 0.5
"""Time that folding may take even after the deadline, s."""

_REFUSALS = 6
"""Greatest number of times that constants are refused and the choice is repeated."""


@dataclass(frozen=True)
class SearchOptions:
    """The user's options as far as the search needs them.

    Attributes:
        objective: the objective and its limits.
        budget: budget of saturation.
        sizes: sizes of symbolic dimensions, for pricing; missing ones are assumed.
        measure: whether kernels may be measured.
        alternatives: number of further selections for the race.
        deadline: time at which the search should have ended.
        saturation_limit_s: hard limit on saturation in a child process, s; 0 for none.
        gap: relative gap at which the proof of the last answer may stop.
        seed: random seed of the extraction.
        exact: whether results must be equal bit for bit.
        streams: number of streams on which kernels run.
        told: totals of the original that were read from its file.
        in_session: whether a session of onnxruntime runs the result, in an order of its own.
    """

    objective: AnyObjective
    budget: Budget
    sizes: Mapping[str, int]
    measure: bool = True
    alternatives: int = 2
    deadline: Deadline = field(default_factory=Deadline.never)
    saturation_limit_s: float = 0.0
    gap: float = 0.0
    seed: int = 0
    exact: bool = False
    streams: int = 1
    told: Mapping[str, float] = field(default_factory=dict)
    in_session: bool = True

    @property
    def counts_weights(self) -> bool:
        """Whether the bytes of weights are part of what is minimised or limited."""
        return self.objective.uses(WEIGHT_BYTES)


@dataclass(frozen=True)
class Proposal:
    """The results of a search.

    Attributes:
        saturation: the e-graph and its statistics.
        candidates: kernels for every class.
        choice: the selections and their cost.
        best: the graph of the best selection.
        original: the graph of the original selection: only normalised.
        alternatives: graphs of further selections.
        rules: the rules that the search was allowed to use.
        stages_s: seconds per stage.
        placed: all these graphs with the kernels that were chosen for them.
    """

    saturation: Saturation
    candidates: Candidates
    choice: ChoiceResult
    best: Graph
    original: Graph
    alternatives: tuple[Graph, ...]
    rules: tuple[Rule, ...]
    stages_s: Mapping[str, float]
    placed: tuple[PlacedGraph, ...] = ()


def _silent(_stage: str, _detail: str) -> None:
    pass


def _priced(
    saturation: Saturation,
    pricer: AnyPricer,
    candidates: Candidates,
    *,
    sizes: Mapping[str, int],
    max_constant_bytes: int,
) -> PricedCandidates:
    value, classes = saturation.lowered.value, saturation.eclasses.term_class
    roots = tuple(dict.fromkeys(int(classes[value[n]]) for n in saturation.lowered.graph.outputs))
    return PricedCandidates.of(
        candidates,
        pricer.backends,
        roots,
        sizes=sizes,
        max_constant_bytes=max_constant_bytes,
        interface=pricer.interface,
    )


def _chosen(
    constants: Constants,
    priced: PricedCandidates,
    own: PricedCandidates,
    pricer: AnyPricer,
    options: SearchOptions,
    progress: Progress,
) -> ChoiceResult:
    """Choose so that all folded constants are in the ordinary range of numbers and ready in time.

    Constants are folded once they are chosen. Those that folding spoils, or that cannot be folded
    in the time left, are refused, and the choice is repeated.
    """
    deadline = options.deadline.share(_CHOICE)
    for attempt in range(_REFUSALS + 1):
        choice = choose(
            priced,
            own,
            pricer,
            options.objective,
            measure=options.measure,
            deadline=deadline,
            gap=options.gap,
            n_alternatives=options.alternatives,
            streams=options.streams,
            seed=options.seed,
            told=options.told,
            progress=lambda text: progress("choose", text),
        )
        spoilt, *others = (
            late_constants(constants, one, max(_FOLDING_S, options.deadline.left_s))
            or spoilt_constants(constants, one)
            for one in (choice.best, *choice.alternatives)
        )
        if not spoilt:
            break
        # The last attempt allows only those folded constants that the model itself folds.
        folded = priced.max_constant_bytes if attempt + 1 < _REFUSALS else -1
        refused = priced.refused.union(spoilt, *others)
        priced = replace(priced, refused=refused, max_constant_bytes=folded)
    sound = [not wrong for wrong in others]
    return replace(
        choice,
        alternatives=tuple(compress(choice.alternatives, sound)),
        alternative_metrics=tuple(compress(choice.alternative_metrics, sound)),
        placed=(choice.placed[0], *compress(choice.placed[1:], sound)),
    )


def _is_too_large(
    saturation: Saturation, loaded: Saturation, own_s: float, deadline: Deadline
) -> bool:
    """Return whether the e-graph is too large to be searched in the time left.

    This is extrapolated from the time of tiling the model alone, which is meaningful only for a
    large model; for others, tiling has a deadline of its own.
    """
    own = loaded.eclasses.n_nodes
    expected_s = own_s * saturation.eclasses.n_nodes / max(1, own) * _AFTER_TILING
    return own >= _LARGE and expected_s > deadline.left_s


def propose(
    graph: Graph,
    rules: Sequence[Rule],
    pricer: AnyPricer,
    options: SearchOptions,
    *,
    progress: Progress = _silent,
) -> Proposal:
    """Search the graphs that equal ``graph`` under ``rules`` for the cheapest.

    Raises:
        SaturationError: the e-graph engine failed, or was stopped by the hard deadline.
        ExtractionError: no graph could be extracted, for instance because none keeps the limits.
    """
    stages: dict[str, float] = {}
    clock = time.perf_counter
    start = clock()
    progress("saturate", "")
    budget = replace(options.budget, deadline=options.deadline.share(_SATURATION))
    if options.saturation_limit_s:
        saturation = saturate_isolated(
            graph, rules, budget, options.saturation_limit_s, exact=options.exact
        )
    else:
        saturation = saturate(
            graph,
            rules,
            budget,
            exact=options.exact,
            progress=lambda text: progress("saturate", text),
        )
    stages["saturate"] = clock() - start

    start = clock()
    progress("tile", "")
    loaded = saturate(graph, (), options.budget, exact=options.exact)
    room = folding_room(graph.constants.values())
    sizes = Sizes.of(graph, options.sizes).all
    own_start = options.deadline.clock()
    unchanged = _priced(
        loaded,
        pricer,
        tile(loaded.eclasses, pricer.backends),
        sizes=sizes,
        max_constant_bytes=room,
    )
    own_s = options.deadline.clock() - own_start
    # The cost of the original is that of its kernels on the first backend.
    own = unchanged.run_by(pricer.backends[0].name)
    priced = None
    if not _is_too_large(saturation, loaded, own_s, options.deadline):
        until = options.deadline.share(_TILING)
        candidates = tile(saturation.eclasses, pricer.backends, until)
        if not options.deadline.expired:
            priced = _priced(saturation, pricer, candidates, sizes=sizes, max_constant_bytes=room)
    if priced is None or options.deadline.expired:
        # Only the model itself would be chosen, and a larger problem only takes longer.
        report = replace(loaded.report, stopped_by="time")
        saturation, priced = replace(loaded, report=report), unchanged
    stages["tile"] = clock() - start

    start = clock()
    progress("choose", "")
    constants = Constants(saturation.lowered, saturation.eclasses)
    memory = MemoryModel(sizes, options.in_session)

    def answer(objective: AnyObjective) -> SearchedGraphs:
        choice = _chosen(
            constants,
            priced,
            own=own,
            pricer=pricer,
            options=replace(options, objective=objective),
            progress=progress,
        )
        raising = clock()
        graphs = _placed(choice, saturation, constants, pricer)
        original = PlacedGraph(
            raised(loaded.lowered, loaded.eclasses, choice.original),
            choice.original_placed,
            pricer.interface,
        )
        stages["raise"] = stages.get("raise", 0.0) + clock() - raising
        return SearchedGraphs(choice, (*graphs, original))

    if options.objective.uses(PEAK):
        least = least_held_bytes(priced)
        found = with_less_memory(options.objective, answer, memory, given=graph, least=least)
    else:
        found = answer(options.objective).with_peaks(memory, graph)
    choice, (best, *others, original) = found.choice, found.placed
    stages["measure"] = choice.measuring_s
    stages["extract"] = clock() - start - choice.measuring_s - stages["raise"]
    return Proposal(
        saturation=saturation,
        candidates=priced.candidates,
        choice=choice,
        best=best.graph,
        original=original.graph,
        alternatives=tuple(one.graph for one in others),
        rules=tuple(rules),
        stages_s=stages,
        placed=(best, *others, original),
    )


def _placed(
    choice: ChoiceResult, saturation: Saturation, constants: Constants, pricer: AnyPricer
) -> tuple[PlacedGraph, ...]:
    """Return the graphs of the best selection and of the alternatives."""
    lowered, eclasses = saturation.lowered, saturation.eclasses
    return tuple(
        PlacedGraph(raised(lowered, eclasses, one, constants), placed, pricer.interface)
        for one, placed in zip((choice.best, *choice.alternatives), choice.placed, strict=True)
    )


def repropose(
    proposal: Proposal,
    pricer: AnyPricer,
    options: SearchOptions,
    *,
    max_error: float,
    progress: Progress = _silent,
) -> tuple[tuple[PlacedGraph, ...], ChoiceResult]:
    """Choose again from the same e-graph, where the backends of ``pricer`` offer more than before.

    Args:
        proposal: the results of the first search.
        pricer: the pricer; its first backend runs everything.
        options: options of the search; saturation is not repeated.
        max_error: greatest error of results; less accurate implementations are not offered.
        progress: function that is called with a stage and a detail.

    Raises:
        ExtractionError: no graph was found in time.
    """
    saturation, before = proposal.saturation, proposal.choice.priced
    until = options.deadline.share(_TILING)
    priced = _priced(
        saturation,
        pricer,
        tile(saturation.eclasses, pricer.backends, until),
        sizes=before.sizes,
        max_constant_bytes=before.max_constant_bytes,
    )
    priced = replace(priced, refused=before.refused).within(max_error)
    constants = Constants(saturation.lowered, saturation.eclasses)
    choice = _chosen(
        constants,
        priced,
        own=proposal.choice.own,
        pricer=pricer,
        options=options,
        progress=progress,
    )
    return _placed(choice, saturation, constants, pricer), choice
