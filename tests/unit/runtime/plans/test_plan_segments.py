"""Kernels of our own inside the sessions of plans."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.plans import tensors_of
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.errors import PlanError, RuntimeFailed
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.ir.sizes.sizes import Sizes
from eqsat_opt.lab.testing.graphs import GraphMaker, evaluate
from eqsat_opt.racing import planned_kernels, planned_results
from eqsat_opt.racing.planned_kernels import with_own_kernels
from eqsat_opt.runtime.backends.native.library import missing
from eqsat_opt.runtime.backends.native.segments.launcher import algorithm_of, ways_of
from eqsat_opt.runtime.backends.native.tuning import NotTuned
from eqsat_opt.runtime.backends.ort.block import nchwc_block
from eqsat_opt.runtime.backends.ort.launcher import segment_model
from eqsat_opt.runtime.backends.ort.session import OrtOptions
from eqsat_opt.runtime.backends.registry import launcher_names, load_launcher
from eqsat_opt.runtime.devices.host import HostDevice
from eqsat_opt.runtime.executor import Executable
from eqsat_opt.runtime.plan.constants import make_constants
from eqsat_opt.runtime.plan.plan import Plan
from eqsat_opt.runtime.planning.planner import make_plan
from eqsat_opt.select.rebuilding.planning import PlanDraft
from eqsat_opt.validation.compare import Reference

needs_blocks = pytest.mark.skipif(
    bool(missing()) or nchwc_block() < 2, reason="no compiled kernels for blocked layouts"
)


def convolutions() -> Graph:
    """Two convolutions that Winograd's algorithm can compute, and a part of the second."""
    g = GraphMaker()
    n = max(nchwc_block(), 2)
    x = g("Relu", g.conv(g.input("x", 1, n, 8, 8), g.weight(n, n, 3, 3), pad=1))
    y = g.conv(x, g.weight(n, n, 3, 3), pad=1)
    return g.graph(g("Slice", y, axis=1, lo=1, hi=n))


GRAPH = convolutions()
FEEDS = {"x": np.random.default_rng(0).standard_normal((1, nchwc_block() or 2, 8, 8), np.float32)}


def opened(plan: Plan) -> Executable:
    launchers = {launch.backend: load_launcher(launch.backend) for launch in plan.launches}
    constants = make_constants(plan, tensors_of(GRAPH))
    return Executable(plan, constants, HostDevice(), launchers)


def planned(algorithm: str) -> Plan:
    plan = make_plan(GRAPH, tensors_of(GRAPH), lambda node: "ort")
    (launch,) = plan.launches
    launcher = load_launcher("ort+native")
    return replace(
        plan,
        launches=(replace(launch, backend="ort+native", algorithm=algorithm),),
        versions={"ort+native": launcher.version()},
    )


@pytest.mark.parametrize("ways", [("",), ("a", "a", "", "b"), ("winograd-2x2-in-run", "", "")])
def test_ways_go_round(ways: tuple[str, ...]) -> None:
    assert ways_of(algorithm_of(ways)) == ways


@pytest.mark.parametrize(
    "text", ["", "default", "a x own", "1 x ", "99999999999 x own", "; 1 x own", "² x own"]
)
def test_what_says_no_ways(text: str) -> None:
    with pytest.raises(ValueError, match=r"^"):
        ways_of(text)


@needs_blocks
def test_a_segment_computes_the_same_by_winograd() -> None:
    (want,) = opened(make_plan(GRAPH, tensors_of(GRAPH), lambda node: "ort")).run(FEEDS)
    (own,) = opened(planned("2 x own")).run(FEEDS)
    np.testing.assert_array_equal(own, want)
    (got,) = opened(planned("1 x winograd-4x4; 1 x winograd-2x2")).run(FEEDS)
    assert 0 < np.abs(got - want).max() <= 1e-5 * np.abs(want).max()


@needs_blocks
@pytest.mark.parametrize(
    "algorithm", ["default", "3 x own", "1 x own", "2 x winograd-9x9", "9" * 5000 + " x own"]
)
def test_an_algorithm_of_another_graph(algorithm: str) -> None:
    with pytest.raises(RuntimeFailed, match="the algorithm is not for the 2 sites here"):
        opened(planned(algorithm))


@needs_blocks
def test_a_plan_of_another_library() -> None:
    plan = replace(planned("2 x own"), versions={"ort+native": "onnxruntime 0, native 0"})
    with pytest.raises(PlanError, match="the plan was made with onnxruntime 0, native 0"):
        opened(plan)


def test_nobody_asks_for_them_by_name() -> None:
    assert not {"ort+native", "analytic"} & set(launcher_names())
    with pytest.raises(PlanError, match="no backend 'cray' runs plans; there are numpy, ort,"):
        load_launcher("cray")


