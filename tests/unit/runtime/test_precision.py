"""In which arithmetic plans for GPUs multiply: keys, prices, graphs, kernels, comparisons."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import eqsat_opt
from eqsat_opt.common.precision import Precision
from eqsat_opt.cost.analytic import ProfilePricer
from eqsat_opt.cost.metrics import TIME
from eqsat_opt.errors import OptionError, PlanError, RuntimeFailed, StageError
from eqsat_opt.ir.graph.graph import Graph, attributes
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.passes.fp16 import in_half
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.lab import zoo
from eqsat_opt.lab.testing.graphs import GraphMaker, evaluate
from eqsat_opt.pipeline import plans
from eqsat_opt.pipeline.options import Options
from eqsat_opt.runtime.backends.cublaslt.backend import CublasLtBackend
from eqsat_opt.runtime.backends.cublaslt.recorded import (
    HEURISTIC,
    MARGIN_BYTES,
    NO_SUPPORT,
    Algorithm,
    CublasLtChoice,
    Support,
    product_key,
    support_bytes,
    support_of,
)
from eqsat_opt.runtime.backends.cudnn.oracle import Oracle
from eqsat_opt.runtime.backends.cudnn.products import ProductSpec
from eqsat_opt.runtime.backends.cudnn.spec import CudnnSite, CudnnSpec, site_of, spec_from_json
from eqsat_opt.runtime.backends.gpu import device_backend, runner_of
from eqsat_opt.runtime.backends.protocol import Offer
from eqsat_opt.runtime.backends.shared.products import product_of
from eqsat_opt.runtime.devices.profile import load_profile
from eqsat_opt.runtime.plan.files import plan_from_json, plan_to_json
from eqsat_opt.runtime.plan.plan import Plan
from eqsat_opt.runtime.planning.planner import make_plan
from eqsat_opt.validation.tolerances import Scale, compare_values
from tests.cuda_host.harness import missing
from tests.tools import driver_stand_in
from tests.tools.fake_gpu import FakeGpu

CONV = attributes(strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1), group=1)
GELU = attributes(approximate="none")


def tensor(*shape: int, dtype: str = "float32") -> TensorType:
    return TensorType(dtype, shape)


def product(
    a: TensorType, b: TensorType, *steps: Step, further: tuple[TensorType, ...] = ()
) -> Kernel:
    operands = tuple(Operand(type_, False) for type_ in (a, b, *further))
    first = Step("MatMul", (), (0, 1))
    return Kernel(operands, (first, *steps), (len(operands) + len(steps),))


def convolution(dtype: str = "float32") -> Kernel:
    types = tensor(1, 64, 56, 56, dtype=dtype), tensor(64, 64, 3, 3, dtype=dtype)
    return Kernel(
        tuple(Operand(type_, False) for type_ in types), (Step("Conv", CONV, (0, 1)),), (2,)
    )


def squared(extent: int, dtype: str = "float32") -> Kernel:
    matrix = tensor(extent, extent, dtype=dtype)
    return product(matrix, matrix)


def dtype_of(precision: Precision) -> str:
    return "float16" if precision is Precision.FP16 else "float32"


# ** graphs in float16 **


def net() -> Graph:
    g = GraphMaker()
    x = g.input("x", 2, 6)
    mean = g("ReduceMean", x, axes=(1,), keepdims=1)
    small = g("Add", mean, g.constant(np.array(1e-12, np.float32)))
    scaled = g("Div", x, small)
    masked = g("Add", scaled, g.constant(np.array([0.0, -1e9] * 3, np.float32)))
    return g.graph(g("MatMul", x, g.weight(6, 3)), g("Relu", masked))


def test_a_graph_in_float16_keeps_its_interface_and_what_float16_cannot_hold() -> None:
    graph, half = net(), in_half(net())
    half.check()
    for name in (*graph.inputs, *graph.outputs):
        assert half.types[name] == graph.types[name]
    computed = {node.op: half.tensor_type(node.output) for node in half.nodes if node.op != "Cast"}
    dtypes = {op: type_.dtype for op, type_ in computed.items() if type_ is not None}
    # Both sums read a number that float16 does not have: one too small, one too large.
    assert dtypes == {
        "ReduceMean": "float16", "Add": "float32", "Div": "float16", "MatMul": "float16",
        "Relu": "float16",
    }  # fmt: skip
    feeds = {"x": np.linspace(0.5, 3, 12).reshape(2, 6)}
    for found, wanted in zip(evaluate(half, feeds), evaluate(graph, feeds), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-2, atol=1e-2)


def test_what_squares_its_operand_stays_in_float32() -> None:
    g = GraphMaker()
    x = g("Relu", g.input("x", 1, 8, 2, 2))
    half = in_half(g.graph(g("LRN", x, alpha=5e-4, beta=0.75, bias=2.0, size=5)))
    assert [node.op for node in half.nodes] == ["Cast", "Relu", "Cast", "LRN"]
    (found,) = evaluate(half, {"x": np.full((1, 8, 2, 2), 900.0)})
    assert np.all(np.isfinite(found))
    assert np.all(found > 0)


def test_a_graph_without_float32_stays_as_it_is() -> None:
    g = GraphMaker()
    x = g.input("x", 2, 3, dtype="float64")
    graph = g.graph(g("Relu", g("Add", x, x)))
    assert in_half(graph) == graph
    assert in_half(in_half(net())).operator_counts() == in_half(net()).operator_counts()


@pytest.mark.parametrize("extent", [0, 1])
def test_casts_of_empty_tensors_and_of_inputs_that_are_outputs(extent: int) -> None:
    g = GraphMaker()
    x = g.input("x", extent, 2)
    half = in_half(g.graph(x, g("Relu", x)))
    half.check()
    assert half.outputs[0] == "x"
    assert [node.op for node in half.nodes] == ["Cast", "Relu", "Cast"]


# ** what is asked of libraries **


def site(kernel: Kernel, precision: Precision) -> CudnnSite:
    found = site_of(kernel, precision=precision)
    assert found is not None
    return found


def test_specs_of_each_precision_are_different_ones() -> None:
    for make in (convolution, lambda dtype: squared(16, dtype)):
        specs = [site(make(dtype_of(one)), one).spec for one in Precision]
        assert [spec.precision for spec in specs] == list(Precision)
        assert len({spec.key for spec in specs}) == len({spec.family for spec in specs}) == 3
        assert [spec_from_json(json.loads(spec.key)) for spec in specs] == specs
        # The elements decide: what stays in float32 under fp16 is computed in float32.
        assert site(make("float16"), Precision.STRICT).spec == specs[2]
        assert site(make("float32"), Precision.FP16).spec == specs[0]


@pytest.mark.parametrize(
    ("a", "b", "dims"),
    [
        ((4, 8), (8, 6), [(1, 4, 8), (1, 8, 6), (1, 4, 6)]),
        ((5, 4, 8), (8, 6), [(1, 20, 8), (1, 8, 6), (1, 20, 6)]),
        ((2, 5, 4, 8), (2, 5, 8, 6), [(10, 4, 8), (10, 8, 6), (10, 4, 6)]),
        ((1, 1, 4, 8), (1, 1, 8, 6), [(1, 4, 8), (1, 8, 6), (1, 4, 6)]),
        ((5, 1, 4, 8), (5, 3, 8, 6), None),
        ((8, 4, 8), (2, 1, 8, 6), None),
    ],
)
def test_products_of_cudnn_have_one_axis_of_batches(
    a: tuple[int, ...], b: tuple[int, ...], dims: list[tuple[int, ...]] | None
) -> None:
    found = site_of(product(tensor(*a), tensor(*b)), precision=Precision.TF32)
    if dims is None:
        assert found is None
        return
    assert found is not None
    assert isinstance(found.spec, ProductSpec)
    assert [found.spec.a.dims, found.spec.b.dims, found.spec.y.dims] == dims


def test_rows_of_batches_with_gaps_are_no_rows_of_one() -> None:
    kernel = product(tensor(2, 4, 8), tensor(8, 6))
    dense, gaps = [(32, 8, 1), (6, 1), (24, 6, 1)], [(64, 8, 1), (6, 1), (24, 6, 1)]
    assert site_of(kernel, dense, precision=Precision.TF32) is not None
    assert site_of(kernel, gaps, precision=Precision.TF32) is None


def test_epilogues_of_products_of_cudnn() -> None:
    bias = Step("Add", (), (3, 2))
    for last, told in ((Step("Relu", (), (4,)), "relu"), (Step("Gelu", GELU, (4,)), "gelu")):
        kernel = product(tensor(4, 8), tensor(8, 6), bias, last, further=(tensor(6),))
        found = site(kernel, Precision.TF32)
        assert (found.spec.epilogue, found.operands) == (("bias", told), (0, 1, 2))


@pytest.mark.parametrize("device", ["h200", "a100", "l4", "b200", "t4"])
def test_recorded_answers_of_other_precisions(device: str) -> None:
    profile = load_profile(device)
    assert profile.description is not None
    oracle = Oracle(profile.description)
    for precision in Precision:
        is_known = precision.peak in profile.peak_tflops
        conv, square = convolution(dtype_of(precision)), squared(512, dtype_of(precision))
        assert bool(oracle.choices(site(conv, precision).spec)) == is_known
        # Kernels of products round their factors, so float32 has none.
        found = oracle.choices(site(square, precision).spec)
        assert bool(found) == (is_known and precision is not Precision.STRICT)


def test_the_stand_in_of_a_driver_has_what_libraries_name(tmp_path: Path) -> None:
    library = tmp_path / "libcudnn.so.9"
    library.write_bytes(b"\0cuInit\0cuMemAlloc_v2\0curious\0xcuFree\0cuLaunchKernel\0")
    names = driver_stand_in.functions_in([library])
    assert names == {"cuInit", "cuMemAlloc_v2", "cuLaunchKernel"}
    text = driver_stand_in.source(names)
    assert "int cuLaunchKernel(void) { return 100; }" in text
    assert text.count("cuInit") == 1


# ** prices **


@pytest.mark.parametrize(
    ("precision", "keys"), [("strict-fp32", {""}), ("tf32", {"tf32"}), ("fp16", {"fp16"})]
)
def test_prices_of_libraries_are_of_their_precision(precision: str, keys: set[str]) -> None:
    profile, policy = load_profile("h200"), Precision(precision)
    backend = device_backend(profile, policy)
    pricer = ProfilePricer(profile, backend=backend)
    kernel = squared(4096, dtype_of(policy))
    ways = backend.implementations(kernel)
    assert runner_of(ways[0].algorithm)[0] == "cublaslt"
    assert {how.precision for how in ways} == keys
    times = [pricer.price(Offer(kernel, backend.name, how)).metrics[TIME] for how in ways]
    assert times == [profile.kernel_us(kernel, precision=policy.peak)] * len(ways)
    relu = Kernel((Operand(tensor(4, 4), False),), (Step("Relu", (), (0,)),), (1,))
    assert {how.precision for how in backend.implementations(relu)} == {""}
    strict = device_backend(profile)
    assert (backend.version() == strict.version()) == (policy is Precision.STRICT)


def test_cudnn_and_cublaslt_compete_for_products_that_may_round() -> None:
    kernel = product(tensor(128, 768), tensor(768, 768))
    for precision, libraries in ((Precision.STRICT, 1), (Precision.TF32, 2)):
        ways = device_backend(load_profile("h200"), precision).implementations(kernel)
        names = [runner_of(how.algorithm)[0] for how in ways]
        assert names == ["cublaslt", "cudnn"][:libraries]
        assert all(not how.forms for how in ways)


# ** recorded tables of cuBLASLt **

FOUND = Algorithm(66, "128x64", "AUTO", 2, 1)


def table(kernel: Kernel, gelu: str = "") -> Support:
    found = product_of(kernel)
    assert found is not None
    key = product_key(kernel, found, Precision.STRICT)
    return Support(
        130_100, gelu, {key: (CublasLtChoice(FOUND.name, 4096), CublasLtChoice("other"))}
    )


def test_tables_of_cublaslt_are_read_as_they_were_written() -> None:
    kernel = product(tensor(4, 8), tensor(8, 6))
    made = table(kernel, "tanh")
    assert support_of(support_bytes(made)) == made
    assert support_of(support_bytes(NO_SUPPORT)) == NO_SUPPORT
    foreign = support_bytes(replace(made, gelu="erf"))
    for data in (b"", b"{}", support_bytes(made)[:20], foreign):
        with pytest.raises(StageError, match="no table of cuBLASLt"):
            support_of(data)


def test_a_recorded_algorithm_is_named_with_its_workspace() -> None:
    profile, kernel = load_profile("h200"), product(tensor(4, 8), tensor(8, 6))
    other = product(tensor(4, 8), tensor(8, 7))
    backend = CublasLtBackend(profile, support=table(kernel))
    (how,) = backend.implementations(kernel)
    assert (how.algorithm, how.workspace_bytes) == (FOUND.name, 4096 + MARGIN_BYTES)
    (how,) = backend.implementations(other)
    assert (how.algorithm, how.workspace_bytes) == (HEURISTIC, 0)
    assert "130100" in backend.version()
    rounded = CublasLtBackend(profile, Precision.TF32, table(kernel))
    assert rounded.implementations(kernel)[0].algorithm == HEURISTIC


@pytest.mark.parametrize(("told", "offered"), [("", []), ("none", ["none"]), ("tanh", ["tanh"])])
def test_a_gelu_is_offered_in_the_form_that_a_device_showed(told: str, offered: list[str]) -> None:
    profile, plain = load_profile("h200"), product(tensor(4, 8), tensor(8, 6))
    backend = CublasLtBackend(profile, support=table(plain, told))
    found = []
    for form in ("none", "tanh"):
        last = Step("Gelu", attributes(approximate=form), (2,))
        found += [form] * len(backend.implementations(product(tensor(4, 8), tensor(8, 6), last)))
    assert found == offered
    assert any("Gelu" in str(one) for one in backend.patterns()) == bool(told)


# ** plans **


def planned(model: Any, precision: str, folder: Path, **options: Any) -> Plan:
    given: dict[str, Any] = {
        "rules": "none",
        "check": 0,
        "target": "h200",
        "budget_s": 20.0,
        **options,
    }
    result = eqsat_opt.optimize(
        model, plan=folder / "p.json", report=True, effort="quick", store="",
        precision=precision, **given,
    )  # fmt: skip
    return result.plan  # type: ignore[no-any-return]


def test_plans_say_in_which_precision_each_kernel_multiplies(tmp_path: Path) -> None:
    model = zoo.build("inception_e", scale="tiny")
    times = {}
    for precision in Precision:
        plan = planned(model, precision, tmp_path)
        assert plan.precision is precision
        told = {one.precision for one in plan.launches if one.backend == "cudnn"}
        assert told == {precision}
        assert {one.precision for one in plan.launches if one.backend == "cuda"} == {"strict-fp32"}
        assert plan_from_json(plan_to_json(plan)) == plan
        times[precision] = sum(load_profile("h200").launch_times_us(plan.launches))
    assert times[Precision.TF32] < times[Precision.STRICT]


def test_a_plan_of_an_unknown_precision_is_refused(tmp_path: Path) -> None:
    document: dict[str, Any] = dict(plan_to_json(planned(small(), "strict-fp32", tmp_path)))
    with pytest.raises(PlanError, match="precision of the plan is 'float32'; it is strict-fp32"):
        plan_from_json({**document, "precision": "float32"})


def small() -> onnx.ModelProto:
    return onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["": 17]>
        small (float[4, 8] x, float[8, 6] w) => (float[4, 6] y) {
            p = MatMul(x, w)
            y = Relu(p)
        }
        """
    )


