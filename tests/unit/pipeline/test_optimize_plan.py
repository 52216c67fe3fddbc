"""Plans of results: mixed backends, checked and raced; and where running one needs little."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

import eqsat_opt
from benchmarks.plans import tensors_of
from eqsat_opt.cli.app import run
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.errors import CheckFailed, OptionError, PlanError, RuntimeFailed
from eqsat_opt.ir import import_model, load_model, sym
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.lab import zoo
from eqsat_opt.lab.testing.graphs import GraphMaker, evaluate
from eqsat_opt.pipeline.forms import plan as plan_form
from eqsat_opt.pipeline.plans import load_plan, read_plan
from eqsat_opt.racing import planned_results as planned
from eqsat_opt.runtime.backends.generated.compiling import compiler_missing
from eqsat_opt.runtime.backends.launching import Bound
from eqsat_opt.runtime.backends.native.library import missing
from eqsat_opt.runtime.backends.openvino.runtime import OpenVinoRuntime
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.backends.registry import load_launcher
from eqsat_opt.runtime.devices.calls import NativeCall, joined
from eqsat_opt.runtime.devices.host import HostDevice
from eqsat_opt.runtime.executor import Executable
from eqsat_opt.runtime.inputs import random_inputs
from eqsat_opt.runtime.plan.constants import make_constants
from eqsat_opt.runtime.plan.plan import ComputedConstant, Plan, Stored
from eqsat_opt.runtime.planning.planner import make_plan
from eqsat_opt.select.choosing.forms import MadeValue
from eqsat_opt.select.rebuilding.planning import SESSION, drafts, in_parallel, placements

ALL = ("ort", "native", "numpy", "generated")
needs_compiler = pytest.mark.skipif(bool(compiler_missing()), reason="no C++ compiler")
needs_kernels = pytest.mark.skipif(bool(missing()), reason="no compiled kernels")


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EQSAT_OPT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def values(plan: Plan, seed: int = 0) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    return {
        port.name: draw.standard_normal(plan.buffer_of[port.buffer].dims).astype(np.float32)
        for port in plan.inputs
    }


def checked(graph: Graph, backend_of: Callable[[Any], str], **options: Any) -> Plan:
    """The plan of a graph, run and compared."""
    tensors = tensors_of(graph)
    plan = make_plan(graph, tensors, backend_of, **options)
    feeds = values(plan)
    launchers = {launch.backend: load_launcher(launch.backend) for launch in plan.launches}
    runner = Executable(plan, make_constants(plan, tensors), HostDevice(), launchers)
    wanted = evaluate(graph, {name: one.astype(np.float64) for name, one in feeds.items()})
    for got, want in zip(runner.run(feeds), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)
    return plan


# ** launchers **


@needs_compiler
def test_a_size_that_data_decide_is_not_asked_for(tmp_path: Path) -> None:
    """Nobody can give it, and its name is none of the model's."""
    node = onnx.helper.make_node
    nodes = [
        node("NonZero", ["x"], ["where"]),
        node("Cast", ["where"], ["f"], to=onnx.TensorProto.FLOAT),
        node("Neg", ["f"], ["y"]),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3, 4])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
    )
    opsets = [onnx.helper.make_opsetid("", 18)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)
    with pytest.raises(OptionError, match="known only when the model runs") as failure:
        eqsat_opt.optimize(model, effort="quick", plan=str(tmp_path / "p.json"), store="")
    assert "?" not in str(failure.value)


