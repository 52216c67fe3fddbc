"""Odd but valid models: empty axes, open sizes, high ranks, old operator sets, other types."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.api import run
from eqsat_opt.egraph.loading.lowering import lower
from eqsat_opt.egraph.loading.siblings import sibling_seeds
from eqsat_opt.egraph.recognition.recognise import recognise
from eqsat_opt.egraph.saturation.saturate import Budget, saturate_windows
from eqsat_opt.egraph.terms import Lowered
from eqsat_opt.errors import ModelError
from eqsat_opt.ir.graph.graph import OPAQUE, Graph, Node, attributes
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.folding import evaluate_opaque, is_deterministic
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.ops import Array, IllTyped, get_op
from eqsat_opt.ir.ops.global_pool import GLOBAL_POOLS
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.values.dims import SymDim, sym
from eqsat_opt.ir.values.types import StaticType, TensorType
from eqsat_opt.lab.testing import GraphMaker
from eqsat_opt.pipeline.options import Options
from eqsat_opt.rules import families
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from tests.oracles.substitution import matches

BOOK = {one.name: one for rules in families().values() for one in rules}
FLOAT = TensorProto.FLOAT
PLAIN = OrtOptions(threads=1, level="disabled")


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Sequence[int | str]],
    weights: dict[str, Any] | None = None,
    *,
    opset: int = 17,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, FLOAT, shape) for n, shape in inputs.items()],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(np.asarray(w), n) for n, w in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def imported(model: onnx.ModelProto) -> Graph:
    return import_model(load_model(model))


def written(graph: Graph) -> onnx.ModelProto:
    return model_proto(export_model(graph))


def outputs_of(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    return OrtSession(model, PLAIN).run(feeds)


def random(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def operators(model: onnx.ModelProto) -> set[str]:
    return {node.op_type for node in model.graph.node}


# Siblings and recognition -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shapes", "stacked"),
    [
        (((), ()), False),
        (((2, 4, 3), (3,)), False),
        (((3,), (2, 4, 3)), False),
        (((3,), (3,)), True),
    ],
)
def test_biases_of_any_rank_beside_siblings(
    shapes: Sequence[tuple[int, ...]], stacked: bool
) -> None:
    g = GraphMaker()
    x = g.input("x", 4, 4, dtype="float64")  # in which a scalar stays a constant

    generator = np.random.default_rng(0)

    def weight(*shape: int) -> str:
        return g.constant(np.asarray(generator.standard_normal(shape)))

    products = [g("MatMul", x, weight(4, 3)) for _ in shapes]
    biases = [weight(*shape) for shape in shapes]
    sums = [g("Add", *pair) for pair in zip(products, biases, strict=True)]
    lowered = lower(g.graph(*sums))
    seeds = sibling_seeds(lowered, list(BOOK.values()))
    concats = [term for term in seeds.terms if term.op == "Concat"]
    assert len(concats) == 1 + stacked


def test_kernels_are_padded_for_rules_that_use_them_only() -> None:
    """Else only the larger of two kernels would merge, with filters that nobody reads."""
    g = GraphMaker()
    x = g.input("x", 1, 4, 6, 6)
    small, large = g.conv(x, g.weight(4, 4, 1, 1)), g.conv(x, g.weight(4, 4, 3, 3), pad=1)
    lowered = lower(g.graph(small, large))
    using = BOOK["conv/use-padded-kernel"]
    others = [one for one in BOOK.values() if one is not using]
    assert [term.op for term in sibling_seeds(lowered, [using]).terms][:2] == ["Pad", "Concat"]
    assert sibling_seeds(lowered, others).terms == ()
    assert sibling_seeds(lowered, []).terms == ()


def searched(windows: Lowered) -> Any:
    return saturate_windows(windows, list(BOOK.values()), Budget(nodes=3000)).eclasses


@pytest.mark.parametrize(("size", "found"), [("n", 0), (8, 1)])
def test_no_constant_of_open_size_is_planted(size: int | str, found: int) -> None:
    """A layer normalisation without a scale needs a row of ones as long as the axis."""
    g = GraphMaker()
    x = g.input("x", 2, 3, size)
    kept = {"axes": (2,), "keepdims": 1}
    centred = g("Sub", x, g("ReduceMean", x, **kept))
    variance = g("ReduceMean", g("Mul", centred, centred), **kept)
    epsilon = g.constant(np.asarray(1e-5, np.float32))
    lowered = lower(g.graph(g("Div", centred, g("Sqrt", g("Add", variance, epsilon)))))
    result = recognise(lowered, len(lowered.terms), searched)
    assert sum(term.op == "LayerNormalization" for term in result.terms) == found
    constants = [result.terms[i - len(lowered.terms)].type for i in result.constant]
    assert all(isinstance(t, StaticType) for t in constants)


# Folding ------------------------------------------------------------------------------------------


def lstm(**attrs: Any) -> tuple[list[onnx.NodeProto], dict[str, Array]]:
    lengths = {"lengths": np.asarray([1, 3], np.int32)} if attrs.pop("ragged", False) else {}
    operands = ["c", "w", "r", "", *lengths]
    node = helper.make_node("LSTM", operands, ["k"], hidden_size=5, **attrs)
    weights = {"c": 9 * random(3, 2, 4), "w": random(1, 20, 4), "r": random(1, 20, 5)}
    return [node], {**weights, **lengths}


def resize() -> tuple[list[onnx.NodeProto], dict[str, Array]]:
    mode = {"mode": "nearest", "coordinate_transformation_mode": "align_corners"}
    node = helper.make_node("Resize", ["c", "", "scales"], ["k"], **mode)
    return [node], {"c": random(1, 4, 4, 4), "scales": np.asarray([1, 1, 1.5, 0.7], np.float32)}


def unary(op: str, **attrs: Any) -> tuple[list[onnx.NodeProto], dict[str, Array]]:
    return [helper.make_node(op, ["c"], ["k"], **attrs)], {"c": random(2, 3, 4)}


@pytest.mark.parametrize(
    ("folded", "opset"),
    [
        (unary("Softmax"), 11),
        (unary("LogSoftmax", axis=0), 11),
        (unary("Hardmax", axis=1), 11),
        (unary("LpNormalization", p=1, axis=1), 11),
        (lstm(clip=0.1), 14),
        (lstm(activations=["Sigmoid", "Relu", "Tanh"]), 14),
        (lstm(ragged=True), 14),
        (resize(), 13),
    ],
    ids=lambda case: case[0][0].op_type if isinstance(case, tuple) else None,
)
def test_opaque_nodes_fold_to_what_runs(
    folded: tuple[list[onnx.NodeProto], dict[str, Array]], opset: int
) -> None:
    nodes, weights = folded
    model = model_of(
        [*nodes, helper.make_node("Mul", ["k", "x"], ["y"])], {"x": []}, weights, opset=opset
    )
    result = written(normalise(imported(model)))
    assert operators(result) == {"Mul"}
    feeds = {"x": np.asarray(1.0, np.float32)}
    np.testing.assert_array_equal(outputs_of(result, feeds), outputs_of(model, feeds))


def test_a_softmax_before_opset_13_is_over_all_axes_from_its_own() -> None:
    x = random(2, 3, 4)
    model = load_model(model_of([helper.make_node("Softmax", ["x"], ["y"])], {"x": x.shape}))
    weights = np.exp(x) / np.exp(x).sum(axis=(1, 2), keepdims=True)
    (result,) = evaluate_opaque(model.graph.node(0), [x], 11) or []
    np.testing.assert_allclose(result, weights, rtol=1e-5)


def test_what_is_random_inside_is_random() -> None:
    def chosen(op: str, **attrs: Any) -> onnx_ir.Node:
        branch = helper.make_graph(
            [helper.make_node(op, [], ["r"], **attrs)],
            "branch",
            [],
            [helper.make_tensor_value_info("r", FLOAT, [2])],
        )
        node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
        model = model_of([node], {}, {"c": np.asarray(True)})
        return load_model(model).graph.node(0)

    assert not is_deterministic(chosen("RandomNormal", shape=[2]))
    assert is_deterministic(chosen("Constant", value_floats=[1.0, 2.0]))


@pytest.mark.parametrize(("op", "bound"), [("Max", -np.inf), ("Min", np.inf)])
def test_an_extremum_over_nothing_is_left_to_the_runtime(op: str, bound: float) -> None:
    """It obeys no law: that of relu(x) over nothing is no relu of that of x."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node(f"Reduce{op}", ["a"], ["y"], axes=[1]),
    ]
    model = model_of(nodes, {"x": [2, 0]})
    assert [node.op for node in imported(model).nodes] == ["Relu", OPAQUE]
    result = run(
        model, Options(store="", measure=False, race=False, check=1, strict=True, threads=1)
    )
    (found,) = outputs_of(result.model, {"x": random(2, 0)})
    np.testing.assert_array_equal(found, np.full((2, 1), bound))


