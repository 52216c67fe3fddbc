"""The device of a GPU and what runs launches on it, on stand-ins of the libraries."""

from __future__ import annotations

import ast
import gc
import importlib
import inspect
import re
import sys
from dataclasses import replace
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import eqsat_opt
from eqsat_opt.cli import main
from eqsat_opt.errors import PlanError, RuntimeFailed
from eqsat_opt.ir.graph.graph import Graph, Node
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.ir.values.forms import Form
from eqsat_opt.lab.testing.graphs import GraphMaker
from eqsat_opt.pipeline import plans
from eqsat_opt.runtime.backends.cublaslt import described
from eqsat_opt.runtime.backends.cublaslt import running as cublaslt
from eqsat_opt.runtime.backends.cudnn import build as cudnn
from eqsat_opt.runtime.backends.cudnn import running as cudnn_running
from eqsat_opt.runtime.devices import cuda, gpu_meter, nvml
from eqsat_opt.runtime.devices.needed import CUPY, PYNVML, Needed
from eqsat_opt.runtime.devices.profile import load_profile
from eqsat_opt.runtime.plan.plan import Plan
from eqsat_opt.runtime.planning.planner import make_plan
from tests.cuda_host.harness import missing
from tests.tools.fake_gpu import FakeGpu, FakeGraph

RUNNERS = {"Conv": "cudnn", "MatMul": "cublaslt"}


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    made = FakeGpu(tmp_path)
    made.install(monkeypatch)
    return made


def net() -> Graph:
    """Two convolutions side by side, joined, and a product; weights of one are computed."""
    g = GraphMaker()
    x, w = g.input("x", 1, 4, 5, 6), g.input("w", 3, 4, 3, 3)
    bias = g.constant(np.linspace(-1, 1, 2, dtype=np.float32))
    sides = g("Relu", g.conv(x, w, pad=1)), g.conv(x, g.weight(2, 4, 3, 3), bias, pad=1)
    pooled = g("GlobalAveragePool", g("Concat", *sides, axis=1))
    flat = g("Reshape", pooled, shape=(1, 5))
    return g.graph(g("Softmax", g("MatMul", flat, g.weight(5, 7)), axis=1))


def plan_of(
    graph: Graph, streams: int = 1, target: str = "h200", *, weights_layout: str = "nhwc"
) -> Plan:
    outside = {*graph.inputs, *graph.outputs} - {"x", "w"}

    def form_of(name: str) -> Form:
        if name == "w nhwc":
            return Form("cuda", weights_layout)
        return Form("cuda", "plain" if name in outside else "nhwc")

    images = {"x": "x nhwc", "w": "w nhwc"}
    copies = tuple(
        Node("Transpose", (name,), (copy,), (("perm", (0, 1, 2, 3)),))
        for name, copy in images.items()
    )
    nodes = tuple(
        replace(node, inputs=tuple(images.get(name, name) for name in node.inputs))
        for node in graph.nodes
    )
    types = {**graph.types, **{copy: graph.types[name] for name, copy in images.items()}}
    return make_plan(
        replace(graph, nodes=(*copies, *nodes), types=types),
        {name: one.load for name, one in graph.constants.items()},
        lambda node: RUNNERS.get(node.op, "cuda"),
        algorithm_of=lambda node: {"Conv": "eng0", "MatMul": "heuristic"}.get(node.op, "default"),
        form_of=form_of,
        streams=streams,
        target=target,
    )