def test_a_region_is_one_generated_launch_and_reads_through_movements() -> None:
    g = GraphMaker()
    x, y = g.input("x", 3, 4), g.input("y", 4, 3)
    turned = g("Transpose", y, perm=(1, 0))
    total = g("Tanh", g("Add", x, turned))
    part = g("Slice", total, axis=1, lo=1, hi=3)
    plan = checked(g.graph(g("Sigmoid", part), total), lambda node: "generated")
    (launch,) = plan.launches
    assert launch.backend == "generated"
    assert {step.op for step in launch.body.steps} == {
        "Transpose", "Add", "Tanh", "Slice", "Sigmoid",
    }  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_generated_kernels_write_into_parts_and_read_from_parts(axis: int) -> None:
    """Rows, columns and the middle of a value that others write the rest of."""
    g = GraphMaker()
    x, y = g.input("x", 2, 3, 4), g.input("y", 2, 3, 4)
    a, b = g("Exp", x), g("Neg", y)
    joint = g("Concat", a, b, axis=axis)
    low = g("Slice", joint, axis=axis, lo=1, hi=g.shape(joint)[axis])
    ops = {"Concat": "numpy", "Slice": "numpy"}  # which become views
    plan = checked(g.graph(g("Tanh", low)), lambda node: ops.get(node.op, "generated"))
    assert [launch.backend for launch in plan.launches] == ["generated"] * 3
    assert any(buffer.base and not buffer.is_dense for buffer in plan.buffers) or axis == 0


@needs_compiler
def test_what_no_kernel_can_be_generated_of_runs_in_numpy() -> None:
    g = GraphMaker()
    x = g.input("x", 2, 3)
    cast = g("Cast", x, to="int32")
    plan = checked(g.graph(cast, g("Softmax", x, axis=1)), lambda node: "generated")
    assert [launch.backend for launch in plan.launches] == ["numpy", "generated"]


@needs_compiler
def test_empty_and_scalar_values() -> None:
    g = GraphMaker()
    x, empty = g.input("x"), g.input("e", 0, 3)
    plan = checked(g.graph(g("Tanh", x), g("Tanh", empty)), lambda node: "generated")
    assert sorted(launch.backend for launch in plan.launches) == ["generated", "numpy"]


@needs_kernels
def test_products_and_normalisations_by_own_kernels() -> None:
    g = GraphMaker()
    x = g.input("x", 2, 5, 16)
    scale, shift = g.weight(16), g.weight(16)
    normal = g("LayerNormalization", x, scale, shift, axis=2, epsilon=1e-5)
    rms = g("RMSNormalization", x, scale, axis=2, epsilon=1e-5)
    weight = g.weight(16, 24)
    outputs = (g("MatMul", normal, weight), g("MatMul", rms, weight), normal)
    plan = checked(g.graph(*outputs), lambda node: "native")
    assert {launch.backend for launch in plan.launches} == {"native"}


@needs_kernels
def test_own_kernels_between_copies_of_what_has_gaps() -> None:
    g = GraphMaker()
    x = g.input("x", 3, 16)
    part = g("Slice", x, axis=1, lo=4, hi=12)
    outputs = (g("MatMul", part, g.weight(8, 4)), g("MatMul", part, g.weight(8, 6)))
    joint = g("Concat", *outputs, axis=1)

    def backend_of(node: Any) -> str:
        return "native" if node.op == "MatMul" else "numpy"

    graph = g.graph(joint)
    names = [launch.body.name for launch in checked(graph, backend_of).launches]
    assert sorted(names) == ["Concat", "MatMul", "MatMul", "Slice"]
    # So they are packed by launches of the plan, and by themselves in one that gives them views.
    plan = checked(graph, backend_of, is_strided=lambda node: True)
    assert [launch.backend for launch in plan.launches] == ["native", "native"]


@pytest.mark.skipif(bool(OpenVinoRuntime().missing()), reason="no OpenVINO")
def test_a_segment_in_openvino() -> None:
    """Between others, so that it reads and writes what has gaps too."""
    g = GraphMaker()
    x = g.input("x", 1, 3, 6, 6)
    part = g("Slice", x, axis=3, lo=1, hi=5)
    value = g("Relu", g.conv(part, g.weight(4, 3, 1, 1)))
    joint = g("Concat", value, g("Tanh", part), axis=1)
    views = {"Slice": "numpy", "Concat": "numpy", "Tanh": "numpy"}
    plan = checked(
        g.graph(joint), lambda node: views.get(node.op, "openvino"), is_strided=lambda node: True
    )
    assert [launch.backend for launch in plan.launches].count("openvino") == 1