@pytest.mark.parametrize(("index", "folds"), [(-3, True), (2, True), (3, False), (-4, False)])
def test_an_index_that_points_nowhere_is_not_folded(index: int, folds: bool) -> None:
    g = GraphMaker()
    table, at = g.weight(3, 2), g.constant(np.asarray([index]))
    graph = normalise(g.graph(g("Gather", table, at, axis=0)))
    assert (not graph.nodes) == folds
    assert all(np.isfinite(c.load()).all() for c in graph.constants.values())


def test_a_mean_of_nothing_is_not_folded() -> None:
    g = GraphMaker()
    means = [g("ReduceMean", g.weight(2, n), axes=(1,), keepdims=1) for n in (0, 1)]
    (kept,) = normalise(g.graph(*means)).nodes
    assert kept.output == means[0]


# Writing ------------------------------------------------------------------------------------------


def reshaped(source: tuple[int, ...], shape: tuple[int, ...], opset: int) -> onnx.ModelProto:
    """A Reshape that a rule made, as no model before opset 14 could hold it."""
    graph = imported(model_of([helper.make_node("Neg", ["x"], ["y"])], {"x": source}, opset=opset))
    node = Node("Reshape", ("x",), ("y",), attributes(shape=shape), rules=("test",))
    return written(
        graph.with_nodes((node,), types={**graph.types, "y": TensorType("float32", shape)})
    )