@needs_blocks
def test_segments_that_take_long_are_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def tuned(model: Any, _options: Any, trials: Any, **_: Any) -> Any:
        ((feeds, outputs),) = trials
        asked.append((sorted(feeds), [one.shape for one in outputs]))
        return SimpleNamespace(ways=("winograd-2x2", ""))

    monkeypatch.setattr(planned_kernels, "tune", tuned)
    draft = PlanDraft("it", "one session", make_plan(GRAPH, tensors_of(GRAPH), lambda node: "ort"))
    given: dict[str, Any] = {"max_error": 1e-4, "deadline": Deadline.never()}
    made = with_own_kernels(draft, lambda one: opened(one.plan), [FEEDS], **given)
    assert made is not None
    (launch,) = made.plan.launches
    assert (launch.backend, launch.algorithm) == ("ort+native", "1 x winograd-2x2; 1 x own")
    assert made.name == "plan of it, one session with own kernels inside"
    assert asked == [(["x0"], [opened(made.plan).run(FEEDS)[0].shape])]

    def untuned(*_: Any, **__: Any) -> Any:
        raise NotTuned("nothing gains")

    monkeypatch.setattr(planned_kernels, "tune", untuned)
    assert with_own_kernels(draft, lambda one: opened(one.plan), [FEEDS], **given) is None
    given["deadline"] = Deadline.after(0.0)
    assert with_own_kernels(draft, lambda one: opened(one.plan), [FEEDS], **given) is None


def test_plans_without_sessions_take_no_place_among_those_to_be_tuned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However cheap they are: those of OpenVINO once kept every session from its kernels."""
    session, *others = raced_drafts()
    asked: list[str] = []
    monkeypatch.setattr(
        planned_results, "with_own_kernels", lambda one, *_, **__: asked.append(one.name)
    )
    prices = {id(session.plan): 1.0}
    monkeypatch.setattr(planned_results, "simulated_us", lambda plan, *_: prices.get(id(plan), 0.0))
    given = replace(job(), drafts=(session, *others), is_raced=False)
    held = planned_results.race_plans(given)
    assert asked == [session.name]
    assert held.draft in others


def raced_drafts() -> list[PlanDraft]:
    """A session, and three plans in NumPy."""
    tensors = tensors_of(GRAPH)
    session = PlanDraft("it", "one session", make_plan(GRAPH, tensors, lambda node: "ort"))
    plan = make_plan(GRAPH, tensors, lambda node: "numpy")
    return [session, *(PlanDraft(name, "numpy", plan) for name in "abc")]


def job(left_s: float = np.inf) -> planned_results.PlanJob:
    """A race for which there is so much time, whatever it takes."""
    return planned_results.PlanJob(
        drafts=tuple(raced_drafts()),
        weights=tensors_of(GRAPH),
        original=model_proto(export_model(GRAPH)).SerializeToString(),
        portable=None,
        session=OrtOptions(threads=1),
        sizes=Sizes(),
        seeds=(0,),
        numerics=Numerics.RELAXED,
        max_error=1e-4,
        has_kernels=True,
        deadline=Deadline(left_s, lambda: 0.0),
    )


@pytest.mark.parametrize(
    ("left_s", "judged", "tuned", "raced"),
    [
        # Each plan takes a second to open and one to compare and to time.
        (0.5, 1, 0, 0),  # the first is made in any case
        (3.5, 1, 0, 1),
        (8.0, 4, 0, 2),
        (12.0, 4, 1, 2),  # before the others are judged
        (20.0, 4, 1, 2),
    ],
)
def test_plans_keep_to_the_time_that_is_left(
    left_s: float, judged: int, tuned: int, raced: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = count()
    monkeypatch.setattr(Reference, "entrant_s", 0.0)
    monkeypatch.setattr(
        planned_results, "simulated_us", lambda plan, *_: float(plan.launches[0].backend == "numpy")
    )
    monkeypatch.setattr(planned_results, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    asked: list[str] = []
    monkeypatch.setattr(
        planned_results, "with_own_kernels", lambda one, *_, **__: asked.append(one.name)
    )
    entered: list[str] = []

    def race(entrants: Any, *_: Any, **__: Any) -> Any:
        entered.extend(entrants)
        entry = SimpleNamespace(note="", ratio=1.0)
        return SimpleNamespace(entries=dict.fromkeys(entrants, entry))

    monkeypatch.setattr(planned_results, "race", race)
    held = planned_results.race_plans(job(left_s))
    assert len(held.considered) == judged
    assert len(held.refused) == 4 - judged
    assert asked == [held.draft.name] * tuned
    assert len(entered) == (raced + 1 if raced else 0)
    assert (held.held is not None) == bool(raced)


@pytest.mark.parametrize(("ceil", "dilation", "opset"), [(0, 1, 18), (1, 1, 21), (0, 2, 21)])
def test_average_pools_are_of_the_operator_set_that_is_quick(
    ceil: int, dilation: int, opset: int
) -> None:
    g = GraphMaker()
    pool = g(
        "AveragePool",
        g.input("x", 1, 2, 7, 7),
        kernel=(2, 2), strides=(2, 2), pads=(0, 0, 0, 0), dilations=(dilation,) * 2, ceil=ceil,
        count_include_pad=0,
    )  # fmt: skip
    graph = g.graph(g("Gelu", pool, approximate="none"))
    plan = make_plan(graph, {}, lambda node: "ort")
    (launch,) = plan.launches
    x = np.random.default_rng(0).standard_normal((1, 2, 7, 7)).astype(np.float32)
    model = segment_model(launch, [x])
    assert [one.version for one in model.opset_import if not one.domain] == [opset]
    (got,), (want,) = opened(plan).run({"x": x}), evaluate(graph, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