def test_openvino_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eqsat_opt.runtime.backends.openvino.runtime.find_spec", lambda _: None)
    load_launcher.cache_clear()
    with pytest.raises(PlanError, match=r"pip install 'eqsat-opt\[openvino\]'"):
        load_launcher("openvino")


@needs_kernels
@needs_compiler
def test_compiled_neighbours_are_one_call() -> None:
    g = GraphMaker()
    x = g.input("x", 2, 8)
    y = g("Tanh", g("MatMul", g("Tanh", x), g.weight(8, 8)))
    graph = g.graph(y)
    plan = make_plan(
        graph, tensors_of(graph), lambda node: "native" if node.op == "MatMul" else "generated"
    )
    launchers = {launch.backend: load_launcher(launch.backend) for launch in plan.launches}
    runner = Executable(plan, make_constants(plan, tensors_of(graph)), HostDevice(), launchers)
    assert len(plan.launches) == 3
    assert len(runner._captured) == 1
    assert all(isinstance(work, NativeCall) for work in runner._works)
    feeds = values(plan)
    (wanted,) = evaluate(graph, feeds)
    np.testing.assert_allclose(runner.run(feeds)[0], wanted, rtol=1e-5, atol=1e-6)
    assert len(runner.launch_times_us(feeds)) == 3
    for work in runner._works:  # one by one they do the same
        work()


def test_a_chain_says_which_launch_failed() -> None:
    calls: list[Any] = []
    import ctypes

    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda data: 1)
    every = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(lambda data, n: n)
    address, call_all = (ctypes.cast(one, ctypes.c_void_p).value for one in (function, every))
    assert address is not None
    assert call_all is not None
    calls = [NativeCall(name, address, 0, call_all, (function, every)) for name in "ab"]
    with pytest.raises(RuntimeFailed, match="launch 'a' failed"):
        calls[0]()
    (chain,) = joined(calls)
    with pytest.raises(RuntimeFailed, match="launch 'b' failed"):
        chain()


@pytest.mark.parametrize("backend", ["native", "generated"])
def test_bodies_that_own_kernels_cannot_run_are_refused(backend: str) -> None:
    """A plan that somebody wrote by hand."""
    g = GraphMaker()
    graph = g.graph(g("Abs", g.input("x", 2, 3, dtype="complex64")))
    (launch,) = make_plan(graph, {}, lambda node: "numpy").launches
    array = np.zeros((2, 3), np.complex64)
    bound = Bound((array,), (array.copy(),), np.empty(0, np.uint8))
    with pytest.raises(RuntimeFailed, match=r"Abs|no kernel can be"):
        load_launcher(backend).build(launch, bound)


# ** recipes **


def test_graphs_are_lowered_while_there_is_time() -> None:
    now = iter((0.0, 0.0, 0.0, 0.1, 0.3, 9.0))
    deadline = Deadline(1.0, lambda: next(now))
    draft: Any = SimpleNamespace()
    assert len(list(plan_form.drafts_in_time(iter([draft] * 9), deadline))) == 2
    assert list(plan_form.drafts_in_time(iter([draft] * 2), Deadline.never())) == [draft] * 2


@needs_kernels
def test_placements_are_made_for_the_sizes_that_are_given() -> None:
    g = GraphMaker()
    n = sym("N")
    x = g.input("x", n, 8)
    graph = g.graph(g("Tanh", g("MatMul", x, g.weight(8, 4))))
    found = drafts({"it": graph}, tensors_of(graph), ALL, sizes={"N": 3})
    names = {launch.backend for draft in found for launch in draft.plan.launches}
    assert {"ort", "native", "numpy"} <= names
    with pytest.raises(OptionError, match="give 'N' one with --input-shape"):
        list(drafts({"it": graph}, tensors_of(graph), ALL, sizes={}))


