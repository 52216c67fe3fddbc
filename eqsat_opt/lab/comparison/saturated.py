"""The e-graph's answer under prices of single operators, so that it compares with a search's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from eqsat_opt.cost.metrics import TIME
from eqsat_opt.cost.operators import STEPS
from eqsat_opt.egraph import Budget, EClasses, Saturation
from eqsat_opt.egraph.terms import LEAF, OUT
from eqsat_opt.extract import AnyObjective, Objective, Problem, ProblemBuilder, TracePoint, extract
from eqsat_opt.extract.extraction import Choice, Extraction, active_order
from eqsat_opt.extract.objective import CRITICAL_PATH
from eqsat_opt.ir.graph.graph import OPAQUE, Graph
from eqsat_opt.ir.graph.kernel import Kernel, Step
from eqsat_opt.lab.comparison.engines import EGraphMethod, EqSat
from eqsat_opt.lab.comparison.operators import operator_graph
from eqsat_opt.lab.comparison.results import Moment
from eqsat_opt.lab.search import Budget as SearchBudget
from eqsat_opt.lab.search import Frame, Level, MetaFlow, PriceCache, PricedGraph, Quoted
from eqsat_opt.lab.search.pricing.own_cost import OwnCost
from eqsat_opt.lab.search.pricing.pricing import ImplementationRow, Preferred
from eqsat_opt.lab.search.pricing.streaming import StreamDevice, Streams
from eqsat_opt.rules import Rule
from eqsat_opt.runtime.backends.protocol import Backend
from eqsat_opt.select import Candidate, Selected, raise_graph
from eqsat_opt.select.tiling.candidates import JOINT, OperandRef, kernel_of
from eqsat_opt.select.tiling.tiling import tile

__all__ = ["Saturated", "saturated"]


@dataclass(frozen=True, kw_only=True)
class Saturated:
    """The result of saturation and extraction.

    Attributes:
        outcome: the best graph and its cost, recomputed from the graph.
        lower_bound: no graph in the e-graph costs less.
        status: status of the extraction; ``optimal`` is proven.
        enodes: size of the e-graph.
        stopped_by: the limit that ended saturation.
        trace: how the cost fell; a graph counts from when it could have been written out.
        steps: names of the rules of substitutions after extraction, at level ``streams``.
    """

    outcome: PricedGraph
    lower_bound: float
    status: str
    enodes: int
    stopped_by: str
    trace: tuple[Moment, ...]
    steps: tuple[str, ...] = ()


def _children(eclasses: EClasses, node: int) -> tuple[int, ...]:
    """Return the classes that must be computed for a node: none for a constant."""
    if eclasses.is_const[eclasses.class_of[node]]:
        return ()
    return tuple(dict.fromkeys(eclasses.children(node)))


def _costs(eclasses: EClasses, node: int, prices: PriceCache) -> list[tuple[float, ...]]:
    """Return a row of costs for each way to run an e-node."""
    op, metrics = eclasses.op[node], prices.valuation.metrics
    if op in (LEAF, OUT) or eclasses.is_const[eclasses.class_of[node]]:
        return [(0.0,) * len(metrics)]
    operands = [(eclasses.types[c], bool(eclasses.is_const[c]), c) for c in eclasses.children(node)]
    rows = prices.operator(op, () if op == OPAQUE else eclasses.attrs[node], operands)
    return [tuple(map(row.metrics.__getitem__, metrics)) for row in rows]


def _problem(saturation: Saturation, prices: PriceCache) -> tuple[Problem, list[int]]:
    """Build the extraction problem, and list the e-node of each of its nodes.

    A constant class has one node, which is free.
    """
    eclasses = saturation.eclasses
    builder = ProblemBuilder(prices.valuation.metrics)
    for _ in range(eclasses.n_classes):
        builder.add_class()
    index: list[int] = []
    constants: set[int] = set()
    for node in range(eclasses.n_nodes):
        cls = int(eclasses.class_of[node])
        if eclasses.is_const[cls]:
            if cls in constants:
                continue
            constants.add(cls)
        elif eclasses.op[node] in STEPS:
            continue
        builder.add_node(cls, _children(eclasses, node), _costs(eclasses, node, prices))
        index.append(node)
    lowered, classes = saturation.lowered, eclasses.term_class
    roots = (int(classes[lowered.value[name]]) for name in lowered.graph.outputs)
    return builder.build(dict.fromkeys(roots)), index


def _candidate(eclasses: EClasses, node: int) -> Candidate:
    """Return the e-node as a kernel of its own."""
    cls, op = int(eclasses.class_of[node]), eclasses.op[node]
    children = _children(eclasses, node)
    if eclasses.is_const[cls]:
        return Candidate(cls, "const", (node,), ())
    if op in (LEAF, OPAQUE, OUT):
        kind = {LEAF: "leaf", OPAQUE: "opaque", OUT: "out"}[op]
        return Candidate(cls, kind, (node,), children)
    operands = tuple(children.index(c) for c in eclasses.children(node))
    step = Step(op, eclasses.attrs[node], operands)
    refs = tuple(OperandRef(c) for c in children)
    return Candidate(
        cls=cls,
        kind="op",
        nodes=(node,),
        reads=children,
        operands=refs,
        steps=(step,),
        outputs=(len(refs),),
    )


_WORK = "work_us"
"""Time for which a kernel would keep a whole device busy."""


def _kernel_problem(
    saturation: Saturation,
    prices: PriceCache,
    backends: Sequence[Backend],
    streams: Streams | None = None,
) -> tuple[Problem, list[Candidate]]:
    """Build the extraction problem over fused kernels, and list the candidate of each of its nodes.

    Where kernels run on streams, the work of each is one more metric.
    """
    found = tile(saturation.eclasses, backends)
    metrics = prices.valuation.metrics
    builder = ProblemBuilder(metrics if streams is None else (*metrics, _WORK))
    for _ in range(found.n_classes):
        builder.add_class()
    items = []
    for item, kernel in zip(found.items, found.kernels, strict=True):
        if any(step.op in STEPS for step in item.steps):
            continue
        items.append(item)
        ways: tuple[ImplementationRow, ...] = (prices.free,)
        if item.kind == "opaque" or item.steps:
            ways = (prices.unknown,) if kernel is None else prices.rows(kernel)
        costs = [
            tuple(0.0 if way.quoted is None else way.metrics[name] for name in metrics)
            for way in ways
        ]
        if streams is not None:
            sized = None if kernel is None else prices.sized(kernel)
            loads = [streams.load(sized, way.quoted) for way in ways]
            costs = [(*cost, load.work_us) for cost, load in zip(costs, loads, strict=True)]
        builder.add_node(item.cls, item.reads, costs)
    lowered, classes = saturation.lowered, saturation.eclasses.term_class
    roots = (int(classes[lowered.value[name]]) for name in lowered.graph.outputs)
    return builder.build(dict.fromkeys(roots)), items


def _operators_of(eclasses: EClasses, chosen: Iterable[Candidate]) -> dict[int, Selected]:
    """Split kernels into operators, one for each class.

    Where two kernels compute a value, the operator of the kernel whose root it is takes precedence.
    """
    found: dict[int, Selected] = {}
    inner = []
    for item in chosen:
        for node in item.nodes:
            cls = int(eclasses.class_of[node])
            if cls == item.cls or item.kind in JOINT:
                found[cls] = Selected(_candidate(eclasses, node))
            else:
                inner.append((cls, node))
    for cls, node in inner:
        found.setdefault(cls, Selected(_candidate(eclasses, node)))
    return found


def _as_chosen(
    eclasses: EClasses, choice: Choice, items: Sequence[Candidate], prices: PriceCache
) -> PriceCache:
    """Return prices that keep the chosen implementations.

    Where several implementations were chosen for one kernel, the first one counts.
    """
    chosen: dict[Kernel, Quoted] = {}
    for place, way in choice.values():
        kernel = kernel_of(eclasses, items[place])
        quoted = None if kernel is None else prices.rows(kernel)[way].quoted
        if kernel is not None and quoted is not None:
            chosen.setdefault(prices.sized(kernel), quoted)
    return PriceCache(Preferred(prices.pricer, chosen), prices.valuation, prices.sizes)


def _own_choice(saturation: Saturation, problem: Problem, index: Sequence[int]) -> Choice:
    """Return the choice that is the model itself.

    Where several terms of the model are in one class, the first counts: it reads none of the
    others.
    """
    eclasses, classes = saturation.eclasses, saturation.eclasses.term_class.tolist()
    places: dict[tuple[object, ...], int] = {}
    own: dict[int, tuple[int, int]] = {}
    for place, node in enumerate(index):
        cls = int(eclasses.class_of[node])
        attrs = repr(eclasses.attrs[node])  # the text is equal where NaN differs from itself
        places[cls, eclasses.op[node], attrs, eclasses.children(node)] = place
        if eclasses.is_const[cls]:
            own[cls] = (place, 0)
    for cls, term in zip(classes, saturation.lowered.terms, strict=True):
        operands = tuple(classes[child] for child in term.children)
        place = places.get((cls, term.op, repr(term.attrs), operands), -1)
        if place >= 0:
            own.setdefault(cls, (place, 0))
    return {cls: own[cls] for cls in active_order(problem, own)}


def _note(moments: list[Moment], begun_s: float, begun_cpu_s: float, point: TracePoint) -> None:
    now_s, now_cpu_s = time.perf_counter() - begun_s, time.process_time() - begun_cpu_s
    moments.append(Moment(now_s, point.cost, now_cpu_s))


_LEFT, _LEAST_SHARE = 0.1, 0.02
"""Share of CPU seconds that may be left over, and the smallest share of a core to reckon with."""


def _extracted(
    solve: Callable[..., Extraction], incumbent: Choice | None, limit_s: float, *, counts_cpu: bool
) -> Extraction:
    """Extract for a number of seconds.

    Solvers know seconds of the clock, of which other processes may take most. Where CPU seconds
    count, extraction goes on from its answer until they are spent.

    Args:
        solve: extracts from an incumbent within seconds of the clock.
        incumbent: a known solution.
        limit_s: seconds of the clock, or CPU seconds.
        counts_cpu: whether they are CPU seconds.
    """
    begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
    found = solve(incumbent=incumbent, time_limit_s=limit_s)
    while counts_cpu and found.status == "feasible":
        spent_s = time.process_time() - begun_cpu_s
        if spent_s > (1 - _LEFT) * limit_s:
            break
        share = max(_LEAST_SHARE, spent_s / (time.perf_counter() - begun_s))
        after = solve(incumbent=found.choice, time_limit_s=(limit_s - spent_s) / min(share, 1.0))
        bound = max(found.lower_bound, after.lower_bound)
        found = replace(after, lower_bound=bound) if bound > after.lower_bound else after
    return found


def saturated(
    graph: Graph,
    rules: Sequence[Rule],
    prices: PriceCache,
    budget: Budget,
    *,
    engine: EGraphMethod | None = None,
    time_limit_s: float = 10.0,
    seed: int = 0,
    level: Level = "operators",
    profile: StreamDevice | None = None,
    backends: Sequence[Backend] = (),
    deterministic: bool = False,
) -> Saturated:
    """Saturate, price each e-node as a separate operator, extract, and build the graph.

    Above level ``operators`` the patterns of ``backends`` are priced too. Each kernel is priced by
    the implementation that is best by itself once the graph is built. Siblings merge by seeds
    instead of two-root rules. At level ``streams`` graphs are extracted for several sums; from the
    one whose kernels end first, substitutions are applied as long as a graph ends sooner. With
    ``deterministic`` equal seeds give equal graphs unless a time limit strikes.

    Raises:
        SaturationError: the engine failed.
        ExtractionError: nothing could be extracted.
    """
    clock, cpu = time.perf_counter, time.process_time
    started, started_cpu = clock(), cpu()
    engine = engine or EqSat()
    greedy = engine.extract == "greedy"
    saturation = engine.saturate(graph, rules, budget)
    report, eclasses = saturation.report, saturation.eclasses

    own: Choice | None = None
    if level == "operators":
        problem, index = _problem(saturation, prices)
        items = [_candidate(eclasses, node) for node in index]
        own = _own_choice(saturation, problem, index)
    else:
        streams = Streams.of(profile) if level == "streams" else None
        problem, items = _kernel_problem(saturation, prices, backends, streams)

    def framed(graph: Graph, prices: PriceCache) -> Frame:
        return Frame(graph, (), prices, level, profile=profile, backends=backends)

    start = best_framed = framed(operator_graph(saturation.lowered), prices)
    goal = prices.valuation.objective
    assert not isinstance(goal, OwnCost)  # the settings ensure it
    guides = (*_guides(goal), *_bounds(goal)) if level == "streams" else (goal,)
    best = start.outcome(start.start)
    answers: list[Extraction] = []
    trace: list[Moment] = []
    for guide in guides:
        at_s, at_cpu_s = clock(), cpu()
        moments: list[Moment] = []
        found = _extracted(
            partial(
                extract,
                problem,
                guide,
                method="greedy" if greedy else "auto",
                seed=seed,
                deterministic=deterministic,
                progress=partial(_note, moments, at_s, at_cpu_s),
            ),
            None if greedy else own,
            time_limit_s / len(guides),
            counts_cpu=not deterministic,
        )
        spent_s, spent_cpu_s = clock() - at_s, cpu() - at_cpu_s
        answers.append(found)
        if found.status == "infeasible":
            continue
        chosen = [items[place] for place, _ in found.choice.values()]
        raised = raise_graph(saturation.lowered, eclasses, _operators_of(eclasses, chosen))
        frame = framed(raised, _as_chosen(eclasses, found.choice, items, prices))
        outcome = frame.outcome(frame.start)
        if outcome.value < best.value:
            best, best_framed = outcome, frame
        if level == "streams":
            trace.append(Moment(clock() - started, best.value, cpu() - started_cpu))
            continue
        # A graph counts as found when it could have been written down.
        ready_s = clock() - started - spent_s
        ready_cpu_s = cpu() - started_cpu - spent_cpu_s
        trace = [
            Moment(ready_s, start.start.value, ready_cpu_s),
            *(Moment(ready_s + one.time_s, one.cost, ready_cpu_s + one.cpu_s) for one in moments),
        ]
    proven = answers[-len(_bounds(goal)) :] if level == "streams" else answers
    lower_bound, status = max((one.lower_bound, one.status) for one in proven)
    steps: tuple[str, ...] = ()
    if level == "streams" and engine.trials:
        # The original is a start too: a good graph near it may be far from every least sum.
        for frame in (start, best_framed) if best_framed is not start else (start,):
            within = SearchBudget(substitutions=engine.trials)
            descent = MetaFlow(alpha=1.0).run(replace(frame, rules=tuple(rules)), within, seed)
            if descent.value < best.value:
                best, steps = descent.outcome, descent.steps
    if steps:
        trace.append(Moment(clock() - started, best.value, cpu() - started_cpu))
    if status == "optimal" and best.value > lower_bound * (1 + _ROUNDING):
        status = "feasible"
    return Saturated(
        outcome=best,
        lower_bound=lower_bound,
        status=status,
        enodes=report.enodes,
        stopped_by=report.stopped_by,
        trace=tuple(trace),
        steps=steps,
    )


_ROUNDING = 1e-6
"""Relative tolerance for totals that are rounded to millionths."""

_SHARES = (0.0, 0.25, 1.0)
"""Weights of the longest chain in addition to the sum; AutoGraph's is among them."""


