"""Runs of one method on one model: every method gets the same graph, rules and prices.

Every method starts from the same graph of single operators and is judged by one function on the
graph that it returns, whose outputs are compared with those of the model.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

import onnx

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.cost.analytic import ProfilePricer
from eqsat_opt.cost.energy import energy_text
from eqsat_opt.cost.operators import analytic_price
from eqsat_opt.cost.quotes import AnyPricer, Quote
from eqsat_opt.egraph import Budget, lower
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.graph.outputs import joined
from eqsat_opt.ir.graph.plain_names import axis_name
from eqsat_opt.ir.onnx.exporter import export_model
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.sizes.sizes import Sizes
from eqsat_opt.lab.comparison.boards import OrtBoard, ThreadedBoard
from eqsat_opt.lab.comparison.engines import EGraphMethod
from eqsat_opt.lab.comparison.installed import Installed, known_as
from eqsat_opt.lab.comparison.operators import fold_constants, operator_graph
from eqsat_opt.lab.comparison.results import MethodResult, Moment, Original, descent, totals
from eqsat_opt.lab.comparison.saturated import saturated
from eqsat_opt.lab.comparison.settings import EXTRACTION_S, SATURATION_S, CompareSettings
from eqsat_opt.lab.search import BackendPricer, Board, Frame, PriceCache, Search, Usual
from eqsat_opt.lab.search import Budget as SearchBudget
from eqsat_opt.lab.search import KernelPricer as SearchPricer
from eqsat_opt.lab.search.pricing.streaming import StreamDevice
from eqsat_opt.rules import Rule
from eqsat_opt.rules.rule import Phase
from eqsat_opt.runtime.backends.ort import NAME as ORT
from eqsat_opt.runtime.backends.ort.session import OrtOptions
from eqsat_opt.runtime.backends.protocol import Backend
from eqsat_opt.runtime.backends.registry import load_backend
from eqsat_opt.runtime.devices.cores import Cores
from eqsat_opt.runtime.plan.constants import Tensors
from eqsat_opt.runtime.staging import Staging
from eqsat_opt.select import rules_used
from eqsat_opt.validation.compare import Reference, differences

__all__ = ["Subject", "checked", "priced", "prices_text", "run_method", "warm_up"]

_WARM_UP = """
    <ir_version: 9, opset_import: ["": 17]>
    warm_up (float[4,4] x) => (float[4,4] y) { a = MatMul(x, x) b = Relu(a) y = Relu(b) }