def test_constants_that_a_search_made_are_recipes() -> None:
    """Of the weights of the model as it came."""
    model = zoo.build("resnet50_bn", scale="tiny")
    result = eqsat_opt.optimize(
        model,
        report=True,
        effort="quick",
        budget_s=20.0,
        threads=1,
        store="",
        plan=None,
        race=False,
        check=0,
    )
    graph = result.proposal.best
    tensors = {name: one.load for name, one in import_model(load_model(model)).constants.items()}
    plan = make_plan(graph, tensors, lambda node: "ort")
    kinds = {type(recipe) for recipe in plan.constants.values()}
    assert kinds >= {Stored, ComputedConstant}
    feeds = random_inputs(model, 0)
    runner = Executable(
        plan, make_constants(plan, tensors), HostDevice(), {"ort": load_launcher("ort")}
    )
    (want,) = OrtSession(model, OrtOptions(threads=1)).run(feeds)
    (got,) = runner.run(feeds)
    assert np.abs(got - want).max() <= 1e-4 * np.abs(want).max()


# ** placements **


def test_nothing_is_mixed_with_several_threads() -> None:
    g = GraphMaker()
    graph = g.graph(g("Tanh", g.input("x", 2)))
    (only,) = placements(graph, ALL, threads=2)
    assert (only.name, only.algorithm) == (SESSION, "2 threads")
    assert checked(graph, lambda node: "ort").launches[0].algorithm == "default"
    plan = make_plan(graph, {}, only.backend_of, algorithm_of=lambda node: only.algorithm)
    runner = Executable(plan, {}, HostDevice(), {"ort": load_launcher("ort")})
    np.testing.assert_allclose(runner.run({"x": np.ones(2, "f4")})[0], np.tanh(1), rtol=1e-6)


def wide(columns: int) -> Graph:
    g = GraphMaker()
    x = g("Tanh", g.input("x", 1, 64))
    return g.graph(g("Tanh", g("MatMul", x, g.weight(64, columns))))


@needs_compiler
def test_long_segments_run_on_several_threads_without_spinning() -> None:
    """By analytic times; the weights of the longer one are 400 MB, which nobody reads here."""
    given: Any = {"backends": ("ort", "generated"), "sizes": {}, "threads": 2}
    short = wide(8)
    (only,) = drafts({"it": short}, tensors_of(short), **given)
    assert only.placement == SESSION
    parts = make_plan(short, tensors_of(short), lambda n: "ort" if n.op == "MatMul" else "numpy")
    assert in_parallel(parts, 2) is None
    body = replace(
        parts.launches[1].body,
        operands=(
            parts.launches[1].body.operands[0],
            replace(parts.launches[1].body.operands[1], type=TensorType("float32", (64, 1 << 20))),
        ),
    )
    longer = replace(parts, launches=(replace(parts.launches[1], body=body),))
    made = in_parallel(longer, 2)
    assert made is not None
    assert [one.algorithm for one in made.launches] == ["2 threads without spinning"]


