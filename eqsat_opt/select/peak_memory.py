"""The peak memory of graphs that were found, and the search for less of it.

The sum that an extraction minimises knows no order, and a peak is no sum. It is bounded: whatever
the order, the operands and results of each kernel are there at once. So extraction gets a cap on
each kernel, the graphs that it finds get an order, and the peak is that of the order.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from eqsat_opt.cost.metrics import PEAK
from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract import AnyObjective, Objective
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.values.dims import literal
from eqsat_opt.runtime.memory.orders import Lifetimes, by_rank, in_order, least_peak
from eqsat_opt.runtime.memory.session_memory import SessionMemory
from eqsat_opt.select.choosing.choose import ChoiceResult
from eqsat_opt.select.choosing.pricing import PricedCandidates
from eqsat_opt.select.rebuilding.assignment import PlacedGraph

__all__ = ["MemoryModel", "SearchedGraphs", "keeps_peak", "least_held_bytes", "with_less_memory"]


@dataclass(frozen=True)
class MemoryModel:
    """The way in which graphs get memory.

    Attributes:
        sizes: sizes of symbolic dimensions.
        in_session: whether a session of onnxruntime runs the graph; if not, a plan does, whose
            launches are the chosen kernels.
    """

    sizes: Mapping[str, int]
    in_session: bool

    def peak_bytes(self, one: PlacedGraph) -> float:
        """Return the most bytes of values that are live at once in the order of the graph."""
        if self.in_session:
            return self.of_file(one.graph)
        lives, _ = self._launches(one)
        return float(lives.peak_bytes(range(len(lives.reads))))

    def of_file(self, graph: Graph) -> float:
        """Return the peak of a graph whose nodes are in the order of a file."""
        if self.in_session:
            return float(SessionMemory(graph, self.sizes).peak_bytes())
        return float(Lifetimes.of(graph, self.sizes).peak_bytes(range(len(graph.nodes))))

    def with_less(self, one: PlacedGraph) -> PlacedGraph:
        """Return the graph in an order with a lower peak, where one is found."""
        if self.in_session:
            graph = SessionMemory(one.graph, self.sizes).with_less()
        else:
            lives, groups = self._launches(one)
            order = least_peak(lives, [range(len(groups))]).order
            graph = in_order(one.graph, [node for group in order for node in groups[group]])
        return replace(one, raised=replace(one.raised, graph=graph))

    def lower_bound_bytes(self, graph: Graph) -> float:
        """Return bytes of inputs and outputs that are there at once, whatever is between them."""
        ends = Lifetimes.of(replace(graph, nodes=()), self.sizes, keeps_inputs=self.in_session)
        made = {name for name in graph.outputs if name not in graph.inputs}
        results = Lifetimes.of(replace(graph, inputs=tuple(made), nodes=()), self.sizes)
        if self.in_session:
            return float(ends.begin_bytes + results.begin_bytes)
        return float(max(ends.begin_bytes, results.begin_bytes))

    def _launches(self, one: PlacedGraph) -> tuple[Lifetimes, list[list[int]]]:
        """Return the lifetimes of the launches, in an order that is possible, and their nodes."""
        graph, kernel_of = one.graph, one.raised.kernel_of
        lives = Lifetimes.of(graph, self.sizes)
        found: dict[object, list[int]] = {}
        for number, node in enumerate(graph.nodes):
            found.setdefault(kernel_of.get(node.outputs[0], node.outputs[0]), []).append(number)
        groups = sorted(found.values(), key=max)
        joined = lives.joined(groups)
        order = by_rank(joined, {number: float(number) for number in range(len(groups))})
        if len(order) < len(groups):  # kernels that wait for each other are no launches
            return lives, [[number] for number in range(len(graph.nodes))]
        groups = [groups[number] for number in order]
        return lives.joined(groups), groups


@dataclass(frozen=True)
class SearchedGraphs:
    """A choice and its graphs.

    Attributes:
        choice: the choice.
        placed: the graph of its best selection, those of its alternatives, and the original.
    """

    choice: ChoiceResult
    placed: tuple[PlacedGraph, ...]

    def with_peaks(self, memory: MemoryModel, given: Graph) -> SearchedGraphs:
        """Return the answer with the peaks of its graphs among their metrics.

        Args:
            memory: the way in which graphs get memory.
            given: the original in the order of its file.
        """
        choice = self.choice
        *made, _ = (memory.peak_bytes(one) for one in self.placed)
        others = zip(choice.alternative_metrics, made[1:], strict=True)
        return replace(
            self,
            choice=replace(
                choice,
                metrics={**choice.metrics, PEAK: made[0]},
                alternative_metrics=tuple({**one, PEAK: peak} for one, peak in others),
                original_metrics={**choice.original_metrics, PEAK: memory.of_file(given)},
            ),
        )

    def beside(
        self, metrics: Mapping[str, float], one: PlacedGraph, *, own: bool
    ) -> SearchedGraphs:
        """Return the answer with another graph among the alternatives.

        Args:
            metrics: the metrics of the graph.
            one: the graph.
            own: whether it is that of the original.
        """
        choice, (*made, original) = self.choice, self.placed
        selection = choice.original if own else choice.best
        return SearchedGraphs(
            replace(
                choice,
                alternatives=(*choice.alternatives, selection),
                alternative_metrics=(*choice.alternative_metrics, metrics),
                placed=(*choice.placed, one.placed),
            ),
            (*made, one, original),
        )


def keeps_peak(objective: AnyObjective, metrics: Mapping[str, float]) -> bool:
    """Return whether a graph keeps the limit on the peak, if there is one."""
    return metrics.get(PEAK, 0.0) <= objective.limits.get(PEAK, math.inf)


def with_less_memory(
    objective: AnyObjective,
    search: Callable[[AnyObjective], SearchedGraphs],
    memory: MemoryModel,
    given: Graph,
    least: float,
) -> SearchedGraphs:
    """Search for graphs with a low peak, and return the best of them in good orders.

    Args:
        objective: the objective of the user, which minimises or limits the peak.
        search: finds graphs for an objective.
        memory: the way in which graphs get memory.
        given: the original in the order of its file.
        least: the least that some kernel of each graph holds.

    Raises:
        ExtractionError: no graph keeps the limits.
    """
    bound = max(least, memory.lower_bound_bytes(given))
    answers: list[SearchedGraphs] = []
    is_first = False
    failure: ExtractionError | None = None
    for number, one in enumerate(_searches(objective, bound)):
        try:
            found = search(one)
        except ExtractionError as error:
            failure = failure or error
            continue
        is_first = is_first or not number
        placed = (*map(memory.with_less, found.placed[:-1]), found.placed[-1])
        answers.append(replace(found, placed=placed).with_peaks(memory, given))
        if not objective.weighs(PEAK) and keeps_peak(objective, answers[-1].choice.metrics):
            break
    if not answers:
        assert failure is not None
        raise failure
    best = min(answers, key=lambda one: _rank(objective, one.choice.metrics))
    first = answers[0].choice.extraction
    ordered = memory.with_less(best.placed[-1])
    metrics = {**best.choice.original_metrics, PEAK: memory.peak_bytes(ordered)}
    best = best.beside(metrics, ordered, own=True)
    _require_kept(objective, best.choice, bound)
    cost = objective.value(best.choice.metrics)
    # Only the first search is for what the user limits; its bound holds in any order.
    proven = bound if objective.weighs(PEAK) else first.lower_bound * is_first
    extraction = replace(
        best.choice.extraction,
        cost=cost,
        lower_bound=min(proven, cost),
        gap=(cost - min(proven, cost)) / cost if cost else 0.0,
        status="optimal" if cost <= proven else "feasible",
    )
    breaks = best.choice.original_breaks
    if not breaks and not keeps_peak(objective, best.choice.original_metrics):
        peak = best.choice.original_metrics[PEAK]
        breaks = f"{PEAK} is {peak}, above its limit {objective.limits[PEAK]}"
    choice = replace(best.choice, extraction=extraction, original_breaks=breaks)
    return replace(best, choice=choice)


def _rank(objective: AnyObjective, metrics: Mapping[str, float]) -> tuple[bool, float]:
    return not keeps_peak(objective, metrics), objective.value(metrics)


def _require_kept(objective: AnyObjective, choice: ChoiceResult, bound: float) -> None:
    every = (choice.metrics, choice.original_metrics, *choice.alternative_metrics)
    if any(keeps_peak(objective, metrics) for metrics in every):
        return
    found = min(metrics[PEAK] for metrics in every)
    raise ExtractionError(
        f"no graph within {PEAK}<={objective.limits[PEAK]:.10g} was found: the least found takes "
        f"{found:.10g} B, and none can take less than {bound:.10g} B; raise the limit, lower "
        "the batch size, or compute values again with eqsat-opt plan make --memory-limit"
    )


def _searches(objective: AnyObjective, bound: float) -> Iterator[AnyObjective]:
    """Yield objectives of searches that may lead to a low peak.

    Args:
        objective: the objective of the user, which minimises or limits the peak.
        bound: the least peak of any graph.
    """
    limits = {name: limit for name, limit in objective.limits.items() if name != PEAK}
    if not objective.weighs(PEAK):
        limit = min(objective.limits.get(PEAK, math.inf), objective.caps.get(PEAK, math.inf))
        yield replace(objective, limits=limits, caps={**objective.caps, PEAK: limit})
    if objective.needs_path:  # the length of chains is known of that search alone
        return
    # Little traffic means few large values between kernels.
    small = Objective(_SMALL, limits=limits, caps=objective.caps)
    yield replace(small, caps={**small.caps, PEAK: bound})
    if objective.weighs(PEAK):
        yield small


_SMALL = {"bytes": 1.0, "launches": 1e-3}


def least_held_bytes(priced: PricedCandidates) -> float:
    """Return the least that the largest kernel of a graph holds, over all graphs to choose from.

    It is exact, since a kernel that is used twice counts once in a maximum: classes are settled by
    rising values, as in Knuth's generalisation of Dijkstra's algorithm.
    """
    items = priced.candidates.items
    offered = priced.offered
    held = [
        0.0 if kernel is None else float(literal(kernel.held_bytes)) for kernel in priced.kernels
    ]
    waits = [len(set(item.reads)) for item in items]
    readers: dict[int, list[int]] = {}
    ready: list[tuple[float, int]] = []
    for number, item in enumerate(items):
        for cls in set(item.reads):
            readers.setdefault(cls, []).append(number)
        if not waits[number] and offered[number]:
            heapq.heappush(ready, (held[number], number))
    least: dict[int, float] = {}
    while ready:
        value, number = heapq.heappop(ready)
        cls = items[number].cls
        if cls in least:
            continue
        least[cls] = value
        for reader in readers.get(cls, ()):
            waits[reader] -= 1
            if not waits[reader] and offered[reader]:
                heapq.heappush(ready, (max(value, held[reader]), reader))
    return max((least.get(root, math.inf) for root in priced.roots), default=0.0)