"""
"""A model on which every method ends at once."""

_WARM_UP_GRAPHS = 20


@dataclass(frozen=True)
class Subject:
    """The model and everything else that the methods of a comparison share.

    Attributes:
        graph: the normalised model.
        rules: the rules; general equations, which only serve derivations, are not read.
        given_sizes: sizes of symbolic dimensions; other dimensions get an assumed size for pricing.
        pricer: the pricer that measures; ``None`` for the profile of a device, or the roofline.
        threads: threads for whole graphs that are measured here, and so the largest number of
            streams.
        tensors: the tensors that the model stores, from which plans are made; without them graphs
            cannot be measured on streams.
    """

    graph: Graph
    rules: Sequence[Rule]
    given_sizes: Mapping[str, int] = field(default_factory=dict)
    pricer: AnyPricer | None = None
    threads: int = 1
    tensors: Tensors = field(default_factory=dict)

    @cached_property
    def sizes(self) -> Sizes:
        """Sizes of all symbolic dimensions."""
        return Sizes.of(self.graph, self.given_sizes)

    @cached_property
    def read(self) -> tuple[Rule, ...]:
        """The rules that methods read."""
        return tuple(rule for rule in self.rules if rule.phase is not Phase.DERIVATION)


@dataclass
class _Clock:
    """A pricer of kernels that counts the time of measuring separately from that of searching."""

    pricer: AnyPricer | None
    measuring_s: float = 0.0
    time_s: float = 0.0
    cpu_s: float = 0.0

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

    def measured(self, seconds: float) -> None:
        """Add seconds that passed while kernels were measured."""
        self.measuring_s += seconds

    @contextmanager
    def seconds(self) -> Iterator[None]:
        """Time the block; measuring, which another process does, is left out."""
        start, cpu, before = time.perf_counter(), time.process_time(), self.measuring_s
        yield
        self.cpu_s = time.process_time() - cpu
        self.time_s = time.perf_counter() - start - (self.measuring_s - before)


def _n_running(graph: Graph) -> int:
    return len(joined(fold_constants(graph).live_nodes()))


def _framed(
    subject: Subject,
    settings: CompareSettings,
    clock: _Clock,
    *,
    graph: Graph,
    rules: bool,
    plans: bool = False,
) -> Frame:
    """Build a separate frame for a method, so that it cannot reuse results of another method.

    Args:
        subject: the model.
        settings: settings of the comparison.
        clock: counts the seconds of measuring.
        graph: the graph that the method starts from.
        rules: whether the method rewrites.
        plans: whether it measures plans, each kernel on its backend, not graphs in one session.
    """
    profile = settings.profile
    device: SearchPricer = Usual(clock.price)
    backends: Sequence[Backend] = ()
    if profile is not None:
        device = BackendPricer(ProfilePricer(profile))
        backends = ProfilePricer(profile).backends
    elif subject.pricer is not None and len(subject.pricer.backends) > 1:
        device = Installed(BackendPricer(subject.pricer), clock.measured)
        backends = known_as(subject.pricer.backends)
    elif settings.level != "operators":
        backends = (load_backend(ORT),)
    streams: StreamDevice | None = profile
    board: Board | None = None
    if settings.runs_streams:
        streams = Cores.of(subject.threads)
        board = ThreadedBoard(subject.tensors, subject.sizes.all)
    elif profile is None and plans:
        board = ThreadedBoard(subject.tensors, subject.sizes.all)
    elif profile is None:
        board = OrtBoard(subject.threads, subject.sizes.all)
    return Frame(
        graph,
        subject.read if rules else (),
        PriceCache.of(device, settings.goal, subject.sizes.all),
        settings.level,
        profile=streams,
        backends=backends,
        board=board,
    )


def _on_egraph(
    engine: EGraphMethod, frame: Frame, settings: CompareSettings, clock: _Clock, seed: int
) -> MethodResult:
    cpu_s = settings.budget.cpu_s
    # On a busy machine, seconds of the clock would leave less to the e-graph than to the searches.
    deadline = Deadline.after(cpu_s, time.process_time) if cpu_s else Deadline.after(SATURATION_S)
    budget = Budget(nodes=settings.nodes, deadline=deadline)
    with clock.seconds():
        found = saturated(
            frame.graph,
            frame.rules,
            frame.prices,
            budget,
            engine=engine,
            time_limit_s=cpu_s or EXTRACTION_S,
            seed=seed,
            level=frame.level,
            profile=frame.profile,
            backends=frame.backends,
            deterministic=not cpu_s,
        )
    return MethodResult(
        method=engine.name,
        seed=seed,
        cost=found.outcome.value,
        lower_bound=min(found.lower_bound, found.outcome.value),
        stopped_by=found.stopped_by,
        extraction=found.status,
        graphs=None,
        tried=None,
        compared=None,
        enodes=found.enodes,
        operators=_n_running(found.outcome.graph),
        kernels=len(found.outcome.kernels),
        metrics=totals(found.outcome),
        rules=_sorted(Counter(rules_used(found.outcome.graph)) + Counter(found.steps)),
        time_s=clock.time_s,
        cpu_s=clock.cpu_s,
        trace=found.trace,
        outcome=found.outcome,
    )


def _searched(
    search: Search, frame: Frame, settings: CompareSettings, *, clock: _Clock, seed: int
) -> MethodResult:
    with clock.seconds():
        begun, begun_cpu = time.perf_counter(), time.process_time()
        start = replace(frame, graph=operator_graph(lower(frame.graph)))
        lowering_s = time.perf_counter() - begun, time.process_time() - begun_cpu
        found = search.run(start, settings.budget, seed)
    trace = tuple(
        Moment(one.time_s + lowering_s[0], one.value, one.cpu_s + lowering_s[1])
        for one in found.trace
    )
    return MethodResult(
        method=search.name,
        seed=seed,
        cost=found.value,
        lower_bound=found.value if search.exact and found.stopped_by == "exhausted" else None,
        stopped_by=found.stopped_by,
        extraction=None,
        graphs=found.graphs,
        tried=found.tried,
        compared=found.compared,
        enodes=None,
        operators=_n_running(found.graph),
        kernels=len(found.outcome.kernels),
        metrics=totals(found.outcome),
        rules=_sorted(Counter(found.steps)),
        time_s=clock.time_s,
        cpu_s=clock.cpu_s,
        trace=trace,
        notes=found.notes,
        outcome=found.outcome,
    )


def _sorted(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items()))


def priced(subject: Subject, settings: CompareSettings) -> Original:
    """Return the cost of the original model."""
    return _priced(subject, settings, _Clock(subject.pricer))


def _priced(subject: Subject, settings: CompareSettings, clock: _Clock) -> Original:
    plain = operator_graph(lower(subject.graph))
    frame = _framed(subject, settings, clock, graph=plain, rules=False)
    start = frame.outcome(frame.start)
    return Original(
        cost=start.value,
        operators=_n_running(plain),
        kernels=len(start.kernels),
        metrics=totals(start),
        n_rules=len(subject.read),
        prices=prices_text(settings, subject.pricer),
        assumed_sizes={axis_name(name): size for name, size in subject.sizes.assumed.items()},
    )


def run_method(
    method: str, subject: Subject, settings: CompareSettings, seed: int
) -> tuple[Original, MethodResult]:
    """Run one method once.

    Raises:
        SaturationError, ExtractionError: the e-graph has no answer.
    """
    clock = _Clock(subject.pricer)
    original = _priced(subject, settings, clock)
    plans = getattr(settings.searches.get(method), "plans", False)
    frame = _framed(subject, settings, clock, graph=subject.graph, rules=True, plans=plans)
    if method in settings.engines:
        found = _on_egraph(settings.engines[method], frame, settings, clock=clock, seed=seed)
    else:
        found = _searched(settings.searches[method], frame, settings, clock=clock, seed=seed)
    within = (
        replace(one, time_s=min(one.time_s, found.time_s), cpu_s=min(one.cpu_s, found.cpu_s))
        for one in found.trace
    )
    trace = descent(original.cost, found.cost, within)
    return original, replace(found, trace=trace, measuring_s=clock.measuring_s)


def warm_up(method: str, subject: Subject, settings: CompareSettings, seed: int) -> None:
    """Run the method on a tiny model, so that its libraries are loaded and its rules compiled.

    Failures are ignored: a method that fails on the tiny model may succeed on another one.
    """
    tiny = normalise(import_model(load_model(onnx.parser.parse_model(_WARM_UP))))
    limited = replace(settings, budget=SearchBudget(_WARM_UP_GRAPHS, cpu_s=settings.budget.cpu_s))
    with suppress(Exception):
        run_method(method, Subject(tiny, subject.rules), limited, seed)


def prices_text(settings: CompareSettings, pricer: AnyPricer | None) -> str:
    """Return the source of the prices, and of the model of energy if there is one."""
    if settings.profile is not None:
        told = energy_text(settings.profile.energy)
        return f"analytic {settings.profile.name}" + (f" (energy {told})" if told else "")
    return "roofline" if pricer is None else "measured"


def checked(
    result: MethodResult,
    staging: Staging,
    *,
    numerics: Numerics,
    seeds: Sequence[int],
    sizes: Mapping[str, int],
    session: OrtOptions,
) -> MethodResult:
    """Compare the outputs of a result with those of the model.

    Raises:
        RuntimeFailed: the model or the result does not run.
    """
    assert result.graph is not None
    reference = Reference.of(staging.original, session, seeds, sizes)
    model = staging.of(export_model(fold_constants(result.graph)))
    found = differences(reference, model, session, numerics)
    worst = max(found, key=lambda one: (bool(one.why), one.max_rel), default=None)
    error = 0.0 if worst is None else worst.max_rel
    why = "" if worst is None or not worst.why else f"output {worst.name!r}: {worst.why}"
    return replace(result, max_error=error, why=why)
