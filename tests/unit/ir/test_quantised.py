"""Quantised models keep the form of the runtime's integer kernels; floats around it are free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, numpy_helper

from benchmarks.quantised_models import Recipe, quantise
from eqsat_opt.api import Result, run
from eqsat_opt.ir.graph.graph import OPAQUE
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.lab.zoo._builder import GraphBuilder
from eqsat_opt.pipeline.options import Options
from eqsat_opt.racing.examination import has_session_variants
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession, ort_optimized
from eqsat_opt.runtime.inputs import random_inputs

FAST = Options(measure=False, race=False, check=2, store="", threads=1, budget_s=600.0)
METADATA_BYTES = 400
"""What names of rules may add to a file."""


def optimised(model: ModelProto, **changes: Any) -> Result:
    return run(model, Options(**{**vars(FAST), **changes}))


def operators(model: ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def kernels(model: ModelProto) -> Counter[str]:
    """What the runtime runs, by operator."""
    return operators(ort_optimized(model, OrtOptions(1)))


def outputs(model: ModelProto, seed: int = 3) -> list[Any]:
    return OrtSession(model, OrtOptions(1)).run(random_inputs(model, seed))


# ------------------------------------------------------------------- what the quantiser makes


def _images(seed: int) -> ModelProto:
    b = GraphBuilder("images", seed)
    x = b.relu(b.conv(b.input("x", (1, 3, 12, 12)), 8, 3))
    x = b.max_pool(b.add(x, b.conv(x, 8, 3)), 2, 2, pad=0)
    x = b.op("Clip", b.conv(x, 8, 3, groups=8), b.scalar(0.0), b.scalar(6.0))
    return b.model({"y": b.classifier(b.concat([x, b.average_pool(x, 3, 1)]), 10)})


def _tokens(seed: int) -> ModelProto:
    b = GraphBuilder("tokens", seed)
    x = b.input("x", (1, 6, 16))
    keys = b.transpose(b.reshape(b.linear(x, 16), (1, 6, 2, 8)), 0, 2, 3, 1)
    queries = b.transpose(b.reshape(b.linear(x, 16), (1, 6, 2, 8)), 0, 2, 1, 3)
    weights = b.op("Softmax", b.matmul(queries, keys), axis=-1)
    values = b.transpose(b.reshape(b.linear(x, 16), (1, 6, 2, 8)), 0, 2, 1, 3)
    merged = b.reshape(b.transpose(b.matmul(weights, values), 0, 2, 1, 3), (1, 6, 16))
    return b.model({"y": b.layer_norm(b.add(x, b.gelu(b.linear(merged, 16))))})


NETWORKS: dict[str, Callable[[int], ModelProto]] = {"images": _images, "tokens": _tokens}
RECIPES = [
    Recipe(network, method, activations, weights, per_channel, symbolic)
    for network, method, activations, weights, per_channel, symbolic in (
        ("images", "qdq", "u8", "s8", True, False),
        ("images", "qdq", "s8", "s8", False, True),
        ("images", "qdq", "u8", "u8", False, False),
        ("images", "qoperator", "u8", "s8", True, True),
        ("images", "dynamic", "u8", "u8", False, False),
        ("tokens", "qdq", "u8", "s8", False, False),
        ("tokens", "qdq", "s8", "s8", True, False),
        ("tokens", "qoperator", "u8", "u8", False, False),
        ("tokens", "dynamic", "u8", "s8", True, False),
    )
]


@cache
def quantised(recipe: Recipe) -> ModelProto:
    return quantise(NETWORKS[recipe.network](0), recipe, 0)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_integer_kernels_and_bytes_stay(recipe: Recipe) -> None:
    model = quantised(recipe)
    result = optimised(model)
    before, after = kernels(model), kernels(result.model)
    integer = [op for op in before | after if "Linear" in op or "Integer" in op or "Quant" in op]
    assert integer
    assert {op: after[op] for op in integer} == {op: before[op] for op in integer}
    assert result.model.ByteSize() <= model.ByteSize() + METADATA_BYTES


# --------------------------------------------------------------------------- by other exporters


def parsed(body: str, *weights: TensorProto, opset: int = 21) -> ModelProto:
    """A model of x and y from onnx's text form, with further initializers."""
    head = f'<ir_version: 10, opset_import: ["": {opset}, "local": 1, "com.microsoft": 1]>'
    model: ModelProto = onnx.parser.parse_model(f"{head} main {body}")
    model.graph.initializer.extend(weights)
    return model


RNG = np.random.default_rng(0)


def tensor(name: str, array: Any, dtype: Any = np.float32) -> TensorProto:
    return numpy_helper.from_array(np.asarray(array).astype(dtype), name)


