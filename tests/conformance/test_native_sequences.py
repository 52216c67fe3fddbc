"""Convolutions of sequences of our own against float64, with each set of instructions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.backends.native.library import library_path, missing
from eqsat_opt.runtime.backends.native.sequences import sequence_convolutions
from eqsat_opt.runtime.backends.native.sites import ACTIVATIONS, with_names, with_ways
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from tests.oracles.native import activated, opened

if missing():
    pytest.skip(missing(), allow_module_level=True)

CASES = 60
CASES_SLOW = 600
BOUND = 1e-6
"""Of the largest sum of the sizes of what is added up."""

PLAIN = {
    "samples": 1, "channels": 3, "length": 9, "out": 4, "kernel": 3, "stride": 1, "dilation": 1,
    "pads": (1, 1), "activation": "", "has_bias": True, "has_silu": False, "threads": 1,
}  # fmt: skip


def draw_sequence(rng: np.random.Generator) -> dict[str, Any]:
    activation = str(rng.choice(sorted(ACTIVATIONS)))
    kernel, dilation = int(rng.choice([1, 2, 3, 3, 5, 7, 40])), int(rng.choice([1, 1, 2, 3]))
    return {
        "samples": int(rng.choice([1, 1, 2, 16])),
        "channels": int(rng.choice([1, 2, 7, 8, 9, 16, 40, 129])),
        "length": (kernel - 1) * dilation + int(rng.choice([1, 2, 4, 13, 100, 411])),
        "out": int(rng.choice([1, 3, 8, 15, 16, 17, 64, 130])),
        "kernel": kernel,
        "stride": int(rng.choice([1, 1, 2, 5])),
        "dilation": dilation,
        "pads": tuple(int(v) for v in rng.integers(0, 4, 2)),
        "activation": activation,
        "has_bias": bool(rng.integers(2)),
        "has_silu": not activation and bool(rng.integers(2)),
        "threads": int(rng.choice([1, 1, 2])),
    }


def sequence_model(
    case: dict[str, Any], rng: np.random.Generator, **attrs: Any
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """A convolution as onnxruntime fuses it, and its constants."""
    shape = case["out"], case["channels"], case["kernel"]
    w = (rng.standard_normal(shape) / np.sqrt(shape[1] * shape[2])).astype(np.float32)
    constants = {"w": w}
    if case["has_bias"]:
        constants["b"] = rng.standard_normal(case["out"]).astype(np.float32)
    if case["activation"]:
        attrs["activation"] = case["activation"]
        parameters = ACTIVATIONS[case["activation"]][1]
        attrs |= {"activation_params": _parameters(case)[:parameters]} if parameters else {}
    node = helper.make_node(
        "FusedConv" if case["activation"] else "Conv",
        ["x", *constants],
        ["v" if case["has_silu"] else "y"],
        domain="com.microsoft" if case["activation"] else "",
        **{
            "strides": [case["stride"]],
            "dilations": [case["dilation"]],
            "pads": list(case["pads"]),
            **attrs,
        },
    )
    silu = helper.make_node("QuickGelu", ["v"], ["y"], domain="com.microsoft", alpha=1.0)
    graph = helper.make_graph(
        [node, silu] if case["has_silu"] else [node],
        "sequence",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return with_names(helper.make_model(graph, opset_imports=opsets, ir_version=8)), constants


def _parameters(case: dict[str, Any]) -> tuple[float, float]:
    return (-0.4, 0.9) if case["activation"] == "Clip" else (0.2, 0.5)


def replaced(model: onnx.ModelProto) -> onnx.ModelProto:
    (site,) = sequence_convolutions(model)
    (way,) = site.ways
    return with_ways(model, [(site, way)])


def convolved(x: Any, w: Any, case: dict[str, Any]) -> Any:
    """The sums of a convolution in float64: x [N, C, L] by w [M, C, K]."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), case["pads"]))
    span = (case["kernel"] - 1) * case["dilation"] + 1
    windows = np.lib.stride_tricks.sliding_window_view(padded, span, axis=2)
    taken = windows[:, :, :: case["stride"], :: case["dilation"]]
    return np.einsum("ncok,mck->nmo", taken, w.astype(np.float64))


