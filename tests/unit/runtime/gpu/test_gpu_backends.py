"""What libraries of GPUs are asked for, and what is known of their answers without a GPU."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat_opt
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.graph.graph import attributes
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.ir.values.types import StaticType, TensorType
from eqsat_opt.lab import zoo
from eqsat_opt.lab.testing.graphs import GraphMaker
from eqsat_opt.runtime.backends.cublaslt.recorded import epilogue_of
from eqsat_opt.runtime.backends.cudnn.build import NEEDED, plans, uids_of
from eqsat_opt.runtime.backends.cudnn.oracle import (
    HEURISTIC,
    RECORDED_VERSION,
    Asker,
    CudnnChoice,
    Oracle,
    has_engines,
    missing_wheels,
    recorded,
    table_bytes,
    table_of,
)
from eqsat_opt.runtime.backends.cudnn.spec import (
    ZERO_BIAS,
    CudnnSite,
    CudnnSpec,
    may_run,
    site_of,
    spec_from_json,
)
from eqsat_opt.runtime.backends.gpu import GpuBackend, device_backend, runner_of
from eqsat_opt.runtime.backends.registry import load_launcher
from eqsat_opt.runtime.backends.shared.products import product_of
from eqsat_opt.runtime.devices.profile import load_profile
from eqsat_opt.runtime.plan.joins import concatenations
from eqsat_opt.runtime.plan.plan import Plan, layout_strides

ARCHITECTURES = {"h200": "sm_90", "a100": "sm_80", "l4": "sm_89", "t4": "sm_75", "b200": "sm_100"}
CONV = attributes(strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1), group=1)


def tensor(*shape: int, dtype: str = "float32") -> StaticType:
    return StaticType(dtype, shape)


X, W, Y = tensor(1, 8, 6, 6), tensor(4, 8, 3, 3), tensor(1, 4, 6, 6)
BIAS = tensor(1, 4, 1, 1)


def kernel(
    types: list[TensorType], *steps: tuple[str, tuple[int, ...]], attrs: Any = CONV
) -> Kernel:
    made = tuple(
        Step(op, attrs if op == "Conv" else attributes(**_ATTRS.get(op, {})), operands)
        for op, operands in steps
    )
    return Kernel(tuple(Operand(t, False) for t in types), made, (len(types) + len(made) - 1,))


_ATTRS: dict[str, dict[str, Any]] = {"Gelu": {"approximate": "none"}, "Elu": {"alpha": 1.0}}


def site(*args: Any, **kwargs: Any) -> CudnnSite:
    found = site_of(kernel(*args, **kwargs))
    assert found is not None
    return found


# ** cuDNN **


@pytest.mark.parametrize(
    ("types", "steps", "epilogue", "operands"),
    [
        ([X, W], [("Conv", (0, 1))], (), (0, 1)),
        ([X, W], [("Conv", (0, 1)), ("Relu", (2,))], ("bias", "relu"), (0, 1, ZERO_BIAS)),
        ([X, W, tensor(4)], [("Conv", (0, 1, 2))], ("bias",), (0, 1, 2)),
        ([W, X, BIAS], [("Conv", (1, 0)), ("Add", (2, 3))], ("bias",), (1, 0, 2)),
        ([X, W, Y], [("Conv", (0, 1)), ("Add", (3, 2))], ("add", "bias"), (0, 1, 2, ZERO_BIAS)),
        (
            [X, W, BIAS, Y],
            [("Conv", (0, 1)), ("Add", (4, 2)), ("Add", (3, 5)), ("Tanh", (6,))],
            ("add", "bias", "tanh"),
            (0, 1, 3, 2),
        ),
        (
            [X, W, tensor(4), Y],
            [("Conv", (0, 1, 2)), ("Add", (4, 3)), ("Sigmoid", (5,))],
            ("add", "bias", "sigmoid"),
            (0, 1, 3, 2),
        ),
    ],
)
def test_sums_stand_in_the_order_of_precompiled_kernels(
    types: list[TensorType],
    steps: list[tuple[str, tuple[int, ...]]],
    epilogue: tuple[str, ...],
    operands: tuple[int, ...],
) -> None:
    found = site(types, *steps)
    assert (found.spec.epilogue, found.operands) == (epilogue, operands)
    assert len(uids_of(found.spec)) == len(operands) + 1
    assert isinstance(found.spec, CudnnSpec)
    assert found.spec.x.strides == (288, 1, 48, 8)
    assert spec_from_json(json.loads(found.spec.key)) == found.spec
    assert may_run(found.spec)


@pytest.mark.parametrize(
    ("types", "steps"),
    [
        ([X], [("Relu", (0,))]),
        ([X, W], [("Conv", (0, 1)), ("Gelu", (2,))]),
        ([X, W], [("Conv", (0, 1)), ("Elu", (2,))]),
        ([X, W], [("Conv", (0, 1)), ("Relu", (2,)), ("Relu", (3,))]),
        ([X, W], [("Conv", (0, 1)), ("Add", (2, 2))]),
        ([X, W, Y, Y], [("Conv", (0, 1)), ("Add", (4, 2)), ("Add", (5, 3))]),
        ([X, W, tensor(1, 1, 1, 6)], [("Conv", (0, 1)), ("Add", (3, 2))]),
        ([tensor(0, 8, 6, 6), W], [("Conv", (0, 1))]),
        ([tensor(1, 8, 6, 6, dtype="float64"), tensor(4, 8, 3, 3, dtype="float64")],
         [("Conv", (0, 1))]),
    ],
)  # fmt: skip
def test_what_is_no_convolution_of_cudnn(
    types: list[TensorType], steps: list[tuple[str, tuple[int, ...]]]
) -> None:
    assert site_of(kernel(types, *steps)) is None


def test_convolutions_of_sequences_are_generated() -> None:
    one = attributes(strides=(1,), pads=(1, 1), dilations=(1,), group=1)
    body = kernel([tensor(1, 8, 6), tensor(4, 8, 3)], ("Conv", (0, 1)), attrs=one)
    assert site_of(body) is None
    ways = device_backend(load_profile("h200")).implementations(body)
    assert [runner_of(how.algorithm) for how in ways] == [("cuda", "default")]


def test_memory_of_precompiled_kernels() -> None:
    body = kernel([X, W, Y], ("Conv", (0, 1)), ("Add", (3, 2)))
    images = [layout_strides(one.shape, "nhwc") for one in (X, W, Y, Y)]
    wider = tuple(stride if stride == 1 else 2 * stride for stride in images[3])
    for of_y, of_z, is_there in ((wider, images[2], False), (wider, wider, True)):
        found = site_of(body, [*images[:2], of_z, of_y])
        assert found is not None
        assert may_run(found.spec) == is_there
    plain = site_of(body, [layout_strides(one.shape, "") for one in (X, W, Y, Y)])
    assert plain is not None
    assert not may_run(plain.spec)


@pytest.mark.parametrize("device", ARCHITECTURES)
def test_recorded_answers(device: str) -> None:
    described = load_profile(device).description
    assert described is not None
    table = recorded(ARCHITECTURES[device])
    assert len(table) > 1500
    assert table_of(table_bytes(table)) == table
    for key in sorted(table)[::400]:
        assert tuple(Oracle(described).choices(spec_from_json(json.loads(key)))) == table[key]


def test_answers_that_were_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    oracle = "eqsat_opt.runtime.backends.cudnn.oracle"
    monkeypatch.setattr(f"{oracle}.missing_wheels", lambda: "there are none")
    described = load_profile("h200").description
    assert described is not None
    spec = site([tensor(1, 7, 61, 67), tensor(5, 7, 3, 3)], ("Conv", (0, 1))).spec
    (found,) = Oracle(described).choices(spec)
    assert found.name == HEURISTIC
    assert found.workspace_bytes > 0
    assert not Oracle(described).choices(replace(spec, epilogue=("relu",)))
    old = replace(described, properties={**described.properties, "deviceVer": 610})
    assert not Oracle(old).choices(spec)
    # Asked live, but of another version than plans name.
    monkeypatch.setattr(f"{oracle}.missing_wheels", lambda: "")
    answers = {"version": RECORDED_VERSION + 100}

    def ask(self: Asker, spec: CudnnSpec, most: int = 4) -> tuple[CudnnChoice, ...]:
        self.version = answers["version"]
        return (CudnnChoice("eng1", 5),)

    monkeypatch.setattr(Asker, "ask", ask)
    assert [one.name for one in Oracle(described).choices(spec)] == [HEURISTIC]
    answers["version"] = RECORDED_VERSION + 1  # a patch of it
    assert [one.name for one in Oracle(described).choices(spec)] == ["eng1"]

    def fail(self: Asker, spec: CudnnSpec, most: int = 4) -> None:
        raise RuntimeFailed("cannot start a process")

    monkeypatch.setattr(Asker, "ask", fail)
    assert [one.name for one in Oracle(described).choices(spec)] == [HEURISTIC]


class FakeGraph:
    """Three plans: one that cannot be built, one that is compiled when it is, and a third."""

    def get_execution_plan_count(self) -> int:
        return 3

    def build_plan_at_index(self, number: int) -> None:
        if not number:
            raise RuntimeError("Deselecting execution plan")

    def get_behavior_notes_for_plan_at_index(self, number: int) -> list[str]:
        return ["behavior_note.RUNTIME_COMPILATION"] if number == 1 else []

    def get_workspace_size_plan_at_index(self, number: int) -> int:
        return 10 * number

    def get_plan_name_at_index(self, number: int) -> str:
        return f"eng{number}"


def test_plans_are_told_by_rank() -> None:
    assert list(plans(FakeGraph(), 4)) == [("eng1", 10, True), ("eng2", 20, False)]
    assert list(plans(FakeGraph(), 1)) == [("eng1", 10, True)]


@pytest.mark.skipif(bool(missing_wheels()), reason=missing_wheels())
def test_live_answers_are_those_that_were_recorded() -> None:
    cudnn = pytest.importorskip("cudnn")
    for owner, names in NEEDED.items():
        assert not [one for one in names if not hasattr(getattr(cudnn, owner or "_", cudnn), one)]
    described = load_profile("h200").description
    assert described is not None
    table, asker = recorded("sm_90"), Asker(described)
    drawn = sorted(table)[::80]
    same = sum(asker.ask(spec_from_json(json.loads(key))) == table[key] for key in drawn)
    asker.close()
    assert has_engines(asker.version)
    assert same >= 0.95 * len(drawn)


# ** cuBLASLt **

A, B = tensor(5, 7), tensor(7, 3)


@pytest.mark.parametrize(
    ("types", "steps", "epilogue"),
    [
        ([A, B], [("MatMul", (0, 1))], ""),
        ([A, B], [("MatMul", (0, 1)), ("Relu", (2,))], "RELU"),
        ([A, B, tensor(3)], [("MatMul", (0, 1)), ("Add", (2, 3))], "BIAS"),
        ([A, B, tensor(1, 3)], [("MatMul", (0, 1)), ("Add", (3, 2)), ("Relu", (4,))], "RELU_BIAS"),
        ([tensor(2, 5, 7), B], [("MatMul", (0, 1))], ""),
        ([A, B], [("MatMul", (0, 1)), ("Gelu", (2,))], "GELU"),
        ([A, B, tensor(3)], [("MatMul", (0, 1)), ("Add", (3, 2)), ("Gelu", (4,))], "GELU_BIAS"),
        ([A, B], [("MatMul", (0, 1)), ("Tanh", (2,))], None),
        ([A, B], [("MatMul", (0, 1)), ("Add", (2, 2))], None),
        ([A, B, tensor(5, 1)], [("MatMul", (0, 1)), ("Add", (2, 3))], None),
        ([A, B, tensor(5, 3)], [("MatMul", (0, 1)), ("Add", (2, 3))], None),
        ([A, B], [("MatMul", (0, 1)), ("Relu", (2,)), ("Relu", (3,))], None),
        ([tensor(7), B], [("MatMul", (0, 1))], None),
        ([tensor(0, 7), B], [("MatMul", (0, 1))], None),
        ([A], [("Relu", (0,))], None),
    ],
)
def test_products_of_cublaslt(
    types: list[TensorType], steps: list[tuple[str, tuple[int, ...]]], epilogue: str | None
) -> None:
    found = product_of(kernel(types, *steps))
    assert (None if found is None else epilogue_of(found)) == epilogue


@pytest.mark.parametrize(
    ("strides", "is_there"),
    [
        ([(7, 1), (3, 1), (3, 1)], True),
        ([(9, 1), (1, 7), (6, 1)], True),
        ([(14, 2), (3, 1), (3, 1)], False),
        ([(0, 1), (3, 1), (3, 1)], False),
    ],
)
def test_matrices_of_cublaslt_lie_by_rows_or_by_columns(
    strides: list[tuple[int, int]], is_there: bool
) -> None:
    found = product_of(kernel([A, B], ("MatMul", (0, 1))), strides)
    assert (found is not None) == is_there


# ** all of them **


def test_who_runs_kernels_of_a_gpu() -> None:
    gpu = device_backend(load_profile("a100"))
    assert isinstance(gpu, GpuBackend)

    def runners(body: Kernel) -> list[str]:
        return [runner_of(how.algorithm)[0] for how in gpu.implementations(body)]

    assert runners(kernel([X, W], ("Conv", (0, 1)))) == ["cudnn"]
    assert runners(kernel([X, W], ("Conv", (0, 1)), ("Gelu", (2,)))) == []
    assert runners(kernel([A, B], ("MatMul", (0, 1)))) == ["cublaslt"]
    assert runners(kernel([X], ("Relu", (0,)))) == ["cuda", "cuda"]  # in either layout
    assert device_backend(load_profile("v100")).name == "analytic"


def planned(model: Any, target: str, streams: int = 1) -> Plan:
    result = eqsat_opt.optimize(
        model, target=target, plan="p.json", streams=streams, report=True, rules="none",
        effort="quick", budget_s=20.0, check=0, store="",
    )  # fmt: skip
    assert result.report.planned.prices == len(result.plan.launches)
    return result.plan  # type: ignore[no-any-return]


def copied_parts(plan: Plan) -> list[str]:
    """What is copied into a larger tensor, and has no other place already."""
    given = {port.buffer for port in plan.inputs} | plan.constants.keys()
    return [
        source
        for launch in plan.launches
        if not launch.body.steps and plan.buffer_of[launch.writes[0]].base
        for source in launch.reads
        if source not in given and not plan.buffer_of[source].base
    ]


@pytest.mark.parametrize(
    ("name", "is_tiny", "target", "views"),
    [("nasnet_cell", False, "h200", 1), ("squeezenet", True, "t4", 8)],
)
def test_no_launch_of_a_plan_for_a_gpu_is_on_the_host(
    name: str, is_tiny: bool, target: str, views: int, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = planned(zoo.build(name, scale="tiny" if is_tiny else "full"), target, streams=3)
    assert concatenations(plan).views == views
    assert copied_parts(plan) == []
    assert {one.backend for one in plan.launches} == {"cudnn", "cuda"}
    assert plan.target == target
    for launch in plan.launches:
        load_launcher(launch.backend).prepare([launch], plan.buffer_of)
        assert (launch.workspace.size_bytes > 0) <= (launch.backend == "cudnn")


def test_a_residual_that_lies_elsewhere_is_added_by_a_generated_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    g = GraphMaker()
    x = g.input("x", 1, 8, 6, 6)
    sides = [g.conv(x, g.weight(8, 8, 3, 3), pad=1) for _ in range(2)]
    both = g("Concat", g("Add", sides[0], x), sides[1], axis=1)
    plan = planned(model_proto(export_model(g.graph(g.conv(both, g.weight(8, 16, 3, 3))))), "h200")
    told = Counter((one.backend, one.body.name) for one in plan.launches if one.body.steps)
    assert told == {("cudnn", "Conv"): 3, ("cuda", "Transpose+Add"): 1}
    # That one, one that writes into a view, and the last where nobody is asked: its extents were
    # not recorded.
    unknown = 2 + bool(missing_wheels())
    assert [one.algorithm for one in plan.launches].count(HEURISTIC) == unknown


def test_products_of_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    g = GraphMaker()
    inner = g("MatMul", g.input("x", 4, 8), g.constant(np.ones((8, 6), np.float32)))
    plan = planned(model_proto(export_model(g.graph(g("Softmax", inner, axis=1)))), "l4")
    assert [(one.backend, one.algorithm) for one in plan.launches] == [
        ("cublaslt", "heuristic"),
        ("cuda", "default"),
    ]