@pytest.mark.parametrize("opset", [9, 13, 14, 21])
@pytest.mark.parametrize(
    ("source", "shape"),
    [((1, 0, 2), (0, 2, 1)), ((0, 3), (3, 0)), ((2, 0), (0, 3)), ((0, 4), (0, 5)),
     ((0,), (2, 0, 3)), ((0, 2, 0), (0, 4, 0)), ((2, 0), (5, 0, 7))],
)  # fmt: skip
def test_a_reshape_of_nothing(source: tuple[int, ...], shape: tuple[int, ...], opset: int) -> None:
    model = reshaped(source, shape, opset)
    (result,) = outputs_of(model, {"x": np.zeros(source, np.float32)})
    assert result.shape == shape


def test_a_reshape_to_several_empty_axes_needs_opset_14() -> None:
    (result,) = outputs_of(reshaped((3, 0), (0, 0), 14), {"x": np.zeros((3, 0), np.float32)})
    assert result.shape == (0, 0)
    with pytest.raises(ModelError, match="operator set 13"):
        reshaped((3, 0), (0, 0), 13)


def test_a_computed_shape_may_turn_out_empty() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "order"], ["t"]),
        helper.make_node("Reshape", ["x", "t"], ["y"], allowzero=1),
    ]
    model = model_of(nodes, {"x": ["n", "m", 2]}, {"order": np.asarray([1, 2, 0])}, opset=21)
    for shape in ((3, 0, 2), (0, 3, 2), (2, 3, 2)):
        feeds = {"x": np.ones(shape, np.float32)}
        (result,) = outputs_of(written(imported(model)), feeds)
        assert result.shape == (shape[1], shape[2], shape[0])


@pytest.mark.parametrize("op", ["GlobalMaxPool", "GlobalAveragePool"])
@pytest.mark.parametrize(
    ("shape", "pools"),
    [((1, 2, 3), True), ((1, 2, 2, 2, 2), True), ((1, 2, 2, 2, 2, 2), False),
     ((0, 2, 3, 3), True)],
)  # fmt: skip
def test_global_pools_of_more_axes_are_reductions(
    op: str, shape: tuple[int, ...], pools: bool
) -> None:
    g = GraphMaker()
    model = written(g.graph(g(op, g.input("x", *shape))))
    assert operators(model) == ({op} if pools else {GLOBAL_POOLS[op]})
    (result,) = outputs_of(model, {"x": np.ones(shape, np.float32)})
    assert result.shape == (*shape[:2], *(1 for _ in shape[2:]))