@pytest.mark.parametrize("algorithm", ["2 threads without spinning", "1 threads", "2 threads"])
def test_sessions_of_several_threads(algorithm: str) -> None:
    graph = wide(8)
    plan = make_plan(graph, tensors_of(graph), lambda n: "ort", algorithm_of=lambda n: algorithm)
    constants = make_constants(plan, tensors_of(graph))
    runner = Executable(plan, constants, HostDevice(), {"ort": load_launcher("ort")})
    feeds = values(plan)
    (want,) = evaluate(graph, dict(feeds))
    np.testing.assert_allclose(runner.run(feeds)[0], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("algorithm", ["2 threads spinning", "0 threads", "² threads", "2 thread"])
def test_numbers_of_threads_that_make_no_sense(algorithm: str) -> None:
    graph = wide(8)
    plan = make_plan(graph, tensors_of(graph), lambda n: "ort", algorithm_of=lambda n: algorithm)
    constants = make_constants(plan, tensors_of(graph))
    with pytest.raises(RuntimeFailed, match="ort has no algorithm"):
        Executable(plan, constants, HostDevice(), {"ort": load_launcher("ort")})


# ** optimize **


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(zoo.build("sru", scale="tiny"), "m.onnx")
    return tmp_path


FAST = ("--effort", "quick", "--threads", "1", "--store", "", "--quiet")


@needs_compiler
@needs_kernels
def test_optimize_writes_a_plan_that_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--plan", "p.json", "--backends", ",".join(ALL), "--json", "r.json")
    command = ["optimize", "m.onnx", "-o", "f.onnx", *given, *FAST, "--budget", "8"]
    assert run(command) == 0
    told = json.loads(Path("r.json").read_text())["planned"]
    assert told["output"] == "p.json"
    assert set(told["refused"].values()) <= {"there was no time for it"}
    assert len(told["considered"]) + len(told["refused"]) >= 3
    assert "original" in told["race"].get("entries", ("original",))  # where there was time for one
    assert told["predicted_us"] == min(told["considered"].values()) or told["measured_us"]
    feeds = random_inputs("m.onnx", 1)
    np.savez("x.npz", **feeds)
    command = ["run", "p.json", "--model", "m.onnx", "--inputs", "x.npz", "--outputs", "y.npz"]
    assert run([*command, "--check"]) == 0
    session = OrtSession("m.onnx", OrtOptions(threads=1))
    with np.load("y.npz") as found:
        for name, want in zip(session.output_names, session.run(feeds), strict=True):
            np.testing.assert_allclose(found[name], want, rtol=1e-4, atol=1e-5)
    capsys.readouterr()


def test_the_plan_of_a_result(here: Path) -> None:
    chosen = {"threads": 1, "effort": "quick", "store": "", "race": False, "report": True}
    result = eqsat_opt.optimize("m.onnx", plan="p.json", backends=("numpy",), **chosen)
    assert result.plan == read_plan("p.json")
    assert {launch.backend for launch in result.plan.launches} == {"numpy"}
    assert result.report.planned.race == {}
    assert "simulated; written to p.json" in result.report.planned.text
    load_plan("p.json", "m.onnx").run(random_inputs("m.onnx", 0))


@needs_compiler
def test_kernels_of_all_backends_are_chosen_among(here: Path, monkeypatch: Any) -> None:
    asked: list[Any] = []
    chosen = plan_form._chosen

    def watched(*given: Any) -> Any:
        asked.extend(chosen(*given))
        return asked

    monkeypatch.setattr(plan_form, "_chosen", watched)
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> n (float[2,3] x) => (float[2,3] y)'
        " { a = Tanh(x) y = Softmax<axis=1>(a) }"
    )
    given = {"backends": ("ort", "generated"), "measure": True, "race": False, "report": True}
    result = eqsat_opt.optimize(
        model, plan="p.json", threads=1, effort="quick", store="", budget_s=60.0, **given
    )
    assert [name for name, _ in asked][:1] == ["the result"]
    runs = [one.run for _, graph in asked for one in graph.placed if isinstance(one, MadeValue)]
    # Which it is depends on what is measured.
    assert {""} < {run.backend for run in runs} <= {"", "ort", "launched:generated"}
    told = result.report.planned
    assert set(told.refused.values()) <= {"there was no time for it"}
    feeds = random_inputs(model, 0)
    (want,) = OrtSession(model, OrtOptions(threads=1)).run(feeds)
    np.testing.assert_allclose(load_plan("p.json", model).run(feeds)[0], want, rtol=1e-5)


