"""Random graphs as plans: on any streams and backends they compute what the graph does.

And plans that somebody changed: refused, shown to be harmless, or noticed in an output.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.plan_oracle import (
    MUTATIONS,
    branching_graph,
    judge,
    mutants,
    provenance,
    siblings_graph,
)
from benchmarks.plans import mixed, mixed_all, tensors_of, workspace_bytes
from eqsat_opt.ir import import_model, load_model
from eqsat_opt.ir.graph.graph import Graph, Node, attributes
from eqsat_opt.ir.onnx.files.stored_tensors import stored_tensors
from eqsat_opt.ir.values.forms import Form
from eqsat_opt.lab import zoo
from eqsat_opt.lab.testing.graphs import GraphMaker, evaluate, typed_graphs
from eqsat_opt.runtime.backends.generated.compiling import compiler_missing
from eqsat_opt.runtime.backends.native.library import missing
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.backends.registry import load_launcher, record_of
from eqsat_opt.runtime.devices.host import HostDevice
from eqsat_opt.runtime.devices.threaded import ThreadedHost
from eqsat_opt.runtime.executor import Executable
from eqsat_opt.runtime.inputs import random_inputs
from eqsat_opt.runtime.plan.constants import make_constants
from eqsat_opt.runtime.plan.files import plan_from_json, plan_text
from eqsat_opt.runtime.plan.interpreter import interpret
from eqsat_opt.runtime.plan.plan import Plan
from eqsat_opt.runtime.planning.planner import make_plan
from eqsat_opt.runtime.planning.views import find_views

LAUNCHERS = {name: load_launcher(name) for name in ("numpy", "ort", "native", "generated")}
Choose = Callable[[int], Callable[[Node], str]]
needs_all = pytest.mark.skipif(
    bool(compiler_missing() or missing()), reason="no C++ compiler, or no compiled kernels"
)
TOLERANCE = 2e-4  # of the maximum: sums of a few hundred float32 products


def check(
    graph: Graph,
    seed: int,
    streams: int,
    orders: int,
    choose: Choose = mixed,
    layout: str = "plain",
) -> Plan:
    """The plan of a graph, by the interpreter in several orders and on the host."""
    tensors = tensors_of(graph)
    form = Form("host", layout)
    plan = make_plan(graph, tensors, choose(seed), streams=streams, form_of=lambda name: form)
    assert plan_from_json(json.loads(plan_text(plan))) == plan
    for launch in plan.launches:
        if not record_of(launch.backend).takes_views:
            assert all(plan.buffer_of[name].is_dense for name in (*launch.reads, *launch.writes))
    constants = make_constants(plan, tensors)
    draw = np.random.default_rng(seed)
    feeds = {
        port.name: draw.standard_normal(plan.buffer_of[port.buffer].dims).astype(np.float32)
        for port in plan.inputs
    }
    wanted = evaluate(graph, {name: value.astype(np.float64) for name, value in feeds.items()})
    meant = interpret(plan, constants, feeds)
    executable = Executable(plan, constants, HostDevice(), LAUNCHERS)
    found, again = executable.run(feeds), executable.run(feeds)
    threaded = Executable(plan, constants, ThreadedHost(), LAUNCHERS)
    for several in (threaded.run(feeds), threaded.run(feeds)):
        assert [one.tobytes() for one in several] == [one.tobytes() for one in found]
    for port, want, got, twice in zip(plan.outputs, wanted, found, again, strict=True):
        limit = TOLERANCE * np.abs(want).max(initial=1e-30)
        assert np.abs(got - want).max(initial=0) <= limit
        assert np.abs(meant[port.name] - want).max(initial=0) <= limit
        assert got.tobytes() == twice.tobytes()
    origin = provenance(plan)
    for order in range(orders):
        other = interpret(plan, constants, feeds, order)
        assert all(other[name].tobytes() == value.tobytes() for name, value in meant.items())
        places = provenance(plan, order)
        assert all(np.array_equal(places[key], tags) for key, tags in origin.items())
    return plan


@settings(max_examples=40)
@given(typed_graphs(), st.integers(0, 1 << 20), st.integers(1, 4))
def test_random_graphs(graph: Graph, seed: int, streams: int) -> None:
    check(graph, seed, streams, orders=3)


@pytest.mark.parametrize("streams", [1, 2, 3, 4])
def test_branching_graphs(streams: int) -> None:
    for seed in range(4):
        check(branching_graph(seed), seed, streams, orders=5)


@needs_all
@pytest.mark.parametrize("streams", [1, 2, 3])
def test_branching_graphs_on_all_backends(streams: int) -> None:
    check(branching_graph(streams), streams, streams, orders=3, choose=mixed_all)


def numpy_only(_seed: int) -> Callable[[Node], str]:
    return lambda node: "numpy"


@pytest.mark.parametrize("layout", ["plain", "nhwc"])
def test_merged_siblings(layout: str) -> None:
    joined = 0
    for seed in range(6):
        choose = mixed if seed % 2 and layout == "plain" else numpy_only
        graph = siblings_graph(seed)
        plan = check(graph, seed, 1 + seed % 3, orders=3, choose=choose, layout=layout)
        joined += any(" and " in buffer.name for buffer in plan.buffers)
    assert joined >= 2


def test_squares_of_merged_siblings_are_planned_once_each() -> None:
    maker = GraphMaker()
    whole = maker.conv(maker.input("x", 1, 3, 4, 4), maker.weight(8, 3, 1, 1))
    for _ in range(40):
        whole = maker("Mul", whole, whole)
    first = maker("Slice", whole, axis=1, lo=0, hi=3)
    rest = maker("Slice", whole, axis=1, lo=3, hi=8)
    graph = maker.graph(maker("Concat", first, maker("Tanh", rest), axis=1))
    plan = make_plan(graph, tensors_of(graph), lambda node: "numpy")
    assert any(" and " in buffer.name for buffer in plan.buffers)


def test_a_part_that_must_be_copied_is_copied_with_what_stands_beside_it() -> None:
    maker = GraphMaker()
    whole = maker.conv(maker.input("x", 1, 16, 8, 8), maker.weight(48, 16, 1, 1))
    first, middle, last = (maker("Slice", whole, axis=1, lo=lo, hi=lo + 16) for lo in (0, 16, 32))
    joined = maker("Concat", maker("Tanh", first), middle, maker("Sigmoid", last), axis=1)
    graph = maker.graph(joined)
    plan = make_plan(
        graph,
        tensors_of(graph),
        lambda node: "cudnn" if node.op == "Conv" else "cuda",
        form_of=lambda name: Form("cuda", "nhwc"),
        target="h200",
    )
    assert [launch.backend for launch in plan.launches] == ["cudnn", "cuda"]


def linked_blocks(count: int) -> Graph:
    """Each of three siblings: for the concatenation of the block, for the next one, and further."""
    maker = GraphMaker()
    whole = maker.input("x", 1, 8, 8, 8)
    last: list[str] = []
    for _ in range(count):
        channels = maker.shape(whole)[1]
        merged = maker.conv(whole, maker.weight(24, channels, 1, 1))
        parts = [maker("Slice", merged, axis=1, lo=lo, hi=lo + 8) for lo in (0, 8, 16)]
        further = maker.conv(parts[1], maker.weight(8, 8, 1, 1))
        whole = maker("Concat", *last, further, parts[0], axis=1)
        last = [parts[2]]
    return maker.graph(whole)


def test_values_that_overlap_in_a_chain_do_not_keep_all_memory() -> None:
    short, long = (
        make_plan(graph, tensors_of(graph), lambda node: "numpy")
        for graph in map(linked_blocks, (10, 40))
    )
    assert any(" and " in buffer.name for buffer in long.buffers)
    assert long.arena_bytes <= short.arena_bytes
    assert max(len(buffer.name) for buffer in long.buffers) < 20


def test_memory_of_several_values_may_align_one_of_them() -> None:
    slice_ = Node("Slice", ("w",), ("p",), attributes(axis=0, lo=5, hi=8))
    concat = Node("Concat", ("p", "y"), ("c",), attributes(axis=0))
    nodes = [Node("Tanh", ("x",), ("w",)), Node("Tanh", ("z",), ("y",)), slice_, concat]
    dims = {"x": (8,), "w": (8,), "z": (4,), "y": (4,), "p": (3,), "c": (7,)}
    views = find_views(nodes, dims, ("p", "c"), ("x", "z"), aligned={"w": 4, "y": 4})
    assert not views.copies
    assert {name: views.layouts[name].offset for name in ("w", "p", "c", "y")} == {
        "w": 0, "p": 5, "c": 5, "y": 8,
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["plain", "nhwc"])
@pytest.mark.parametrize("tens", range(50))
def test_many_merged_siblings(tens: int, layout: str) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        choose = mixed if seed % 2 and layout == "plain" else numpy_only
        graph = siblings_graph(seed, 1 + seed % 8)
        check(graph, seed, 1 + seed % 4, orders=5, choose=choose, layout=layout)


@pytest.mark.slow
@pytest.mark.parametrize("tens", range(50))
def test_many_branching_graphs(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        choose = mixed if compiler_missing() or missing() else mixed_all
        graph = branching_graph(seed, nodes=30)
        check(graph, seed, 1 + seed % 4, orders=20, choose=choose)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["numpy", "ort", "mixed", "all"])
@pytest.mark.parametrize("name", zoo.names())
def test_models_of_the_zoo(name: str, backend: str) -> None:
    model = zoo.build(name, scale="tiny")
    graph, tensors = import_model(load_model(model)), stored_tensors(model)
    drawn = {"mixed": mixed(0), "all": mixed_all(0)}
    choose = drawn.get(backend, lambda node: backend)
    plan = make_plan(graph, tensors, choose, streams=3)
    constants = make_constants(plan, tensors)
    feeds = random_inputs(model, 0)
    executable = Executable(plan, constants, HostDevice(), LAUNCHERS)
    wanted = OrtSession(model, OrtOptions(threads=1)).run(feeds)
    meant = interpret(plan, constants, feeds)
    results = zip(executable.output_names, wanted, executable.run(feeds), strict=True)
    for output, want, got in results:
        limit = TOLERANCE * np.abs(want).max(initial=1e-30)
        assert np.abs(got - want).max(initial=0) <= limit
        assert np.abs(meant[output] - want).max(initial=0) <= limit
    for seed in range(20):
        other = interpret(plan, constants, feeds, seed)
        assert all(other[one].tobytes() == value.tobytes() for one, value in meant.items())


def test_mutants_are_noticed() -> None:
    """`python -m benchmarks.plans mutants` does so for as many as wanted."""
    found: Counter[tuple[str, str]] = Counter()
    for seed in range(6):
        graph = branching_graph(seed)
        plan = make_plan(
            graph,
            tensors_of(graph),
            mixed(seed),
            is_strided=lambda node: True,  # so that much can go wrong
            streams=1 + seed % 4,
        )
        constants = make_constants(plan, tensors_of(graph))
        draw = np.random.default_rng(seed)
        feeds = [
            {
                port.name: draw.standard_normal(plan.buffer_of[port.buffer].dims).astype("f4")
                for port in plan.inputs
            }
            for _ in range(2)
        ]
        for kind, mutant in mutants(plan, 4 * len(MUTATIONS), seed):
            verdict = judge(plan, mutant, constants, feeds, workspace_bytes)
            assert verdict != "missed", f"{kind}, graph {seed}"
            found[kind, verdict] += 1
    assert {kind for kind, _ in found} == MUTATIONS.keys()
    assert {verdict for _, verdict in found} == {"refused", "harmless", "changes an output"}


def test_a_judge_that_sees_nothing_would_say_so() -> None:
    """Provenance tells plans apart, and what it does not see the outputs do."""
    graph = branching_graph(1)
    plan = make_plan(graph, tensors_of(graph), lambda node: "numpy")
    other = make_plan(branching_graph(2), tensors_of(branching_graph(2)), lambda node: "numpy")
    assert provenance(plan).keys() != provenance(other).keys()
    tags = np.concatenate(list(provenance(plan).values()))
    assert (tags >= 0).all()  # nothing is read that nobody has written