@pytest.mark.parametrize(("op", "opset"), [("LayerNormalization", 17), ("RMSNormalization", 23)])
def test_rows_of_nothing_are_normalised(op: str, opset: int) -> None:
    model = model_of([helper.make_node("Neg", ["x"], ["y"])], {"x": [2, 0], "g": [0]}, opset=opset)
    node = Node(op, ("x", "g"), ("y",), attributes(axis=1, epsilon=1e-5), rules=("test",))
    empty = {"x": np.zeros((2, 0), np.float32), "g": np.zeros(0, np.float32)}
    (result,) = outputs_of(written(imported(model).with_nodes((node,))), empty)
    assert result.shape == (2, 0)


def test_extrema_do_not_broadcast_before_opset_8() -> None:
    graph = imported(model_of([helper.make_node("Sum", ["x", "z"], ["y"])], {"x": [2, 3], "z": [3]},
                              opset=8))  # fmt: skip
    node = Node("Max", ("x", "z"), ("y",), rules=("test",))
    assert operators(written(graph.with_nodes((node,)))) == {"Max"}
    old = imported(model_of([helper.make_node("Add", ["x", "z"], ["y"])], {"x": [2, 3], "z": [3]},
                            opset=7))  # fmt: skip
    with pytest.raises(ModelError, match="operator set 7"):
        written(old.with_nodes((node,)))


# Rules --------------------------------------------------------------------------------------------


def is_matched(name: str, graph: Graph) -> bool:
    return bool(list(matches(graph, BOOK[name])))


@pytest.mark.parametrize(("shape", "matched"), [((2, 3), True), ((2, 0), False), ((0, 3), True)])
def test_a_mean_over_nothing_is_not_made(shape: tuple[int, int], matched: bool) -> None:
    g = GraphMaker()
    x = g.input("x", *shape)
    one = g.graph(g("ReduceSum", x, axes=(1,), keepdims=1))
    both = g.graph(g("ReduceSum", x, axes=(0, 1), keepdims=1))
    assert is_matched("affine/sum-over-axis", one) == matched
    assert is_matched("affine/sum-over-two-axes", both) == (0 not in shape)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_integers_that_overflow_have_no_such_laws(dtype: str) -> None:
    g = GraphMaker()
    x, y, z = (g.input(name, 2, dtype=dtype) for name in "xyz")
    positive, negative = g("Relu", x), g("Relu", g("Neg", x))
    law = {
        "elementwise/max-translated": g("Max", g("Add", x, z), g("Add", y, z)),
        "elementwise/min-translated": g("Min", g("Add", x, z), g("Add", y, z)),
        "elementwise/relu-sum": g("Add", positive, negative),
        "elementwise/relu-difference": g("Sub", positive, negative),
    }
    graph = g.graph(*law.values())
    assert {name for name in law if is_matched(name, graph)} == (
        set(law) if dtype == "float32" else set()
    )


@pytest.mark.parametrize(
    ("dtype", "zero", "to", "matched"),
    [
        ("float32", 0.0, "float32", True),
        ("float64", 0.0, "float64", True),
        ("float32", 1.0, "float32", False),
        ("float32", 0.0, "float64", False),
        ("int32", 0.0, "int32", False),
    ],
)
def test_a_mask_of_positive_floats_is_a_sign(
    dtype: str, zero: float, to: str, matched: bool
) -> None:
    for is_turned in (False, True):
        g = GraphMaker()
        x, border = g.input("x", 2, 3, dtype=dtype), g.constant(np.asarray(zero, dtype))
        compared = g("Greater", border, x) if is_turned else g("Greater", x, border)
        found = is_matched("elementwise/mask-as-sign", g.graph(g("Cast", compared, to=to)))
        assert found == (matched and not is_turned)


@pytest.mark.parametrize(("factor", "matched"), [(2.0, True), (1e22, False)])
def test_an_epsilon_stays_a_number(factor: float, matched: bool) -> None:
    g = GraphMaker()
    scaled = g("Mul", g.input("x", 2, 4), g.constant(np.asarray(factor, np.float32)))
    layer = g("LayerNormalization", scaled, g.weight(4), g.weight(4), axis=1, epsilon=1e-5)
    root = g("RMSNormalization", scaled, g.weight(4), axis=1, epsilon=1e-5)
    assert is_matched("layernorm/scaled", g.graph(layer)) == matched
    assert is_matched("layernorm/scaled-rms", g.graph(root)) == matched


