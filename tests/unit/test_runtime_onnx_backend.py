"""The onnx backend interface, and how little a new executor needs for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from eqsat_opt.errors import ModelError, RuntimeFailed
from eqsat_opt.runtime.source import Feeds
from eqsat_opt.testing.onnx_backend import OrtBackend, RunnerBackend

SUM = helper.make_node("Add", ["a", "b"], ["sum.0"])


def sum_model() -> onnx.ModelProto:
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("a", "b", "sum.0")
    ]
    graph = helper.make_graph([SUM], "sum", values[:2], values[2:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


A, B = np.array([1, 2], np.float32), np.array([3, 5], np.float32)


def test_prepare_and_run() -> None:
    prepared = OrtBackend.prepare(sum_model(), "CPU", threads=1)
    for inputs in ([A, B], (A, B), {"b": B, "a": A}):
        result = prepared.run(inputs)
        np.testing.assert_array_equal(result[0], A + B)
        np.testing.assert_array_equal(result["sum.0"], A + B)  # type: ignore[call-overload]
    np.testing.assert_array_equal(OrtBackend.run_model(sum_model(), [A, B])[0], A + B)


def test_run_node() -> None:
    np.testing.assert_array_equal(OrtBackend.run_node(SUM, [A, B], opset_version=13)[0], A + B)
    outputs_info = [(A.dtype, A.shape)]
    result = OrtBackend.run_node(SUM, [A, B], outputs_info=outputs_info, opset_version=17)
    np.testing.assert_array_equal(result[0], A + B)
    clip = helper.make_node("Clip", ["x", "", "high"], ["y"])
    clipped = OrtBackend.run_node(clip, [B, np.float32(4)], opset_version=17)
    np.testing.assert_array_equal(clipped[0], [3, 4])


def test_misuse_is_refused() -> None:
    assert OrtBackend.supports_device("CPU")
    assert not OrtBackend.supports_device("CUDA:0")
    with pytest.raises(RuntimeFailed, match="no CUDA"):
        OrtBackend.prepare(sum_model(), "CUDA")
    with pytest.raises(RuntimeFailed, match="2 inputs"):
        OrtBackend.prepare(sum_model()).run([A])
    with pytest.raises(RuntimeFailed, match="Add takes 2"):
        OrtBackend.run_node(SUM, [A])
    invalid = sum_model()
    invalid.graph.node[0].input[0] = "missing"
    with pytest.raises(ModelError, match="not a valid model"):
        OrtBackend.prepare(invalid)


def test_another_executor_is_a_few_lines() -> None:
    class Adder:
        input_names = ("a", "b")
        output_names = ("sum",)

        def run(self, feeds: Feeds) -> list[Any]:
            return [feeds["a"] + feeds["b"]]

    class AdderBackend(RunnerBackend):
        @classmethod
        def runner(cls, model: onnx.ModelProto, **options: Any) -> Adder:
            return Adder()

    np.testing.assert_array_equal(AdderBackend.run_model(sum_model(), [A, B])[0], A + B)


def test_sequences_pass_through() -> None:
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    sequence = helper.make_sequence_type_proto(tensor)
    graph = helper.make_graph(
        [helper.make_node("SequenceInsert", ["s", "x"], ["t"])],
        "insert",
        [helper.make_value_info("s", sequence), helper.make_value_info("x", tensor)],
        [helper.make_value_info("t", sequence)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (longer,) = OrtBackend.run_model(model, [[A], B])
    np.testing.assert_array_equal(longer, [A, B])


def test_importing_the_package_does_not_load_onnxruntime() -> None:
    code = (
        "import sys, eqsat_opt.runtime, eqsat_opt.runtime.backends.registry\n"
        "assert 'onnxruntime' not in sys.modules\n"
    )
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    assert done.returncode == 0