def weights(graph: Graph) -> dict[str, Any]:
    return {name: one.load() for name, one in graph.constants.items()}


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize("streams", [1, 2])
def test_a_plan_runs_on_a_gpu(gpu: FakeGpu, streams: int) -> None:
    graph = net()
    plan = plan_of(graph, streams)
    assert {one.backend for one in plan.launches} == {"cudnn", "cublaslt", "cuda"}
    runner = plans.load_plan(plan, weights(graph))
    told = list(gpu.log)
    begin = told.index(("begin_capture", 0))
    end = told.index(("end_capture", 0))
    # What was uploaded is there before the first launch.
    first = next(i for i, one in enumerate(told) if one[0] == "launch")
    assert ("deviceSynchronize",) in told[:first]
    # All ran once before, on the same streams and in the same order.
    launches = [one[:2] for one in told if one[0] == "launch"]
    captured = [one[:2] for one in told[begin:end] if one[0] == "launch"]
    assert launches[-2 * len(captured) :] == captured * 2
    assert {one[1] for one in captured} == set(range(plan.streams))
    draw = np.random.default_rng(0)
    for _ in range(2):
        shapes = {"x": (1, 4, 5, 6), "w": (3, 4, 3, 3)}
        feeds = {k: draw.standard_normal(v).astype(np.float32) for k, v in shapes.items()}
        (found,), (wanted,) = runner.run(feeds), runner.reference(feeds)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)


