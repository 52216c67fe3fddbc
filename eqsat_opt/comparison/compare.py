"""Equality saturation beside the published searches: same rules, same prices, same process.

Every method starts from the same graph of single operators and is judged by one function on the
graph that it returns, whose outputs are compared with those of the model.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from eqsat_opt.comparison.operators import fold_constants, operator_graph
from eqsat_opt.comparison.saturated import saturated
from eqsat_opt.cost.operators import OperatorCost, analytic_price, graph_cost_us
from eqsat_opt.cost.pricing import Price, Pricer
from eqsat_opt.egraph import Budget, lower
from eqsat_opt.errors import OptionError
from eqsat_opt.ir.dims import dim_names
from eqsat_opt.ir.graph import Graph
from eqsat_opt.ir.kernel import Kernel
from eqsat_opt.ir.onnx_export import export_model
from eqsat_opt.ir.types import TensorType
from eqsat_opt.rules import Rule
from eqsat_opt.rules.rule import Phase
from eqsat_opt.runtime.compare import Reference, differences
from eqsat_opt.runtime.ort import OrtOptions
from eqsat_opt.runtime.staging import Staging
from eqsat_opt.search import MetaFlow, SearchBudget
from eqsat_opt.select import rules_used

__all__ = ["METHODS", "CompareSettings", "Comparison", "MethodResult", "check", "compare_methods"]

_SATURATION_S, _EXTRACTION_S = 30.0, 20.0
"""Seconds for the stages of the e-graph, at most."""

_ASSUMED_SIZE = 16

Progress = Callable[[str, str], None]


@dataclass(frozen=True)
class CompareSettings:
    """What the methods may spend.

    Attributes:
        methods: names in :data:`METHODS`.
        alpha: of the backtracking search.
        hash: ``canonical`` or ``taso``.
        graphs: graphs that a search may visit; 0 for no limit.
        time_s: limit for each search; 0 for none. The stages of the e-graph have one of their own,
            and keep to this one too.
        nodes: e-nodes.
        seed: of extraction.
        measure: price operators by measuring them, instead of by the roofline.
    """

    methods: tuple[str, ...] = ("eqsat", "metaflow")
    alpha: float = 1.05
    hash: str = "canonical"
    graphs: int = 1_000
    time_s: float = 0.0
    nodes: int = 20_000
    seed: int = 0
    measure: bool = False

    def __post_init__(self) -> None:
        unknown = [name for name in self.methods if name not in METHODS]
        if unknown:
            raise OptionError(f"unknown method {unknown[0]!r}; choose from {', '.join(METHODS)}")
        if not self.methods:
            raise OptionError(f"no method is given; choose from {', '.join(METHODS)}")
        if len(set(self.methods)) < len(self.methods):
            raise OptionError("a method is given twice; keep one")
        # Both say what is wrong with their values.
        assert self.search.alpha == self.alpha
        assert self.budget.graphs == self.graphs

    @property
    def search(self) -> MetaFlow:
        """The backtracking search with these parameters."""
        return MetaFlow(self.alpha, self.hash)  # type: ignore[arg-type]

    @property
    def budget(self) -> SearchBudget:
        """Of that search."""
        return SearchBudget(self.graphs, self.time_s)


@dataclass(frozen=True)
class MethodResult:
    """What one method found.

    Attributes:
        method: its name.
        cost_us: of its graph, recomputed from the graph.
        lower_bound_us: no graph in its reach costs less; ``None`` where it proves nothing.
        status: why it ended, or what it proved.
        graphs: graphs visited, for a search.
        tried: substitutions tried, for a search.
        enodes: size of the e-graph, where there is one.
        operators: operators that run in its graph.
        rules: rule to the number of its uses: nodes that it made, or steps that it took.
        time_s: without the time of measuring kernels.
        best_after_s: when the result was found; a search cannot know that it was the last.
        max_error: largest difference to the model beyond rounding, per standard deviation of the
            output; ``None`` where nothing was compared.
        why: what is wrong with its outputs, empty if nothing is.
        graph: what it found.
    """

    method: str
    cost_us: float
    lower_bound_us: float | None
    status: str
    graphs: int | None
    tried: int | None
    enodes: int | None
    operators: int
    rules: Mapping[str, int]
    time_s: float
    best_after_s: float
    max_error: float | None = None
    why: str = ""
    graph: Graph | None = field(default=None, repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        """All but the graph."""
        value = {name: part for name, part in self.__dict__.items() if name != "graph"}
        return {**value, "rules": dict(self.rules)}


@dataclass(frozen=True)
class Comparison:
    """All methods on one model.

    Attributes:
        model: its name.
        original_cost_us: cost of the model as it came.
        operators: of the model, each a kernel of its own.
        n_rules: rules of the book that were read, both directions of one being one.
        prices: ``roofline`` or ``measured``.
        measuring_s: seconds for measuring kernels, all methods together.
        settings: what the methods were given.
        results: by method.
    """

    model: str
    original_cost_us: float
    operators: int
    n_rules: int
    prices: str
    measuring_s: float
    settings: CompareSettings
    results: tuple[MethodResult, ...]

    def to_json(self) -> dict[str, Any]:
        """Everything but the graphs."""
        return {
            "model": self.model,
            "original_cost_us": self.original_cost_us,
            "operators": self.operators,
            "rules": self.n_rules,
            "prices": self.prices,
            "measuring_s": self.measuring_s,
            "settings": {**asdict(self.settings), "methods": list(self.settings.methods)},
            "results": [result.to_json() for result in self.results],
        }


@dataclass
class _Clock:
    """Prices kernels and keeps the time of measuring apart from that of searching."""

    pricer: Pricer | None
    measuring_s: float = 0.0

    def price(self, kernel: Kernel) -> Price:
        if self.pricer is None:
            return analytic_price(kernel)
        start = time.perf_counter()
        if not self.pricer.is_known(kernel):
            self.pricer.recall([kernel])
            self.pricer.measure([kernel])
        self.measuring_s += time.perf_counter() - start
        return self.pricer.price(kernel)

    @contextmanager
    def seconds(self) -> Iterator[list[float]]:
        """Appends the time of the block, without measuring."""
        result: list[float] = []
        start, before = time.perf_counter(), self.measuring_s
        yield result
        result.append(time.perf_counter() - start - (self.measuring_s - before))


def _n_running(graph: Graph) -> int:
    return sum(1 for _ in fold_constants(graph).live_nodes())


def _eqsat(
    graph: Graph,
    rules: Sequence[Rule],
    cost: OperatorCost,
    settings: CompareSettings,
    clock: _Clock,
) -> MethodResult:
    most = settings.time_s or math.inf
    budget = Budget(nodes=settings.nodes, time_s=min(_SATURATION_S, most))
    limit = min(_EXTRACTION_S, most)
    with clock.seconds() as seconds:
        found = saturated(graph, rules, cost, budget, time_limit_s=limit, seed=settings.seed)
    return MethodResult(
        "eqsat",
        found.cost_us,
        min(found.lower_bound_us, found.cost_us),
        f"{found.stopped_by}, {found.status}",
        None,
        None,
        found.enodes,
        _n_running(found.graph),
        rules_used(found.graph),
        seconds[0],
        seconds[0],
        graph=found.graph,
    )


def _metaflow(
    graph: Graph,
    rules: Sequence[Rule],
    cost: OperatorCost,
    settings: CompareSettings,
    clock: _Clock,
) -> MethodResult:
    with clock.seconds() as seconds:
        start = operator_graph(lower(graph))
        found = settings.search.run(start, rules, cost, settings.budget)
    return MethodResult(
        "metaflow",
        found.cost_us,
        None,
        found.stopped_by,
        found.graphs,
        found.tried,
        None,
        _n_running(found.graph),
        dict(sorted(Counter(found.steps).items())),
        seconds[0],
        found.trace[-1].time_s if found.trace else 0.0,
        graph=found.graph,
    )


_Method = Callable[[Graph, Sequence[Rule], OperatorCost, CompareSettings, _Clock], MethodResult]
_METHODS: Mapping[str, _Method] = {"eqsat": _eqsat, "metaflow": _metaflow}
METHODS = tuple(_METHODS)
"""What may be compared."""


def _with_assumed(graph: Graph, sizes: Mapping[str, int]) -> dict[str, int]:
    types = (type_ for type_ in graph.types.values() if isinstance(type_, TensorType))
    names = {name for type_ in types for dim in type_.shape for name in dim_names(dim)}
    return {**dict.fromkeys(sorted(names), _ASSUMED_SIZE), **sizes}


def compare_methods(
    graph: Graph,
    rules: Sequence[Rule],
    settings: CompareSettings,
    *,
    model: str = "model",
    sizes: Mapping[str, int] | None = None,
    pricer: Pricer | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Run every method on one graph.

    Args:
        graph: normalised.
        rules: that every method reads; general equations, which are for derivations, are left out.
        settings: what they may spend.
        model: a name for the report.
        sizes: of symbolic dimensions, for pricing; what is missing is assumed to be 16.
        pricer: measures kernels; ``None`` prices them by the roofline.
        progress: called with a stage and a detail.
    """
    clock = _Clock(pricer)
    cost = OperatorCost(clock.price, _with_assumed(graph, sizes or {}))
    start = operator_graph(lower(graph))
    original_us = graph_cost_us(start, cost)
    read = [rule for rule in rules if rule.phase is not Phase.DERIVATION]
    results = []
    for name in settings.methods:
        if progress is not None:
            progress(name, "")
        results.append(_METHODS[name](graph, read, cost, settings, clock))
    return Comparison(
        model,
        original_us,
        _n_running(start),
        len(read),
        "roofline" if pricer is None else "measured",
        clock.measuring_s,
        settings,
        tuple(results),
    )


def check(
    comparison: Comparison,
    staging: Staging,
    *,
    numerics: str,
    seeds: Sequence[int],
    sizes: Mapping[str, int],
    threads: int,
) -> Comparison:
    """The comparison with the outputs of every result compared to those of the model.

    Args:
        comparison: with graphs.
        staging: of the model.
        numerics: how far results may move.
        seeds: of random inputs, one each.
        sizes: of symbolic dimensions.
        threads: of the runtime.

    Raises:
        RuntimeFailed: the model or a result does not run.
    """
    options = OrtOptions(threads=threads)
    reference = Reference.of(staging.original, options, seeds, sizes)
    results = []
    for result in comparison.results:
        assert result.graph is not None
        model = staging.of(export_model(fold_constants(result.graph)))
        found = differences(reference, model, options, numerics)
        worst = max(found, key=lambda one: (bool(one.why), one.max_rel), default=None)
        error = 0.0 if worst is None else worst.max_rel
        why = "" if worst is None or not worst.why else f"output {worst.name!r}: {worst.why}"
        results.append(replace(result, max_error=error, why=why))
    return replace(comparison, results=tuple(results))