def sequence_error(case: dict[str, Any], library: str, rng: np.random.Generator) -> float:
    """Largest error relative to what `BOUND` is relative to."""
    model, constants = sequence_model(case, rng)
    x = rng.standard_normal((case["samples"], case["channels"], case["length"]))
    x = x.astype(np.float32)
    (found,) = opened(replaced(model), library, case["threads"]).run({"x": x})
    bias = constants.get("b", np.zeros(case["out"]))[:, None]
    sums = convolved(x, constants["w"], case) + bias
    sizes = convolved(np.abs(x), np.abs(constants["w"]), case) + np.abs(bias)
    wanted = activated(sums, "SiLU" if case["has_silu"] else case["activation"], *_parameters(case))
    assert found.shape == wanted.shape
    return float(np.abs(found - wanted).max() / max(1.0, sizes.max()))


def test_sequences_agree_with_float64(library: str, request: pytest.FixtureRequest) -> None:
    rng = np.random.default_rng(0)
    for _ in range(CASES_SLOW if request.config.getoption("--slow") else CASES):
        case = draw_sequence(rng)
        error = sequence_error(case, library, rng)
        assert error < BOUND, (error, case)


def test_what_is_no_number_stays_near_where_it_is(library: str) -> None:
    model, constants = sequence_model(PLAIN, np.random.default_rng(0))
    x = np.ones((1, 3, 9), np.float32)
    x[0, 1, 4] = np.nan
    (y,) = opened(replaced(model), library).run({"x": x})
    np.testing.assert_array_equal(np.isnan(y), np.isnan(convolved(x, constants["w"], PLAIN)))
    assert np.isnan(y).any()


def test_sizes_that_change_and_data_that_do_not_fit(library: str) -> None:
    case = {**PLAIN, "pads": (0, 0)}
    model, _ = sequence_model(case, np.random.default_rng(0))
    session, plain = opened(replaced(model), library), OrtSession(model, OrtOptions(1))
    for shape in ((1, 3, 9), (0, 3, 9), (5, 3, 30), (1, 3, 3), (2, 3, 200)):
        x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        (found,), (wanted,) = session.run({"x": x}), plain.run({"x": x})
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    with pytest.raises(RuntimeFailed, match="other channels"):
        session.run({"x": np.ones((1, 4, 9), np.float32)})
    with pytest.raises(RuntimeFailed, match="larger than the data"):
        session.run({"x": np.ones((1, 3, 1), np.float32)})


def test_from_eight_threads_at_once(library: str) -> None:
    case = {**PLAIN, "channels": 40, "out": 24}
    rng = np.random.default_rng(0)
    session = opened(replaced(sequence_model(case, rng)[0]), library, 2)
    inputs = [rng.standard_normal((2, 40, 90 + 50 * i)).astype(np.float32) for i in range(8)]
    alone = [session.run({"x": x})[0] for x in inputs]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda x: session.run({"x": x})[0], inputs))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_convolution_without_attributes() -> None:
    model, constants = sequence_model(PLAIN, np.random.default_rng(0))
    del model.graph.node[0].attribute[:]
    x = np.random.default_rng(1).standard_normal((2, 3, 9)).astype(np.float32)
    (found,) = opened(replaced(model), library_path()).run({"x": x})
    wanted = convolved(x, constants["w"], {**PLAIN, "pads": (0, 0)}) + constants["b"][:, None]
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize(
    "changes", [{"group": 3}, {"auto_pad": "SAME_UPPER"}, {"activation": "Tanh"}, {"pads": [-1, 2]}]
)
def test_other_convolutions_keep_their_kernels(changes: dict[str, Any]) -> None:
    model, _ = sequence_model(PLAIN, np.random.default_rng(0), **changes)
    assert not list(sequence_convolutions(model))


def test_planes_and_variable_weights_keep_their_kernels() -> None:
    model, constants = sequence_model(PLAIN, np.random.default_rng(0))
    w = next(tensor for tensor in model.graph.initializer if tensor.name == "w")
    w.CopyFrom(numpy_helper.from_array(constants["w"][..., None], "w"))
    assert not list(sequence_convolutions(model))
    model.graph.initializer.remove(w)
    assert not list(sequence_convolutions(model))
