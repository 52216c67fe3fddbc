"""Infinities, NaN, masks, empty extents and the ends of ranges survive reading and writing."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.api import run
from eqsat_opt.egraph import saturate
from eqsat_opt.ir.graph.graph import OPAQUE, Graph
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.ir.passes.affine import fold_affine
from eqsat_opt.ir.passes.nonfinite import is_representable, spoils
from eqsat_opt.ir.values.dims import sym
from eqsat_opt.lab.testing import GraphMaker
from eqsat_opt.pipeline.options import Options
from eqsat_opt.proving.selection import default_rules
from eqsat_opt.rules import Numerics
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession

Array = npt.NDArray[Any]
Dims = Sequence[int | str]
F32 = np.float32
HALF = np.float16
PLAIN = OrtOptions(threads=1, level="disabled")
LOWEST = np.finfo(F32).min


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: Mapping[str, Dims],
    weights: Mapping[str, Any] | None = None,
    opset: int = 17,
    dtype: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    """The nodes beside three Relus, of which two go, so that the model is written anew."""
    values = [helper.make_tensor_value_info(n, dtype, dims) for n, dims in inputs.items()]
    values.append(helper.make_tensor_value_info("relu0", TensorProto.FLOAT, [1]))
    relus = [helper.make_node("Relu", [f"relu{i}"], [f"relu{i + 1}"]) for i in range(3)]
    outputs = [helper.make_empty_tensor_value_info(name) for name in ("y", "relu3")]
    constants = [numpy_helper.from_array(np.asarray(a), n) for n, a in (weights or {}).items()]
    graph = helper.make_graph([*nodes, *relus], "edge", values, outputs, constants)
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10 if opset > 20 else 8)


def optimised(model: onnx.ModelProto, numerics: str) -> onnx.ModelProto:
    options = Options(measure=False, race=False, check=0, store="", threads=1, numerics=numerics)
    result: onnx.ModelProto = run(model, options).model
    return result


def assert_same(
    model: onnx.ModelProto, feeds: Sequence[Mapping[str, Array]], numerics: str = "bitexact"
) -> onnx.ModelProto:
    """The new model gives what the old one gives: every bit, or up to rounding."""
    result = optimised(model, numerics)
    assert len(result.graph.node) < len(model.graph.node) + 1
    before, after = OrtSession(model, PLAIN), OrtSession(result, PLAIN)
    for feed in feeds:
        full = {**feed, "relu0": np.ones(1, F32)}
        for x, y in zip(before.run(full), after.run(full), strict=True):
            if numerics == "bitexact":
                np.testing.assert_array_equal(y, x, strict=True)
            else:
                np.testing.assert_allclose(y, x, rtol=1e-3, atol=1e-6, strict=True)
    return result


def of(shape: Sequence[int], *values: float, dtype: Any = F32) -> Array:
    """Random numbers that start with ``values``."""
    array = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    array.reshape(-1)[: len(values)] = values
    return array


N: Any = helper.make_node
BOTH = pytest.mark.parametrize("numerics", ["bitexact", "reassociate"])


# Mappings ----------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMean", "GlobalMaxPool", "GlobalAveragePool"])
def test_reductions_and_pools_stay_what_they_are(op: str, numerics: str) -> None:
    attrs = {"axes": [2, 3]} if op.startswith("Reduce") else {}
    x = of((2, 3, 4, 4))
    x[0, 0], x[1, 1, 0, 0], x[1, 2, 3, 3] = -np.inf, np.nan, np.inf
    feeds = [{"x": x}, {"x": of((2, 3, 4, 4))}]
    result = assert_same(model_of([N(op, ["x"], ["y"], **attrs)], {"x": [2, 3, 4, 4]}), feeds[:1],
                         "bitexact")  # fmt: skip
    assert op in {node.op_type for node in result.graph.node}
    assert_same(model_of([N(op, ["x"], ["y"], **attrs)], {"x": [2, 3, 4, 4]}), feeds, numerics)


@BOTH
def test_a_mean_over_a_plane_that_may_be_empty(numerics: str) -> None:
    model = model_of([N("ReduceMean", ["x"], ["y"], axes=[2, 3])], {"x": [2, 3, "h", 4]})
    assert_same(model, [{"x": of((2, 3, h, 4))} for h in (0, 1, 5)], numerics)


@pytest.mark.parametrize("opset", [7, 10, 11, 13])
@pytest.mark.parametrize("bounds", [(None, None), (0.0, None), (None, 6.0)])
def test_a_clip_without_a_bound_has_the_finite_ones(
    bounds: tuple[float | None, float | None], opset: int
) -> None:
    named = {n: b for n, b in zip(("min", "max"), bounds, strict=True) if b is not None}
    if opset < 11:
        node, weights = N("Clip", ["x"], ["y"], **named), {}
    else:
        names = [n if n in named else "" for n in ("min", "max")]
        node, weights = N("Clip", ["x", *names], ["y"]), {n: F32(b) for n, b in named.items()}
    model = model_of([node], {"x": [5]}, weights, opset)
    feed = {"x": np.array([np.inf, -np.inf, np.nan, 1, -1], F32)}
    for numerics in ("bitexact", "reassociate"):
        assert_same(model, [feed], numerics)


BOUNDS = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -1.5)


@BOTH
@pytest.mark.parametrize("names", [("low", "high"), ("low", ""), ("", "high")])
def test_a_clip_at_computed_bounds_is_the_runtimes(names: tuple[str, str], numerics: str) -> None:
    """It ignores a bound that is NaN, keeps zeros as they are, and prefers the upper bound."""
    given = [name for name in names if name]
    nodes = [N("ReduceMax", [f"{name}s"], [name], keepdims=0) for name in given]
    clip = N("Clip", ["x", *([*names] if names[1] else given)], ["y"])
    inputs: dict[str, Dims] = {"x": ["n"], **{f"{name}s": [1] for name in given}}
    model = model_of([*nodes, clip], inputs)
    assert OPAQUE not in {node.op for node in import_model(load_model(model)).nodes}
    result = optimised(model, numerics)
    assert [node.op_type for node in result.graph.node].count("Clip") == 1
    before, after = OrtSession(model, PLAIN), OrtSession(result, PLAIN)
    for size in (0, 1, 7, 19):
        x = np.resize(np.array(BOUNDS, F32), size)
        for bounds in itertools.product(BOUNDS, repeat=len(given)):
            own = {n: np.asarray(b, F32) for n, b in zip(given, bounds, strict=True)}
            feed = {f"{name}s": bound.reshape(1) for name, bound in own.items()}
            feed |= {"x": x, "relu0": np.ones(1, F32)}
            was, now = before.run(feed)[0], after.run(feed)[0]
            np.testing.assert_array_equal(now, was, strict=True)
            np.testing.assert_array_equal(np.signbit(now), np.signbit(was))
            low, high = (
                own.get(name, np.asarray(limit))
                for name, limit in (("low", LOWEST), ("high", -LOWEST))
            )
            clamped = get_op("Clamp").eval_fn(FLOAT, [x, low, high], {})
            np.testing.assert_array_equal(clamped, was, strict=True)
            np.testing.assert_array_equal(np.signbit(clamped), np.signbit(was))


def test_integers_are_clipped_at_one_computed_bound() -> None:
    for op, names in (("Max", ["b"]), ("Min", ["", "b"])):
        nodes = [N("ReduceMax", ["bs"], ["b"], keepdims=0), N("Clip", ["x", *names], ["y"])]
        inputs: dict[str, Dims] = {"x": ["n"], "bs": [1]}
        model = model_of(nodes, inputs, dtype=TensorProto.INT64)
        assert op in {node.op for node in import_model(load_model(model)).nodes}
        assert_same(model, [{"x": np.arange(n) - 2, "bs": np.array([1])} for n in (0, 1, 6)])


def test_a_mean_of_three_is_the_runtimes() -> None:
    model = model_of([N("Mean", ["a", "b", "c"], ["y"])], {n: [64] for n in "abc"})
    rng = np.random.default_rng(1)
    assert_same(model, [{n: rng.standard_normal(64).astype(F32) for n in "abc"}])


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("alpha", [1.0, 0.5])
@pytest.mark.parametrize("bias", [False, True])
def test_a_product_with_a_bias_keeps_its_kernel_where_every_bit_counts(
    turned: int, alpha: float, bias: bool
) -> None:
    weights = {"w": of((64, 300) if turned else (300, 64)), "b": of((64,))}
    names = ["x", "w", "b"] if bias else ["x", "w"]
    node = N("Gemm", names, ["y"], transB=turned, alpha=alpha)
    model = model_of([node], {"x": ["n", 300]}, weights)
    assert_same(model, [{"x": of((rows, 300))} for rows in (1, 8)])


@pytest.mark.parametrize(("op", "count"), [("Sum", 2), ("Sum", 3), ("Mean", 2), ("Mean", 3)])
def test_narrow_sums_are_rounded_as_often_as_the_runtime_does(op: str, count: int) -> None:
    names = [f"x{i}" for i in range(count)]
    model = model_of([N(op, names, ["y"])], dict.fromkeys(names, (64,)), dtype=TensorProto.FLOAT16)
    rng = np.random.default_rng(1)
    assert_same(model, [{n: rng.standard_normal(64).astype(HALF) for n in names}])


@BOTH
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("opset", [9, 13, 21])
def test_a_flatten_of_nothing(axis: int, opset: int, numerics: str) -> None:
    model = model_of([N("Flatten", ["x"], ["y"], axis=axis)], {"x": ["n", "m", 5]}, opset=opset)
    assert_same(model, [{"x": of(s)} for s in ((3, 4, 5), (0, 4, 5), (3, 0, 5))], numerics)


@BOTH
def test_no_rest_beside_a_size_that_may_be_none(numerics: str) -> None:
    """(n, c, h, w) becomes (n, c, h·w), where n may be 0."""
    nodes = [
        N("Shape", ["x"], ["s"]),
        N("Gather", ["s", "first"], ["head"]),
        N("Gather", ["s", "last"], ["plane"]),
        N("ReduceProd", ["plane"], ["area"], keepdims=1),
        N("Concat", ["head", "area"], ["t"], axis=0),
        N("Reshape", ["x", "t"], ["y"], allowzero=1),
    ]
    weights = {"first": np.array([0, 1]), "last": np.array([2, 3])}
    model = model_of(nodes, {"x": ["n", 3, "h", "w"]}, weights)
    assert_same(model, [{"x": of(s)} for s in ((2, 3, 4, 5), (0, 3, 4, 5), (2, 3, 0, 5))], numerics)


def test_a_target_of_the_model_is_kept_though_it_refuses_nothing() -> None:
    node = N("Reshape", ["x", "t"], ["y"])
    model = model_of([node], {"x": ["n", "c", "h", "w"]}, {"t": np.array([0, 0, -1])})
    result = assert_same(model, [{"x": of((2, 3, 4, 5))}])
    assert [n.op_type for n in result.graph.node] == ["Reshape", "Relu"]


@pytest.mark.parametrize("size", [7, 5, 3, 0])
def test_a_range_that_may_be_negative_is_empty(size: int) -> None:
    nodes = [
        N("Shape", ["x"], ["s"]),
        N("Gather", ["s", "zero"], ["n"]),
        N("Sub", ["n", "five"], ["m"]),
        N("Range", ["zero", "m", "one"], ["r"]),
        N("Shape", ["r"], ["k"]),
        N("Concat", ["k", "four"], ["t"], axis=0),
        N("Expand", ["c", "t"], ["y"]),
    ]
    weights = {"zero": 0, "one": 1, "five": 5, "four": [4], "c": of((1, 4))}
    model = model_of(nodes, {"x": ["n"]}, weights)
    assert_same(model, [{"x": of((size,))}], "reassociate")


MASKS = {"lowest": LOWEST, "infinite": -np.inf, "large": -1e9}


@pytest.mark.parametrize("hidden", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("opset", [17, 23])
@pytest.mark.parametrize("native", [False, True])
def test_a_row_that_hides_every_key(hidden: float, opset: int, native: bool) -> None:
    if native and opset < 23:
        pytest.skip("the operator is newer")
    nodes = [
        N("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        N("MatMul", ["q", "kt"], ["a"]),
        N("Mul", ["a", "scale"], ["b"]),
        N("Add", ["b", "m"], ["c"]),
        N("Softmax", ["c"], ["p"], axis=-1),
        N("MatMul", ["p", "v"], ["y"]),
    ]
    if native:
        nodes = [N("Attention", ["q", "k", "v", "m"], ["y"], scale=0.35)]
    inputs: dict[str, Dims] = {n: [1, 2, "s", 8] for n in "qkv"}
    model = model_of(nodes, {**inputs, "m": [1, 1, "s", "s"]},
                     {} if native else {"scale": F32(0.35)}, opset)  # fmt: skip
    mask = np.zeros((1, 1, 4, 4), F32)
    mask[0, 0, 1], mask[0, 0, 2, :2] = hidden, hidden
    feed = {n: of((1, 2, 4, 8)) + F32(i) for i, n in enumerate("qkv")}
    assert_same(model, [{**feed, "m": mask}], "reassociate")


@pytest.mark.parametrize("numerics", ["bitexact", "reassociate"])
def test_what_the_operator_set_lacks_is_read_and_written_as_it_is(numerics: str) -> None:
    """Onnxruntime runs LayerNormalization in any operator set, and its tools write it there."""
    nodes = [
        N("LayerNormalization", ["x", "g"], ["a"], axis=-1),
        N("LayerNormalization", ["x", "g"], ["b"], axis=-1),
        N("Transpose", ["a"], ["c"], perm=[1, 0]),
        N("Transpose", ["c"], ["d"], perm=[1, 0]),
        N("Add", ["d", "b"], ["y"]),
    ]
    model = model_of(nodes, {"x": [2, 5]}, {"g": of((5,))}, opset=15)
    graph = import_model(load_model(model))
    assert OPAQUE not in {node.op for node in graph.nodes}
    result = assert_same(model, [{"x": of((2, 5))}], numerics)
    kinds = [node.op_type for node in result.graph.node]
    assert sorted(set(kinds) - {"Relu"}) == ["Add", "LayerNormalization"]
    assert kinds.count("LayerNormalization") == 1


def test_what_no_operator_set_has_stays_as_it_is() -> None:
    node = N("SimplifiedLayerNormalization", ["x", "g"], ["y"], axis=-1)
    graph = import_model(load_model(model_of([node], {"x": [2, 5]}, {"g": of((5,))}, opset=15)))
    assert graph.nodes[0].op == OPAQUE


@pytest.mark.parametrize("op", ["MatMul", "Exp", "ReduceMean"])
def test_constants_are_folded_as_the_runtime_computes_them(op: str) -> None:
    operands = {"a": of((3, 40)), "b": of((40, 3))}
    names = ["a", "b"] if op == "MatMul" else ["a"]
    nodes = [N(op, names, ["c"]), N("Sub", ["x", "c"], ["y"])]
    shape = {"MatMul": (3, 3), "Exp": (3, 40), "ReduceMean": (1, 1)}[op]
    assert_same(model_of(nodes, {"x": shape}, operands), [{"x": of(shape)}])


# Folding -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scale", "factor", "dtype"),
    [(3e3, 1e3, HALF), (1e-4, 1e-4, HALF), (1e30, 1e20, F32), (1e-30, 1e-20, F32)],
)
@pytest.mark.parametrize("numerics", ["reassociate", "refactor", "relaxed"])
def test_factors_that_leave_the_range_together_stay_apart(
    scale: float, factor: float, dtype: Any, numerics: str
) -> None:
    nodes = [N("MatMul", ["x", "w"], ["a"]), N("Mul", ["a", "s"], ["y"])]
    weights = {"w": of((4, 8), dtype=dtype) * dtype(scale), "s": np.full(8, factor, dtype)}
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = model_of(nodes, {"x": [2, 4]}, weights, dtype=code)
    result = optimised(model, numerics)
    for weight in result.graph.initializer:
        given = np.concatenate([w.reshape(-1) for w in weights.values()])
        assert np.all(np.isin(numpy_helper.to_array(weight), given))


@pytest.mark.parametrize(("first", "second"), [(1e30, 1e20), (1e-30, 1e-20), (1e30, 1e-20)])
def test_literals_that_leave_the_range_together_stay_apart(first: float, second: float) -> None:
    nodes = [N("Mul", ["x", "a"], ["t"]), N("Mul", ["t", "b"], ["y"])]
    model = model_of(nodes, {"x": [4]}, {"a": F32(first), "b": F32(second)})
    for numerics in ("reassociate", "refactor", "relaxed"):
        factors = [
            float(numpy_helper.to_array(t)) for t in optimised(model, numerics).graph.initializer
        ]
        assert len(factors) == (1 if first * second == 1e10 else 2)
        assert all(1e-37 < f < 3e38 for f in factors)


@pytest.mark.parametrize("value", [np.inf, np.nan, 0.0])
@pytest.mark.parametrize("op", ["Mul", "Div"])
def test_weights_take_no_special_factor(value: float, op: str) -> None:
    g = GraphMaker()
    factor = g.constant(np.array([2.0, value], F32))
    graph: Graph = g.graph(g(op, g("MatMul", g.input("x", 3, 4), g.weight(4, 2)), factor))
    with np.errstate(all="raise"):
        folded = fold_affine(graph)
    assert (folded is graph) == (not (op == "Mul" and value == 0))


def test_what_spoils_and_what_does_not() -> None:
    half = np.array([1e-30, 2.0], F32)
    one = np.ones(2, F32)
    cases: list[tuple[str, list[Any], bool]] = [
        ("Mul", [half, np.float32(1e-20)], True),
        ("Mul", [half, np.float32(0)], False),
        ("Mul", [half * 0, one], False),
        ("Mul", [one * 1e30, one * 1e30], True),
        ("Add", [one * 3e38, one * 3e38], True),
        ("Sub", [half, half], False),
        ("Mul", [np.array([-np.inf, 1], F32), one], False),
        ("Mul", [one, np.float32(-np.inf)], True),
        ("Div", [one, one * 0], True),
        ("MatMul", [np.eye(2, dtype=F32), half[:, None]], False),
        ("MatMul", [np.eye(2, dtype=F32) * 1e-20, half[:, None] * 1e-10], True),
        ("MatMul", [np.array([[1, -1]], F32), one[:, None]], False),
    ]
    for op, operands, wanted in cases:
        arrays = [np.asarray(o) for o in operands]
        with np.errstate(all="ignore"):
            function = {"Mul": np.multiply, "Add": np.add, "Sub": np.subtract, "Div": np.divide,
                        "MatMul": np.matmul}[op]  # fmt: skip
            assert spoils(op, {}, arrays, function(*arrays)) == wanted, (op, operands)
    assert not spoils("Concat", {}, [one], np.full(2, np.inf, F32))


@pytest.mark.parametrize(
    ("value", "dtype", "wanted"),
    [(1e-8, "float16", False), (1e-8, "float32", True), (0.0, "float16", True),
     (-np.inf, "float16", True), (1e5, "float16", False), (1e-39, "float32", False),
     (1e5, "bfloat16", True), (3e38, "int64", True)],
)  # fmt: skip
def test_what_literals_a_type_can_hold(value: float, dtype: str, wanted: bool) -> None:
    assert is_representable(value, dtype) == wanted


# What no rule may make of empty extents ----------------------------------------------------------


def matched(graph: Graph, family: str, *, exact: bool = False) -> set[str]:
    rules = [one for one in default_rules(Numerics.RELAXED) if one.name.startswith(family)]
    return set(saturate(graph, rules, exact=exact).report.matches)


@pytest.mark.parametrize("beta", [0.75, 0.5])
@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [((1, 2, 2, 3), 2), ((1, 2, 0, 3), 0), ((1, 0, 2, 3), 0), ((1, 2, sym("H"), 3), 0)],
)
def test_a_local_normalisation_of_nothing_is_not_pooled(
    beta: float, sizes: tuple[Any, ...], wanted: int
) -> None:
    g = GraphMaker()
    graph = g.graph(g("LRN", g.input("x", *sizes), size=3, alpha=0.1, beta=beta, bias=1.0))
    assert len(matched(graph, "lrn/")) == wanted * (2 if beta == 0.75 else 1)


# Where every bit counts --------------------------------------------------------------------------


@pytest.mark.parametrize(("function", "moves"), [("Relu", True), ("Sqrt", True), ("Log", False)])
@pytest.mark.parametrize("movement", ["Slice", "Transpose", "Expand", "Reshape"])
def test_functions_that_round_by_position_keep_it(
    function: str, moves: bool, movement: str
) -> None:
    g = GraphMaker()
    attributes: dict[str, dict[str, Any]] = {
        "Slice": {"axis": 0, "lo": 0, "hi": 2},
        "Transpose": {"perm": (1, 0)},
        "Expand": {"shape": (3, 4)},
        "Reshape": {"shape": (4, 3)},
    }
    x = g.input("x", 1 if movement == "Expand" else 3, 4)
    graph = g.graph(g(function, g(movement, x, **attributes[movement])))
    rule = {"Slice": "concat/map-slice", "Transpose": "transpose/map",
            "Expand": "reshape/expand-map", "Reshape": "reshape/map"}[movement]  # fmt: skip
    assert matched(graph, rule)
    assert bool(matched(graph, rule, exact=True)) == (moves or movement == "Reshape")


def test_products_of_constants_are_computed_where_they_were() -> None:
    nodes = [
        N("Add", ["a", "a"], ["b"]),
        N("MatMul", ["b", "w"], ["c"]),
        N("Add", ["c", "w"], ["d"]),
        N("Add", ["x", "d"], ["y"]),
    ]
    model = model_of(nodes, {"x": [4, 4]}, {"a": of((4, 4)), "w": of((4, 4))})
    counts = {
        numerics: [n.op_type for n in optimised(model, numerics).graph.node]
        for numerics in ("bitexact", "reassociate")
    }
    assert counts["bitexact"].count("MatMul") == 1
    assert counts["bitexact"].count("Add") == 2
    assert "MatMul" not in counts["reassociate"]


@pytest.mark.parametrize(("epsilon", "is_kept"), [(1e-3, False), (2.0**-10, True)])
def test_an_epsilon_of_float64_is_not_rounded(epsilon: float, is_kept: bool) -> None:
    """ONNX's attributes are float32, whatever the element type is."""
    nodes = [
        helper.make_node("ReduceMean", ["x", "last"], ["mean"]),
        helper.make_node("Sub", ["x", "mean"], ["away"]),
        helper.make_node("Mul", ["away", "away"], ["square"]),
        helper.make_node("ReduceMean", ["square", "last"], ["variance"]),
        helper.make_node("Add", ["variance", "epsilon"], ["sum"]),
        helper.make_node("Sqrt", ["sum"], ["deviation"]),
        helper.make_node("Div", ["away", "deviation"], ["y"]),
    ]
    weights = {"last": np.array([1]), "epsilon": np.array(epsilon)}
    model = model_of(nodes, {"x": [3, 4]}, weights, opset=20, dtype=TensorProto.DOUBLE)
    result = optimised(model, "reassociate")
    kinds = {node.op_type for node in result.graph.node}
    assert ("LayerNormalization" in kinds) == is_kept
    feeds = {"x": np.random.default_rng(0).standard_normal((3, 4)) / 8, "relu0": np.ones(1, F32)}
    before, after = (OrtSession(one, PLAIN).run(feeds)[0] for one in (model, result))
    np.testing.assert_allclose(after, before, rtol=1e-14)
