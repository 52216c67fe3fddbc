"""Recurrent layers of our own against float64, with each set of instructions that runs here."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.runtime.backends.native.library import library_path, missing
from eqsat_opt.runtime.backends.native.recurrences import recurrences
from eqsat_opt.runtime.backends.native.sites import with_names, with_ways
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from tests.oracles.native import opened

if missing():
    pytest.skip(missing(), allow_module_level=True)

CASES = 60
CASES_SLOW = 600
BOUND = 3e-6
"""Of one, or of the largest cell if that is more: weights are drawn so that sums are about one."""

INPUTS = ("x", "w", "r", "b", "lengths", "h", "c")
OUTPUTS = ("y", "last", "cell")
PLAIN = {
    "op": "LSTM", "direction": "forward", "steps": 5, "samples": 2, "features": 3, "hidden": 4,
    "has": (), "outputs": (0, 1), "threads": 1,
}  # fmt: skip


def draw_recurrence(rng: np.random.Generator) -> dict[str, Any]:
    op = str(rng.choice(["LSTM", "GRU"]))
    optional = ["b", "lengths", "h", *["c"] * (op == "LSTM")]
    n = 3 if op == "LSTM" else 2
    return {
        "op": op,
        "direction": str(rng.choice(["forward", "reverse", "bidirectional"])),
        "steps": int(rng.choice([1, 2, 3, 16, 40, 130])),
        "samples": int(rng.choice([1, 1, 1, 2, 3, 4, 5, 7, 13, 30])),
        "features": int(rng.choice([1, 3, 8, 17, 64, 100])),
        "hidden": int(rng.choice([1, 7, 8, 9, 16, 24, 33, 64, 100])),
        "has": tuple(name for name in optional if rng.integers(2)),
        "outputs": tuple(sorted(rng.permutation(n)[: rng.integers(1, n + 1)].tolist())),
        "threads": int(rng.choice([1, 1, 2])),
    }


def operands_of(case: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """The operands of a layer, by name."""
    steps, samples, features = case["steps"], case["samples"], case["features"]
    hidden, directions = case["hidden"], 2 if case["direction"] == "bidirectional" else 1
    rows = hidden * (4 if case["op"] == "LSTM" else 3)
    shapes = {
        "x": (steps, samples, features), "w": (directions, rows, features),
        "r": (directions, rows, hidden), "b": (directions, 2 * rows),
        "h": (directions, samples, hidden), "c": (directions, samples, hidden),
    }  # fmt: skip
    scales = {"w": features**-0.5, "r": hidden**-0.5}
    made: dict[str, Any] = {
        name: (rng.standard_normal(shape) * scales.get(name, 1.0)).astype(np.float32)
        for name, shape in shapes.items()
        if name in ("x", "w", "r") or name in case["has"]
    }
    if "lengths" in case["has"]:
        made["lengths"] = rng.integers(1, steps + 1, samples).astype(np.int32)
    return {name: made[name] for name in INPUTS if name in made}


def layer(
    case: dict[str, Any],
    operands: dict[str, Any],
    variable: tuple[str, ...] = ("x", "lengths", "h", "c"),
    **attrs: Any,
) -> onnx.ModelProto:
    """A layer as ONNX has it, whose other operands than the variable ones are constants."""
    names = [name if name in operands else "" for name in INPUTS]
    made = [name if i in case["outputs"] else "" for i, name in enumerate(OUTPUTS)]
    while not names[-1]:
        names.pop()
    while not made[-1]:
        made.pop()
    attrs |= {"linear_before_reset": 1} if case["op"] == "GRU" else {}
    node = helper.make_node(
        case["op"], names, made, hidden_size=case["hidden"], direction=case["direction"], **attrs
    )
    graph = helper.make_graph(
        [node],
        "layer",
        [
            helper.make_tensor_value_info(
                name, TensorProto.INT32 if name == "lengths" else TensorProto.FLOAT, None
            )
            for name in operands
            if name in variable
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in made if name],
        [
            numpy_helper.from_array(value, name)
            for name, value in operands.items()
            if name not in variable
        ],
    )
    return with_names(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    )


def replaced(model: onnx.ModelProto) -> onnx.ModelProto:
    (site,) = recurrences(model)
    (way,) = site.ways
    return with_ways(model, [(site, way)])


def fed(operands: dict[str, Any]) -> dict[str, Any]:
    return {name: operands[name] for name in ("x", "lengths", "h", "c") if name in operands}


def expected_of(case: dict[str, Any], operands: dict[str, Any]) -> list[Any]:
    """The outputs that are read, in float64."""
    attrs: dict[str, Any] = {
        "given": tuple(INPUTS.index(name) for name in operands),
        "direction": case["direction"],
        **({"linear_before_reset": 1} if case["op"] == "GRU" else {}),
    }
    wide = [
        value if name == "lengths" else value.astype(np.float64) for name, value in operands.items()
    ]
    return [
        np.asarray(get_op(case["op"]).eval_fn(FLOAT, wide, {**attrs, "output": number}))
        for number in case["outputs"]
    ]


def recurrence_error(case: dict[str, Any], library: str, rng: np.random.Generator) -> float:
    """Largest error relative to what `BOUND` is relative to."""
    operands = operands_of(case, rng)
    model = replaced(layer(case, operands))
    found = opened(model, library, case["threads"]).run(fed(operands))
    errors = []
    for one, other in zip(found, expected_of(case, operands), strict=True):
        assert one.shape == other.shape
        errors.append(float(np.abs(one - other).max() / max(1.0, np.abs(other).max())))
    return max(errors)


def test_layers_agree_with_float64(library: str, request: pytest.FixtureRequest) -> None:
    rng = np.random.default_rng(0)
    for _ in range(CASES_SLOW if request.config.getoption("--slow") else CASES):
        case = draw_recurrence(rng)
        error = recurrence_error(case, library, rng)
        assert error < BOUND, (error, case)


@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_gates_at_their_ends(library: str, op: str) -> None:
    case = {**PLAIN, "op": op, "features": 1, "steps": 8, "samples": 1}
    operands = operands_of(case, np.random.default_rng(0))
    sizes = (0.0, 1e-30, 1e-3, 0.6, 3.0, 90.0, 1e30, -1e30)
    operands["x"] = np.array(sizes, np.float32).reshape(8, 1, 1)
    found = opened(replaced(layer(case, operands)), library).run(fed(operands))
    with np.errstate(over="ignore"):
        wanted = expected_of(case, operands)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_what_is_no_number_stays_in_its_sample(library: str, op: str) -> None:
    case = {**PLAIN, "op": op, "samples": 3, "hidden": 9}
    operands = operands_of(case, np.random.default_rng(0))
    operands["x"][2, 1, 0] = np.nan
    for y in opened(replaced(layer(case, operands)), library).run(fed(operands)):
        assert np.isfinite(y[..., [0, 2], :]).all()
        assert np.isnan(y[-1, ..., 1, :]).all()


def test_sizes_that_change_and_sequences_of_nothing(library: str) -> None:
    case = {**PLAIN, "has": ("b", "lengths"), "outputs": (0, 1, 2), "direction": "bidirectional"}
    operands = operands_of(case, np.random.default_rng(0))
    session = opened(replaced(layer(case, operands)), library)
    plain = OrtSession(layer(case, operands), OrtOptions(1))
    for steps, samples in ((5, 2), (1, 1), (9, 4), (3, 0)):
        x = np.random.default_rng(1).standard_normal((steps, samples, 3)).astype(np.float32)
        feeds = {"x": x, "lengths": np.full(samples, steps, np.int32)}
        if samples:
            feeds["lengths"][0] = 0 if samples > 1 else 1
            for one, other in zip(session.run(feeds), plain.run(feeds), strict=True):
                np.testing.assert_allclose(one, other, atol=1e-6)
        else:
            assert [y.size for y in session.run(feeds)] == [0, 0, 0]


def test_operands_that_do_not_fit_are_refused(library: str) -> None:
    case = {**PLAIN, "has": ("lengths", "h", "c")}
    operands = operands_of(case, np.random.default_rng(0))
    session = opened(replaced(layer(case, operands)), library)
    for changed, message in (
        ({"x": np.zeros((5, 2, 4), np.float32)}, "other features"),
        ({"h": np.zeros((1, 3, 4), np.float32)}, "first states of another shape"),
        ({"c": np.zeros((2, 2, 4), np.float32)}, "first states of another shape"),
        ({"lengths": np.array([5, 6], np.int32)}, "longer than the data"),
        ({"lengths": np.array([5, -1], np.int32)}, "longer than the data"),
        ({"lengths": np.array([5], np.int32)}, "one length per sample"),
    ):
        with pytest.raises(RuntimeFailed, match=message):
            session.run({**fed(operands), **changed})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"w": np.zeros((1, 16, 3, 1), np.float32)}, "must have three axes"),
        ({"r": np.zeros((1, 12, 4), np.float32)}, "weights of another shape"),
        ({"w": np.zeros((2, 16, 3), np.float32)}, "weights of another shape"),
        ({"b": np.zeros((1, 16), np.float32)}, "biases of another shape"),
    ],
)
def test_weights_that_do_not_fit_are_refused(
    library: str, changes: dict[str, Any], message: str
) -> None:
    operands = operands_of({**PLAIN, "has": ("b",)}, np.random.default_rng(0))
    model = replaced(layer(PLAIN, operands))
    for tensor in model.graph.initializer:
        if tensor.name in changes:
            tensor.CopyFrom(numpy_helper.from_array(changes[tensor.name], tensor.name))
    with pytest.raises(RuntimeFailed, match=message):
        opened(model, library)


def test_from_eight_threads_at_once(library: str) -> None:
    rng = np.random.default_rng(0)
    case = {**PLAIN, "hidden": 40, "direction": "bidirectional"}
    operands = operands_of(case, rng)
    session = opened(replaced(layer(case, operands)), library, 2)
    inputs = [rng.standard_normal((3 + i, 1 + i, 3)).astype(np.float32) for i in range(8)]
    alone = [session.run({"x": x})[0] for x in inputs]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda x: session.run({"x": x})[0], inputs))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_activations_that_are_named_are_the_same(op: str) -> None:
    names = ["Sigmoid", "Tanh", "Tanh"][: 3 if op == "LSTM" else 2]
    case = {**PLAIN, "op": op}
    operands = operands_of(case, np.random.default_rng(0))
    model = layer(case, operands, activations=names)
    found = opened(replaced(model), library_path()).run(fed(operands))
    for one, other in zip(found, OrtSession(model, OrtOptions(1)).run(fed(operands)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "variable", "attrs"),
    [
        ({}, ("x", "w"), {}),
        ({}, ("x", "r"), {}),
        ({}, ("x", "b"), {}),
        ({}, (), {"clip": 3.0}),
        ({}, (), {"input_forget": 1}),
        ({}, (), {"layout": 1}),
        ({}, (), {"activations": ["Sigmoid", "Tanh", "Relu"]}),
        ({"op": "GRU"}, (), {"linear_before_reset": 0}),
    ],
)
def test_other_layers_keep_their_kernels(
    changes: dict[str, Any], variable: tuple[str, ...], attrs: dict[str, Any]
) -> None:
    case = {**PLAIN, "has": ("b",), **changes}
    operands = operands_of(case, np.random.default_rng(0))
    model = layer(case, operands, variable or ("x",))
    (node,) = model.graph.node
    kept = [a for a in node.attribute if a.name not in attrs]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.extend(helper.make_attribute(name, value) for name, value in attrs.items())
    assert not list(recurrences(model))


def test_peepholes_keep_their_kernel() -> None:
    operands = operands_of(PLAIN, np.random.default_rng(0))
    model = layer(PLAIN, operands)
    model.graph.node[0].input.extend(["", "", "", "", "p"])
    assert not list(recurrences(model))