# Types and values of operators --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "parameters"),
    [("LayerNormalization", ((4,),)), ("RMSNormalization", ((4,),)),
     ("BatchNormalization", ((3,),) * 4), ("InstanceNormalization", ((3,),) * 2)],
)  # fmt: skip
def test_a_normalisation_has_one_element_type(op: str, parameters: Any) -> None:
    x = TensorType("float16", (2, 3, 4))
    attrs = {"axis": 2, "epsilon": 1e-5}
    for dtype in ("float16", "float32"):
        types = [x, *(TensorType(dtype, shape) for shape in parameters)]
        if dtype == x.dtype:
            assert get_op(op).type_fn(types, attrs) == x
        else:
            with pytest.raises(IllTyped):
                get_op(op).type_fn(types, attrs)


def test_a_symbolic_group_is_ill_typed() -> None:
    types = [TensorType("float32", (1, 4, 8)), TensorType("float32", (4, 1, 3))]
    attrs = {"strides": (1,), "pads": (0, 0), "dilations": (1,), "group": sym("g")}
    assert isinstance(attrs["group"], SymDim)
    with pytest.raises(IllTyped):
        get_op("Conv").type_fn(types, attrs)


def test_no_heads_are_typed_or_refused() -> None:
    def shaped(*heads: int) -> TensorType:
        return get_op("Attention").type_fn(
            [TensorType("float32", (1, h, 2, 4)) for h in heads], {"scale": 1.0}
        )

    assert shaped(0, 0, 0).shape == (1, 0, 2, 4)
    with pytest.raises(IllTyped):
        shaped(2, 0, 0)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_what_has_no_elements_folds(op: str) -> None:
    g = GraphMaker()
    y = g(op, g.weight(2, 0), axis=1)
    assert normalise(g.graph(y)).constants[y].load().shape == (2, 0)


@pytest.mark.parametrize(
    ("pads", "bias", "fits"),
    [((1, 1), 2, True), ((1, 1), 1, False), ((3, 3), 2, False)],
)
def test_a_transposed_convolution_is_typed(pads: tuple[int, int], bias: int, fits: bool) -> None:
    types = [TensorType("float32", shape) for shape in ((1, 4, 4), (4, 2, 3), (bias,))]
    attrs = {"strides": (1,), "pads": pads, "dilations": (1,), "group": 1, "output_padding": (0,)}
    if fits:
        assert get_op("ConvTranspose").type_fn(types, attrs).shape == (1, 2, 4)
    else:
        with pytest.raises(IllTyped):
            get_op("ConvTranspose").type_fn(types, attrs)


@pytest.mark.parametrize("group", [1, 2])
def test_a_convolution_of_an_empty_batch(group: int) -> None:
    g = GraphMaker()
    x, w = g.constant(np.zeros((0, 4, 5, 5), np.float32)), g.weight(2, 4 // group, 3, 3)
    y = g.conv(x, w, group=group)
    assert normalise(g.graph(y)).constants[y].load().shape == (0, 2, 3, 3)


def test_equal_bytes_of_two_types_are_two_constants() -> None:
    g = GraphMaker()
    bits = np.zeros(2, np.float32)
    names = [g.constant(bits), g.constant(bits.view(np.int32)), g.constant(bits.reshape(1, 2))]
    constants = g.graph(*names).constants
    assert len({constants[name].digest for name in names}) == 3


# Whole searches -----------------------------------------------------------------------------------


def unscaled() -> onnx.ModelProto:
    steps = [("ReduceMean", ["x"], "m"), ("Sub", ["x", "m"], "d"), ("Mul", ["d", "d"], "s"),
             ("ReduceMean", ["s"], "v"), ("Add", ["v", "e"], "t"), ("Sqrt", ["t"], "r"),
             ("Div", ["d", "r"], "y")]  # fmt: skip
    kept: dict[str, Any] = {"ReduceMean": {"axes": [-1], "keepdims": 1}}
    nodes = [helper.make_node(op, i, [out], **kept.get(op, {})) for op, i, out in steps]
    return model_of(nodes, {"x": [2, 3, "n"]}, {"e": np.float32(1e-5)})


def biased() -> onnx.ModelProto:
    nodes: list[onnx.NodeProto] = []
    weights: dict[str, Any] = {}
    for i in range(2):
        weights |= {f"w{i}": i + random(4, 3), f"c{i}": random(*(2, 3, 3)[i:])}
        nodes += [
            helper.make_node("MatMul", ["x", f"w{i}"], [f"m{i}"]),
            helper.make_node("Add", [f"m{i}", f"c{i}"], [f"a{i}"]),
        ]
    nodes.append(helper.make_node("Mul", ["a0", "a1"], ["y"]))
    return model_of(nodes, {"x": [3, 4]}, weights)


def half_empty() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Concat", ["c", "x"], ["a"], axis=0),
        helper.make_node("ReduceMax", ["a"], ["y"], axes=[0]),
    ]
    return model_of(nodes, {"x": [3]}, {"c": np.zeros(0, np.float32)})


