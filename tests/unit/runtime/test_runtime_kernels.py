"""Kernel prices: blocked layout isolated correctly, workers that survive bad kernels."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.backends.ort.block import nchwc_block
from eqsat_opt.runtime.backends.ort.measuring import (
    MIN_KERNEL_US,
    measure_kernel,
    session_overhead_us,
)
from eqsat_opt.runtime.backends.ort.nchwc import (
    NCHWC_DOMAIN,
    add_neighbours,
    cut_neighbourhood,
    has_blocked_kernels,
    reorder_in_model,
    reorder_out_model,
)
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession, ort_optimized
from eqsat_opt.runtime.backends.workers import KernelWorker, MeasurementRequest, measure_kernels
from eqsat_opt.runtime.inputs import random_inputs

ONE_THREAD = OrtOptions(threads=1)
needs_blocked_layout = pytest.mark.skipif(
    nchwc_block() == 1, reason="onnxruntime has no blocked layout on this processor"
)


def conv(channels_in: int, channels_out: int, *, residual: bool = False) -> onnx.ModelProto:
    """3×3 Conv, optional residual, Relu, on a 12×12 image."""
    generator = np.random.default_rng(0)
    weight = generator.standard_normal((channels_out, channels_in, 3, 3), dtype=np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels_in, 12, 12])]
    shape = [1, channels_out, 12, 12]
    if residual:
        nodes.append(helper.make_node("Add", ["c", "r"], ["a"]))
        inputs.append(helper.make_tensor_value_info("r", TensorProto.FLOAT, shape))
    nodes.append(helper.make_node("Relu", [nodes[-1].output[0]], ["y"]))
    graph = helper.make_graph(
        nodes,
        "conv",
        inputs,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(weight, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def unary(op_type: str, shape: list[int]) -> onnx.ModelProto:
    tensor = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x"], ["y"])], "unary", tensor[:1], tensor[1:]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@needs_blocked_layout
@pytest.mark.parametrize("channels", [(32, 32), (32, 20), (20, 32), (3, 7)])
@pytest.mark.parametrize("residual", [False, True])
def test_only_the_fused_kernel_remains(channels: tuple[int, int], residual: bool) -> None:
    extended, neighbours = add_neighbours(conv(*channels, residual=residual))
    assert neighbours == (("r",) if residual else ())
    optimized = ort_optimized(extended, ONE_THREAD)
    assert has_blocked_kernels(optimized)
    kernel = cut_neighbourhood(optimized, neighbours)
    assert kernel is not None
    (node,) = kernel.model.graph.node
    assert (node.domain, node.op_type) == (NCHWC_DOMAIN, "Conv")
    assert any(attribute.name == "activation" for attribute in node.attribute)
    assert len(kernel.input_names) == 1 + residual
    assert len(kernel.model.graph.output) == 1


@needs_blocked_layout
def test_neighbours_do_not_touch_their_model() -> None:
    model = conv(16, 16, residual=True)
    before = model.SerializeToString(deterministic=True)
    add_neighbours(model)
    assert model.SerializeToString(deterministic=True) == before


@needs_blocked_layout
def test_layout_is_reported() -> None:
    assert measure_kernel(conv(32, 32, residual=True), 1).layout == "blocked"
    result = measure_kernel(unary("Tanh", [64, 64]), 1)
    assert result.layout == "plain"
    assert result.time_us >= MIN_KERNEL_US
    assert result.overhead_us == session_overhead_us(1)
    assert result.n >= 1


@needs_blocked_layout
@pytest.mark.parametrize("shape", [(1, 32, 5, 5), (2, 20, 3, 4)])
def test_conversions_undo_each_other(shape: tuple[int, ...]) -> None:
    as_is = OrtOptions(threads=1, level="disabled")
    feeds = random_inputs(reorder_in_model(shape), 0)
    (blocked,) = OrtSession(reorder_in_model(shape), as_is).run(feeds)
    assert blocked.shape[1] % nchwc_block() == 0
    back = OrtSession(reorder_out_model(shape, nchwc_block()), as_is)
    np.testing.assert_array_equal(back.run({"x": blocked})[0], feeds["x"])


def test_cutting_what_is_not_there() -> None:
    assert cut_neighbourhood(unary("Tanh", [4]), ["missing"]) is None


def test_renaming_a_buffer_is_not_timed() -> None:
    result = measure_kernel(unary("Flatten", [64, 64]), 1)
    assert (result.layout, result.n, result.time_us) == ("alias", 0, MIN_KERNEL_US)


def test_unusable_kernel_is_an_error_here() -> None:
    with pytest.raises(RuntimeFailed):
        measure_kernel(unary("NoSuchOperator", [4]), 1)


def request(op: str, shape: list[int]) -> MeasurementRequest:
    return MeasurementRequest("ort", unary(op, shape).SerializeToString())


@pytest.fixture(scope="module")
def worker() -> Iterator[KernelWorker]:
    with KernelWorker() as running:
        yield running


def test_worker_measures_and_outlives_bad_kernels(worker: KernelWorker) -> None:
    good = request("Tanh", [8])
    bad = request("NoSuchOperator", [4])
    seen: list[tuple[int, int]] = []
    results = measure_kernels(
        [good, bad, MeasurementRequest("ort", b"garbage"), good],
        1,
        progress=lambda done, total: seen.append((done, total)),
        worker=worker,
    )
    assert [result is None for result in results] == [False, True, True, False]
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_dead_worker_is_replaced(worker: KernelWorker) -> None:
    good = request("Tanh", [8])
    assert worker.measure(good, 1) is not None
    process = worker._child.process
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert worker.measure(good, 1) is not None
    assert worker._child.process.pid != process.pid


def test_hanging_kernel_meets_its_deadline(worker: KernelWorker) -> None:
    good = request("Tanh", [8])
    assert worker.measure(good, 1) is not None
    process = worker._child.process
    os.kill(process.pid, signal.SIGSTOP)
    worker._deadline_s = 0.05
    assert worker.measure(good, 1) is None
    assert process.returncode is not None
    worker._deadline_s = 20.0
    assert worker.measure(good, 1) is not None


def test_worker_that_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(RuntimeFailed, match="cannot start"):
        KernelWorker()


def test_no_models_need_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    assert measure_kernels([], 1) == []


def test_executor_takes_the_place_of_the_worker() -> None:
    requests = [request("Tanh", [8]), MeasurementRequest("ort", b"garbage")]
    with ThreadPoolExecutor(1) as executor:
        first, second = measure_kernels(requests, 1, executor=executor)
    assert first is not None
    assert second is None
