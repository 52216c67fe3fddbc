"""Equality saturation beside the published searches: same rules, same prices, same process.

Every method starts from the same graph of single operators and is judged by one function on the
graph that it returns, whose outputs are compared with those of the model.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from eqsat_opt.comparison.operators import fold_constants, operator_graph
from eqsat_opt.comparison.results import Comparison, MethodResult, Moment, descent
from eqsat_opt.comparison.saturated import saturated
from eqsat_opt.comparison.settings import EQSAT, EXTRACTION_S, SATURATION_S, CompareSettings
from eqsat_opt.contest.compare import Reference, differences
from eqsat_opt.cost.analytic import ProfilePricer
from eqsat_opt.cost.operators import analytic_price
from eqsat_opt.cost.quotes import AnyPricer, Quote
from eqsat_opt.deadline import Deadline
from eqsat_opt.egraph import Budget, lower
from eqsat_opt.ir.graph import Graph
from eqsat_opt.ir.kernel import Kernel
from eqsat_opt.ir.onnx_export import export_model
from eqsat_opt.ir.outputs import joined
from eqsat_opt.ir.sizes import Sizes
from eqsat_opt.rules import Rule
from eqsat_opt.rules.rule import Phase
from eqsat_opt.runtime.backends.ort.session import OrtOptions
from eqsat_opt.runtime.backends.protocol import Backend
from eqsat_opt.runtime.backends.registry import load_backend
from eqsat_opt.runtime.staging import Staging
from eqsat_opt.search import Frame, Offered, Prices, Search, Usual
from eqsat_opt.search import Pricer as SearchPricer
from eqsat_opt.select import rules_used

__all__ = ["check", "compare_methods"]

_LONG_S = 5.0
"""Seconds; a longer run is not repeated, because noise is small in comparison."""

Progress = Callable[[str, str], None]


@dataclass
class _Clock:
    """Prices kernels, and counts the time of measuring separately from that of searching."""

    pricer: AnyPricer | None
    measuring_s: float = 0.0

    def price(self, kernel: Kernel) -> Quote:
        if self.pricer is None:
            return analytic_price(kernel)
        start = time.perf_counter()
        offer = self.pricer.usual(kernel)
        if not self.pricer.is_known(offer):
            self.pricer.recall([offer])
            self.pricer.measure([offer])
        self.measuring_s += time.perf_counter() - start
        return self.pricer.price(offer)

    @contextmanager
    def seconds(self) -> Iterator[list[float]]:
        """Appends the time of the block, without measuring."""
        result: list[float] = []
        start, before = time.perf_counter(), self.measuring_s
        yield result
        result.append(time.perf_counter() - start - (self.measuring_s - before))


def _n_running(graph: Graph) -> int:
    return len(joined(fold_constants(graph).live_nodes()))


def _eqsat(frame: Frame, settings: CompareSettings, clock: _Clock) -> MethodResult:
    budget = Budget(
        nodes=settings.nodes, deadline=Deadline.after(settings.budget.cpu_s or SATURATION_S)
    )
    limit = settings.budget.cpu_s or EXTRACTION_S
    with clock.seconds() as seconds:
        found = saturated(
            frame.graph,
            frame.rules,
            frame.prices,
            budget,
            time_limit_s=limit,
            seed=settings.seed,
            level=frame.level,
            profile=frame.profile,
            backends=frame.backends,
        )
    trace = tuple(replace(one, time_s=min(one.time_s, seconds[0])) for one in found.trace)
    return MethodResult(
        method=EQSAT,
        cost=found.outcome.value,
        lower_bound=min(found.lower_bound, found.outcome.value),
        stopped_by=found.stopped_by,
        extraction=found.status,
        graphs=None,
        tried=None,
        compared=None,
        enodes=found.enodes,
        operators=_n_running(found.outcome.graph),
        rules=rules_used(found.outcome.graph),
        time_s=seconds[0],
        trace=trace,
        graph=found.outcome.graph,
    )


def _searched(
    search: Search, frame: Frame, settings: CompareSettings, clock: _Clock
) -> MethodResult:
    with clock.seconds() as seconds:
        begun = time.perf_counter()
        start = replace(frame, graph=operator_graph(lower(frame.graph)))
        lowering_s = time.perf_counter() - begun
        found = search.run(start, settings.budget, settings.seed)
    trace = tuple(
        Moment(min(one.time_s + lowering_s, seconds[0]), one.value) for one in found.trace
    )
    return MethodResult(
        method=search.name,
        cost=found.value,
        lower_bound=found.value if search.exact and found.stopped_by == "exhausted" else None,
        stopped_by=found.stopped_by,
        extraction=None,
        graphs=found.graphs,
        tried=found.tried,
        compared=found.compared,
        enodes=None,
        operators=_n_running(found.graph),
        rules=dict(sorted(Counter(found.steps).items())),
        time_s=seconds[0],
        trace=trace,
        graph=found.graph,
    )


def _run(method: str, frame: Frame, settings: CompareSettings, clock: _Clock) -> MethodResult:
    if method == EQSAT:
        return _eqsat(frame, settings, clock)
    return _searched(settings.searches[method], frame, settings, clock)


def compare_methods(
    graph: Graph,
    rules: Sequence[Rule],
    settings: CompareSettings,
    *,
    model: str = "model",
    sizes: Mapping[str, int] | None = None,
    pricer: AnyPricer | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Run every method on one graph.

    General equations, which are for derivations, are left out of the rules. Symbolic dimensions
    without a size get an assumed one for pricing; without a `pricer` that is the roofline.
    """
    clock = _Clock(pricer)
    known = Sizes.of(graph, sizes or {})
    start = operator_graph(lower(graph))

    def device() -> SearchPricer:
        if settings.profile is not None:
            return Offered(ProfilePricer(settings.profile))
        return Usual(clock.price)

    def prices() -> Prices:
        return Prices.of(device(), settings.goal, known.all)

    def framed(graph: Graph, rules: tuple[Rule, ...]) -> Frame:
        profile = settings.profile
        backends: Sequence[Backend] = () if profile is None else ProfilePricer(profile).backends
        if settings.level != "operators" and profile is None:
            backends = (load_backend("ort"),)
        return Frame(graph, rules, prices(), settings.level, profile=profile, backends=backends)

    original = framed(start, ()).start.value
    read = [rule for rule in rules if rule.phase is not Phase.DERIVATION]
    best: dict[str, MethodResult] = {}
    for _ in range(settings.repeat):
        for name in settings.methods:
            if name in best and best[name].time_s > _LONG_S:
                continue
            if progress is not None:
                progress(name, "")
            # Each method has its own prices, so that none profits from what another one has
            # computed.
            frame = framed(graph, tuple(read))
            found = _run(name, frame, settings, clock)
            found = replace(found, trace=descent(original, found.cost, found.trace))
            best[name] = min(best.get(name, found), found, key=lambda r: (r.cost, r.time_s))
    return Comparison(
        model=model,
        original_cost=original,
        operators=_n_running(start),
        n_rules=len(read),
        prices=_called(settings, pricer),
        measuring_s=clock.measuring_s,
        settings=settings,
        results=tuple(best.values()),
        assumed_sizes={**known.data, **known.assumed},
    )


def _called(settings: CompareSettings, pricer: AnyPricer | None) -> str:
    if settings.profile is not None:
        return f"analytic {settings.profile.name}"
    return "roofline" if pricer is None else "measured"


def check(
    comparison: Comparison,
    staging: Staging,
    *,
    numerics: str,
    seeds: Sequence[int],
    sizes: Mapping[str, int],
    session: OrtOptions,
) -> Comparison:
    """Compare the outputs of every result with those of the model.

    Raises:
        RuntimeFailed: the model or a result does not run.
    """
    reference = Reference.of(staging.original, session, seeds, sizes)
    results = []
    for result in comparison.results:
        assert result.graph is not None
        model = staging.of(export_model(fold_constants(result.graph)))
        found = differences(reference, model, session, numerics)
        worst = max(found, key=lambda one: (bool(one.why), one.max_rel), default=None)
        error = 0.0 if worst is None else worst.max_rel
        why = "" if worst is None or not worst.why else f"output {worst.name!r}: {worst.why}"
        results.append(replace(result, max_error=error, why=why))
    return replace(comparison, results=tuple(results))