def projected() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Softmax", ["c"], ["s"], axis=0),
        helper.make_node("MatMul", ["x", "s"], ["y"]),
    ]
    return model_of(nodes, {"x": [2, 3]}, {"c": random(3, 4)}, opset=11)


@pytest.mark.parametrize("make", [unscaled, biased, half_empty, projected])
def test_odd_models_are_optimised(make: Any) -> None:
    model = make()
    result = run(
        model, Options(store="", measure=False, race=False, check=1, strict=True, threads=1)
    )
    shape = [d.dim_value or 5 for d in model.graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": random(*shape)}
    expected, actual = outputs_of(model, feeds), outputs_of(result.model, feeds)
    np.testing.assert_allclose(actual[0], expected[0], rtol=1e-4, atol=1e-5)


def with_a_branch(inner: Sequence[str]) -> onnx.ModelProto:
    """Two products of weights, a LogSoftmax and a branch whose values have these names.

    One is an initializer, one the number of a round, all others are computed.
    """
    constant, trip, going, *steps = inner
    body = helper.make_graph(
        [
            helper.make_node("Identity", [going], [f"{going}_still"]),
            helper.make_node("Identity", [trip], [f"{trip}_counted"]),
        ],
        "body",
        [
            helper.make_tensor_value_info(trip, TensorProto.INT64, []),
            helper.make_tensor_value_info(going, TensorProto.BOOL, []),
        ],
        [
            helper.make_tensor_value_info(f"{going}_still", TensorProto.BOOL, []),
            helper.make_tensor_value_info(f"{trip}_counted", TensorProto.INT64, []),
        ],
    )
    chain = [constant, *steps]
    branch = helper.make_graph(
        [
            *(helper.make_node("Neg", [a], [b]) for a, b in pairwise(chain)),
            helper.make_node("Loop", ["rounds", "on"], ["turns"], body=body),
        ],
        "branch",
        [],
        [helper.make_tensor_value_info(chain[-1], FLOAT, [4])],
        [numpy_helper.from_array(np.ones(4, np.float32), constant)],
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["v"], ["other"])],
        "other",
        [],
        [helper.make_tensor_value_info("other", FLOAT, [4])],
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("MatMul", ["a", "w"], ["b"]),
        helper.make_node("Mean", ["b", "x", "a"], ["c"]),
        helper.make_node("If", ["on"], ["d"], then_branch=branch, else_branch=other),
        helper.make_node("Add", ["c", "d"], ["y"]),
    ]
    weights = {"w": random(4, 4), "v": random(4), "rounds": np.int64(2)}
    model = model_of(nodes, {"x": [3, 4]}, weights)
    model.graph.input.append(helper.make_tensor_value_info("on", TensorProto.BOOL, []))
    return model


def test_new_values_have_no_name_of_a_graph_within() -> None:
    options = Options(store="", measure=False, race=False, check=0, threads=1)
    model = with_a_branch([f"inner_{i}" for i in range(4)])
    first = run(model, options).model
    tensors = (*first.graph.initializer, *model.graph.initializer)
    made = {name for node in first.graph.node for name in node.output}
    made |= {tensor.name for tensor in tensors}
    made -= {value.name for value in (*model.graph.initializer, *model.graph.output)}
    made -= {name for node in model.graph.node for name in node.output}
    assert len(made) >= 2
    for turn in range(3):  # each of them once as an initializer, and as an input
        names = [*sorted(made), "inner_0", "inner_1", "inner_2"]
        second = with_a_branch(names[turn:] + names[:turn])
        feeds = {"x": random(3, 4), "on": np.array(True)}
        found = run(second, options).model
        np.testing.assert_allclose(
            outputs_of(found, feeds)[0], outputs_of(second, feeds)[0], rtol=1e-4, atol=1e-5
        )
