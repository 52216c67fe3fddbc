"""Graphs as files hold them: sums of products as Gemm, and no weight twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.api import run
from eqsat_opt.ir.graph.graph import attributes
from eqsat_opt.ir.graph.handles import Expression, derived_constant
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.passes.storage_form import as_stored
from eqsat_opt.ir.values.dims import Dim, sym
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.pipeline.options import Options

node = helper.make_node
RNG = np.random.default_rng(0)
Dims = list[int | str]


def weight(name: str, *shape: int, dtype: Any = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(RNG.standard_normal(shape).astype(dtype), name)


def value(name: str, shape: Dims, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    weights: list[onnx.TensorProto],
    opset: int = 17,
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def stored(given: onnx.ModelProto, *, exact: bool = False, least: bool = False) -> onnx.ModelProto:
    """What is written of a model that is only normalised."""
    clean = normalise(import_model(load_model(given)))
    made = model_proto(export_model(as_stored(clean, exact=exact, least=least)))
    onnx.checker.check_model(made, full_check=True)
    return made


def counts(given: onnx.ModelProto) -> Counter[str]:
    return Counter(one.op_type for one in given.graph.node)


def weight_bytes(given: onnx.ModelProto) -> int:
    return sum(numpy_helper.to_array(one).nbytes for one in given.graph.initializer)


def assert_equal(first: onnx.ModelProto, second: onnx.ModelProto, **feeds: Any) -> None:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    results = [
        onnxruntime.InferenceSession(
            one.SerializeToString(), options, providers=["CPUExecutionProvider"]
        ).run(None, feeds)
        for one in (first, second)
    ]
    for wanted, found in zip(*results, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def linear(opset: int = 17, *, bias: tuple[int, ...] = (6,), **attrs: Any) -> onnx.ModelProto:
    """A Gemm as PyTorch exports it, of a symbolic batch."""
    left: Dims = [4, "n"] if attrs.get("transA") else ["n", 4]
    right = (6, 4) if attrs.get("transB") else (4, 6)
    nodes = [node("Gemm", ["x", "w", "b"], ["y"], **attrs)]
    outputs = [value("y", ["n", 6])]
    return model(
        nodes, [value("x", left)], outputs, [weight("w", *right), weight("b", *bias)], opset
    )


@pytest.mark.parametrize("attrs", [{}, {"transB": 1}, {"transA": 1}, {"transA": 1, "transB": 1}])
@pytest.mark.parametrize("opset", [7, 9, 11, 17])
def test_a_gemm_stays_one(attrs: dict[str, Any], opset: int) -> None:
    given = linear(opset, **attrs)
    made = stored(given)
    (only,) = made.graph.node
    assert only.op_type == "Gemm"
    assert {a.name: a.i for a in only.attribute} == attrs
    assert {one.name for one in made.graph.initializer} == {"w", "b"}
    x = RNG.standard_normal((4, 3) if attrs.get("transA") else (3, 4)).astype(np.float32)
    assert_equal(given, made, x=x)


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_products_of_any_number_of_rows(rows: int) -> None:
    given = linear(transB=1)
    assert_equal(given, stored(given), x=np.ones((rows, 4), np.float32))


@pytest.mark.parametrize("bias", [(6,), (1, 6), (1, 1), (1,)])
def test_what_broadcasts_in_one_direction_is_added_within(bias: tuple[int, ...]) -> None:
    given = linear(bias=bias)
    made = stored(given)
    assert counts(made) == {"Gemm": 1}
    assert_equal(given, made, x=np.ones((3, 4), np.float32))


def test_where_every_bit_counts_a_product_and_a_sum_stay_two() -> None:
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["y"])]
    given = model(
        nodes, [value("x", ["n", 4])], [value("y", ["n", 6])], [weight("w", 4, 6), weight("b", 6)]
    )
    assert counts(stored(given)) == {"Gemm": 1}
    assert counts(stored(given, exact=True)) == {"MatMul": 1, "Add": 1}


def summed(bias: Dims, result: Dims, *more: onnx.NodeProto) -> onnx.ModelProto:
    """A product of three rows with four columns, and a sum with an input."""
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "c"], ["y"]), *more]
    outputs = [value("y", result), *(value(one.output[0], [3, 4]) for one in more)]
    return model(nodes, [value("x", [3, 5]), value("c", bias)], outputs, [weight("w", 5, 4)])


def test_a_sum_that_is_larger_than_the_product_stays_a_sum() -> None:
    assert counts(stored(summed([2, 3, 4], [2, 3, 4]))) == {"MatMul": 1, "Add": 1}
    assert counts(stored(summed([3, 4], [3, 4]))) == {"Gemm": 1}
    assert counts(stored(summed([3, 1], [3, 4]))) == {"Gemm": 1}


def test_a_product_that_somebody_else_reads_stays_one() -> None:
    given = summed([4], [3, 4], node("Relu", ["p"], ["z"]))
    assert counts(stored(given)) == {"MatMul": 1, "Add": 1, "Relu": 1}
    batched = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["y"])]
    shape: Dims = ["n", 3, 4]
    weights = [weight("w", 4, 4), weight("b", 4)]
    given = model(batched, [value("x", shape)], [value("y", shape)], weights)
    assert counts(stored(given)) == {"MatMul": 1, "Add": 1}


def test_a_product_of_integers_is_no_gemm() -> None:
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["y"])]
    weights = [weight("w", 4, 6, dtype=np.int64), weight("b", 6, dtype=np.int64)]
    given = model(
        nodes,
        [value("x", ["n", 4], TensorProto.INT64)],
        [value("y", ["n", 6], TensorProto.INT64)],
        weights,
    )
    assert counts(stored(given)) == {"MatMul": 1, "Add": 1}


def twice(rank: int, opset: int = 17) -> onnx.ModelProto:
    """A weight that one product reads transposed and the other one as it lies."""
    nodes = [
        node("Transpose", ["w"], ["t"], perm=[1, 0]), node("MatMul", ["x", "t"], ["a"]),
        node("Relu", ["a"], ["r"]), node("MatMul", ["r", "w"], ["y"]),
    ]  # fmt: skip
    whole: Dims = ["n", 3, 64]
    shape = whole[-rank:]
    return model(nodes, [value("x", shape)], [value("y", shape)], [weight("w", 64, 64)], opset)


@pytest.mark.parametrize(
    ("rank", "opset", "operators"),
    [
        (2, 17, {"Gemm": 1, "Relu": 1, "MatMul": 1}),
        (3, 17, {"Transpose": 1, "Relu": 1, "MatMul": 2}),
        (2, 10, {"Transpose": 1, "Relu": 1, "MatMul": 2}),
    ],
)
def test_a_weight_that_is_read_plain_and_transposed_is_stored_once(
    rank: int, opset: int, operators: dict[str, int]
) -> None:
    given = twice(rank, opset)
    for exact in (False, True):
        made = stored(given, exact=exact)
        assert weight_bytes(made) == weight_bytes(given)
        assert_equal(given, made, x=RNG.standard_normal((2, 3, 64)[-rank:]).astype(np.float32))
    assert counts(stored(given)) == operators


def tied(rank: int = 2, names: tuple[str, str] = ("e", "e")) -> onnx.ModelProto:
    """An embedding whose matrix gives the logits too, as one initializer or as two equal ones."""
    first = weight(names[0], 50, 32)
    second = onnx.TensorProto()
    second.CopyFrom(first)
    second.name = names[1]
    nodes = [
        node("Gather", [names[0], "i"], ["x"]), node("Tanh", ["x"], ["h"]),
        node("Transpose", [names[1]], ["t"], perm=[1, 0]), node("MatMul", ["h", "t"], ["y"]),
    ]  # fmt: skip
    whole: Dims = ["n", 3]
    outer = whole[1 - rank :]
    return model(
        nodes,
        [value("i", outer, TensorProto.INT64)],
        [value("y", [*outer, 50])],
        [first] if names[0] == names[1] else [first, second],
    )


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("names", [("e", "e"), ("e", "head")])
def test_tied_weights_are_stored_once(rank: int, names: tuple[str, str]) -> None:
    given = tied(rank, names)
    made = stored(given)
    assert weight_bytes(made) == 50 * 32 * 4
    assert_equal(given, made, i=np.zeros((2, 3)[-(rank - 1) :], np.int64))


def test_only_where_bytes_count_a_weight_stays_in_half_precision() -> None:
    nodes = [
        node("Cast", ["w"], ["f"], to=TensorProto.FLOAT), node("MatMul", ["x", "f"], ["y"]),
    ]  # fmt: skip
    weights = [weight("w", 64, 64, dtype=np.float16)]
    given = model(nodes, [value("x", ["n", 3, 64])], [value("y", ["n", 3, 64])], weights)
    assert weight_bytes(stored(given)) == 2 * weight_bytes(given)
    made = stored(given, least=True)
    assert weight_bytes(made) == weight_bytes(given)
    assert counts(made) == {"Cast": 1, "MatMul": 1}
    assert_equal(given, made, x=np.ones((1, 3, 64), np.float32))


def test_what_is_made_of_nothing_is_stored() -> None:
    attrs = attributes(channels=16, height=1, width=3, dtype="float32")
    kernel = np.zeros((16, 16, 1, 3), np.float32)
    kernel[range(16), range(16), 0, 1] = 1.0
    nodes = [node("Conv", ["x", "w"], ["y"], pads=[0, 1, 0, 1])]
    shape: Dims = ["n", 16, 4, 4]
    weights = [numpy_helper.from_array(kernel, "w")]
    given = model(nodes, [value("x", shape)], [value("y", shape)], weights)
    graph = import_model(load_model(given))
    made = replace(graph.constants["w"], source=Expression("IdentityKernel", attrs, ()))
    negated = derived_constant(
        made.type, lambda: -kernel, ("negated",), source=Expression("Neg", (), (made,))
    )
    for one in (made, negated):
        changed = graph.with_nodes(graph.nodes, constants={"w": one})
        written = model_proto(export_model(as_stored(changed, exact=False, least=True)))
        assert weight_bytes(written) == kernel.nbytes
        assert counts(written) == {"Conv": 1}


def result(given: onnx.ModelProto, **changes: Any) -> Any:
    options = Options(
        measure=False, store="", threads=1, check=1, budget_s=15.0, race=False, **changes
    )
    return run(given, options)


@pytest.mark.parametrize(
    ("given", "least"),
    [
        (twice(2), 64 * 64 * 4), (twice(3), 64 * 64 * 4),
        (tied(3), 50 * 32 * 4), (tied(2, ("e", "head")), 50 * 32 * 4),
    ],
)  # fmt: skip
def test_where_weights_count_the_model_speaks_of_its_file(
    given: onnx.ModelProto, least: int
) -> None:
    outcome = result(given, objective="weight_bytes")
    written = given if outcome.model is None else outcome.model
    assert weight_bytes(written) == least
    report = outcome.report.to_json()
    assert report["original_cost"] == pytest.approx(weight_bytes(given), abs=0.1)
    assert report["result_cost"] == pytest.approx(least, abs=0.1)
    limited = result(given, limits=(f"weight_bytes<={least}",))
    assert weight_bytes(limited.model or given) == least


def test_batched_products_with_a_bias_are_products_of_matrices() -> None:
    nodes = [
        node("Reshape", ["x", "in"], ["a"]), node("MatMul", ["a", "w"], ["m"]),
        node("Add", ["m", "b"], ["s"]), node("Reshape", ["s", "out"], ["y"]),
    ]  # fmt: skip
    shapes = [
        numpy_helper.from_array(np.array([-1, 3, 3, 32]), "in"),
        numpy_helper.from_array(np.array([-1, 9, 3, 32]), "out"),
    ]
    given = model(
        nodes,
        [value("x", ["n", 9, 9, 32])],
        [value("y", ["m", 9, 3, 32])],
        [weight("w", 32, 96), weight("b", 96), *shapes],
    )
    outcome = result(given)
    assert counts(outcome.model) == {"Reshape": 2, "Gemm": 1}
    assert_equal(given, outcome.model, x=RNG.standard_normal((2, 9, 9, 32)).astype(np.float32))


def test_shapes_that_are_computed_in_each_run_cost_time() -> None:
    n, k = sym("n"), sym("k")
    found = []
    cases: list[tuple[tuple[Dim, ...], tuple[Dim, ...]]] = [
        ((n, 3, 4), (n, 12)),  # as many samples as before
        ((3 * n, 4), (n, 3, 4)),  # one size is what is left
        ((n, 4, k), (n, k, 4)),
        ((n * k, 4), (n, k, 4)),
    ]
    for given, target in cases:
        operand = Operand(TensorType("float32", given), const=False)
        step = Step("Reshape", attributes(shape=target), (0,))
        found.append(Kernel((operand,), (step,), (1,)).open_shapes)
    assert found == [0, 0, 0, 1]
