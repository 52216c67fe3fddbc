"""Plans for GPUs, whose CUDA kernels run on a CPU in the memory that the plan gives them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.lab import zoo
from eqsat_opt.runtime.backends.generated.gpu import NAME as CUDA
from eqsat_opt.runtime.backends.launching import Launcher
from eqsat_opt.runtime.backends.numpy.launcher import NumpyLauncher
from eqsat_opt.runtime.devices.host import HostDevice
from eqsat_opt.runtime.executor import Executable
from eqsat_opt.runtime.plan.constants import make_constants
from eqsat_opt.runtime.plan.interpreter import interpret
from eqsat_opt.runtime.plan.plan import Plan
from tests.cuda_host.harness import missing
from tests.cuda_host.plans import HostCudaLauncher, gpu_plan

Array = NDArray[Any]

MODELS = (
    "nasnet_cell",
    "bert",
    pytest.param("squeezenet", marks=pytest.mark.slow),
    pytest.param("sru", marks=pytest.mark.slow),
)


def model(name: str) -> Graph:
    return normalise(import_model(load_model(zoo.build(name, scale="tiny"))))


def constants(graph: Graph, plan: Plan) -> Mapping[str, Array]:
    return make_constants(plan, {name: one.load for name, one in graph.constants.items()})


def random_feeds(plan: Plan) -> dict[str, Array]:
    draw = np.random.default_rng(0)
    feeds: dict[str, Array] = {}
    for port in plan.inputs:
        buffer = plan.buffer_of[port.buffer]
        is_whole = buffer.dtype.startswith("int")
        feeds[port.name] = (
            draw.integers(0, 8, buffer.dims) if is_whole else draw.standard_normal(buffer.dims)
        ).astype(buffer.dtype)
    return feeds


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize("name", MODELS)
def test_cuda_kernels_of_a_plan_compute_what_it_says(name: str, tmp_path: Path) -> None:
    graph = model(name)
    plan = gpu_plan(graph, {}, streams=2)
    assert {one.backend for one in plan.launches} == {"numpy", CUDA}
    assert {one.body.name for one in plan.launches if one.backend == "numpy"} <= {
        "Conv", "ConvTranspose", "MatMul",
    }  # fmt: skip
    launchers: dict[str, Launcher] = {CUDA: HostCudaLauncher(tmp_path), "numpy": NumpyLauncher()}
    runner = Executable(plan, constants(graph, plan), HostDevice(), launchers)
    feeds = random_feeds(plan)
    for found, wanted in zip(runner.run(feeds), runner.reference(feeds), strict=True):
        assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("streams", [1, 2, 4])
def test_any_order_of_a_plan_gives_the_same(streams: int) -> None:
    graph = model("nasnet_cell")
    plan = gpu_plan(graph, {}, streams)
    values, feeds = constants(graph, plan), random_feeds(plan)
    wanted = interpret(plan, values, feeds)
    for seed in range(3):
        for name, found in interpret(plan, values, feeds, seed).items():
            np.testing.assert_array_equal(found, wanted[name])
