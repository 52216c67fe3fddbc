"""The e-graph's answer under prices of single operators, so that it compares with a search's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from eqsat_opt.comparison.operators import operator_graph
from eqsat_opt.comparison.results import Moment
from eqsat_opt.egraph import Budget, EClasses, Saturation, saturate
from eqsat_opt.egraph.terms import LEAF, OUT
from eqsat_opt.extract import Problem, ProblemBuilder, extract
from eqsat_opt.extract.extraction import Choice, active_order
from eqsat_opt.ir.graph import OPAQUE, Graph
from eqsat_opt.ir.kernel import Kernel, Step
from eqsat_opt.rules import Rule
from eqsat_opt.search import Frame, Outcome, Prices, Quoted
from eqsat_opt.search.pricing import Preferred
from eqsat_opt.select import Candidate, Selected, raise_graph
from eqsat_opt.select.candidates import OperandRef

__all__ = ["Saturated", "saturated"]


@dataclass(frozen=True, kw_only=True)
class Saturated:
    """What the e-graph found.

    Attributes:
        outcome: the best graph, and what it costs, recomputed from the graph.
        lower_bound: no graph in the e-graph costs less.
        status: of the extraction; ``optimal`` is proven.
        enodes: size of the e-graph.
        stopped_by: what ended saturation.
        trace: how the cost fell; a graph counts from when it could have been written out.
    """

    outcome: Outcome
    lower_bound: float
    status: str
    enodes: int
    stopped_by: str
    trace: tuple[Moment, ...]


def _children(eclasses: EClasses, node: int) -> tuple[int, ...]:
    """What must be computed for a node: nothing for a constant."""
    if eclasses.is_const[eclasses.class_of[node]]:
        return ()
    return tuple(dict.fromkeys(eclasses.children(node)))


def _costs(eclasses: EClasses, node: int, prices: Prices) -> list[tuple[float, ...]]:
    """A row for each way to run an e-node."""
    op, metrics = eclasses.op[node], prices.valuation.metrics
    if op in (LEAF, OUT) or eclasses.is_const[eclasses.class_of[node]]:
        return [(0.0,) * len(metrics)]
    operands = [(eclasses.types[c], bool(eclasses.is_const[c]), c) for c in eclasses.children(node)]
    rows = prices.operator(op, () if op == OPAQUE else eclasses.attrs[node], operands)
    return [tuple(map(row.metrics.__getitem__, metrics)) for row in rows]


def _problem(saturation: Saturation, prices: Prices) -> tuple[Problem, list[int]]:
    """The problem, and the e-node of each of its nodes; a constant class has one that is free."""
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
        builder.add_node(cls, _children(eclasses, node), _costs(eclasses, node, prices))
        index.append(node)
    lowered, classes = saturation.lowered, eclasses.term_class
    roots = (int(classes[lowered.value[name]]) for name in lowered.graph.outputs)
    return builder.build(dict.fromkeys(roots)), index


def _candidate(eclasses: EClasses, node: int) -> Candidate:
    """The e-node as a kernel of its own."""
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


def _as_chosen(eclasses: EClasses, choice: Choice, index: Sequence[int], prices: Prices) -> Prices:
    """The prices of the implementations that were chosen; of several for one kernel the first's."""
    chosen: dict[Kernel, Quoted] = {}
    for cls, (place, way) in choice.items():
        node = index[place]
        if eclasses.op[node] in (LEAF, OPAQUE, OUT) or eclasses.is_const[cls]:
            continue
        operands = [
            (eclasses.types[c], bool(eclasses.is_const[c]), c) for c in eclasses.children(node)
        ]
        op, attrs = eclasses.op[node], eclasses.attrs[node]
        kernel = prices.kernel(op, attrs, operands)
        quoted = prices.operator(op, attrs, operands)[way].quoted
        if kernel is not None and quoted is not None:
            chosen.setdefault(prices.sized(kernel), quoted)
    return Prices(Preferred(prices.pricer, chosen), prices.valuation, prices.sizes)


def _own_choice(saturation: Saturation, problem: Problem, index: Sequence[int]) -> Choice:
    """The choice of the model itself: of its terms in one class the first, which reads no other."""
    eclasses, classes = saturation.eclasses, saturation.eclasses.term_class.tolist()
    places: dict[tuple[object, ...], int] = {}
    own: dict[int, tuple[int, int]] = {}
    for place, node in enumerate(index):
        cls = int(eclasses.class_of[node])
        attrs = repr(eclasses.attrs[node])  # NaN differs from itself.
        places[cls, eclasses.op[node], attrs, eclasses.children(node)] = place
        if eclasses.is_const[cls]:
            own[cls] = (place, 0)
    for cls, term in zip(classes, saturation.lowered.terms, strict=True):
        operands = tuple(classes[child] for child in term.children)
        place = places.get((cls, term.op, repr(term.attrs), operands), -1)
        if place >= 0:
            own.setdefault(cls, (place, 0))
    return {cls: own[cls] for cls in active_order(problem, own)}


def saturated(
    graph: Graph,
    rules: Sequence[Rule],
    prices: Prices,
    budget: Budget,
    *,
    time_limit_s: float = 10.0,
    seed: int = 0,
) -> Saturated:
    """Saturate, price each e-node as a separate operator, extract, and build the graph.

    Siblings merge by seeds instead of two-root rules.

    Raises:
        SaturationError: the engine failed.
        ExtractionError: nothing could be extracted.
    """
    clock = time.perf_counter
    started = clock()
    saturation = saturate(graph, rules, budget)
    report, eclasses = saturation.report, saturation.eclasses

    problem, index = _problem(saturation, prices)
    own = _own_choice(saturation, problem, index)
    begun = clock()
    found = extract(
        problem,
        prices.valuation.objective,
        incumbent=own,
        time_limit_s=time_limit_s,
        seed=seed,
        deterministic=False,
    )
    extracted = clock()

    own_frame = Frame(operator_graph(saturation.lowered), (), prices)
    original = own_frame.start.value
    if found.status == "infeasible":
        return Saturated(
            outcome=own_frame.outcome(own_frame.start),
            lower_bound=found.lower_bound,
            status=found.status,
            enodes=report.enodes,
            stopped_by=report.stopped_by,
            trace=(),
        )
    selection = {c: Selected(_candidate(eclasses, index[n])) for c, (n, _) in found.choice.items()}
    raised = raise_graph(saturation.lowered, eclasses, selection)
    frame = Frame(raised, (), _as_chosen(eclasses, found.choice, index, prices))
    # A graph counts as found when it could have been written down.
    ready_s = begun - started + clock() - extracted
    return Saturated(
        outcome=frame.outcome(frame.start),
        lower_bound=found.lower_bound,
        status=found.status,
        enodes=report.enodes,
        stopped_by=report.stopped_by,
        trace=(
            Moment(ready_s, original),
            *(Moment(ready_s + point.time_s, point.cost) for point in found.trace),
        ),
    )