def break_driver(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    module = gpu.cupy

    def count() -> int:
        raise module.cuda.runtime.CUDARuntimeError("cudaErrorInsufficientDriver")

    module.cuda.runtime.getDeviceCount = count
    monkeypatch.setitem(sys.modules, "cupy", module)


TROUBLES = {
    "no GPU": (break_driver, "there is no GPU: cudaErrorInsufficientDriver"),
    "no CuPy": (lambda _, patch: patch.setitem(sys.modules, "cupy", None), r"eqsat-opt\[gpu\]"),
    "no cuDNN": (lambda _, patch: patch.setitem(sys.modules, "cudnn", None), r"eqsat-opt\[gpu\]"),
    "no nvmath": (
        lambda _, patch: patch.setitem(sys.modules, "nvmath.linalg", None), r"eqsat-opt\[gpu\]",
    ),
    "another cuDNN": (
        lambda gpu, _: setattr(gpu, "cudnn_version", 92800), "of cuDNN 91900; here is 92800",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TROUBLES)
def test_what_is_missing_is_named(name: str, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    change, message = TROUBLES[name]
    graph = net()
    change(gpu, monkeypatch)
    with pytest.raises(PlanError, match=message) as caught:
        plans.load_plan(plan_of(graph), weights(graph))
    assert str(caught.value).startswith("the plan is for h200, which cannot run here: ")
    assert "\n" not in str(caught.value)


def test_another_gpu_is_refused(gpu: FakeGpu) -> None:
    graph = net()
    with pytest.raises(PlanError, match=r"the GPU here is Fake \(sm_90\)"):
        plans.load_plan(plan_of(graph, target="a100"), weights(graph))
    with pytest.raises(PlanError, match="nothing runs plans on NVIDIA"):
        plans.load_plan(replace(plan_of(graph), target="v100"), weights(graph))


def test_what_does_not_fit_is_refused(gpu: FakeGpu) -> None:
    graph = net()
    plan = plan_of(graph)
    gpu.free_bytes = 100
    with pytest.raises(RuntimeFailed, match=rf"an arena of {plan.arena_bytes} bytes; 100 are free"):
        plans.load_plan(plan, weights(graph))
    gpu.free_bytes, gpu.workspace_bytes = 1 << 40, 64
    with pytest.raises(RuntimeFailed, match="no plan 'eng0' here that needs at most 0 bytes"):
        plans.load_plan(plan, weights(graph))
    gpu.workspace_bytes, gpu.plan_names = 0, ["eng1", "eng2"]
    with pytest.raises(RuntimeFailed, match="cuDNN has no plan 'eng0' here"):
        plans.load_plan(plan, weights(graph))


FROM_THE_COMMAND_LINE = {
    **TROUBLES,
    "another architecture": (lambda gpu, patch: turn_into_a100(gpu, patch), r"Fake \(sm_80\)"),
    "no memory": (lambda gpu, _: setattr(gpu, "free_bytes", 9), r"arena of \d+ bytes; 9 are free"),
}  # fmt: skip


def turn_into_a100(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu.capability = (8, 0)
    monkeypatch.setitem(sys.modules, "cupy", gpu.cupy)


@pytest.mark.parametrize("name", FROM_THE_COMMAND_LINE)
def test_run_names_what_is_missing(
    name: str,
    gpu: FakeGpu,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    change, message = FROM_THE_COMMAND_LINE[name]
    graph = net()
    change(gpu, monkeypatch)
    plans.write_plan(tmp_path / "plan.json", plan_of(graph))
    model = tmp_path / "model.onnx"
    model.write_bytes(model_proto(export_model(graph)).SerializeToString())
    np.savez(tmp_path / "in.npz", x=np.zeros(3), w=np.zeros(3))
    monkeypatch.chdir(tmp_path)
    words = "run plan.json --model model.onnx --inputs in.npz --outputs out.npz"
    assert main(words.split()) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(message, line), line
    assert not (tmp_path / "out.npz").exists()


def test_weights_that_do_not_fit_are_refused(gpu: FakeGpu) -> None:
    g = GraphMaker()
    graph = g.graph(g("MatMul", g.input("x", 1, 100), g.weight(100, 200)))
    plan = make_plan(
        graph,
        {name: one.load for name, one in graph.constants.items()},
        lambda node: "cublaslt",
        algorithm_of=lambda node: "heuristic",
        target="h200",
    )
    gpu.free_bytes = plan.arena_bytes
    with pytest.raises(RuntimeFailed, match=rf"a constant of 80000 bytes; {plan.arena_bytes} are"):
        plans.load_plan(plan, weights(graph))


def test_a_launch_of_the_host_is_refused(gpu: FakeGpu) -> None:
    graph = net()
    plan = make_plan(
        graph,
        {name: one.load for name, one in graph.constants.items()},
        lambda node: "numpy",
        target="h200",
    )
    with pytest.raises(PlanError, match="the backend 'numpy' runs nothing on a GPU"):
        plans.load_plan(plan, weights(graph))


def test_a_number_keeps_its_shape(gpu: FakeGpu) -> None:
    device = cuda.CudaDevice(load_profile("h200"))
    place = device.cupy.ndarray((), np.dtype("float32"), device.alloc(4).data, ())
    device.upload(place, np.array(3, np.float32))
    found = device.download(place)
    assert (found.shape, str(found.dtype), float(found)) == ((), "float32", 3.0)


def test_a_capture_that_fails_says_why(gpu: FakeGpu) -> None:
    """And not that its stream is no longer captured; nothing is collected while it lasts."""
    device = cuda.CudaDevice(load_profile("h200"))
    ran = []

    def queue() -> None:
        ran.append(gc.isenabled())
        if len(ran) == 2:
            device.stream(1)
            begin = device.event()
            device.record(begin, 0)
            device.wait(begin, 1)
            device.launch(lambda: gpu.queue(lambda: None, 1), 1)  # nobody waits for it
            raise RuntimeFailed("a kernel is missing")

    with pytest.raises(RuntimeFailed, match="a kernel is missing"):
        device.capture(queue)
    assert (ran, gc.isenabled()) == ([True, False], True)
    ran[:] = [True] * 5
    device.replay(device.capture(queue))
    assert gpu.log.count(("begin_capture", 0)) == gpu.log.count(("end_capture", 0)) == 2


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize(("layout", "copies"), [("plain", 2), ("nhwc", 0)])
def test_weights_that_lie_as_cudnn_wants_them_are_not_copied(
    gpu: FakeGpu, layout: str, copies: int
) -> None:
    """Those that a run computes; others are packed before it."""
    graph = net()
    plans.load_plan(plan_of(graph, weights_layout=layout), weights(graph))
    assert sum("copy" in entry for entry in gpu.log) == copies


def test_what_cudnn_refuses_is_named(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: FakeGraph) -> None:
        raise ValueError("CUDNN_STATUS_NOT_SUPPORTED")

    monkeypatch.setattr(FakeGraph, "validate", refuse)
    with pytest.raises(RuntimeFailed, match="cuDNN refuses it: CUDNN_STATUS_NOT_SUPPORTED"):
        plans.load_plan(plan_of(net()), weights(net()))


ALONE = (cuda, cublaslt, cudnn_running, nvml)
"""What only a GPU can run; `tests/tools` stands in for the libraries."""


def test_code_for_gpus_alone_is_little() -> None:
    files = [Path(module.__file__ or "") for module in ALONE]
    assert sum(len(file.read_text("utf-8").splitlines()) for file in files) <= 500
    named = (Path(__file__).parents[4] / "CONTRIBUTING.md").read_text("utf-8")
    for file in files:
        assert f"`{file.relative_to(Path(eqsat_opt.__file__).parent).as_posix()}`" in named


def chain(node: ast.expr) -> list[str]:
    """``self.streams[0].record()`` as ``self``, ``streams[]``, ``record``; calls are left out."""
    if isinstance(node, ast.Attribute):
        return [*chain(node.value), node.attr]
    if isinstance(node, ast.Call):
        return chain(node.func)
    if isinstance(node, ast.Subscript):
        names = chain(node.value)
        return [*names[:-1], f"{names[-1]}[]"] if names else []
    return [node.id] if isinstance(node, ast.Name) else []


def used(module: ModuleType, roots: set[str]) -> set[str]:
    """Attributes that a module uses of what these names stand for."""
    found = set()
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        names = chain(node) if isinstance(node, ast.Attribute) else []
        names = names[1:] if names[:1] == ["self"] else names
        if names and names[0] in roots:
            found.update(names[1:])
        if isinstance(node, ast.Call) and chain(node)[-1:] == ["ask"]:  # by name
            found.add("nvmlDeviceGet" + ast.literal_eval(node.args[0]))
        if isinstance(node, ast.Constant) and re.fullmatch("(nvml|NVML_).+", str(node.value)):
            found.add(str(node.value))
    return found - {"ask", "constant", "nvml:", "nvmlDeviceGet"}


ROOTS: list[tuple[ModuleType, set[str], Needed]] = [
    (
        cuda,
        {"_runtime", "_streams[]", "captured", "cupy", "first", "module", "stream"},
        CUPY,
    ),
    (cudnn, {"cudnn", "graph", "made", "value"}, cudnn.NEEDED),
    (cudnn_running, {"_cudnn", "graph"}, cudnn.NEEDED),
    (cudnn_running, {"array", "cupy", "weights"}, CUPY),
    (cublaslt, {"_advanced", "_linalg", "made"}, described.NEEDED),
    (cublaslt, {"cupy", "one"}, CUPY),
    (nvml, {"_nvml", "nvml"}, PYNVML),
    (gpu_meter, {"found"}, PYNVML),
]


@pytest.mark.parametrize(("module", "roots", "needed"), ROOTS)
def test_what_is_used_is_on_the_list(module: ModuleType, roots: set[str], needed: Needed) -> None:
    listed = {name for owner, names in needed.items() for name in (*names, *owner.split("."))}
    found = used(module, roots)
    assert found
    assert sorted(found - listed) == []


def owner_of(package: ModuleType, path: str) -> Any:
    """``cuda.Stream`` of CuPy."""
    return reduce(getattr, filter(None, path.split(".")), package)


@pytest.mark.parametrize(
    ("package", "needed"),
    [
        ("cupy", CUPY), ("cudnn", cudnn.NEEDED), ("nvmath", described.NEEDED),
        ("pynvml", PYNVML),
    ],
)  # fmt: skip
def test_libraries_have_what_is_used_of_them(package: str, needed: Needed) -> None:
    module = pytest.importorskip(package)
    if package == "nvmath":
        importlib.import_module("nvmath.linalg.advanced")
    for path, names in needed.items():
        owner = owner_of(module, path)
        members = {*dir(owner), *(one[0] for one in getattr(owner, "_fields_", ()))}
        assert [name for name in names if name not in members] == []