@pytest.mark.parametrize("name", ["bert", pytest.param("mlp_training", marks=pytest.mark.slow)])
def test_results_in_float16_agree_within_their_own_tolerance(name: str, tmp_path: Path) -> None:
    plan = planned(zoo.build(name, scale="tiny"), "fp16", tmp_path, rules="default", check=1)
    dtypes = {plan.buffer_of[port.buffer].dtype for port in (*plan.inputs, *plan.outputs)}
    assert dtypes <= {"float32", "int64", "bool"}
    assert {"float16"} == {
        plan.buffer_of[one.writes[0]].dtype for one in plan.launches if one.backend == "cublaslt"
    }


def test_what_float16_explains_and_what_it_does_not() -> None:
    wanted = np.linspace(-1, 1, 100, dtype=np.float32)
    scale = Scale.of([wanted])

    def why(error: float, judged_as: str) -> str:
        return compare_values(
            "y", wanted, actual=wanted + np.float32(error), scale=scale, tolerance=1e-3,
            exact=False, judged_as=judged_as,
        ).why  # fmt: skip

    assert why(5e-3, "") == "values differ"
    assert not why(5e-3, "float16")
    assert why(0.5, "float16") == "values differ"
    found = {"y": wanted * np.float32(1 + 2e-3)}
    assert plans.differences(found, {"y": wanted})
    assert not plans.differences(found, {"y": wanted}, Precision.TF32)
    assert plans.differences({"y": wanted * 1.1}, {"y": wanted}, Precision.FP16)


