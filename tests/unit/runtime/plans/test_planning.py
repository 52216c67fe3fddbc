"""From a graph to a plan: segments, views, recipes, and what cannot stand in a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat_opt.errors import OptionError, PlanError, RuntimeFailed
from eqsat_opt.ir import sym
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.values.types import OtherType, TensorType
from eqsat_opt.lab.testing.graphs import GraphMaker, evaluate
from eqsat_opt.pipeline.plans import load_plan, plan_model
from eqsat_opt.runtime.backends.generated.compiling import compiler_missing
from eqsat_opt.runtime.backends.launching import Bound
from eqsat_opt.runtime.backends.registry import load_backend, load_launcher, record_of
from eqsat_opt.runtime.devices.host import HostDevice
from eqsat_opt.runtime.executor import Executable
from eqsat_opt.runtime.inputs import random_inputs
from eqsat_opt.runtime.plan.constants import Tensors, make_constants
from eqsat_opt.runtime.plan.hazards import check_plan
from eqsat_opt.runtime.plan.interpreter import interpret
from eqsat_opt.runtime.plan.plan import ComputedConstant, Literal, Plan, Stored
from eqsat_opt.runtime.planning.fusion_groups import is_able
from eqsat_opt.runtime.planning.layouts import reshaped_strides
from eqsat_opt.runtime.planning.partitions import segments
from eqsat_opt.runtime.planning.planner import Seat, make_plan
from tests.tools.recording_device import RecordingDevice

Choose = Callable[[Any], str]


def numpy_only(node: object) -> str:
    return "numpy"


def ort_only(node: object) -> str:
    return "ort"


def tensors_of(graph: Graph) -> Tensors:
    return {name: constant.load for name, constant in graph.constants.items()}


def planned(graph: Graph, choose: Choose = numpy_only, **options: Any) -> Plan:
    """A plan that computes what the graph does: by the interpreter, and on the host."""
    tensors = tensors_of(graph)
    plan = make_plan(graph, tensors, choose, **options)
    constants = make_constants(plan, tensors)
    generator = np.random.default_rng(0)
    feeds = {
        port.name: generator.standard_normal(plan.buffer_of[port.buffer].dims).astype(np.float32)
        for port in plan.inputs
    }
    wanted = evaluate(graph, {name: value.astype(np.float64) for name, value in feeds.items()})
    launchers = {one.backend: load_launcher(one.backend) for one in plan.launches}
    found = Executable(plan, constants, HostDevice(), launchers).run(feeds)
    meant = interpret(plan, constants, feeds, seed=1)
    for port, want, got in zip(plan.outputs, wanted, found, strict=True):
        for one in (got, meant[port.name]):
            assert one.shape == want.shape
            np.testing.assert_allclose(one, want, rtol=1e-5, atol=1e-5)
    return plan


# ** segments **


@given(st.data())
def test_segments_are_convex_connected_and_in_order(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 9))
    before = [
        sorted(data.draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else [] for i in range(n)
    ]
    labels = [data.draw(st.sampled_from([None, "a", "b"])) for _ in range(n)]
    groups = segments(before, labels)
    assert sorted(node for group in groups for node in group) == list(range(n))
    number = {node: i for i, group in enumerate(groups) for node in group}
    # In order: nothing reads a later group, so no path leaves a group and comes back.
    assert all(number[source] <= number[node] for node in range(n) for source in before[node])
    for group in groups:
        assert list(group) == sorted(group)
        assert len({labels[node] for node in group}) == 1
        assert labels[group[0]] is not None or len(group) == 1
        reached, stack = {group[0]}, [group[0]]
        while stack:
            node = stack.pop()
            near = [m for m in group if m in before[node] or node in before[m]]
            stack += [m for m in near if m not in reached]
            reached.update(near)
        assert reached == set(group)


def test_a_graph_of_one_label_is_one_segment() -> None:
    before = [[], [0], [0], [1, 2], [3]]
    assert segments(before, ["ort"] * 5) == [(0, 1, 2, 3, 4)]
    # 0 and 3 stay apart, because 1 stands between them.
    assert segments(before, ["ort", None, "ort", "ort", "ort"]) == [(0, 2), (1,), (3, 4)]


# ** views **


@given(st.data())
def test_reshaped_strides_find_the_same_elements(data: st.DataObject) -> None:
    dims = tuple(data.draw(st.lists(st.sampled_from((1, 2, 3, 4, 6)), max_size=4)))
    order = data.draw(st.permutations(range(len(dims))))
    gaps = data.draw(st.lists(st.integers(1, 2), min_size=len(dims), max_size=len(dims)))
    strides, step = [0] * len(dims), 1
    for axis in order:
        strides[axis], step = step, step * dims[axis] * gaps[axis]
    size = int(np.prod(dims))
    new: list[int] = []
    rest = size
    while rest > 1:
        factor = data.draw(st.sampled_from([f for f in range(2, rest + 1) if rest % f == 0]))
        new.append(factor)
        rest //= factor
    for _ in range(data.draw(st.integers(0, 2))):
        new.insert(data.draw(st.integers(0, len(new))), 1)
    memory = np.arange(max(step, 1))
    view = np.lib.stride_tricks.as_strided(memory, dims, [8 * s for s in strides])
    found = reshaped_strides(dims, tuple(strides), tuple(new))
    # NumPy knows when no strides do it: then it copies.
    moved = np.reshape(view, tuple(new))
    assert (found is not None) == np.shares_memory(moved, memory)
    if found is not None:
        again = np.lib.stride_tricks.as_strided(memory, tuple(new), [8 * s for s in found])
        assert np.array_equal(again, moved)


def test_nothing_has_any_strides() -> None:
    assert reshaped_strides((0, 3), (7, 2), (3, 0)) is not None
    assert reshaped_strides((), (), (1, 1)) == (1, 1)
    assert reshaped_strides((2, 3), (1, 2), (6,)) is None


def test_an_inception_block_moves_nothing() -> None:
    g = GraphMaker()
    x = g.input("x", 2, 4, 3, 3)
    parts = [g("Relu", g.conv(x, g.weight(c, 4, 1, 1))) for c in (2, 3)]
    whole = g("Concat", *parts, axis=1)
    low = g("Slice", whole, axis=1, lo=1, hi=4)
    flat = g("Reshape", g("Tanh", low), shape=(2, 27))
    plan = planned(g.graph(flat))
    assert [launch.body.name for launch in plan.launches].count("Concat") == 0
    assert {b.name: b.base for b in plan.buffers if b.base} == {
        parts[0]: whole, parts[1]: whole, low: whole, flat: g.graph(flat).nodes[-1].inputs[0],
    }  # fmt: skip
    assert len(plan.launches) == 5


def test_a_concat_copies_what_has_another_place() -> None:
    def of(rows: int) -> tuple[Plan, str, str, str]:
        g = GraphMaker()
        x = g.input("x", rows, 30)
        y = g("Relu", x)
        inner = g("Concat", y, g("Tanh", x), axis=1)
        outer = g("Concat", x, inner, y, y, g.weight(rows, 1), axis=1)
        return planned(g.graph(outer, y)), y, inner, outer

    plan, y, inner, outer = of(4000)
    copies = [launch for launch in plan.launches if not launch.body.steps]
    # The input, the constant, and y for two of its three places.
    assert len(copies) == 4
    assert plan.buffer_of[y].base == outer
    assert plan.buffer_of[f"{inner}[0]"].base == outer
    assert len(plan.launches) == 6
    # Of what is small, three further launches take longer than to copy all at once.
    plan, y, inner, outer = of(2)
    assert sorted(launch.body.name for launch in plan.launches) == ["Concat", "Relu", "Tanh"]
    assert {b.base for b in plan.buffers if b.base} == {inner}


def test_a_concat_of_given_values_is_a_kernel() -> None:
    g = GraphMaker()
    x, y = g.input("x", 2, 3), g.input("y", 2, 3)
    plan = planned(g.graph(g("Concat", x, y, axis=0)))
    assert [launch.body.name for launch in plan.launches] == ["Concat"]


def test_names_of_parts_are_free() -> None:
    g = GraphMaker()
    x = g.input("v1[0]", 2)
    whole = g("Concat", x, g("Relu", x), axis=0)
    assert whole == "v1"
    planned(g.graph(whole))


def test_a_transpose_before_a_reshape_is_a_launch() -> None:
    g = GraphMaker()
    x = g.input("x", 2, 3)
    part = g("Slice", x, axis=1, lo=0, hi=2)
    plan = planned(g.graph(g("Reshape", part, shape=(4,))))
    assert [launch.body.name for launch in plan.launches] == ["Reshape"]


@pytest.mark.parametrize("choose", [numpy_only, ort_only])
def test_graphs_of_odd_sizes(choose: Choose) -> None:
    g = GraphMaker()
    x, s = g.input("x", 0, 3), g.input("s")
    nothing = g("Concat", g("Relu", x), g("Tanh", x), axis=0)
    scalar = g("Reshape", g("Sigmoid", s), shape=(1, 1))
    one = g("Concat", scalar, g("Slice", scalar, axis=0, lo=0, hi=1), axis=1)
    plan = planned(g.graph(nothing, scalar, one, x), choose)
    assert plan.arena_bytes <= 8 * 256


@pytest.mark.parametrize("choose", [numpy_only, ort_only])
def test_outputs_that_nothing_computes(choose: Choose) -> None:
    g = GraphMaker()
    x = g.input("x", 2, 3)
    c = g.weight(2, 2)
    folded = g("Relu", c)
    plan = planned(g.graph(x, c, folded), choose)
    assert plan.launches == ()
    assert isinstance(plan.constants[c], Stored)
    assert isinstance(plan.constants[folded], ComputedConstant)


def test_one_output_twice() -> None:
    g = GraphMaker()
    x = g.input("x", 2, 3)
    body = g("Relu", x)
    plan = planned(g.graph(body, g("Tanh", body)), ort_only)
    assert len(plan.launches) == 1
    assert len(plan.launches[0].writes) == 2


def test_a_bound_run_gives_inputs_again_where_their_memory_is_used_again() -> None:
    g = GraphMaker()
    x = g.input("x", 4)
    y = x
    for _ in range(4):
        y = g("Tanh", y)
    graph = g.graph(y)
    for choose, uploads in ((numpy_only, 1), (ort_only, 0)):
        plan, device = planned(graph, choose), RecordingDevice()
        launchers = {name: load_launcher(name) for name in ("numpy", "ort")}
        call = Executable(plan, {}, device, launchers).bind({"x": np.ones(4, np.float32)})
        for _ in range(2):
            device.log.clear()
            call()
            assert [entry[0] for entry in device.log].count("upload") == uploads


# ** backends **


def three_branches() -> Graph:
    g = GraphMaker()
    x = g.input("x", 2, 4, 3, 3)
    branches = [g("Relu", g.conv(x, g.weight(2, 4, 1, 1), g.weight(2))) for _ in range(3)]
    return g.graph(g("Concat", *branches, axis=1))


def test_a_whole_graph_is_one_segment() -> None:
    plan = planned(three_branches(), ort_only)
    assert [launch.backend for launch in plan.launches] == ["ort"]
    assert plan.streams == 1
    assert plan.versions.keys() == {"ort"}


def test_a_session_has_what_one_stream_runs_between_events() -> None:
    plan = planned(three_branches(), ort_only, streams=3)
    assert sorted((one.backend, len(one.body.steps)) for one in plan.launches) == [
        ("ort", 1), ("ort", 2), ("ort", 2), ("ort", 2),
    ]  # fmt: skip
    assert plan.streams == 3
    assert plan.launches[-1].waits


def test_sessions_are_cut_where_kernels_have_their_seats() -> None:
    """The second stream waits for the first kernel, not for the two behind it."""
    g = GraphMaker()
    first = g("Relu", g.input("x", 8))
    second = g("Tanh", first)
    third = g("Exp", second)
    other = g("Neg", first)
    last = g("Add", third, other)
    order = (first, second, third, other, last)
    seats = {name: Seat(rank, int(name == other)) for rank, name in enumerate(order)}
    seats[third] = Seat(2, 0)
    plan = planned(g.graph(last), ort_only, seats=seats)
    assert [(one.stream, [step.op for step in one.body.steps]) for one in plan.launches] == [
        (0, ["Relu"]), (0, ["Tanh", "Exp"]), (1, ["Neg"]), (0, ["Add"]),
    ]  # fmt: skip
    # What a kernel inside of a session waits for, the session does from the beginning.
    seats[second] = Seat(1, 0, waits=(other,))
    seats[other] = Seat(0, 1)
    plan = planned(g.graph(last), ort_only, seats=seats)
    (tail,) = (one for one in plan.launches if last in one.writes)
    assert [step.op for step in tail.body.steps] == ["Tanh", "Exp", "Add"]
    assert tail.waits


def test_strided_operands_of_sessions_are_packed_in_a_workspace() -> None:
    g = GraphMaker()
    x = g.input("x", 2, 4, 3, 3)
    part = g("Slice", x, axis=1, lo=1, hi=3)
    left, right = g("Relu", part), g("Tanh", part)
    whole = g("Concat", left, right, axis=1)
    ort = {left, right}

    def choose(node: Any) -> str:
        return "ort" if node.output in ort else "numpy"

    # Sessions know no gaps: what is read and written there is copied, once and as launches.
    plan = planned(g.graph(whole), choose)
    assert sorted((one.backend, one.body.name) for one in plan.launches) == [
        ("numpy", "Concat"), ("numpy", "Slice"), ("ort", "Relu"), ("ort", "Tanh"),
    ]  # fmt: skip
    assert not any(one.workspace.size_bytes for one in plan.launches)
    # A plan that gives them views all the same runs, with copies that nobody has priced.
    (launch, other) = planned(g.graph(whole), choose, is_strided=lambda node: True).launches
    assert launch.workspace.size_bytes == 2 * 256
    assert other.workspace.size_bytes == 2 * 256


def launched(plan: Plan) -> list[str]:
    return sorted(launch.body.name or "copy" for launch in plan.launches)


@pytest.mark.parametrize("axis", [0, 1])
def test_views_stand_only_between_kernels_that_take_them(axis: int) -> None:
    g = GraphMaker()
    x = g.input("x", 40, 40)
    left, right = g("Relu", x), g("Tanh", x)
    whole = g("Concat", left, right, axis=axis)
    low = g("Slice", whole, axis=axis, lo=0, hi=40)
    high = g("Slice", whole, axis=axis, lo=40, hi=80)
    graph = g.graph(g("Sigmoid", low), g("Exp", high))

    def without(*outputs: str) -> list[str]:
        plan = planned(graph, is_strided=lambda node: node.output not in outputs)
        for launch in plan.launches:
            if set(launch.writes) & set(outputs):
                names = (*launch.reads, *launch.writes)
                assert all(plan.buffer_of[name].is_dense for name in names)
        return launched(plan)

    computed = ["Exp", "Relu", "Sigmoid", "Tanh"]
    assert without() == computed
    if not axis:  # parts of the outermost axis have no gaps
        assert without(left, right, *graph.outputs) == computed
        return
    assert without(graph.outputs[0]) == sorted([*computed, "Slice"])
    assert without(graph.outputs[1]) == sorted([*computed, "Slice"])
    assert without(left) == sorted([*computed, "copy"])
    assert without(left, right) == sorted([*computed, "Concat"])
    assert without(whole) == sorted([*computed, "Concat"])
    assert without(low) == sorted([*computed, "Slice"])
    assert without(left, *graph.outputs) == sorted([*computed, "Slice", "Slice", "copy"])


def test_views_of_views_are_packed_for_those_that_take_none() -> None:
    g = GraphMaker()
    x = g.input("x", 6, 40)
    inner = g("Concat", g("Relu", x), g("Tanh", x), axis=0)  # without gaps by itself
    outer = g("Concat", inner, g("Exp", g("Slice", inner, axis=0, lo=0, hi=12)), axis=1)
    middle = g("Slice", outer, axis=1, lo=10, hi=50)
    last = g("Sigmoid", g("Reshape", middle, shape=(3, 4, 40)))
    graph = g.graph(last)
    assert launched(planned(graph)) == ["Exp", "Relu", "Sigmoid", "Tanh"]
    plan = planned(graph, is_strided=lambda node: node.op != "Sigmoid")
    assert launched(plan) == ["Exp", "Relu", "Reshape", "Sigmoid", "Tanh"]
    plan = planned(graph, is_strided=lambda node: node.op != "Exp")
    (exp,) = (launch for launch in plan.launches if launch.body.name == "Exp")
    assert all(plan.buffer_of[name].is_dense for name in (*exp.reads, *exp.writes))


def generated_only(node: object) -> str:
    return "generated"


needs_compiler = pytest.mark.skipif(bool(compiler_missing()), reason="no C++ compiler")


@needs_compiler
def test_long_chains_are_several_kernels() -> None:
    """Terms of one kernel would be nested deeper than Python can follow."""
    g = GraphMaker()
    value = x = g.input("x", 2, 3)
    for _ in range(100):
        value = g("Neg", g("Add", g("Tanh", value), x))
    plan = planned(g.graph(value), generated_only)
    assert {launch.backend for launch in plan.launches} == {"generated"}
    assert 4 <= len(plan.launches) <= 8
    for _ in range(120):
        value = g("Transpose", g("Reshape", value, shape=(3, 2)), perm=(1, 0))
    plan = planned(g.graph(g("Neg", value)), generated_only)
    assert len(plan.launches) > 8


@needs_compiler
def test_a_concat_of_many_parts_is_no_kernel() -> None:
    g = GraphMaker()
    x = g.input("x", 2, 3)
    parts = [g(("Tanh", "Neg")[i % 2], x) for i in range(200)]
    whole = g("Concat", *parts, axis=1)
    plan = planned(g.graph(whole), generated_only)
    assert {launch.backend for launch in plan.launches} == {"generated"}
    assert len(plan.launches) == 200
    plan = planned(g.graph(g("Concat", *[x] * 200, axis=0)), generated_only)
    assert [launch.backend for launch in plan.launches] == ["numpy"]


def test_weights_that_are_one_are_read_once() -> None:
    g = GraphMaker()
    x, w = g.input("x", 2, 6), g.weight(6)
    graph = g.graph(g("LayerNormalization", x, w, w, axis=1, epsilon=1e-5))
    assert not is_able(graph, graph.nodes[0], "native", graph.constants)
    plan = planned(graph, lambda node: "native")
    assert [launch.backend for launch in plan.launches] == ["numpy"]


def test_what_takes_views_is_said_once() -> None:
    for name in ("generated", "numpy", "native", "openvino"):
        backend = load_backend(f"launched:{name}")
        operands = (
            Operand(TensorType("float32", (2, 3)), False),
            Operand(TensorType("float32", (3, 4)), True),
        )
        (how,) = backend.implementations(Kernel(operands, (Step("MatMul", (), (0, 1)),), (2,)))
        assert how.strided == record_of(name).takes_views == (name in ("generated", "numpy"))
    relu = Kernel((Operand(TensorType("float32", (2,)), False),), (Step("Relu", (), (0,)),), (1,))
    assert not any(how.strided for how in load_backend("ort").implementations(relu))
    assert not record_of("ort").takes_views
    assert not record_of("ort+native").takes_views


def test_an_unknown_algorithm_is_refused() -> None:
    g = GraphMaker()
    plan = planned(g.graph(g("Relu", g.input("x", 2))))
    from dataclasses import replace

    for name in ("numpy", "ort"):
        launch = replace(plan.launches[0], algorithm="winograd")
        with pytest.raises(RuntimeFailed, match=f"{name} has no algorithm 'winograd'"):
            load_launcher(name).build(launch, Bound((), (), np.empty(0, np.uint8)))


def test_a_device_without_that_memory() -> None:
    g = GraphMaker()
    plan = planned(g.graph(g("Relu", g.input("x", 2))))
    from dataclasses import replace

    huge = replace(plan, arena_bytes=1 << 60)
    check_plan(huge)
    with pytest.raises(RuntimeFailed, match="cannot allocate an arena"):
        Executable(huge, {}, HostDevice(), {"numpy": load_launcher("numpy")})


@pytest.mark.parametrize("backend", ["numpy", "ort"])
@pytest.mark.parametrize(
    "dtype", ["float16", "float64", "bfloat16", "int8", "uint8", "int32", "int64", "bool"]
)
def test_element_types(backend: str, dtype: str) -> None:
    g = GraphMaker()
    x, y = g.input("x", 2, 3, dtype=dtype), g.input("y", 1, 3, dtype=dtype)
    whole = g("Concat", y, g("Transpose", g("Slice", x, axis=0, lo=1, hi=2), perm=(0, 1)), axis=0)
    graph = g.graph(g("Reshape", whole, shape=(3, 2)))
    plan = make_plan(graph, {}, lambda node: backend)
    numbers = np.arange(9) % 2
    type_ = plan.buffer_of["x"]
    from eqsat_opt.ir.values.types import numpy_dtype

    values = numbers.astype(numpy_dtype(type_.dtype))
    feeds = {"x": values[:6].reshape(2, 3), "y": values[6:].reshape(1, 3)}
    launchers = {name: load_launcher(name) for name in ("numpy", "ort")}
    (found,) = Executable(plan, {}, HostDevice(), launchers).run(feeds)
    wanted = np.concatenate([feeds["y"], feeds["x"][1:]]).reshape(3, 2)
    assert found.dtype == wanted.dtype
    assert found.tobytes() == wanted.tobytes()


# ** constants **


def test_recipes_are_stored_small_or_uniform() -> None:
    g = GraphMaker()
    x = g.input("x", 2, 100)
    big, small = g.weight(2, 100), g.constant(np.array([[1.0], [np.inf]], np.float32))
    ones = g.constant(np.full((2, 100), np.nan, np.float32))
    graph = g.graph(g("Add", g("Add", g("Add", x, big), small), ones))
    plan = make_plan(graph, {big: graph.constants[big].load}, numpy_only)
    assert isinstance(plan.constants[big], Stored)
    assert plan.constants[small] == Literal((1.0, float("inf")))
    (value,) = plan.constants[ones].values  # type: ignore[union-attr]
    assert np.isnan(value)
    made = make_constants(plan, {big: graph.constants[big].load})
    for name, array in made.items():
        assert array.tobytes() == graph.constants[name].load().tobytes()
        assert not array.flags.writeable
    with pytest.raises(PlanError, match="not stored in the model"):
        make_plan(graph, {}, numpy_only)
    with pytest.raises(PlanError, match=f"no weight '{big}'"):
        make_constants(plan, {})
    other = {big: lambda: graph.constants[big].load() + 1}
    with pytest.raises(PlanError, match=f"weight '{big}' of the model is another one"):
        make_constants(plan, other)


def test_minus_zero_and_whole_numbers_keep_their_bits() -> None:
    g = GraphMaker()
    x = g.input("x", 3, dtype="int64")
    big = g.constant(np.array([1, (1 << 62) + 1, -5]))
    zero = g.constant(np.array([-0.0, 0.0, 1e-45], np.float32))
    graph = g.graph(g("Add", x, big), zero)
    plan = make_plan(graph, {}, numpy_only)
    made = make_constants(plan, {})
    assert made[big].tolist() == [1, (1 << 62) + 1, -5]
    assert made[zero].tobytes() == graph.constants[zero].load().tobytes()


# ** what cannot stand in a plan **


def test_open_sizes() -> None:
    g = GraphMaker()
    x = g.input("x", sym("N"), 3)
    graph = g.graph(g("Reshape", g("Relu", x), shape=(3, sym("N"))))
    with pytest.raises(OptionError, match=r"give 'N' one with --input-shape N:SIZE"):
        make_plan(graph, {}, numpy_only)
    plan = make_plan(graph, {}, numpy_only, sizes={"N": 2})
    assert plan.sizes == {"N": 2}
    assert plan.buffer_of["x"].dims == (2, 3)


def test_operators_and_types_without_a_kernel() -> None:
    g = GraphMaker()
    x = g.input("x", 2)
    (out,) = g.opaque("Mystery", x, outputs=(TensorType("float32", (2,)),))
    with pytest.raises(PlanError, match="cannot stand in a plan"):
        make_plan(g.graph(out), {}, numpy_only)
    g = GraphMaker()
    text = g.input("s", 2, dtype="string")
    with pytest.raises(PlanError, match="'s' is string"):
        make_plan(g.graph(g("Reshape", text, shape=(1, 2))), {}, numpy_only)
    g = GraphMaker()
    x = g.input("x", 2)
    (out,) = g.opaque("Sequence", x, outputs=(OtherType("sequence"),))
    with pytest.raises(PlanError, match="cannot stand in a plan"):
        make_plan(g.graph(out), {}, numpy_only)


def test_no_streams_and_no_such_backend_or_device() -> None:
    g = GraphMaker()
    graph = g.graph(g("Relu", g.input("x", 2)))
    with pytest.raises(OptionError, match="1 stream or more"):
        make_plan(graph, {}, numpy_only, streams=0)
    with pytest.raises(PlanError, match="no backend 'cray' runs plans; there are numpy, ort"):
        make_plan(graph, {}, lambda node: "cray")
    with pytest.raises(OptionError, match="unknown device 'cray'"):
        make_plan(graph, {}, numpy_only, target="cray")
    assert make_plan(graph, {}, numpy_only, target="h200").target == "h200"


@pytest.mark.parametrize("shape", ["2,3", "", "0,3"])
@pytest.mark.parametrize("backend", ["ort", "numpy"])
def test_an_output_that_is_an_input_or_another_output(shape: str, backend: str) -> None:
    """Export writes an Identity there, which nobody has a kernel for."""
    type_ = f"float[{shape}]" if shape else "float"
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> n ({type_} x) => ({type_} y, {type_} z, '
        f"{type_} w)"
        " { y = Identity(x) z = Relu(x) w = Identity(z) }"
    )
    runner = load_plan(plan_model(model, backend=backend), model)
    feeds = random_inputs(model, 0)
    y, z, w = runner.run(feeds)
    np.testing.assert_array_equal(y, feeds["x"])
    np.testing.assert_array_equal(z, np.maximum(feeds["x"], 0))
    np.testing.assert_array_equal(w, z)


def test_elementwise_kernels_of_a_modelled_device_join_where_they_may() -> None:
    """Two updates that share a value, and a product whose epilogue stays as it was chosen."""
    g = GraphMaker()
    x, y, w = g.input("x", 8, 16), g.input("y", 8, 16), g.input("w", 16, 16)
    product = g("MatMul", x, w)
    relu = g("Relu", product)
    scaled = g("Mul", relu, y)
    graph = g.graph(g("Add", scaled, x), g("Sub", scaled, x))
    units = {product: 0, relu: 0}

    def launches(*, joins: bool) -> list[tuple[tuple[str, ...], int]]:
        plan = make_plan(
            graph,
            {},
            lambda node: "analytic",
            unit_of=lambda node: units.get(node.output),
            joins=joins,
            target="v100",
        )
        return [
            (tuple(step.op for step in one.body.steps), len(one.writes)) for one in plan.launches
        ]

    apart = launches(joins=False)
    assert apart == [(("MatMul", "Relu"), 1), (("Mul",), 1), (("Add",), 1), (("Sub",), 1)]
    assert launches(joins=True) == [apart[0], (("Mul", "Add", "Sub"), 2)]