def _guides(goal: AnyObjective) -> tuple[AnyObjective, ...]:
    """Return the objectives to extract for where no sum models when the last kernel ends.

    They are sums with more and more weight on the longest chain; each extracted graph is simulated.
    """
    goal = _without_time_limit(goal)
    share = goal.weights.get(TIME, 0.0)
    if not share:
        return ()
    path = goal.path or {TIME: 1.0}
    return tuple(
        replace(goal, critical_path=goal.critical_path + share * more, path=path)
        for more in _SHARES
    )


def _bounds(goal: AnyObjective) -> tuple[AnyObjective, ...]:
    """Return lower bounds of the objective on any number of streams.

    One replaces the time by the longest chain. The other replaces it by all the work, which no
    device finishes faster than when it is busy as a whole.
    """
    goal = _without_time_limit(goal)
    share = goal.weights.get(TIME, 0.0)
    if not share:
        return (goal,)
    others = {name: weight for name, weight in goal.weights.items() if name != TIME}
    along = goal.critical_path * goal.path.get(TIME, 0.0) if set(goal.path) == {TIME} else 0.0
    limits = {name: x for name, x in goal.limits.items() if name != CRITICAL_PATH}
    work = Objective({**others, _WORK: share}, limits=limits, caps=goal.caps)
    chain = Objective(
        others, critical_path=share + along, path={TIME: 1.0}, limits=limits, caps=goal.caps
    )
    return chain, work


def _without_time_limit(goal: AnyObjective) -> Objective:
    """Drop the limit on the time, which applies to when the last kernel ends and not to a sum."""
    assert isinstance(goal, Objective)  # the settings ensure it
    return replace(goal, limits={name: x for name, x in goal.limits.items() if name != TIME})