# ** on a stand-in of a GPU **


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    made = FakeGpu(tmp_path)
    made.install(monkeypatch)
    return made


def products_plan(
    backend: str,
    precision: Precision,
    *,
    algorithm: str = "heuristic",
    workspace_bytes: int = 0,
    gelu: str = "none",
) -> tuple[Graph, Plan]:
    """``gelu(x @ w + b)`` as one launch."""
    g = GraphMaker()
    x, w, b = g.input("x", 4, 8), g.input("w", 8, 6), g.input("b", 6)
    graph = g.graph(g("Gelu", g("Add", g("MatMul", x, w), b), approximate=gelu))
    plan = make_plan(
        graph,
        {},
        lambda node: backend,
        algorithm_of=lambda node: algorithm,
        workspace_of=lambda node: workspace_bytes,
        precision_of=lambda node: precision,
        unit_of=lambda node: 0,
        target="h200",
        precision=precision,
    )
    assert len(plan.launches) == 1
    return graph, plan


def agrees(plan: Plan) -> bool:
    runner = plans.load_plan(plan, {})
    draw = np.random.default_rng(0)
    shapes = {"x": (4, 8), "w": (8, 6), "b": (6,)}
    feeds = {name: draw.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    (found,), (wanted,) = runner.run(feeds), runner.reference(feeds)
    return bool(np.allclose(found, wanted, rtol=1e-4, atol=1e-5))


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_products_by_cudnn_run(gpu: FakeGpu) -> None:
    assert agrees(products_plan("cudnn", Precision.TF32)[1])
    assert ("precision", "tf32") in gpu.log


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize(("precision", "told"), [("strict-fp32", "32F"), ("tf32", "TF32")])
def test_products_by_cublaslt_run_in_their_precision(
    gpu: FakeGpu, precision: str, told: str
) -> None:
    assert agrees(products_plan("cublaslt", Precision(precision), gelu="tanh")[1])
    assert ("compute", told) in gpu.log
    assert {one[3] for one in gpu.log if one[2:3] == ("product",)} == {3}  # needs no workspace


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_a_named_algorithm_of_cublaslt_runs_in_the_workspace_of_the_plan(gpu: FakeGpu) -> None:
    name = "algo7 tile=128x64 stages=AUTO split=1:0 swizzle=0 option=0"
    room = (1 << 10) + MARGIN_BYTES
    _, plan = products_plan(
        "cublaslt", Precision.STRICT, algorithm=name, workspace_bytes=room, gelu="tanh"
    )
    assert agrees(plan)
    assert {one[3] for one in gpu.log if one[2:3] == ("product",)} == {7}
    _, less = products_plan(
        "cublaslt", Precision.STRICT, algorithm=name, workspace_bytes=room - 1, gelu="tanh"
    )
    with pytest.raises(RuntimeFailed, match=r"has no algorithm 'algo7 .* plan again"):
        plans.load_plan(less, {})


# ** bad input **


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"precision": "tf32"}, "is for GPUs, and the target is cpu; give a GPU with --target"),
        ({"precision": "fp61", "target": "h200"}, r"choose from .*; did you mean fp16"),
        ({"precision": "", "target": "h200"}, "unknown precision ''; choose from strict-fp32, tf"),
        ({"precision": 16, "target": "h200"}, "precision is 16; give a text"),
        ({"precision": "fp16", "numerics": "bitexact", "target": "h200"}, "fp16 is not bitexact"),
    ],
)
def test_wrong_precisions(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(OptionError, match=expected):
        Options(**options)


@pytest.mark.parametrize(
    ("target", "precision", "expected"),
    [
        ("t4", "tf32", "t4 has no precision tf32; it has strict-fp32, fp16"),
        ("v100", "fp16", "of compute capability 7.5 and later, and the target is v100"),
        ("xeon", "tf32", "and the target is xeon; leave --precision out"),
    ],
)
def test_targets_without_a_precision(target: str, precision: str, expected: str) -> None:
    with pytest.raises(OptionError, match=expected):
        eqsat_opt.optimize(small(), target=target, precision=precision)
    assert Options(target="h200", precision="fp16").precision == "fp16"
    assert isinstance(site(convolution(), Precision.TF32).spec, CudnnSpec)


# ** what cannot be **


def test_what_float16_cannot_compute_is_not_planned(tmp_path: Path) -> None:
    """Differences of large numbers that float16 does not tell apart."""
    model = onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["": 17]>
        m (float[4, 8] x) => (float[4, 8] y)
        <float many = {3000.0}, float fewer = {2999.0}, float less = {0.01}> {
            l = Mul(x, less)
            a = Add(l, many)
            s = Softplus(a)
            y = Sub(s, fewer)
        }
        """
    )
    with pytest.raises(PlanError, match="in fp16 this model computes something else"):
        planned(model, "fp16", tmp_path, check=1)
    assert planned(model, "tf32", tmp_path, check=1).precision is Precision.TF32


@pytest.mark.parametrize("precision", ["strict-fp32", "fp16"])
def test_without_time_for_a_search_kernels_are_chosen_all_the_same(
    precision: str, tmp_path: Path
) -> None:
    model = zoo.build("inception_e", scale="tiny")
    plan = planned(model, precision, tmp_path, budget_s=1e-3)
    assert {one.backend for one in plan.launches} == {"cudnn", "cuda"}
    assert plan.precision == precision
    told = {one.precision for one in plan.launches if one.backend == "cudnn"}
    assert told == {plan.precision}
