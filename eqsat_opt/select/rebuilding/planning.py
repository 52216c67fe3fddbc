"""From a choice to plans: nodes are assigned to backends, and lowered and priced as whole plans.

Effects that the sum of an extraction cannot express (calls that a segment shares, layouts that a
cut destroys, launches that become one call) are settled here: a graph is lowered in several
placements, and each is priced by simulating it with the times of its launches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from eqsat_opt.common.precision import Precision
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.graph.graph import Graph, Node
from eqsat_opt.ir.ops import get_op
from eqsat_opt.runtime.backends.analytic import NAME as ANALYTIC
from eqsat_opt.runtime.backends.analytic.backend import VIEW
from eqsat_opt.runtime.backends.cudnn import NAME as CUDNN
from eqsat_opt.runtime.backends.cudnn.launcher import site_of_launch
from eqsat_opt.runtime.backends.cudnn.oracle import HEURISTIC
from eqsat_opt.runtime.backends.cudnn.products import ProductSpec
from eqsat_opt.runtime.backends.cudnn.spec import site_of
from eqsat_opt.runtime.backends.generated import NAME as GENERATED
from eqsat_opt.runtime.backends.generated.gpu import NAME as CUDA
from eqsat_opt.runtime.backends.gpu import runner_of
from eqsat_opt.runtime.backends.numpy import NAME as NUMPY
from eqsat_opt.runtime.backends.ort import NAME as ORT
from eqsat_opt.runtime.backends.ort.launcher import WITHOUT_SPINNING
from eqsat_opt.runtime.backends.protocol import DEFAULT
from eqsat_opt.runtime.backends.record import LAUNCHED
from eqsat_opt.runtime.backends.registry import load_launcher, record_of
from eqsat_opt.runtime.devices import HOST
from eqsat_opt.runtime.devices.profile import HOST_PROFILE, DeviceProfile, load_profile
from eqsat_opt.runtime.plan.constants import Tensors
from eqsat_opt.runtime.plan.plan import Plan
from eqsat_opt.runtime.plan.streams import makespan_us, schedule_of
from eqsat_opt.runtime.planning.fusion_groups import is_able
from eqsat_opt.runtime.planning.planner import make_plan, static_graph
from eqsat_opt.select.rebuilding.assignment import Assigned, PlacedGraph, assigned
from eqsat_opt.select.tiling.candidates import Selected

__all__ = [
    "AS_CHOSEN",
    "SESSION",
    "Placement",
    "PlanDraft",
    "drafts",
    "in_parallel",
    "placements",
    "planned_for",
    "planned_here",
    "simulated_us",
]

SESSION = "one session"
"""The placement of a whole graph in one session of onnxruntime."""


@dataclass(frozen=True)
class Placement:
    """An assignment of nodes to backends.

    Attributes:
        name: a name for people.
        backend_of: backend of a node.
        algorithm: algorithm of nodes that a session runs.
    """

    name: str
    backend_of: Callable[[Node], str]
    algorithm: str = "default"


@dataclass(frozen=True)
class PlanDraft:
    """A plan that may be chosen.

    Attributes:
        graph: name of the graph that it computes.
        placement: name of the placement.
        plan: the plan itself.
    """

    graph: str
    placement: str
    plan: Plan

    @property
    def name(self) -> str:
        """Name of the plan in a race."""
        return f"plan of {self.graph}, {self.placement}"


def placements(graph: Graph, backends: Collection[str], threads: int = 1) -> Iterator[Placement]:
    """Yield ways to share a graph among backends; the first is one session, if ``ort`` is allowed.

    Several runtimes that each have threads of their own compete for the cores, so with more than
    one thread nothing is mixed here; see `in_parallel` for segments that are long enough.

    Args:
        graph: the graph of the plan.
        backends: the backends that may be used.
        threads: threads of a session.
    """
    if ORT in backends:
        algorithm = "default" if threads == 1 else f"{threads} threads"
        yield Placement(SESSION, lambda node: ORT, algorithm)
        if threads > 1:
            return
    for other in _other_runtimes(backends):
        yield Placement(other, lambda node, other=other: other)  # type: ignore[misc]
    others = [name for name in (ORT, NUMPY) if name in backends] or [NUMPY]
    fixed = [name for name in backends if record_of(name).has_kernel]
    for rest in others:
        for own in (*fixed, ""):
            chosen = tuple(name for name in (GENERATED, own) if name in backends)
            if chosen or rest != ORT:
                names = ", ".join((*chosen, rest))
                yield Placement(names, _sharing(graph, chosen, rest, backends))


def _other_runtimes(backends: Collection[str]) -> list[str]:
    """Return the backends other than onnxruntime that run a graph as one session."""
    return [name for name in backends if name != ORT and record_of(name).runs_models]


def _sharing(
    graph: Graph, chosen: Collection[str], rest: str, backends: Collection[str]
) -> Callable[[Node], str]:
    """Return a function that gives the backend of each node.

    It prefers native kernels, then generated ones for elementwise operators and movements.
    """
    fixed = [name for name in chosen if record_of(name).has_kernel]

    def backend_of(node: Node) -> str:
        for name in fixed:
            if is_able(graph, node, name, graph.constants):
                return name
        kind = get_op(node.op).kind
        is_float = all(
            type_ is not None and type_.dtype == "float32"
            for type_ in map(graph.tensor_type, (*node.inputs, node.output))
        )
        if GENERATED in chosen and is_float and kind in ("pointwise", "movement"):
            return GENERATED
        # NumPy has fast matrix products, but no fast convolutions.
        is_slow = kind not in ("pointwise", "movement") and node.op != "MatMul"
        return ORT if rest == NUMPY and is_slow and ORT in backends else rest

    return backend_of


def drafts(
    graphs: Mapping[str, Graph],
    tensors: Tensors,
    backends: Collection[str],
    *,
    sizes: Mapping[str, int],
    threads: int = 1,
    target: str = HOST,
) -> Iterator[PlanDraft]:
    """Yield all distinct plans of some graphs.

    Args:
        graphs: the graphs by name.
        tensors: tensors that the model stores.
        backends: the backends that may be used.
        sizes: sizes of symbolic dimensions.
        threads: threads of a session.
        target: the processor here, or the profile of another one.

    Raises:
        OptionError: a size is not given.
        PlanError: a graph cannot be part of a plan.
    """
    seen: list[Plan] = []
    for name, given in graphs.items():
        graph = static_graph(given, sizes)  # sizes decide which backends can run a node
        for placement in _all_placements(graph, backends, threads):
            algorithm = placement.algorithm
            made = make_plan(
                graph,
                tensors,
                placement.backend_of,
                algorithm_of=lambda node, algorithm=algorithm: algorithm,  # type: ignore[misc]
                sizes=sizes,
                target=target,
            )
            is_mixed = threads > 1 and placement.name != SESSION
            plan = in_parallel(made, threads) if is_mixed else made
            if plan is not None and plan not in seen:
                seen.append(plan)
                yield PlanDraft(name, placement.name, plan)


def _all_placements(graph: Graph, backends: Collection[str], threads: int) -> Iterator[Placement]:
    yield from placements(graph, backends, threads)
    if threads > 1 and ORT in backends:
        others = _other_runtimes(backends)
        own = [name for name in backends if name not in others]
        yield from (one for one in placements(graph, own) if one.name != SESSION)


_LONG_US = 1000.0
"""Least time of a segment, µs: threads that do not spin take tens of microseconds to wake up."""


def in_parallel(plan: Plan, threads: int) -> Plan | None:
    """Return the plan with several threads in each session; ``None`` if sessions are too short.

    Args:
        plan: a plan of sessions on one thread, and of launches outside them.
        threads: threads of each session; they do not spin, since kernels between sessions need the
            cores as well.
    """
    profile = load_profile(HOST_PROFILE)
    sessions = [launch for launch in plan.launches if launch.backend == ORT]
    if not sessions or any(profile.kernel_us(one.body) < _LONG_US for one in sessions):
        return None
    algorithm = f"{threads} threads {WITHOUT_SPINNING}"
    return replace(
        plan,
        launches=tuple(
            replace(one, algorithm=algorithm) if one.backend == ORT else one
            for one in plan.launches
        ),
    )


AS_CHOSEN = "as chosen"
"""The placement of an extraction: kernels, algorithms and layouts as they were priced together."""


def planned_for(
    target: str,
    graphs: Mapping[str, PlacedGraph],
    tensors: Tensors,
    *,
    sizes: Mapping[str, int],
    streams: int = 1,
    precision: Precision = Precision.STRICT,
) -> Iterator[PlanDraft]:
    """Yield plans for a device that is not present, each with the kernels that were chosen for it.

    Args:
        target: a device profile.
        graphs: the graphs by name, as the extraction placed them.
        tensors: tensors that the model stores.
        sizes: sizes of symbolic dimensions.
        streams: greatest number of streams.
        precision: the policy that kernels were chosen under.

    Raises:
        OptionError: a size is not given, or there is no such device.
        PlanError: a graph cannot be part of a plan.
    """
    is_gpu = load_profile(target).description is not None
    way, fallback = (_on_gpu, _generated) if is_gpu else (_elsewhere, _nobody)
    for name, graph in graphs.items():
        chosen = assigned(graph, fallback, way)
        lower = partial(
            _as_chosen,
            tensors=tensors,
            sizes=sizes,
            target=target,
            streams=streams,
            precision=precision,
            joins=True,
        )
        plan = lower(chosen)
        while is_gpu and (refused := _refused(plan)):
            chosen = _without(chosen, refused)
            plan = lower(chosen)
        yield PlanDraft(name, AS_CHOSEN, _on_views(plan) if is_gpu else plan)


def _on_views(plan: Plan) -> Plan:
    """Return the plan without engines that were chosen for dense images but would run on views.

    Some architectures have other engines for views (9.19 on compute capability 7.5).
    """
    launches = []
    for launch in plan.launches:
        if launch.backend == CUDNN:
            dense = site_of(launch.body, precision=launch.precision)
            if dense is None or isinstance(dense.spec, ProductSpec):
                pass  # kernels of products are compiled for the memory that they are given
            elif dense != site_of_launch(launch, plan.buffer_of):
                launch = replace(launch, algorithm=HEURISTIC)
        launches.append(launch)
    return replace(plan, launches=tuple(launches))


def _refused(plan: Plan) -> frozenset[str]:
    """Return the results of launches that their library refuses on the memory of the plan."""
    found: set[str] = set()
    for launch in plan.launches:
        if record_of(launch.backend).is_gpu_library:
            try:
                load_launcher(launch.backend).prepare([launch], plan.buffer_of)
            except RuntimeFailed:
                found.update(launch.writes)
    return frozenset(found)


def _without(one: Assigned, refused: Collection[str]) -> Assigned:
    """Return the assignment with generated kernels for results that libraries refuse.

    For a convolution with its epilogue, only the epilogue is generated: the convolution remains by
    itself, and its result has the form of the result of both.
    """
    nodes = one.graph.nodes
    result_of = {
        unit: node.output
        for node in nodes
        if node.output in refused and (unit := one.unit_of(node)) is not None
    }
    changed = {name: name for name in refused}
    for node in nodes:
        unit = one.unit_of(node)
        if unit is not None and unit in result_of:
            changed[node.output] = result_of[unit]
    kept = {
        node.output
        for node in nodes
        if changed.get(node.output, node.output) != node.output
        and (get_op(node.op).kind, one.backend_of(node)) == ("contraction", CUDNN)
    }

    def runner(node: Node) -> tuple[str, str]:
        if node.output in kept:
            return CUDNN, HEURISTIC
        if node.output in changed:
            return CUDA, DEFAULT.algorithm
        return one.backend_of(node), one.algorithm_of(node)

    def is_in_library(node: Node) -> bool:
        return record_of(runner(node)[0]).is_gpu_library

    return replace(
        one,
        backend_of=lambda node: runner(node)[0],
        algorithm_of=lambda node: runner(node)[1],
        workspace_of=lambda node: (
            one.workspace_of(node) if is_in_library(node) else DEFAULT.workspace_bytes
        ),
        precision_of=lambda node: (
            one.precision_of(node) if is_in_library(node) else Precision.STRICT
        ),
        unit_of=lambda node: None if node.output in changed else one.unit_of(node),
        form_of=lambda name: one.form_of(changed.get(name, name)),
    )


def planned_here(
    graphs: Mapping[str, PlacedGraph], tensors: Tensors, *, sizes: Mapping[str, int]
) -> Iterator[PlanDraft]:
    """Yield plans for this machine, each with the kernels that were chosen for it in one problem.

    Args:
        graphs: the graphs by name, as the extraction placed them.
        tensors: tensors that the model stores.
        sizes: sizes of symbolic dimensions.

    Raises:
        OptionError: a size is not given.
        PlanError: a graph cannot be part of a plan.
    """
    for name, graph in graphs.items():
        chosen = assigned(graph, _session, _here)
        yield PlanDraft(name, AS_CHOSEN, _as_chosen(chosen, tensors, sizes))


def _elsewhere(run: Selected) -> tuple[str, str]:
    """Return the analytic backend and the algorithm of a kernel, whatever backend was priced."""
    algorithm = run.implementation.algorithm
    # A view that turns out to be impossible is a copy.
    return ANALYTIC, DEFAULT.algorithm if algorithm == VIEW.algorithm else algorithm


def _on_gpu(run: Selected) -> tuple[str, str]:
    """Return the backend that offered a kernel, and its algorithm."""
    return runner_of(_elsewhere(run)[1])


def _generated(node: Node) -> str:
    return CUDA


def _nobody(node: Node) -> str:
    return ANALYTIC


def _session(node: Node) -> str:
    return ORT


def _here(run: Selected) -> tuple[str, str]:
    """Return the backend of a kernel on this machine, with the default algorithm.

    Launches keep their own names; what runs in a session may be computed otherwise there later.
    """
    name = run.backend.removeprefix(LAUNCHED)
    return (name if name != run.backend else ORT), DEFAULT.algorithm


def _as_chosen(
    one: Assigned,
    tensors: Tensors,
    sizes: Mapping[str, int],
    *,
    target: str = HOST,
    streams: int = 1,
    precision: Precision = Precision.STRICT,
    joins: bool = False,
) -> Plan:
    return make_plan(
        one.graph,
        tensors,
        one.backend_of,
        algorithm_of=one.algorithm_of,
        workspace_of=one.workspace_of,
        precision_of=one.precision_of,
        is_strided=one.is_strided,
        unit_of=one.unit_of,
        joins=joins,
        form_of=one.form_of,
        sizes=sizes,
        streams=streams,
        target=target,
        precision=precision,
    )


def simulated_us(plan: Plan, times_us: list[float], profile: DeviceProfile) -> float:
    """Return the end of the last launch, µs, from the times of all and with streams in parallel."""
    return makespan_us(schedule_of(plan), times_us, profile.event_us.value)