def test_a_plan_for_a_device_is_not_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["optimize", "m.onnx", "--target", "h200", "--plan", "h.json", "--json", "r.json"]
    assert run([*command, *FAST]) == 0
    told = json.loads(Path("r.json").read_text())["planned"]
    assert (told["target"], told["race"]) == ("h200", {})
    assert told["bounds"] == told["prices"] == sum(told["launches"].values()) > 0
    assert read_plan("h.json").target == "h200"
    np.savez("x.npz", **random_inputs("m.onnx", 0))
    command = ["run", "h.json", "--model", "m.onnx", "--inputs", "x.npz", "--outputs", "y.npz"]
    assert run(command) == 1
    assert "for h200, which cannot run here" in capsys.readouterr().err
    Path("h.json").write_text(Path("h.json").read_text().replace('"h200"', '"cpu"'))
    assert run(command) == 1
    error = capsys.readouterr().err.strip()
    assert "is for a device that is not here; plan again with another backend" in error
    assert len(error.splitlines()) == 1


def test_streams_of_a_plan_for_a_device(here: Path) -> None:
    g = GraphMaker()
    x = g.input("x", 1, 8, 8, 8)
    sides = [g.conv(g.conv(x, g.weight(8, 8, 3, 3)), g.weight(8, 8, 3, 3)) for _ in range(2)]
    model = model_proto(export_model(g.graph(*sides)))
    options: dict[str, Any] = {"effort": "quick", "budget_s": 20.0, "check": 0, "store": ""}
    result = eqsat_opt.optimize(
        model, plan="p.json", target="h200", streams=2, report=True, rules="none", **options
    )
    assert result.plan.streams == 2
    assert result.report.planned.prices == len(result.plan.launches)


def test_plans_that_compute_something_else_are_dropped(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planned, "_difference", lambda *_: "output 'h0': wrong")
    chosen = {"threads": 1, "effort": "quick", "store": "", "plan": "p.json"}
    with pytest.raises(PlanError, match="no plan of this model runs here: output 'h0': wrong"):
        eqsat_opt.optimize("m.onnx", **chosen)
    with pytest.raises(CheckFailed, match="computes something else"):
        eqsat_opt.optimize("m.onnx", strict=True, **chosen)
    assert not Path("p.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--plan", "p.json", "--backends", "ort,cray"], "no backend 'cray' runs plans"),
        (["--plan", "p.json", "--target", "cray"], "unknown device 'cray'"),
        (["--plan", "-"], "a plan needs a file"),
        (["--plan", "no/p.json"], "the folder no does not exist"),
        (["--plan", "m.onnx"], "another file of this run"),
        (["--backends", "ort,native"], "leave native out"),
        (["--backends", "ort,generated"], "unknown backend 'generated'"),
    ],
)
def test_bad_input_is_one_line(
    here: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["optimize", "m.onnx", "-o", "f.onnx", *arguments, *FAST]) == 1
    error = capsys.readouterr().err.strip()
    assert message in error
    assert len(error.splitlines()) == 1
    assert not Path("p.json").exists()


def test_open_sizes_are_asked_for_before_the_search(here: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> n (float[N] x) => (float[N] y) { y = Tanh(x) }'
    )
    with pytest.raises(OptionError, match="give 'N' one with --input-shape N:SIZE"):
        eqsat_opt.optimize(model, plan="p.json", effort="quick", store="")


_BARE = """
import sys
for name in ("egglog", "ortools", "rustworkx", "platformdirs", "onnxruntime", "onnx", "onnx_ir"):
    sys.modules[name] = None
import numpy as np
import eqsat_opt
runner = eqsat_opt.load_plan("p.json", "m.onnx")
with np.load("x.npz") as file:
    outputs = runner.run(dict(file))
print(sorted(runner.plan.versions), len(outputs))
"""


@needs_compiler
@needs_kernels
def test_running_needs_numpy_and_the_backends_of_the_plan(here: Path) -> None:
    model = load_model("m.onnx")
    graph = import_model(model)
    tensors = {name: one.load for name, one in graph.constants.items()}
    (own,) = (one for one in placements(graph, ("native", "generated")) if "native" in one.name)
    plan = make_plan(graph, tensors, own.backend_of)
    eqsat_opt.pipeline.plans.write_plan("p.json", plan)
    np.savez("x.npz", **random_inputs("m.onnx", 0))
    done = subprocess.run(
        [sys.executable, "-c", _BARE], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "'generated', 'native'" in done.stdout