_RANGES = {"int4": (-8, 8), "uint4": (0, 16), "uint16": (0, 100)}


def integers(name: str, dtype: Any, *shape: int) -> TensorProto:
    return tensor(name, RNG.integers(*_RANGES.get(np.dtype(dtype).name, (-100, 100)), shape), dtype)


S = tensor("s", 0.02)
W8 = integers("w", np.int8, 64, 64)
PRODUCT = "(float[4,64] x) => (float[4,64] y) {{ {} y = MatMul(x, f) }}"


def weights_only(nodes: str, *weights: TensorProto, opset: int = 21) -> ModelProto:
    """A product with a weight ``f`` that ``nodes`` dequantise."""
    return parsed(PRODUCT.format(nodes), *weights, opset=opset)


def with_branch_weights(model: ModelProto) -> ModelProto:
    model.graph.node[0].attribute[0].g.initializer.extend([W8, S])
    return model


ODD: dict[str, Callable[[], ModelProto]] = {
    "int8": lambda: weights_only("f = DequantizeLinear(w, s)", W8, S),
    "axis": lambda: weights_only(
        "f = DequantizeLinear<axis=1>(w, t, z)", W8,
        tensor("t", RNG.uniform(0.01, 0.1, 64)), tensor("z", np.zeros(64), np.int8),
    ),
    "int16": lambda: weights_only("f = DequantizeLinear(v, s)", integers("v", np.int16, 64, 64), S),
    "uint16": lambda: weights_only(
        "f = DequantizeLinear(v, s)", integers("v", np.uint16, 64, 64), S
    ),
    "int32": lambda: weights_only("f = DequantizeLinear(v, s)", integers("v", np.int32, 64, 64), S),
    "int4": lambda: weights_only(
        "f = DequantizeLinear(v, s)", integers("v", ml_dtypes.int4, 64, 64), S
    ),
    "uint4 in blocks": lambda: weights_only(
        "f = DequantizeLinear<axis=0, block_size=16>(v, t, z)",
        integers("v", ml_dtypes.uint4, 64, 64), tensor("t", RNG.uniform(0.01, 0.1, (4, 64))),
        integers("z", ml_dtypes.uint4, 4, 64),
    ),
    "int8 in blocks": lambda: weights_only(
        "f = DequantizeLinear<axis=0, block_size=32>(w, t)", W8,
        tensor("t", RNG.uniform(0.01, 0.1, (2, 64))),
    ),
    "float8": lambda: weights_only(
        "f = DequantizeLinear(v, s)",
        tensor("v", RNG.standard_normal((64, 64)), ml_dtypes.float8_e4m3fn), S,
    ),
    "scale zero": lambda: weights_only("f = DequantizeLinear(w, t)", W8, tensor("t", 0.0)),
    "scale subnormal": lambda: weights_only("f = DequantizeLinear(w, t)", W8, tensor("t", 1e-41)),
    "float16": lambda: parsed(
        "(float16[4,64] x) => (float16[4,64] y) { f = DequantizeLinear(w, t) y = MatMul(x, f) }",
        W8, tensor("t", 0.02, np.float16),
    ),
    "cast back": lambda: weights_only(
        "h = DequantizeLinear(w, t) f = Cast<to=1>(h)", W8, tensor("t", 0.02, np.float16)
    ),
    "shared": lambda: parsed(
        "(float[4,64] x) => (float[4,64] y) "
        "{ f = DequantizeLinear(w, s) a = MatMul(x, f) r = Relu(a) y = MatMul(r, f) }", W8, S,
    ),
    "twice": lambda: parsed(
        "(float[4,64] x) => (float[4,64] y) { f = DequantizeLinear(w, s) a = MatMul(x, f)"
        " r = Relu(a) g = DequantizeLinear(w, s) y = MatMul(r, g) }", W8, S,
    ),
    "tied": lambda: parsed(
        "(int64[4] i) => (float[4,64] y) { q = Gather(w, i) e = DequantizeLinear(q, s)"
        " v = Transpose(w) f = DequantizeLinear(v, s) y = MatMul(e, f) }", W8, S,
    ),
    "transposed": lambda: weights_only("g = DequantizeLinear(w, s) f = Transpose(g)", W8, S),
    "transposed before": lambda: weights_only("v = Transpose(w) f = DequantizeLinear(v, s)", W8, S),
    "reshaped": lambda: weights_only(
        "v = Reshape(w, k) f = DequantizeLinear(v, s)", integers("w", np.int8, 4096), S,
        tensor("k", [64, 64], np.int64),
    ),
    "slice": lambda: weights_only(
        "v = Slice(w, a, b) f = DequantizeLinear(v, s)", integers("w", np.int8, 64, 128), S,
        tensor("a", [0, 32], np.int64), tensor("b", [64, 96], np.int64),
    ),
    "constant node": lambda: parsed(
        "(float[1,4] x) => (float[1,2] y) { w = Constant<value=int8[4,2] {1,2,3,4,5,6,7,8}>()"
        " s = Constant<value_float=0.5>() f = DequantizeLinear(w, s) y = MatMul(x, f) }"
    ),
    "scalar chain": lambda: weights_only(
        "c = Cast<to=1>(w) d = Sub(c, z) f = Mul(d, s)", W8, S, tensor("z", 3.0)
    ),
    "weights written as floats": lambda: weights_only(
        "q = QuantizeLinear(v, s, z) f = DequantizeLinear(q, s, z)",
        tensor("v", RNG.standard_normal((64, 64))), S, tensor("z", 0, np.int8),
    ),
    "no zero point": lambda: parsed(
        "(float[4,64] x) => (float[4,64] y) { q = QuantizeLinear(x, s) d = DequantizeLinear(q, s)"
        " f = DequantizeLinear(w, s) m = MatMul(d, f) p = QuantizeLinear(m, t)"
        " y = DequantizeLinear(p, t) }", W8, S, tensor("t", 0.5),
    ),
    "branch": lambda: with_branch_weights(parsed(
        "(float[4,64] x, bool c) => (float[4,64] y) { y = If(c) <then_branch = g1 () =>"
        " (float[4,64] a) { f = DequantizeLinear(w, s) a = MatMul(x, f) },"
        " else_branch = g2 () => (float[4,64] b) { b = Identity(x) }> }",
    )),
    "known branch": lambda: parsed(
        "(float[4,64] x) => (float[4,64] y) { f = If(k) <then_branch = g1 () =>"
        " (float[64,64] a) { a = DequantizeLinear(w, s) },"
        " else_branch = g2 () => (float[64,64] b) { b = DequantizeLinear(w, k2) }>"
        " y = MatMul(x, f) }", W8, S, tensor("k", True, np.bool_), tensor("k2", 0.5),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_dequantised_weights_are_never_folded(name: str) -> None:
    model = ODD[name]()
    before = model.SerializeToString()
    result = optimised(model)
    assert model.SerializeToString() == before
    assert result.model.ByteSize() <= model.ByteSize() + METADATA_BYTES
    count = "Cast" if name == "scalar chain" else "DequantizeLinear"
    # A branch that is known to be taken stands in place of its If.
    taken = 1 if name == "known branch" else operators(model)[count]
    assert operators(result.model)[count] == taken
    if name != "scalar chain":
        assert kernels(result.model) == kernels(model)


def test_a_quantised_function_stays() -> None:
    model = parsed("(float[4,64] x) => (float[4,64] y) { y = local.product(x, w, s) }", W8, S)
    function = onnx.parser.parse_function(
        '<domain: "local", opset_import: ["": 21]> product (x, w, s) => (y)'
        " { f = DequantizeLinear(w, s) y = MatMul(x, f) }"
    )
    model.functions.append(function)
    result = optimised(model)
    assert list(result.model.functions) == [function]
    assert result.model.ByteSize() <= model.ByteSize() + METADATA_BYTES


# ----------------------------------------------------------------------------- what is float


UNIT = "q = QuantizeLinear(h, s, z) d = DequantizeLinear(q, s, z) f = DequantizeLinear(w, s)"
BACK = "m = MatMul(d, f) p = QuantizeLinear(m, t, z) r = DequantizeLinear(p, t, z)"
SCALES = (W8, S, tensor("t", 0.5), tensor("z", 128, np.uint8))


def test_float_parts_around_a_unit_are_optimised() -> None:
    """Transposes that cancel, in front and behind; the unit stays whole."""
    model = parsed(
        "(float[4,64] x) => (float[4,64] y) { a = Transpose(x) b = Sin(a) c = Transpose(b)"
        f" h = Sin(c) {UNIT} {BACK} i = Sin(r) j = Transpose(i) k = Sin(j) y = Transpose(k) }}",
        *SCALES,
    )
    result = optimised(model, objective="launches")
    assert "Transpose" not in operators(result.model)
    assert kernels(result.model)["QLinearMatMul"] == kernels(model)["QLinearMatMul"] == 1
    np.testing.assert_array_equal(outputs(model)[0], outputs(result.model)[0])


SHORTER = {"objective": "launches", "numerics": "relaxed"}


def test_products_of_a_unit_are_not_merged() -> None:
    """d·f + e·f = (d + e)·f saves a product of floats, and costs two of integers."""
    model = parsed(
        "(float[4,64] x, float[4,64] h) => (float[4,64] y) { o = QuantizeLinear(x, s, z)"
        f" e = DequantizeLinear(o, s, z) {UNIT} m = MatMul(d, f) n = MatMul(e, f)"
        " y = Add(m, n) }",
        W8, S, tensor("z", 128, np.uint8),
    )  # fmt: skip
    result = optimised(model, **SHORTER)
    assert operators(result.model)["MatMul"] == 2
    assert kernels(result.model) == kernels(model)


def test_a_product_of_integers_keeps_its_scaling() -> None:
    """Cast, Mul by the scales and Add of a bias are part of the kernel; what follows is free."""
    model = parsed(
        "(float[4,64] x) => (float[4,64] y) { q, a, b = DynamicQuantizeLinear(x) k = Mul(a, s)"
        " i = MatMulInteger(q, w, b) c = Cast<to=1>(i) m = Mul(c, k) n = Add(m, v)"
        " o = Add(n, x) p = Relu(o) y = Relu(p) }",
        W8, S, tensor("v", RNG.standard_normal(64)),
    )  # fmt: skip
    graph = import_model(load_model(model))
    assert [node.op for node in graph.nodes if node.op != OPAQUE] == ["Add", "Relu", "Relu"]
    result = optimised(model)
    assert operators(result.model)["Relu"] == 1
    assert kernels(result.model)["DynamicQuantizeMatMul"] == 1


def test_a_unit_behind_symbolic_sizes_has_types_and_keeps_its_form() -> None:
    """Sizes that are computed from other sizes, as exporters write them for any batch."""
    model = parsed(
        "(float[N,4,64] x) => (float[N,2,4,32] y) { q = QuantizeLinear(x, s, z)"
        " d = DequantizeLinear(q, s, z) f = DequantizeLinear(w, s) m = MatMul(d, f)"
        " p = QuantizeLinear(m, t, z) e = DequantizeLinear(p, t, z)"
        " c = Shape(x) n = Gather(c, i) k = Concat<axis=0>(n, o) h = Reshape(e, k)"
        " v = Transpose<perm=[0, 2, 1, 3]>(h) r = Relu(v) g = Relu(r) y = Sin(g) }",
        *SCALES, tensor("i", [0], np.int64), tensor("o", [4, 2, 32], np.int64),
    )  # fmt: skip
    graph = import_model(load_model(model))
    assert str(graph.types["v"]) == "float32[N,2,4,32]"
    result = optimised(model)
    assert operators(result.model)["Relu"] == 1
    assert operators(result.model)["Reshape"] == operators(result.model)["Transpose"] == 1
    assert kernels(result.model)["QLinearMatMul"] == kernels(model)["QLinearMatMul"] == 1


def test_no_session_option_takes_the_integer_kernels_away() -> None:
    """Other levels of the runtime's optimiser are raced for products of floats alone."""
    floats, integers = _tokens(0), quantised(RECIPES[5])
    assert has_session_variants(import_model(load_model(floats)))
    assert not has_session_variants(import_model(load_model(integers)))


# ------------------------------------------------------------------------------- the report


def test_before_is_the_file_as_it_was_given() -> None:
    """Constant nodes, shape arithmetic, function calls, and the bytes of narrow weights count."""
    model = parsed(
        "(float[4,64] x) => (float[4,64] y) { f = DequantizeLinear(w, s)"
        " k = Constant<value = int64[2] {4, 64}>() h = Reshape(x, k) a = Shape(h)"
        " b = Reshape(h, a) c = local.twice(b) d = MatMul(c, f) y = Relu(d) }",
        W8, S,
    )  # fmt: skip
    function = onnx.parser.parse_function(
        '<domain: "local", opset_import: ["": 21]> twice (x) => (y) { y = Add(x, x) }'
    )
    model.functions.append(function)
    report = optimised(model).report
    assert report.operators_before == operators(model)
    assert report.operators_before["twice"] == report.operators_before["Constant"] == 1
    assert report.metrics_before["weight_bytes"] == 64 * 64 + 4 + 2 * 8


def test_after_is_the_file_that_is_written() -> None:
    model = parsed(
        "(float[4,64] x) => (float[4,64] y) { a = Relu(x) b = Relu(a) f = DequantizeLinear(w, s)"
        " y = MatMul(b, f) }",
        W8, S,
    )  # fmt: skip
    result = optimised(model)
    assert result.report.operators_after == operators(result.model)
    assert result.report.operators_after["Relu"] == 1
    assert result.report.metrics_after["weight_bytes"] == 64 * 64 + 4
